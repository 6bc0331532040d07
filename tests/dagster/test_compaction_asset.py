"""Runs of the compaction asset: their commits, metadata and retries."""

from collections.abc import Callable
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.asset_runs import (
    Resources,
    materialize,
    materialize_range,
    metadata_by_partition,
)
from support.dagster.spark_resources import UnavailableSparkResource
from support.dagster.ticks import SensorTicks

from paimon_orch.dagster import (
    PaimonCatalogResource,
    SparkSessionResource,
    build_compaction_asset,
    build_latest_snapshot_sensor,
)
from paimon_orch.dagster.asset_runs import asset_work as assets
from paimon_orch.errors import CancelledError, CommitConflictError, CorruptFileError, PaimonError
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.compaction.compact import run_compaction
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)
IMMEDIATE_RETRIES = dg.RetryPolicy(max_retries=2)
Upsert = Callable[..., None]


@pytest.fixture
def compaction() -> dg.AssetsDefinition:
    return build_compaction_asset("lake.orders", partitions_def=PARTITIONS)


def test_a_compaction_of_a_partition_changes_no_other_partition(
    orders: Table, upsert: Upsert, compaction: dg.AssetsDefinition, resources: Resources
) -> None:
    upsert(orders, *DAYS[:2])

    assert materialize(compaction, resources, DAYS[0]).success

    assert [b.partition for b in inspect(orders).buckets if b.files[0].level == 0] == [
        f"dt={DAYS[1]}"
    ]
    latest = orders.stores.snapshots.latest()
    assert latest
    assert (latest.id, latest.commit_kind) == (2, CommitKind.COMPACT)


