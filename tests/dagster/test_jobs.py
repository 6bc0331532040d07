import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from support.dagster.spark_resources import UnavailableSparkResource, build_recorded_resource

from paimon_orch.dagster import (
    PaimonCatalogResource,
    SparkSessionResource,
    build_compact_manifests_job,
    build_expire_partitions_job,
    build_expire_snapshots_job,
    build_mark_done_job,
    build_remove_orphan_files_job,
    build_step_job,
    build_sync_iceberg_job,
    build_sync_partitions_job,
    jobs,
)
from paimon_orch.dagster.declared_ops import build_declared_op, find_op
from paimon_orch.dagster.jobs import JobScope, build_maintenance_job
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.errors import InputError
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.step_declaration import StepTarget
from paimon_orch.steps.common.step_registry import find_steps, load_declaration
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

Upsert = Callable[..., None]
CompactAll = Callable[[Table], None]
DAY = "2026-01-01"
BUILDERS = [
    build_compact_manifests_job,
    build_expire_partitions_job,
    build_expire_snapshots_job,
    build_mark_done_job,
    build_remove_orphan_files_job,
    build_sync_iceberg_job,
    build_sync_partitions_job,
]


@pytest.fixture
def resources(paimon: PaimonCatalogResource) -> Mapping[str, object]:
    return {"paimon": paimon, "spark": UnavailableSparkResource()}


@pytest.fixture
def snapshots(orders: Table, upsert: Upsert, compact_all: CompactAll) -> Table:
    """A table of twelve snapshots; the last one references none of the first files."""
    for amount in range(11):
        upsert(orders, DAY, amount=amount)
    compact_all(orders)
    return orders


@pytest.fixture
def orphan(orders: Table, upsert: Upsert, paimon: PaimonCatalogResource) -> Path:
    """An unreferenced file in a bucket, ten days old."""
    upsert(orders, DAY)
    path = Path(
        str(paimon.warehouse), "lake.db/orders", f"dt={DAY}", "bucket-0", "data-lost.parquet"
    )
    path.write_bytes(b"lost")
    modified = time.time() - 10 * 24 * 3600
    os.utime(path, (modified, modified))
    return path


def run(
    job: dg.JobDefinition,
    resources: Mapping[str, object],
    raise_on_error: bool = True,
    **config: object,
) -> dg.ExecuteInProcessResult:
    action = job.tags["paimon/action"]
    return job.execute_in_process(
        {"ops": {action: {"config": config}}},
        resources=dict(resources),
        raise_on_error=raise_on_error,
    )


def read_observation(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of the only observation, which belongs to the table's asset."""
    [observation] = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION
    ]
    assert observation.asset_key == dg.AssetKey(["lake", "orders"])
    return {key: value.value for key, value in observation.metadata.items()}


@pytest.mark.parametrize("step", sorted(find_steps()))
def test_each_declared_step_has_a_job_with_a_config_for_its_arguments(step: str) -> None:
    declaration, action = load_declaration(step), step.replace("-", "_")
    target = "lake" if declaration.target is StepTarget.DATABASE else "lake.orders"
    job = build_step_job(step, target)

    assert job.name == f"{action}__{target.replace('.', '__')}"
    config = (job.run_config or {})["ops"][action]["config"]
    assert config["dry_run"] is True  # as in the launchpads of all jobs
    complete = config | {"dry_run": False}
    assert dg.validate_run_config(job, {"ops": {action: {"config": complete}}})
    definition: Any = job.nodes[0].definition
    described = definition.config_schema.as_field().config_type.fields
    for name, argument in declaration.arguments.items():
        assert described[name].description == argument.argument.help


def test_a_job_drops_a_table_after_a_dry_run(
    snapshots: Table, resources: Mapping[str, object]
) -> None:
    job = build_step_job("drop-table", "lake.orders")

    planned = read_observation(run(job, resources))
    assert planned["paimon/drop_table_planned_snapshots"] == 12
    assert snapshots.stores.snapshots.latest_id() == 12

    metadata = read_observation(run(job, resources, dry_run=False))
    assert metadata["paimon/drop_table_deleted"] == 1
    with pytest.raises(dg.Failure, match="NotFoundError"):
        run(job, resources)


