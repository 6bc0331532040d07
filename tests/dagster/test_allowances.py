"""Table options with stale external systems stop a run, unless an allowance permits it."""

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.asset_runs import observation_metadata
from support.dagster.spark_resources import NoSessionSparkResource
from support.dagster.ticks import evaluate_schedule, evaluate_sensor

from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonIOManager,
    PaimonTableComponent,
    build_table_asset,
)
from paimon_orch.dagster.run_config import build_allowance_config
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.steps.ingest import IngestResult
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

ICEBERG = "metadata.iceberg-compatible"
STALE = f"{ICEBERG}=true"
KEY = dg.AssetKey(["lake", "orders"])
DAY = "2026-01-01"
# Dagster raises this warning for a resource that contains another resource.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


@pytest.fixture
def orders(paimon: PaimonCatalogResource, upsert: Callable[..., None]) -> Table:
    """A table with Iceberg metadata and with work for the compaction and all jobs."""
    table = paimon.catalog().create_table(
        "lake.orders",
        "dt STRING, id BIGINT, amount INT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={
            "bucket": "1",
            "deletion-vectors.enabled": "true",
            "file-index.bloom-filter.columns": "amount",
            ICEBERG: "true",
        },
    )
    for amount in range(3):
        upsert(table.allow(stale_external=True), DAY, amount=amount)
    return table


def component(**attributes: Any) -> dg.Definitions:
    defaults = {
        "table": "lake.orders",
        "snapshot_expiration": {"retain_min": 1, "retain_max": 1, "retain_for": "1 ms"},
        "orphan_files": {},
        "partition_expiration": {"expiration_time": "9000 d", "strategy": "update-time"},
        "file_index": True,
    }
    component = PaimonTableComponent.from_attributes_dict(attributes=defaults | attributes)
    return component.definitions()


def assets_of(defs: dg.Definitions) -> list[dg.AssetsDefinition]:
    return [asset for asset in defs.assets or [] if isinstance(asset, dg.AssetsDefinition)]


def jobs_of(defs: dg.Definitions) -> list[dg.JobDefinition]:
    return [job for job in defs.jobs or [] if isinstance(job, dg.JobDefinition)]


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """The error message of a run that failed without a retry."""
    assert not result.success
    kinds = [event.event_type for event in result.all_events]
    assert dg.DagsterEventType.STEP_UP_FOR_RETRY not in kinds
    [failed] = [e for e in result.all_events if e.event_type is dg.DagsterEventType.STEP_FAILURE]
    error = failed.step_failure_data.error
    assert error
    assert "Failure" in str(error.cls_name)
    return error.message


def events_of(result: dg.ExecuteInProcessResult) -> list[Mapping[str, Any]]:
    """The metadata of all observations and materializations."""
    return [
        *observation_metadata(result),
        *(
            {key: value.value for key, value in event.materialization.metadata.items()}
            for event in result.get_asset_materialization_events()
        ),
    ]


@pytest.mark.parametrize("field", ["stale_external", "unknown_options"])
@pytest.mark.parametrize("of_table", [False, True])
@pytest.mark.parametrize("of_caller", [False, True])
def test_allowances_of_a_table_and_of_its_caller_are_added(
    orders: Table, field: str, of_table: bool, of_caller: bool
) -> None:
    table = orders.allow(**{field: of_table})

    added = table.allowances | Allowances(**{field: of_caller})

    assert added == Allowances(**{field: of_table or of_caller})


def test_the_run_config_of_allowances_has_only_those_that_are_set() -> None:
    assert build_allowance_config() == {}
    stale, unknown = Allowances(stale_external=True), Allowances(unknown_options=True)
    assert build_allowance_config(stale) == {"allow_stale_external": True}
    assert build_allowance_config(unknown) == {"allow_unknown_options": True}


def test_a_compaction_of_a_table_with_iceberg_metadata_fails_with_the_option(
    orders: Table, resources: Mapping[str, object]
) -> None:
    result = dg.materialize(
        assets_of(component()),
        resources=resources,
        selection=["lake/orders/orders_compaction"],
        raise_on_error=False,
    )

    message = failure_of(result)
    assert ICEBERG in message
    assert "Nothing was changed" in message
    assert orders.stores.snapshots.latest_id() == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dry_run", [True, False])
