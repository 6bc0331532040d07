"""Runs report which snapshot Iceberg readers see; a check and a job find and repair stale ones."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.spark_resources import NoSessionSparkResource

from paimon_orch.dagster import (
    Limit,
    PaimonCatalogResource,
    PaimonIOManager,
    build_compaction_asset,
    build_file_index_asset,
    build_paimon_table_checks,
    build_sync_iceberg_job,
    build_table_asset,
)
from paimon_orch.steps.ingest import IngestResult
from paimon_orch.table.table import Table

Upsert = Callable[..., None]
Resources = Mapping[str, object]
DAY = "2026-01-01"
KEY = dg.AssetKey(["lake", "orders"])
CHECK = "iceberg_metadata"
PUBLISHED = "paimon/iceberg_snapshot_id"
# Dagster raises this warning for a resource that contains another resource.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


@pytest.fixture
def published(paimon: PaimonCatalogResource, upsert: Upsert) -> Table:
    """A table with one snapshot, which is published as Iceberg metadata."""
    table = paimon.catalog().create_table(
        "lake.orders",
        "dt STRING, id BIGINT, amount INT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "metadata.iceberg.storage": "table-location"},
    )
    upsert(table, DAY)
    return table


def metadata_dir(table: Table) -> Path:
    return Path(table.paths.root) / "metadata"


def block_publication(table: Table) -> Path:
    """Put a file at the place of the metadata directory; return where the directory is now."""
    saved = metadata_dir(table).rename(metadata_dir(table).with_name("saved"))
    metadata_dir(table).write_text("not a directory")
    return saved


def unblock_publication(table: Table, saved: Path) -> None:
    metadata_dir(table).unlink()
    saved.rename(metadata_dir(table))


def evaluate(
    paimon: PaimonCatalogResource, limits: Mapping[str, Limit] | None = None
) -> dg.AssetCheckEvaluation:
    checks = build_paimon_table_checks("lake.orders", limits=limits)
    result = dg.materialize(
        [dg.AssetSpec(KEY), checks],
        resources={"paimon": paimon},
        selection=dg.AssetSelection.checks(dg.AssetCheckKey(KEY, CHECK)),
    )
    [evaluation] = result.get_asset_check_evaluations()
    return evaluation


def values_of(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, Any]:
    return {key: value.value for key, value in metadata.items()}


def run_job(
    resources: Resources, raise_on_error: bool = True, **config: object
) -> dg.ExecuteInProcessResult:
    job = build_sync_iceberg_job("lake.orders")
    return job.execute_in_process(
        {"ops": {"sync_iceberg": {"config": config}}},
        resources=dict(resources),
        raise_on_error=raise_on_error,
    )


def read_observation(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [observation] = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION
    ]
    assert observation.asset_key == KEY
    return values_of(observation.metadata)


def materialize(asset: dg.AssetsDefinition, resources: Resources) -> dict[str, Any]:
    result = dg.materialize([asset], resources=dict(resources))
    [event] = result.get_asset_materialization_events()
    return values_of(event.materialization.metadata)


def test_the_check_passes_if_iceberg_readers_see_the_newest_snapshot(
    published: Table, paimon: PaimonCatalogResource
) -> None:
    evaluation = evaluate(paimon)

    assert evaluation.passed
    assert values_of(evaluation.metadata) == {
        "paimon/value": 0,
        "paimon/limit": "0",
        "paimon/snapshot_id": "1",
        PUBLISHED: "1",
        "paimon/iceberg_metadata": str(metadata_dir(published) / "v1.metadata.json"),
    }


@pytest.mark.slow
def test_a_check_is_red_after_a_failed_publication_and_green_after_the_job(
    published: Table,
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Dagster waits half a minute and longer before it retries a step.
    monkeypatch.setattr(dg.RetryPolicy, "calculate_delay", lambda *_: 0.0)
    saved = block_publication(published)
    upsert(published, DAY, amount=2)
    blocked = evaluate(paimon)
    failed = run_job(resources, raise_on_error=False)
    unblock_publication(published, saved)
    stale = evaluate(paimon)
    dry_run = read_observation(run_job(resources, dry_run=True))
    still_stale = evaluate(paimon)
    synchronized = read_observation(run_job(resources))
    repaired = evaluate(paimon)

    assert not blocked.passed
    assert "has no Iceberg metadata" in (blocked.description or "")
    assert not failed.success
    assert (stale.passed, still_stale.passed, repaired.passed) == (False, False, True)
    assert stale.severity is dg.AssetCheckSeverity.ERROR
    assert stale.description == (
        "Iceberg readers see snapshot 1, and LATEST is 2. To fix this, run sync_iceberg."
    )
    assert values_of(stale.metadata)["paimon/value"] == 1
    assert values_of(stale.metadata)[PUBLISHED] == "1"
    assert dry_run["paimon/sync_iceberg_planned_missing_snapshots"] == 1
    [record] = dry_run["paimon/plan"].records
    assert record.data["problem"] == "Iceberg readers see snapshot 1, and LATEST is 2"
    assert synchronized["paimon/dry_run"] is False
    assert synchronized["paimon/sync_iceberg_published_snapshots"] == 1
    assert synchronized["paimon/sync_iceberg_iceberg_snapshot_id"] == "2"
    assert values_of(repaired.metadata)[PUBLISHED] == "2"


def test_a_limit_tolerates_missing_snapshots_but_no_damage(
    published: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    limits = {CHECK: Limit(limit=1)}
    saved = block_publication(published)
    upsert(published, DAY, amount=2)
    unblock_publication(published, saved)
    one_missing = evaluate(paimon, limits)
    (metadata_dir(published) / "v1.metadata.json").write_text("{")
    damaged = evaluate(paimon, limits)

    assert one_missing.passed
    assert values_of(one_missing.metadata)["paimon/value"] == 1
    assert not damaged.passed
    assert "paimon/value" not in damaged.metadata


def test_the_check_passes_and_the_job_is_refused_without_iceberg_metadata(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource, resources: Resources
) -> None:
    upsert(orders, DAY)

    evaluation = evaluate(paimon)
    result = run_job(resources, raise_on_error=False)

    assert evaluation.passed
    assert "publishes no Iceberg metadata" in (evaluation.description or "")
    [failure] = result.get_step_failure_events()
    assert "lake.orders has no Iceberg metadata" in (failure.step_failure_data.error_display_string)
    assert not metadata_dir(orders).exists()


def test_a_job_without_anything_to_publish_reports_zero(
    published: Table, resources: Resources
) -> None:
    before = {path: path.stat().st_mtime_ns for path in metadata_dir(published).iterdir()}

    metadata = read_observation(run_job(resources))

    assert metadata["paimon/sync_iceberg_published_snapshots"] == 0
    assert metadata["paimon/plan"].records == []
    assert {path: path.stat().st_mtime_ns for path in metadata_dir(published).iterdir()} == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("build", "latest_id"), [(build_compaction_asset, 7), (build_file_index_asset, 6)]
)
def test_maintenance_assets_report_the_snapshot_that_iceberg_readers_see(
    published: Table,
    upsert: Upsert,
    resources: Resources,
    build: Callable[..., dg.AssetsDefinition],
    latest_id: int,
) -> None:
    for amount in range(2, 7):
        upsert(published, DAY, amount=amount)

    metadata = materialize(build("lake.orders"), resources)

    assert (metadata["paimon/snapshot_id"], metadata[PUBLISHED]) == (str(latest_id),) * 2


@pytest.mark.slow
def test_a_run_warns_of_stale_metadata_and_succeeds(
    published: Table,
    upsert: Upsert,
    resources: Resources,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for amount in range(2, 7):
        upsert(published, DAY, amount=amount)
    block_publication(published)

    metadata = materialize(build_compaction_asset("lake.orders"), resources)

    assert metadata["paimon/snapshot_id"] == "7"
    assert PUBLISHED not in metadata
    assert "lake.orders: the Iceberg metadata is stale: " in capfd.readouterr().err


def test_tables_without_iceberg_metadata_report_no_snapshot(
    orders: Table, upsert: Upsert, resources: Resources
) -> None:
    upsert(orders, DAY)

    assert PUBLISHED not in materialize(build_compaction_asset("lake.orders"), resources)


def test_the_io_manager_reports_the_snapshot(
    published: Table, paimon: PaimonCatalogResource
) -> None:
    @dg.asset(key=KEY, metadata={"write_mode": "upsert"})
    def rows() -> pa.Table:
        return pa.Table.from_pylist([{"dt": DAY, "id": 9, "amount": 9}])

    metadata = materialize(rows, {"io_manager": PaimonIOManager(paimon=paimon)})

    assert (metadata["paimon/snapshot_id"], metadata[PUBLISHED]) == ("2", "2")


def test_a_load_reports_the_snapshot(
    published: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    def load(*_: object) -> list[IngestResult]:
        upsert(published, DAY, amount=7)
        snapshot_id = published.stores.snapshots.latest_id()
        return [IngestResult(snapshot_id=snapshot_id, rows=3, files=1, bytes=1)]

    metadata = materialize(
        build_table_asset("lake.orders", load),
        {"paimon": paimon, "spark": NoSessionSparkResource()},
    )

    assert (metadata["paimon/snapshot_id"], metadata[PUBLISHED]) == ("2", "2")