def test_a_step_of_a_database_is_no_step_of_a_table() -> None:
    with pytest.raises(InputError, match="drop_table is a step of tables, not of lake"):
        build_maintenance_job(build_declared_op("drop-table"), JobScope.of_database("lake", ()), {})
    with pytest.raises(InputError, match=r"drop_database is a step of a database, not of lake\.o"):
        build_maintenance_job(
            build_declared_op("drop-database"), JobScope.of_table("lake.orders", ()), {}
        )


def test_a_declared_step_is_planned_executed_and_reported(
    snapshots: Table, resources: Mapping[str, object]
) -> None:
    job = build_step_job("expire-snapshots", "lake.orders", config={"retain_max": 3})

    planned = read_observation(run(job, resources, retain_min=3))
    before = len(snapshots.stores.snapshots.ids())
    metadata = read_observation(run(job, resources, retain_min=3, dry_run=False))

    assert (before, len(snapshots.stores.snapshots.ids())) == (12, 3)
    assert planned["paimon/expire_snapshots_planned_snapshots"] == 9
    assert metadata["paimon/expire_snapshots_snapshots"] == 9
    with pytest.raises(dg.Failure, match="retain_max is 0; the minimum is 1"):
        run(job, resources, retain_max=0)


def test_the_notes_of_an_outcome_are_metadata(
    orders: Table, resources: Mapping[str, object], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"dt": "2026-01-01", "id": 1}\n')
    job = build_step_job("ingest", "lake.orders")

    metadata = read_observation(run(job, resources, source=[str(rows)], dry_run=False))

    assert metadata["paimon/notes"].startswith("the files lack amount; null or")


def test_a_repair_that_leaves_damage_fails_with_its_plan(
    orders: Table, upsert: Upsert, resources: Mapping[str, object]
) -> None:
    upsert(orders, DAY)
    (Path(orders.paths.root) / "snapshot/snapshot-1").write_text("{")
    job = build_step_job("repair", "lake.orders")

    result = run(job, resources, raise_on_error=False, dry_run=False)

    failure = result.failure_data_for_node("repair")
    assert failure is not None
    assert failure.user_failure_data is not None
    metadata = failure.user_failure_data.metadata
    assert metadata["paimon/damage_remains"].value is True
    assert "paimon/plan" in metadata


@pytest.mark.usefixtures("snapshots")
def test_column_statistics_are_computed_by_a_job(resources: Mapping[str, object]) -> None:
    job = build_step_job("analyze", "lake.orders", config={"all_columns": True})

    planned = read_observation(run(job, resources, dry_run=True))
    done = read_observation(run(job, resources))

    assert planned["paimon/analyze_planned_buckets_to_read"] == 1
    assert done["paimon/analyze_snapshot_id"] == "13"
    assert done["paimon/summary"] == "Executed analyze: read 1 bucket."


def test_a_summary_without_numbers_says_what_was_planned(
    snapshots: Table, resources: Mapping[str, object]
) -> None:
    snapshots.tags.create("old")
    job = build_step_job("delete-tag", "lake.orders", config={"name": "old"})
    action = "delete_tag: delete tag old and 0 files."
    summaries = [
        read_observation(run(job, resources, dry_run=dry_run))["paimon/summary"]
        for dry_run in (True, False)
    ]
    assert summaries == [f"Dry run of {action}", f"Executed {action}"]


def test_a_summary_says_that_there_is_nothing_to_do(
    snapshots: Table, resources: Mapping[str, object]
) -> None:
    snapshots.truncate()
    done = read_observation(run(build_step_job("truncate", "lake.orders"), resources))
    assert done["paimon/summary"] == "Dry run of truncate: nothing to do."


def test_the_plan_of_a_declared_step_is_shown_as_a_table(
    orphan: Path, resources: Mapping[str, object]
) -> None:
    metadata = read_observation(
        run(build_step_job("remove-orphan-files", "lake.orders"), resources)
    )

    assert [record.data for record in metadata["paimon/plan"].records] == [
        {"path": str(orphan), "bytes": 4}
    ]
    assert orphan.exists()


