"""Runs of the asset of a table that Dagster loads, and the metadata that they report."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.asset_runs import materialize, materialize_range, metadata_by_partition
from support.dagster.spark_resources import NoSessionSparkResource

from paimon_orch import Catalog
from paimon_orch.dagster import PaimonCatalogResource, build_table_asset
from paimon_orch.steps.ingest import IngestResult

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)


def load(
    catalog: Catalog, _session: object, keys: Sequence[str], **options: str
) -> Iterator[IngestResult]:
    table = catalog.create_table(
        "lake.orders",
        "dt STRING, id BIGINT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1"} | options,
        if_not_exists=True,
    )
    for key in keys:
        snapshot = table.upsert(pa.table({"dt": [key, key], "id": [1, 2]}))
        assert snapshot
        yield IngestResult(
            snapshot_id=snapshot.id, rows=2, files=1, bytes=100, duration_seconds=0.5
        )


def test_the_table_asset_reports_the_loaded_rows_and_the_data_version(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    resources = {"paimon": paimon, "spark": NoSessionSparkResource()}
    asset = build_table_asset("lake.orders", load, partitions_def=PARTITIONS)

    result = materialize_range(asset, resources, first=DAYS[0], last=DAYS[1], instance=instance)

    metadata_of = metadata_by_partition(result)
    assert set(metadata_of) == set(DAYS[:2])
    metadata = metadata_of[DAYS[1]]
    assert metadata["paimon/snapshot_id"] == "2"
    assert next(iter(metadata)) == "paimon/summary"
    assert metadata["paimon/summary"] == "Loaded 4 rows of 2 partitions in 2 snapshots and 1.0 s."
    assert metadata["paimon/level0_files"] == 1
    assert metadata["dagster/uri"].endswith("lake.db/orders")
    assert [column.name for column in metadata["dagster/column_schema"].columns] == ["dt", "id"]
    [event] = [e for e in result.get_asset_materialization_events() if e.partition == DAYS[1]]
    assert event.materialization.tags is not None
    assert event.materialization.tags["dagster/data_version"] == "2"


def test_the_table_asset_has_the_freshness_policy_and_the_column_lineage(
    paimon: PaimonCatalogResource,
) -> None:
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24))
    lineage = dg.TableColumnLineage({"id": [dg.TableColumnDep(dg.AssetKey("source"), "number")]})
    asset = build_table_asset(
        "lake.orders",
        load,
        partitions_def=PARTITIONS,
        freshness_policy=policy,
        column_lineage=lineage,
    )

    metadata = metadata_by_partition(
        materialize(asset, {"paimon": paimon, "spark": NoSessionSparkResource()}, DAYS[0])
    )

    assert asset.get_asset_spec(asset.key).freshness_policy == policy
    assert metadata[DAYS[0]]["dagster/column_lineage"] == lineage
    assert metadata[DAYS[0]]["paimon/read_amplification"] == 1


def test_totals_of_several_partitions_are_not_reported_for_each_partition(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    resources = {"paimon": paimon, "spark": NoSessionSparkResource()}
    asset = build_table_asset("lake.orders", load, partitions_def=PARTITIONS)

    several = metadata_by_partition(
        materialize_range(asset, resources, first=DAYS[0], last=DAYS[1], instance=instance)
    )
    single = metadata_by_partition(materialize(asset, resources, DAYS[2]))

    assert "paimon/rows_written" not in several[DAYS[0]]
    assert single[DAYS[2]]["paimon/rows_written"] == 2


def test_an_unpartitioned_table_asset_reports_the_state_of_the_table(
    paimon: PaimonCatalogResource,
) -> None:
    def load_all(catalog: Catalog, session: object, keys: Sequence[str]) -> Iterator[IngestResult]:
        assert list(keys) == []
        return load(catalog, session, DAYS[:2])

    asset = build_table_asset("lake.orders", load_all)

    [metadata] = metadata_by_partition(
        materialize(asset, {"paimon": paimon, "spark": NoSessionSparkResource()})
    ).values()

    assert metadata["paimon/rows_written"] == 4
    assert metadata["paimon/level0_files"] == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("partitions_def", [PARTITIONS, None])
def test_a_load_without_rows_keeps_the_data_version(
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
    partitions_def: dg.StaticPartitionsDefinition | None,
) -> None:
    rows = [True, False]

    def load_once(catalog: Catalog, session: object, _: Sequence[str]) -> Iterator[IngestResult]:
        return load(catalog, session, DAYS[:1] if rows.pop(0) else [])

    asset = build_table_asset("lake.orders", load_once, partitions_def=partitions_def)
    resources = {"paimon": paimon, "spark": NoSessionSparkResource()}
    versions = []
    for _ in range(2):
        result = dg.materialize(
            [asset],
            resources=resources,
            instance=instance,
            partition_key=DAYS[0] if partitions_def else None,
        )
        [event] = result.get_asset_materialization_events()
        versions.append((event.materialization.tags or {})["dagster/data_version"])

    assert versions == ["1", "1"]


@pytest.mark.slow
def test_a_load_of_several_partitions_without_rows_keeps_the_newest_data_version(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    is_empty = False

    def load_once(catalog: Catalog, session: object, keys: Sequence[str]) -> Iterator[IngestResult]:
        return load(catalog, session, [] if is_empty else keys)

    asset = build_table_asset("lake.orders", load_once, partitions_def=PARTITIONS)
    resources = {"paimon": paimon, "spark": NoSessionSparkResource()}
    for day in (DAYS[1], DAYS[0], DAYS[2]):
        materialize(asset, resources, day, instance=instance)
    is_empty = True

    result = materialize_range(asset, resources, DAYS[0], DAYS[1], instance)

    events = result.get_asset_materialization_events()
    versions = {(event.materialization.tags or {})["dagster/data_version"] for event in events}
    assert versions == {"2"}, "the last load of these partitions committed snapshot 2"


def test_a_load_without_rows_after_a_reported_event_has_no_snapshot_as_its_data_version(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    asset = build_table_asset("lake.orders", lambda catalog, session, _: load(catalog, session, []))
    instance.report_runless_asset_event(dg.AssetMaterialization(asset.key))

    result = materialize(
        asset, {"paimon": paimon, "spark": NoSessionSparkResource()}, instance=instance
    )

    [event] = result.get_asset_materialization_events()
    assert not (event.materialization.tags or {})["dagster/data_version"].isdecimal()


@pytest.mark.parametrize("has_vectors", [True, False])
def test_a_load_warns_about_rows_that_readers_do_not_see(
    paimon: PaimonCatalogResource, has_vectors: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"deletion-vectors.enabled": str(has_vectors).lower()}

    def load_day(catalog: Catalog, session: object, _: Sequence[str]) -> Iterator[IngestResult]:
        return load(catalog, session, DAYS[:1], **options)

    asset = build_table_asset("lake.orders", load_day, key_prefix=["warehouse"])
    [metadata] = metadata_by_partition(
        materialize(asset, {"paimon": paimon, "spark": NoSessionSparkResource()})
    ).values()

    warning = (
        "lake.orders: batch readers do not see 2 records before a compaction; materialize "
        "warehouse/lake/orders/orders_compaction"
    )
    assert (warning in capfd.readouterr().err) is has_vectors
    assert metadata.get("paimon/rows_not_visible", 0) == (2 if has_vectors else 0)