def test_jobs_that_delete_fail_with_the_option(
    orders: Table, resources: Mapping[str, object], dry_run: bool
) -> None:
    for job in jobs_of(component()):
        action = job.tags["paimon/action"]
        if action == "sync_iceberg":  # it refuses a table that publishes nothing
            continue
        result = job.execute_in_process(
            {"ops": {action: {"config": {"dry_run": dry_run}}}},
            resources=dict(resources),
            raise_on_error=False,
        )

        assert ICEBERG in failure_of(result)
    assert orders.stores.snapshots.ids() == [1, 2, 3]


@pytest.mark.slow
def test_runs_of_a_component_with_an_allowance_report_stale_options_as_metadata(
    orders: Table, resources: Mapping[str, object]
) -> None:
    defs = component(allow_stale_external=True)

    [compacted, indexed] = events_of(dg.materialize(assets_of(defs), resources=resources))
    assert compacted["paimon/stale_external_options"] == STALE
    assert "paimon/stale_external_options" not in indexed  # this run changed nothing
    assert inspect(orders).level0_files == 0
    for job in jobs_of(defs):
        action = job.tags["paimon/action"]
        if action == "sync_iceberg":  # it refuses a table that publishes nothing
            continue
        config = {"ops": {action: {"config": {"dry_run": False}}}}
        [metadata] = events_of(job.execute_in_process(config, resources=dict(resources)))
        assert metadata["paimon/stale_external_options"] == STALE
    assert len(orders.stores.snapshots.ids()) == 1


@pytest.mark.slow
def test_a_dry_run_reports_no_stale_options(orders: Table, resources: Mapping[str, object]) -> None:
    for job in jobs_of(component(allow_stale_external=True)):
        if job.tags["paimon/action"] == "sync_iceberg":
            continue
        [metadata] = events_of(job.execute_in_process(resources=dict(resources)))
        assert "paimon/stale_external_options" not in metadata
    assert orders.stores.snapshots.ids() == [1, 2, 3]


def test_stale_options_are_logged_as_a_warning(
    orders: Table, resources: Mapping[str, object], capfd: pytest.CaptureFixture[str]
) -> None:
    assert orders.stores.snapshots.ids()

    dg.materialize(
        assets_of(component(allow_stale_external=True)),
        resources=resources,
        selection=["lake/orders/orders_compaction"],
    )

    warnings = [line for line in capfd.readouterr().err.splitlines() if "WARNING" in line]
    assert any(
        f"lake.orders: external systems were not updated and are stale; options: {STALE}" in line
        for line in warnings
    )


@pytest.mark.slow
def test_the_launchpad_can_allow_a_single_run(
    orders: Table, resources: Mapping[str, object]
) -> None:
    config = {
        "ops": {"lake__orders__orders_compaction": {"config": {"allow_stale_external": True}}}
    }

    result = dg.materialize(
        assets_of(component()),
        resources=resources,
        selection=["lake/orders/orders_compaction"],
        run_config=config,
    )

    assert result.success
    assert orders.stores.snapshots.latest_id() == 4


def test_the_allowances_of_the_component_are_in_the_default_config_of_its_jobs() -> None:
    for job in jobs_of(component(allow_stale_external=True, allow_unknown_options=True)):
        assert job.run_config
        [op] = job.run_config["ops"].values()
        assert op["config"]["allow_stale_external"] is True
        assert op["config"]["allow_unknown_options"] is True