def test_hours_stored_as_numbers_are_requested_and_reported(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance, resources: Resources
) -> None:
    """The directory name is hh=5, the key is hh=05."""
    table = paimon.catalog().create_table(
        "lake.orders",
        "dt STRING, hh INT, id INT",
        primary_key=["dt", "hh", "id"],
        partition_by=["dt", "hh"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    hours = dg.HourlyPartitionsDefinition(
        "dt=2026-01-01/hh=00", end_date="dt=2026-01-02/hh=00", fmt="dt=%Y-%m-%d/hh=%H"
    )
    key = "dt=2026-01-01/hh=05"
    for _ in range(2):
        table.upsert(pa.table({"dt": ["2026-01-01"], "hh": [5], "id": [1]}))
    sensor = build_latest_snapshot_sensor("lake.orders", partitions_def=hours)

    assert SensorTicks(sensor, paimon, instance).requested_partitions() == [key]

    asset = build_compaction_asset("lake.orders", partitions_def=hours)
    assert (
        metadata_by_partition(materialize(asset, resources, key))[key]["paimon/files_before"] == 2
    )


def test_a_compaction_reports_its_plan_and_its_result(
    orders: Table, upsert: Upsert, compaction: dg.AssetsDefinition, resources: Resources
) -> None:
    upsert(orders, DAYS[0])
    upsert(orders, DAYS[0], amount=2)

    result = materialize(compaction, resources, DAYS[0])

    metadata = metadata_by_partition(result)[DAYS[0]]
    assert metadata["paimon/snapshot_id"] == "3"
    assert metadata["paimon/files_before"] == 2
    assert metadata["paimon/files_after"] == 1
    assert metadata["paimon/bytes_rewritten"] > 0
    assert metadata["paimon/commit_attempts"] == "1"
    assert metadata["paimon/planned_buckets"] == "1"
    assert metadata["dagster/partition_row_count"] == 3
    [record] = metadata["paimon/plan"].records
    assert record.data["files"] == 2


@pytest.mark.slow
def test_a_compaction_reports_its_cost_and_the_state_before_and_after_it(
    orders: Table, upsert: Upsert, compaction: dg.AssetsDefinition, resources: Resources
) -> None:
    upsert(orders, DAYS[0])
    materialize(compaction, resources, DAYS[0])
    upsert(orders, DAYS[0], amount=2)

    metadata = metadata_by_partition(materialize(compaction, resources, DAYS[0]))[DAYS[0]]

    by_metric = {r.data["figure"]: r.data for r in metadata["paimon/before_after"].records}
    assert by_metric["level0_files"] == {"figure": "level0_files", "before": 1, "after": 0}
    assert by_metric["deletion_vector_rows"] == {
        "figure": "deletion_vector_rows",
        "before": 0,
        "after": 3,
    }
    assert by_metric["files"]["before"] == metadata["paimon/files_before"] == 2
    assert metadata["paimon/read_amplification_before"] == 2
    assert metadata["paimon/rows_written"] == 0  # the level-0 file is moved up without a rewrite
    assert metadata["paimon/write_amplification"] == 0
    assert metadata["paimon/duration_seconds"] > 0


def test_only_numbers_that_differ_between_compactions_are_plotted(
    orders: Table, upsert: Upsert, compaction: dg.AssetsDefinition, resources: Resources
) -> None:
    upsert(orders, DAYS[0])

    metadata = metadata_by_partition(materialize(compaction, resources, DAYS[0]))[DAYS[0]]

    assert {key for key, value in metadata.items() if isinstance(value, int | float)} == {
        "dagster/partition_row_count",
        *(
            f"paimon/{name}"
            for name in (
                "bytes",
                "bytes_rewritten",
                "bytes_written",
                "duration_seconds",
                "files_after",
                "files_before",
                "read_amplification",
                "read_amplification_before",
                "rows_not_visible",
                "rows_written",
                "write_amplification",
            )
        ),
    }


@pytest.mark.slow
def test_a_materialization_begins_with_a_sentence_on_what_was_done(
    orders: Table,
    upsert: Upsert,
    compaction: dg.AssetsDefinition,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkSessionResource, "links", lambda _: {"application_id": "local-1"})
    upsert(orders, DAYS[0])

    for sentence in ("Compacted 1 file of 1 bucket into 1 file in ", "Nothing to compact."):
        metadata = metadata_by_partition(materialize(compaction, resources, DAYS[0]))[DAYS[0]]
        assert next(iter(metadata)) == "paimon/summary"
        assert str(metadata["paimon/summary"]).startswith(sentence)
        assert metadata["paimon/spark_application_id"] == "local-1"
    # the columns are on the asset of the table
    assert "dagster/column_schema" not in metadata


def test_a_partition_of_two_dimensions_is_compacted(
    paimon: PaimonCatalogResource, resources: Resources
) -> None:
    table = paimon.catalog().create_table(
        "lake.sales",
        "dt DATE, region STRING, id BIGINT",
        primary_key=["dt", "region", "id"],
        partition_by=["dt", "region"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    day = date(2026, 1, 1)
    table.upsert(pa.table({"dt": [day, day], "region": ["eu", "us"], "id": [1, 2]}))
    definition = dg.MultiPartitionsDefinition(
        {
            "region": dg.StaticPartitionsDefinition(["eu", "us"]),
            "dt": dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03"),
        }
    )
    asset = build_compaction_asset("lake.sales", partitions_def=definition)

    metadata = metadata_by_partition(materialize(asset, resources, "2026-01-01|us"))[
        "2026-01-01|us"
    ]

    assert metadata["dagster/partition_row_count"] == 1
    assert [b.partition for b in inspect(table).buckets if b.files[0].level == 0] == [
        "dt=20454/region=eu"
    ]


def run_after(monkeypatch: pytest.MonkeyPatch, commit: Callable[[], None]) -> None:
    """Make assets call ``commit`` between their plan and its execution."""

    def commit_and_run(*arguments: Any, **options: Any) -> Any:
        commit()
        return run_compaction(*arguments, **options)

    monkeypatch.setattr(assets, "run_compaction", commit_and_run)


def test_the_plan_that_was_logged_is_executed_after_another_commit(
    orders: Table,
    upsert: Upsert,
    compaction: dg.AssetsDefinition,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    upsert(orders, DAYS[0])
    upsert(orders, DAYS[0], amount=2)
    run_after(monkeypatch, lambda: upsert(orders, DAYS[0], amount=3))

    metadata = metadata_by_partition(materialize(compaction, resources, DAYS[0]))[DAYS[0]]

    assert "plan to compact 2 files of 1 buckets" in capfd.readouterr().err
    [record] = metadata["paimon/plan"].records
    assert record.data["files"] == 2
    assert metadata["paimon/commit_attempts"] == "1"
    assert inspect(orders).level0_files == 1


def test_a_compaction_that_lost_a_race_makes_a_new_plan(
    orders: Table,
    upsert: Upsert,
    compact_all: Callable[[Table], None],
    compaction: dg.AssetsDefinition,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upsert(orders, DAYS[0])
    upsert(orders, DAYS[0], amount=2)
    run_after(monkeypatch, lambda: compact_all(orders))

    metadata = metadata_by_partition(materialize(compaction, resources, DAYS[0]))[DAYS[0]]

    assert metadata["paimon/commit_attempts"] == "2"
    assert metadata["paimon/planned_buckets"] == "0"
    assert orders.stores.snapshots.latest_id() == 3


@pytest.mark.slow
def test_a_second_compaction_commits_nothing_and_reports_this(
    orders: Table, upsert: Upsert, compaction: dg.AssetsDefinition, resources: Resources
) -> None:
    upsert(orders, DAYS[0])
    materialize(compaction, resources, DAYS[0])

    metadata = metadata_by_partition(materialize(compaction, resources, DAYS[0]))[DAYS[0]]

    assert orders.stores.snapshots.latest_id() == 2
    assert metadata["paimon/files_before"] == metadata["paimon/files_after"] == 1
    assert metadata["paimon/planned_buckets"] == "0"
    assert metadata["paimon/skipped_buckets"] == "1"
    assert "paimon/plan" not in metadata


def test_a_range_of_partitions_has_one_commit_and_metadata_for_each_partition(
    orders: Table,
    upsert: Upsert,
    compaction: dg.AssetsDefinition,
    resources: Resources,
    instance: dg.DagsterInstance,
) -> None:
    upsert(orders, *DAYS)
    upsert(orders, DAYS[1])

    metadata_of = metadata_by_partition(
        materialize_range(compaction, resources, first=DAYS[0], last=DAYS[2], instance=instance)
    )

    assert orders.stores.snapshots.latest_id() == 3
    assert {key: metadata["paimon/files_before"] for key, metadata in metadata_of.items()} == {
        DAYS[0]: 1,
        DAYS[1]: 2,
        DAYS[2]: 1,
    }
    assert {len(metadata["paimon/plan"].records) for metadata in metadata_of.values()} == {1}
    # the time of the commit is not that of a partition
    assert "paimon/duration_seconds" not in metadata_of[DAYS[0]]


@pytest.mark.slow
def test_a_long_range_of_partitions_is_committed_in_groups(
    orders: Table, upsert: Upsert, resources: Resources, instance: dg.DagsterInstance
) -> None:
    asset = build_compaction_asset(
        "lake.orders", partitions_def=PARTITIONS, max_partitions_per_run=3
    )
    upsert(orders, *DAYS)

    assert materialize_range(
        asset, resources, first=DAYS[0], last=DAYS[-1], instance=instance
    ).success
    assert orders.stores.snapshots.latest_id() == 3
    assert inspect(orders).level0_files == 0


def test_a_full_compaction_can_be_configured_in_the_launchpad(
    orders: Table, upsert: Upsert, compaction: dg.AssetsDefinition, resources: Resources
) -> None:
    upsert(orders, DAYS[0])
    materialize(compaction, resources, DAYS[0])
    upsert(orders, DAYS[0], amount=2)
    materialize(compaction, resources, DAYS[0])
    config = {"ops": {compaction.op.name: {"config": {"strategy": "full"}}}}

    result = materialize(compaction, resources, DAYS[0], run_config=config)

    metadata = metadata_by_partition(result)[DAYS[0]]
    assert metadata["paimon/deletion_vector_rows"] == 0
    assert metadata["dagster/partition_row_count"] == 3


def test_an_unpartitioned_compaction_compacts_the_whole_table(
    orders: Table, upsert: Upsert, resources: Resources
) -> None:
    asset = build_compaction_asset("lake.orders")
    upsert(orders, *DAYS)

    metadata = metadata_by_partition(materialize(asset, resources))[None]

    assert metadata["dagster/row_count"] == 12
    assert metadata["paimon/files_after"] == 4
    assert inspect(orders).level0_files == 0


def test_small_files_of_an_append_table_are_merged(
    paimon: PaimonCatalogResource, resources: Resources
) -> None:
    table = paimon.catalog().create_table(
        "lake.events", "dt STRING, id BIGINT", partition_by=["dt"]
    )
    for number in range(3):
        table.append(pa.table({"dt": DAYS[:2], "id": [number, number]}))
    asset = build_compaction_asset("lake.events", partitions_def=PARTITIONS)
    config = {"ops": {asset.op.name: {"config": {"strategy": "full"}}}}

    metadata = metadata_by_partition(materialize(asset, resources, DAYS[0], run_config=config))[
        DAYS[0]
    ]

    assert metadata["paimon/files_before"] == 3
    assert metadata["paimon/files_after"] == 1
    assert metadata["dagster/partition_row_count"] == 3
    [record] = metadata["paimon/plan"].records
    assert record.data["files"] == 3


def test_a_compaction_without_work_does_not_start_spark(
    orders: Table, compaction: dg.AssetsDefinition, paimon: PaimonCatalogResource
) -> None:
    assert materialize(
        compaction, {"paimon": paimon, "spark": UnavailableSparkResource()}, DAYS[0]
    ).success


def replace_compact(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> list[int]:
    """Make compactions raise an error; the list has one element for each of them."""
    calls = list[int]()

    def fail(*_: object, **__: object) -> None:
        calls.append(1)
        raise error

    monkeypatch.setattr(assets, "run_compaction", fail)
    return calls


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (CommitConflictError("another commit was faster"), 3),
        (TimeoutError("the disk does not answer"), 3),
        (CorruptFileError("snapshot-1", "is damaged"), 1),
        (PaimonError("Spark died"), 1),
        (ZeroDivisionError("a bug"), 1),
    ],
)
def test_only_transient_errors_are_retried(
    orders: Table,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    attempts: int,
) -> None:
    calls = replace_compact(monkeypatch, error)
    asset = build_compaction_asset("lake.orders", retry_policy=IMMEDIATE_RETRIES)

    result = materialize(asset, resources, raise_on_error=False)

    assert not result.success
    assert len(calls) == attempts
    failure = result.failure_data_for_node(asset.op.name)
    assert failure
    assert str(error) in str(failure.error)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt(), dg.DagsterExecutionInterruptedError(), CancelledError("stopped")]
)
def test_a_terminated_run_is_not_retried(
    orders: Table,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
    stop: BaseException,
) -> None:
    calls = replace_compact(monkeypatch, stop)
    asset = build_compaction_asset("lake.orders", retry_policy=IMMEDIATE_RETRIES)

    with pytest.raises((KeyboardInterrupt, dg.DagsterExecutionInterruptedError)):
        materialize(asset, resources)

    assert len(calls) == 1


def test_a_compaction_of_a_missing_table_fails_without_a_retry(
    compaction: dg.AssetsDefinition, resources: Resources
) -> None:
    result = materialize(compaction, resources, DAYS[0], raise_on_error=False)

    failure = result.failure_data_for_node(compaction.op.name)
    assert failure
    assert failure.error
    assert "there is no table lake.orders" in failure.error.message


def test_the_compaction_asset_is_downstream_of_its_table() -> None:
    asset = build_compaction_asset("lake.orders", partitions_def=PARTITIONS, key_prefix=["prod"])

    assert asset.key == dg.AssetKey(["prod", "lake", "orders", "orders_compaction"])
    assert asset.asset_deps[asset.key] == {dg.AssetKey(["prod", "lake", "orders"])}
    assert asset.op.pool == "paimon/prod/lake.orders"
    assert asset.backfill_policy
    assert asset.backfill_policy.max_partitions_per_run == 8
    spec = asset.get_asset_spec(asset.key)
    assert spec.kinds == {"paimon", "spark"}
    assert spec.group_name == "lake"
    assert spec.metadata["dagster/table_name"] == "lake.orders"
