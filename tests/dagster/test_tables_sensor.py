"""One sensor for many tables: fair requests, errors of single tables, earlier cursors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
)
from support.dagster.ticks import SensorTicks, partitions_of

from paimon_orch.dagster import PaimonCatalogResource, build_latest_snapshot_sensor, tables_sensor
from paimon_orch.dagster.components.database_component import PaimonDatabaseComponent
from paimon_orch.dagster.health_checks import TableChecks
from paimon_orch.dagster.sensor import WatchedTable
from paimon_orch.dagster.tables_sensor import build_tables_sensor
from paimon_orch.errors import PaimonError
from paimon_orch.orchestration.tables_watch import TablesCursor
from paimon_orch.table.table import Table

DAYS = [f"2026-01-{day:02d}" for day in range(1, 10)]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)
NAMES = ["lake.a", "lake.b", "lake.c"]
Create = Callable[..., Table]
Upsert = Callable[..., None]
BuildTicks = Callable[..., SensorTicks]


@pytest.fixture
def tables(create: Create) -> list[Table]:
    return [create(name) for name in NAMES]


@pytest.fixture
def build_ticks(paimon: PaimonCatalogResource, instance: dg.DagsterInstance) -> BuildTicks:
    def build(names: Sequence[str] = NAMES, limit: int = 25, **options: Any) -> SensorTicks:
        options = {"partitions_def": PARTITIONS, "max_partitions_per_run": 1, **options}
        sensor = build_tables_sensor(
            ["lake"],
            [WatchedTable(table=name, **options) for name in names],
            minimum_interval_seconds=30,
            max_requests_per_tick=limit,
            default_status=dg.DefaultSensorStatus.STOPPED,
        )
        return SensorTicks(sensor, paimon, instance)

    return build


def requested(ticks: SensorTicks) -> list[str]:
    return [f"{r.tags['paimon/table']} {partitions_of(r)}" for r in ticks.new_run_requests()]


def test_each_changed_partition_of_each_table_is_requested_once(
    tables: list[Table], upsert: Upsert, build_ticks: BuildTicks
) -> None:
    ticks = build_ticks()
    upsert(tables[0], DAYS[0])
    upsert(tables[2], *DAYS[:2])

    assert requested(ticks) == [f"lake.a {DAYS[0]}", f"lake.c {DAYS[0]}", f"lake.c {DAYS[1]}"]
    assert ticks.skip_message() == "no runs for 3 of 3 tables; 0 with news"
    upsert(tables[1], DAYS[3])
    assert requested(ticks) == [f"lake.b {DAYS[3]}"]


def test_a_busy_table_does_not_delay_the_others(
    tables: list[Table], upsert: Upsert, build_ticks: BuildTicks
) -> None:
    ticks = build_ticks(limit=4)
    upsert(tables[0], *DAYS)
    upsert(tables[1], DAYS[0])
    upsert(tables[2], DAYS[0])

    assert requested(ticks) == [
        *(f"lake.a {day}" for day in DAYS[:2]),
        f"lake.b {DAYS[0]}",
        f"lake.c {DAYS[0]}",
    ]
    assert requested(ticks) == [f"lake.a {day}" for day in DAYS[2:6]]
    assert requested(ticks) == [f"lake.a {day}" for day in DAYS[6:]]
    assert requested(ticks) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("budget", ["time", "requests", "events"])
def test_a_tick_continues_where_the_budget_of_the_last_one_ended(
    tables: list[Table],
    upsert: Upsert,
    build_ticks: BuildTicks,
    monkeypatch: pytest.MonkeyPatch,
    budget: str,
) -> None:
    if budget != "requests":
        monkeypatch.setattr(tables_sensor, "_MAX_SECONDS" if budget == "time" else "_MAX_EVENTS", 0)
    ticks = build_ticks(limit=1 if budget == "requests" else 25)
    for table in tables:
        upsert(table, DAYS[0])

    assert [requested(ticks) for _ in range(4)] == [[f"{name} {DAYS[0]}"] for name in NAMES] + [[]]


def test_a_table_that_fails_does_not_stop_the_others_and_is_evaluated_again(
    tables: list[Table], upsert: Upsert, build_ticks: BuildTicks
) -> None:
    ticks = build_ticks()
    for table in tables:
        upsert(table, DAYS[0])
    snapshot = tables[0].stores.snapshots.path(1)
    content = tables[0].io.read_bytes(snapshot)
    tables[0].io.delete(snapshot)
    tables[0].io.write(snapshot, b"{")

    assert requested(ticks) == [f"lake.b {DAYS[0]}", f"lake.c {DAYS[0]}"]
    # No other table has news, so that the error can be seen as a failed tick.
    cursor = ticks.cursor
    with pytest.raises(
        PaimonError, match=r"1 table could not be evaluated: lake\.a\. .*snapshot-1"
    ):
        ticks.evaluate()
    assert ticks.cursor == cursor

    tables[0].io.delete(snapshot)
    tables[0].io.write(snapshot, content)
    assert requested(ticks) == [f"lake.a {DAYS[0]}"]


def test_a_lost_warehouse_is_a_failed_tick(build_ticks: BuildTicks) -> None:
    with pytest.raises(PaimonError, match="3 tables could not be evaluated"):
        build_ticks().evaluate()


def test_an_error_of_the_partitions_of_one_table_does_not_stop_the_others(
    create: Create, upsert: Upsert, build_ticks: BuildTicks
) -> None:
    upsert(create("lake.a", ()), DAYS[0])  # its asset has partitions
    upsert(create("lake.b"), DAYS[0])

    assert requested(build_ticks(["lake.a", "lake.b"])) == [f"lake.b {DAYS[0]}"]


def test_events_and_checks_of_all_tables_are_reported(
    tables: list[Table], upsert: Upsert, build_ticks: BuildTicks
) -> None:
    ticks = build_ticks(request_runs=False, report_as="materialization")
    upsert(tables[0], DAYS[0])
    upsert(tables[1], DAYS[1])

    events = ticks.result().asset_events

    assert [(type(e), e.asset_key.path[-1], getattr(e, "partition", None)) for e in events] == [
        (dg.AssetMaterialization, "a", DAYS[0]),
        (dg.AssetMaterialization, "b", DAYS[1]),
    ]


def test_a_table_is_checked_when_no_run_would_check_it(
    tables: list[Table],
    upsert: Upsert,
    compact_all: Callable[[Table], None],
    build_ticks: BuildTicks,
) -> None:
    upsert(tables[0], DAYS[0])
    compact_all(tables[0])
    upsert(tables[1], DAYS[0])
    ticks = build_ticks()
    checks = {name: TableChecks.of(name, {}) for name in NAMES}
    ticks.sensor = build_tables_sensor(
        ["lake"],
        [
            replace(WatchedTable(table=name, partitions_def=PARTITIONS), checks=checks[name])
            for name in NAMES
        ],
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.STOPPED,
    )

    events = ticks.result().asset_events

    checked = {e.asset_key.path[-1] for e in events if isinstance(e, dg.AssetCheckEvaluation)}
    assert checked == {"a"}


def test_a_dropped_table_leaves_the_cursor(
    tables: list[Table], upsert: Upsert, build_ticks: BuildTicks
) -> None:
    ticks = build_ticks()
    for table in tables:
        upsert(table, DAYS[0])
    ticks.evaluate()

    ticks.sensor = build_ticks(NAMES[:2]).sensor
    ticks.evaluate()

    cursor = TablesCursor.from_text(ticks.cursor)
    assert cursor is not None
    assert [*cursor.texts] == NAMES[:2]


def store_cursor(instance: dg.DagsterInstance, sensor: str, cursor: str | None) -> None:
    """Store the state of a running sensor as the daemon does."""
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("project"), "__repository__")
    instance.add_instigator_state(
        InstigatorState(
            RemoteInstigatorOrigin(repository, sensor),
            InstigatorType.SENSOR,
            InstigatorStatus.RUNNING,
            SensorInstigatorData(cursor=cursor),
        )
    )


@pytest.mark.slow
def test_the_first_tick_continues_from_the_cursors_of_the_sensors_of_single_tables(
    tables: list[Table], upsert: Upsert, paimon: PaimonCatalogResource, build_ticks: BuildTicks
) -> None:
    with dg.DagsterInstance.local_temp() as instance:
        sensor = build_latest_snapshot_sensor("lake.a", partitions_def=PARTITIONS)
        single = SensorTicks(sensor, paimon, instance)
        for table in tables:
            upsert(table, DAYS[0])
        assert single.requested_partitions() == [DAYS[0]]
        store_cursor(instance, sensor.name, single.cursor)
        store_cursor(instance, "latest_snapshot__lake__b", "rubbish")
        store_cursor(instance, "latest_snapshot__lake__c", None)
        ticks = build_ticks()
        ticks.instance = instance

        assert requested(ticks) == [f"lake.b {DAYS[0]}", f"lake.c {DAYS[0]}"]
        upsert(tables[0], DAYS[1])
        assert requested(ticks) == [f"lake.a {DAYS[1]}"]


@pytest.fixture
def repository(paimon: PaimonCatalogResource, create: Create) -> dg.RepositoryDefinition:
    create("lake.orders")
    create("lake.items", ())
    component = PaimonDatabaseComponent.from_attributes_dict(
        attributes={
            "database": "lake",
            "warehouse": paimon.warehouse,
            "partitions": {"values": DAYS},
        }
    )
    return component.definitions({"orders": ["dt"], "items": []}).get_repository_def()


@pytest.mark.slow
def test_dagster_resolves_requests_for_assets_with_different_partitions(
    repository: dg.RepositoryDefinition,
    paimon: PaimonCatalogResource,
    upsert: Upsert,
    resources: dict[str, object],
) -> None:
    upsert(paimon.load_table("lake.orders"), DAYS[0])
    upsert(paimon.load_table("lake.items"), DAYS[0])
    [sensor] = repository.sensor_defs
    partitions = {}
    with dg.DagsterInstance.local_temp() as instance:
        context = dg.build_sensor_context(
            instance=instance, repository_def=repository, resources={"paimon": paimon}
        )
        for request in sensor.evaluate_tick(context).run_requests or []:
            selection = set(request.asset_selection or [])
            job = repository.get_job(str(request.job_name)).get_subset(asset_selection=selection)
            result = job.execute_in_process(
                resources=resources, instance=instance, tags=dict(request.tags)
            )
            [event] = result.get_asset_materialization_events()
            partitions[request.tags["paimon/table"]] = event.partition

    assert partitions == {"lake.items": None, "lake.orders": DAYS[0]}
