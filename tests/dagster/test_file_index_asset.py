from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from support.dagster.asset_runs import Resources, metadata_by_partition
from support.dagster.spark_resources import UnavailableSparkResource

from paimon_orch.dagster import PaimonCatalogResource, build_file_index_asset
from paimon_orch.dagster.asset_runs import asset_work as assets
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.inspection.health import compute_health
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)
Upsert = Callable[..., None]


@pytest.fixture
def orders(orders: Table, upsert: Upsert, paimon: PaimonCatalogResource) -> Table:
    """A table with files from before the option for file indexes was set."""
    upsert(orders, *DAYS)
    changes = [SetOption("file-index.bloom-filter.columns", "amount")]
    paimon.catalog().alter_table("lake.orders", changes)
    return paimon.load_table("lake.orders")


def test_only_files_of_the_partition_of_the_run_are_indexed(
    orders: Table, resources: Resources
) -> None:
    asset = build_file_index_asset("lake.orders", partitions_def=PARTITIONS)

    metadata = metadata_by_partition(
        dg.materialize([asset], resources=resources, partition_key=DAYS[1])
    )

    assert compute_health(orders).index_coverage == pytest.approx(1 / 3)
    assert metadata[DAYS[1]]["paimon/indexed_files"] == 1
    assert metadata[DAYS[1]]["paimon/index_files"] == 1
    assert metadata[DAYS[1]]["paimon/summary"].startswith("Added file indexes to 1 file in ")
    assert metadata[DAYS[1]]["paimon/snapshot_id"] == "2"
    assert orders.stores.snapshots.latest_id() == 2
    [record] = metadata[DAYS[1]]["paimon/plan"].records
    assert record.data["partition"] == f"dt={DAYS[1]}"


def test_a_second_run_commits_nothing_and_does_not_start_spark(
    orders: Table, resources: Resources, paimon: PaimonCatalogResource
) -> None:
    asset = build_file_index_asset("lake.orders")
    dg.materialize([asset], resources=resources)

    second_run = dg.materialize(
        [asset], resources={"paimon": paimon, "spark": UnavailableSparkResource()}
    )

    [metadata] = metadata_by_partition(second_run).values()
    assert orders.stores.snapshots.latest_id() == 2
    assert metadata["paimon/indexed_files"] == 0
    assert metadata["paimon/summary"] == "All files have the indexes of the table's options."
    assert metadata["paimon/skipped_files"] == 3
    assert "paimon/plan" not in metadata


def test_a_rewrite_that_lost_a_race_reports_the_plan_that_was_executed(
    orders: Table,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def drop_and_run(*arguments: Any, **options: Any) -> Any:
        if orders.stores.snapshots.latest_id() == 1:
            orders.drop_partitions([f"dt={DAYS[0]}"])
        return run_step(*arguments, **options)

    monkeypatch.setattr(assets, "run_step", drop_and_run)
    result = dg.materialize([build_file_index_asset("lake.orders")], resources=resources)

    [metadata] = metadata_by_partition(result).values()
    assert "plan to rewrite the indexes of 3 files of snapshot 1" in capfd.readouterr().err
    assert metadata["paimon/indexed_files"] == 2
    partitions = [record.data["partition"] for record in metadata["paimon/plan"].records]
    assert partitions == [f"dt={day}" for day in DAYS[1:]]
    assert compute_health(orders).index_coverage == 1


def test_a_range_of_partitions_is_committed_in_groups_and_reported_by_partition(
    orders: Table, resources: Resources, instance: dg.DagsterInstance
) -> None:
    asset = build_file_index_asset(
        "lake.orders", partitions_def=PARTITIONS, max_partitions_per_run=2
    )
    tags = {
        "dagster/asset_partition_range_start": DAYS[0],
        "dagster/asset_partition_range_end": DAYS[2],
    }

    result = dg.materialize([asset], resources=resources, tags=tags, instance=instance)

    metadata = metadata_by_partition(result)
    assert {key: data["paimon/indexed_files"] for key, data in metadata.items()} == dict.fromkeys(
        DAYS, 1
    )
    assert "paimon/index_files" not in metadata[DAYS[0]]
    assert orders.stores.snapshots.latest_id() == 3


def test_the_file_index_asset_has_the_pool_and_the_dependency_of_the_compaction() -> None:
    asset = build_file_index_asset("lake.orders", partitions_def=PARTITIONS, key_prefix=["prod"])

    assert asset.key == dg.AssetKey(["prod", "lake", "orders", "orders_file_index"])
    assert asset.asset_deps[asset.key] == {
        dg.AssetKey(["prod", "lake", "orders", "orders_compaction"])
    }
    assert asset.op.pool == "paimon/prod/lake.orders"
    assert asset.backfill_policy
    assert asset.backfill_policy.max_partitions_per_run == 8