def test_the_sensor_does_not_request_refused_runs_and_reports_the_reason(
    orders: Table, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    assert orders.stores.snapshots.ids()
    results = []
    for allowed in (False, True):
        [sensor] = component(allow_stale_external=allowed).sensors or []
        assert isinstance(sensor, dg.SensorDefinition)
        result = evaluate_sensor(sensor, paimon, instance)
        assert isinstance(result, dg.SensorResult)
        results.append(result)

    refused, allowed_result = results
    assert not refused.run_requests
    assert refused.skip_reason
    assert ICEBERG in str(refused.skip_reason.skip_message)
    assert refused.asset_events
    assert allowed_result.run_requests


def test_a_refused_compaction_is_requested_after_it_is_allowed(
    orders: Table, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    assert orders.stores.snapshots.ids()
    cursor, overdue = None, {"max_wait": "1 ms"}
    for allowed in (False, False, True):
        [sensor] = component(allow_stale_external=allowed, compaction=overdue).sensors or []
        assert isinstance(sensor, dg.SensorDefinition)
        result = evaluate_sensor(sensor, paimon, instance, cursor)
        assert isinstance(result, dg.SensorResult)
        assert bool(result.run_requests) is allowed
        cursor = result.cursor


@pytest.mark.slow
def test_a_daily_schedule_does_not_request_refused_runs(
    orders: Table, paimon: PaimonCatalogResource
) -> None:
    assert orders.stores.snapshots.ids()
    results = []
    for allowed in (False, True):
        defs = component(allow_stale_external=allowed, trigger="schedule")
        [schedule] = [s for s in defs.schedules or [] if s.name.startswith("compaction__")]
        assert isinstance(schedule, dg.ScheduleDefinition)
        results.append(evaluate_schedule(schedule, paimon))

    refused, requests = results
    assert isinstance(refused, dg.SkipReason)
    assert ICEBERG in str(refused.skip_message)
    assert isinstance(requests, list)


def producer() -> dg.AssetsDefinition:
    row = {"dt": DAY, "id": 9, "amount": 9}
    schema = pa.schema([("dt", "string"), ("id", "int64"), ("amount", "int32")])

    @dg.asset(
        key=KEY, metadata={"write_mode": "upsert"}, retry_policy=dg.RetryPolicy(max_retries=3)
    )
    def orders() -> pa.Table:
        return pa.Table.from_pylist([row], schema)

    return orders


def test_the_io_manager_fails_without_a_retry(orders: Table, paimon: PaimonCatalogResource) -> None:
    manager = PaimonIOManager(paimon=paimon)

    result = dg.materialize([producer()], resources={"io_manager": manager}, raise_on_error=False)

    assert ICEBERG in failure_of(result)
    assert orders.stores.snapshots.latest_id() == 3


def test_the_allowance_of_the_resource_applies_to_the_io_manager(
    orders: Table, paimon: PaimonCatalogResource
) -> None:
    allowed = PaimonCatalogResource(warehouse=paimon.warehouse, allow_stale_external=True)
    manager = PaimonIOManager(paimon=allowed)

    [metadata] = events_of(dg.materialize([producer()], resources={"io_manager": manager}))

    assert metadata["paimon/stale_external_options"] == STALE
    assert orders.stores.snapshots.latest_id() == 4


def test_the_io_manager_reports_rows_that_are_not_visible_before_a_compaction(
    orders: Table, paimon: PaimonCatalogResource, capfd: pytest.CaptureFixture[str]
) -> None:
    allowed = PaimonCatalogResource(warehouse=paimon.warehouse, allow_stale_external=True)
    manager = PaimonIOManager(paimon=allowed)

    [metadata] = events_of(dg.materialize([producer()], resources={"io_manager": manager}))

    assert metadata["paimon/rows_not_visible"] == 10
    assert orders.scan().rows_not_visible == 10
    assert "10 records of lake.orders are not compacted yet" in capfd.readouterr().err


@pytest.mark.slow
def test_a_load_reports_rows_that_are_not_visible_and_a_compaction_reports_none(
    orders: Table, resources: Mapping[str, object]
) -> None:
    def load(catalog: Any, session: object, keys: object) -> list[IngestResult]:
        snapshot = catalog.table("lake.orders").upsert(
            pa.Table.from_pylist([{"dt": DAY, "id": 9, "amount": 9}])
        )
        return [
            IngestResult(snapshot_id=snapshot.id, rows=1, files=1, bytes=1, duration_seconds=0.1)
        ]

    assets = [
        build_table_asset("lake.orders", load),
        *assets_of(component(external=False, file_index=False)),
    ]
    paimon = PaimonCatalogResource(
        warehouse=resources["paimon"].warehouse,  # type: ignore[attr-defined]
        allow_stale_external=True,
    )
    loaded, compacted = events_of(
        dg.materialize(assets, resources={"paimon": paimon, "spark": NoSessionSparkResource()})
    )

    assert loaded["paimon/rows_not_visible"] == 10
    assert loaded["paimon/stale_external_options"] == STALE
    assert compacted["paimon/rows_not_visible"] == 0
    assert orders.scan().rows_not_visible == 0