@pytest.mark.parametrize(
    "build",
    [build_expire_snapshots_job, build_expire_partitions_job, build_remove_orphan_files_job],
)
def test_launchpads_of_jobs_that_delete_start_with_a_dry_run(
    build: Callable[[str], dg.JobDefinition],
) -> None:
    ops = (build("lake.orders").run_config or {})["ops"]
    assert [op["config"]["dry_run"] for op in ops.values()] == [True]


def test_an_expiration_is_a_dry_run_by_default(
    snapshots: Table, resources: Mapping[str, object]
) -> None:
    metadata = read_observation(
        run(build_expire_snapshots_job("lake.orders"), resources, retain_min=2, retain_max=2)
    )

    assert len(snapshots.stores.snapshots.ids()) == 12
    assert metadata["paimon/dry_run"] is True
    assert metadata["paimon/expire_snapshots_planned_snapshots"] == 10
    assert next(iter(metadata)) == "paimon/summary"
    assert metadata["paimon/summary"].startswith("Dry run of expire_snapshots: 10 snapshots, ")
    assert metadata["paimon/expire_snapshots_planned_last"] == "10"
    kinds = [record.data["kind"] for record in metadata["paimon/plan"].records]
    assert kinds[:11] == ["snapshot"] * 10 + ["metadata"]


def test_an_expiration_reports_deleted_files(
    snapshots: Table, resources: Mapping[str, object]
) -> None:
    job = build_expire_snapshots_job("lake.orders")

    metadata = read_observation(run(job, resources, dry_run=False, retain_min=1, retain_max=1))

    assert snapshots.stores.snapshots.ids() == [12]
    assert metadata["paimon/dry_run"] is False
    assert metadata["paimon/expire_snapshots_snapshots"] == 11
    assert metadata["paimon/expire_snapshots_data_files"] == 11
    assert metadata["paimon/expire_snapshots_bytes"] > 0


def test_the_plan_that_was_logged_is_executed_after_another_commit(
    snapshots: Table,
    upsert: Upsert,
    resources: Mapping[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    op = find_op("expire_snapshots")

    def commit_and_run(*arguments: Any, **options: Any) -> Any:
        upsert(snapshots, DAY, amount=99)
        return op.declaration.run(*arguments, **options)

    declaration = replace(op.declaration, run=commit_and_run)
    monkeypatch.setattr(jobs, "build_declared_op", lambda _: replace(op, declaration=declaration))
    job = build_expire_snapshots_job("lake.orders")

    metadata = read_observation(run(job, resources, dry_run=False, retain_min=1, retain_max=1))

    assert "expire_snapshots of lake.orders (plan): {'snapshots': 11" in capfd.readouterr().err
    assert metadata["paimon/expire_snapshots_snapshots"] == 11
    assert snapshots.stores.snapshots.ids() == [12, 13]


def test_snapshots_younger_than_the_option_retain_for_are_retained(
    snapshots: Table, resources: Mapping[str, object]
) -> None:
    job = build_expire_snapshots_job("lake.orders")

    run(job, resources, dry_run=False, retain_min=1, retain_for="1 h")

    assert len(snapshots.stores.snapshots.ids()) == 12


def test_a_dry_run_shows_orphan_files(orphan: Path, resources: Mapping[str, object]) -> None:
    metadata = read_observation(run(build_remove_orphan_files_job("lake.orders"), resources))

    assert orphan.exists()
    assert metadata["paimon/remove_orphan_files_planned_bytes"] == 4
    [record] = metadata["paimon/plan"].records
    assert record.data["path"].endswith("data-lost.parquet")


def test_orphan_files_are_deleted_or_moved_to_quarantine(
    orphan: Path, orders: Table, resources: Mapping[str, object]
) -> None:
    job = build_remove_orphan_files_job("lake.orders")

    quarantined = read_observation(run(job, resources, dry_run=False, quarantine=True))
    assert not orphan.exists()
    Quarantine(orders.io, orders.paths.root).restore()
    assert orphan.exists()
    os.utime(orphan, (0, 0))
    deleted = read_observation(run(job, resources, dry_run=False))

    assert not orphan.exists()
    for metadata in (quarantined, deleted):
        assert metadata["paimon/remove_orphan_files_files"] == 1


def test_files_younger_than_the_option_older_than_are_not_deleted(
    orphan: Path, resources: Mapping[str, object]
) -> None:
    run(build_remove_orphan_files_job("lake.orders"), resources, dry_run=False, older_than="30 d")

    assert orphan.exists()


def test_no_file_of_a_damaged_table_is_deleted(
    orphan: Path, resources: Mapping[str, object]
) -> None:
    [data] = [path for path in orphan.parent.glob("data-*") if path != orphan]
    data.unlink()
    job = build_remove_orphan_files_job("lake.orders")

    result = run(job, resources, raise_on_error=False, dry_run=False)

    assert orphan.exists()
    failure = result.failure_data_for_node("remove_orphan_files")
    assert failure
    assert failure.error
    assert data.name in failure.error.message


def test_expired_partitions_are_dropped(
    orders: Table, upsert: Upsert, resources: Mapping[str, object]
) -> None:
    upsert(orders, "2000-01-01", "2999-01-01")
    job = build_expire_partitions_job("lake.orders")

    planned = read_observation(run(job, resources, expiration_time="30 d"))
    assert orders.stores.snapshots.latest_id() == 1
    dropped = read_observation(run(job, resources, expiration_time="30 d", dry_run=False))

    assert planned["paimon/expire_partitions_planned_rows"] == 3
    assert dropped["paimon/expire_partitions_partitions"] == 1
    assert [record.data["partition"] for record in dropped["paimon/plan"].records] == [
        "dt=2000-01-01"
    ]
    assert {bucket.partition for bucket in inspect(orders).buckets} == {"dt=2999-01-01"}


def test_manifests_are_merged(snapshots: Table, resources: Mapping[str, object]) -> None:
    before = snapshots.scan().to_arrow()

    metadata = read_observation(run(build_compact_manifests_job("lake.orders"), resources))

    assert metadata["paimon/compact_manifests_manifests_before"] > 1
    assert metadata["paimon/compact_manifests_manifests_after"] == 1
    assert snapshots.scan().to_arrow().equals(before)


@pytest.mark.parametrize("place", ["run config", "policy"])
def test_the_executor_spark_runs_all_work_on_spark(
    place: str, orphan: Path, paimon: PaimonCatalogResource
) -> None:
    labels = list[str]()
    spark = build_recorded_resource(labels, executor=ExecutorChoice.local)
    config: dict[str, Any] = {"executor": "spark"}
    job = build_remove_orphan_files_job("lake.orders", config=config if place == "policy" else {})

    resources = {"paimon": paimon, "spark": spark}
    result = run(job, resources, dry_run=False, **config if place == "run config" else {})

    assert [re.sub(r" \(.*", "", label) for label in labels] == [
        "list the files of lake.orders and read its manifests",
        "check the files of lake.orders",
        "remove orphan files of lake.orders",
    ]
    step = f" (Dagster run {result.run_id} step remove_orphan_files)"
    assert all(label.endswith(step) for label in labels)
    assert not orphan.exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("choice", [None, "auto", "local"])
@pytest.mark.parametrize(
    "attributes",
    [{"executor": ExecutorChoice.spark}, {"master": "spark://host:7077"}],
    ids=["attribute", "cluster"],
)
def test_small_work_runs_in_the_process_of_the_run(
    attributes: Mapping[str, Any], choice: str | None, orphan: Path, paimon: PaimonCatalogResource
) -> None:
    labels = list[str]()
    spark = build_recorded_resource(labels, **attributes)
    job = build_remove_orphan_files_job("lake.orders")

    config: dict[str, Any] = {} if choice is None else {"executor": choice}
    run(job, {"paimon": paimon, "spark": spark}, dry_run=False, **config)

    assert labels == []
    assert not orphan.exists()


def test_large_work_runs_where_the_attribute_of_the_resource_says(
    orphan: Path, paimon: PaimonCatalogResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paimon_orch.steps.common.executor.SMALL_WORK_BYTES", 0)
    labels = list[str]()
    spark = build_recorded_resource(labels, executor=ExecutorChoice.spark)

    run(
        build_remove_orphan_files_job("lake.orders"),
        {"paimon": paimon, "spark": spark},
        dry_run=False,
    )

    # Only this job reads a known number of bytes.
    assert [label.partition(" (")[0] for label in labels] == ["check the files of lake.orders"]
    assert not orphan.exists()


def test_an_unknown_executor_is_refused(resources: Mapping[str, object]) -> None:
    with pytest.raises(InputError, match="invalid config of expire_snapshots: executor = 'yarn'"):
        build_expire_snapshots_job("lake.orders", config={"executor": "yarn"})
    with pytest.raises(dg.DagsterInvalidConfigError, match="yarn"):
        run(build_expire_snapshots_job("lake.orders"), resources, executor="yarn")


def test_an_invalid_duration_fails_without_a_retry(
    orphan: Path, resources: Mapping[str, object]
) -> None:
    job = build_remove_orphan_files_job("lake.orders")

    result = run(job, resources, raise_on_error=False, older_than="soon")

    failure = result.failure_data_for_node("remove_orphan_files")
    assert failure
    assert failure.error
    assert "older_than" in failure.error.message


@pytest.mark.parametrize("build", BUILDERS)
def test_jobs_use_the_pool_of_their_table_and_have_tags_for_the_table_and_the_action(
    build: Callable[..., dg.JobDefinition],
) -> None:
    job = build("lake.orders", key_prefix=["prod"])

    action = job.tags["paimon/action"]
    assert job.name == f"{action}__prod__lake__orders"
    assert job.tags["paimon/table"] == "prod/lake.orders"
    assert job.graph.node_named(action).definition.pool == "paimon/prod/lake.orders"  # type: ignore[attr-defined]


def test_jobs_of_several_tables_can_be_in_one_code_location() -> None:
    jobs = [build(name) for build in BUILDERS for name in ("lake.orders", "lake.items")]

    definitions = dg.Definitions(
        jobs=jobs,
        resources={
            "paimon": PaimonCatalogResource(warehouse="/lake"),
            "spark": SparkSessionResource(),
        },
    )
    dg.Definitions.validate_loadable(definitions)
    assert len({job.name for job in jobs}) == len(jobs)


def test_partitions_named_in_the_launchpad_are_marked_as_done(
    orders: Table, upsert: Upsert, resources: Mapping[str, object]
) -> None:
    upsert(orders, DAY)
    job = build_mark_done_job("lake.orders")
    planned = run(job, resources, partitions=[f"dt={DAY}"], dry_run=True)
    mark = Path(orders.paths.root, f"dt={DAY}", "_SUCCESS")
    assert planned.success
    assert not mark.exists()
    assert run(job, resources, partitions=[f"dt={DAY}"]).success
    assert mark.exists()


def test_partitions_of_a_table_without_a_metastore_cannot_be_synced(
    orders: Table, upsert: Upsert, resources: Mapping[str, object]
) -> None:
    upsert(orders, DAY)
    result = run(build_sync_partitions_job("lake.orders"), resources, raise_on_error=False)
    assert not result.success


def test_the_summary_of_a_run_has_the_right_number(
    orphan: Path, resources: Mapping[str, object]
) -> None:
    result = run(build_remove_orphan_files_job("lake.orders"), resources, dry_run=True)

    assert orphan.exists()
    summary = read_observation(result)["paimon/summary"]
    assert summary.startswith("Dry run of remove_orphan_files: 1 file, ")


def test_runs_of_jobs_have_the_tag_of_their_table_only(
    snapshots: Table, resources: Mapping[str, object]
) -> None:
    result = run(build_expire_snapshots_job("lake.orders"), resources, dry_run=True)

    tags = result.dagster_run.tags
    assert [key for key in tags if key.startswith("paimon/")] == ["paimon/table"]
    assert tags["paimon/table"] == "lake.orders"
    assert snapshots.stores.snapshots.latest_id() == 12
