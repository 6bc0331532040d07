"""The sensors wait for partitions, their marks and the health of a table, also in the triggerer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest

try:
    from airflow.sdk.exceptions import TaskDeferred
except ImportError:  # before Airflow 3.2
    from airflow.exceptions import TaskDeferred

from paimon_orch import Catalog
from paimon_orch.airflow import triggers
from paimon_orch.airflow.hooks import PaimonHook
from paimon_orch.airflow.sensors import (
    PaimonPartitionDoneSensor,
    PaimonPartitionSensor,
    PaimonSnapshotSensor,
    PaimonTableHealthSensor,
    PaimonTableSensor,
)
from paimon_orch.airflow.task_errors import build_failure
from paimon_orch.airflow.triggers import PaimonWaitTrigger
from paimon_orch.errors import TransientError
from paimon_orch.steps import compact, mark_done
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

DAY, NEXT_DAY = "2026-01-01", "2026-01-02"
FAILURE = type(build_failure(""))
Upsert = Callable[..., None]
LIMITS = {"level0_backlog": "0"}


def make_sensor(kind: str, **arguments: Any) -> PaimonTableSensor:
    common = {"task_id": "t", "table": "lake.orders", "poke_interval": 0.05} | arguments
    match kind:
        case "partition":
            return PaimonPartitionSensor(partition=f"dt={NEXT_DAY}", **common)
        case "done":
            return PaimonPartitionDoneSensor(partition=f"dt={NEXT_DAY}", **common)
        case "health":
            return PaimonTableHealthSensor(limits=LIMITS, **common)
        case _:
            return PaimonSnapshotSensor(after_snapshot_id="1", **common)


def fulfil(kind: str, table: Table, upsert: Upsert) -> None:
    """Make the condition of a sensor true, after the commit of one day."""
    if kind == "health":
        compact(table)
        return
    upsert(table, NEXT_DAY)
    if kind == "done":
        mark_done(table, [f"dt={NEXT_DAY}"])


RESULTS = {
    "partition": {"snapshot_id": 2, "partitions": [f"dt={NEXT_DAY}"]},
    "done": {"partition": f"dt={NEXT_DAY}"},
    "snapshot": 2,
}


def check_result(kind: str, result: Any) -> None:
    json.dumps(result)
    if kind == "health":
        assert result["level0_backlog"] == 0
        assert result["snapshot_count"] == 2
    else:
        assert result == RESULTS[kind]


def serialize(trigger: PaimonWaitTrigger) -> PaimonWaitTrigger:
    """Return the trigger as the triggerer builds it, from JSON."""
    path, arguments = json.loads(json.dumps(trigger.serialize()))
    module, _, name = path.rpartition(".")
    rebuilt: PaimonWaitTrigger = getattr(import_module(module), name)(**arguments)
    return rebuilt


@pytest.mark.parametrize("kind", ["snapshot", "partition", "done", "health"])
def test_a_sensor_waits_for_its_condition(orders: Table, upsert: Upsert, kind: str) -> None:
    upsert(orders, DAY)
    sensor = make_sensor(kind)
    assert not sensor.poke({}).is_done

    fulfil(kind, orders, upsert)

    check_result(kind, sensor.execute({}))


@pytest.mark.parametrize("kind", ["snapshot", "partition", "done", "health"])
def test_a_deferred_sensor_waits_in_its_trigger(orders: Table, upsert: Upsert, kind: str) -> None:
    upsert(orders, DAY)
    sensor = make_sensor(kind, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    trigger = serialize(deferred.value.trigger)

    async def wait() -> Any:
        waiting = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        fulfil(kind, orders, upsert)
        return (await asyncio.wait_for(waiting, 20)).payload

    payload = json.loads(json.dumps(asyncio.run(wait())))
    check_result(kind, getattr(sensor, deferred.value.method_name)({}, payload))


@pytest.mark.parametrize("kind", ["snapshot", "partition", "done", "health"])
def test_a_missing_table_is_waited_for(catalog: Catalog, kind: str) -> None:
    assert not make_sensor(kind).poke({}).is_done


def test_a_catalog_that_does_not_answer_is_waited_for(
    orders: Table, upsert: Upsert, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert(orders, DAY)
    upsert(orders, NEXT_DAY)
    failures = [TransientError("no answer"), OSError("no route"), TransientError("no answer")]
    get_conn = PaimonHook.get_conn

    def fail_at_first(hook: PaimonHook) -> Catalog:
        if failures:
            raise failures.pop()
        return get_conn(hook)

    open_connection = triggers.open_catalog_in_thread

    async def fail_in_the_triggerer(connection: str) -> Catalog:
        if failures:
            raise failures.pop()
        return await open_connection(connection)

    monkeypatch.setattr(PaimonHook, "get_conn", fail_at_first)
    sensor = make_sensor("snapshot", deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    assert len(failures) == 2

    monkeypatch.setattr(triggers, "open_catalog_in_thread", fail_in_the_triggerer)
    event = asyncio.run(asyncio.wait_for(anext(deferred.value.trigger.run()), 20))
    assert (event.payload, failures) == ({"snapshot_id": 2}, [])


def test_one_of_two_partition_columns_selects_all_partitions(catalog: Catalog) -> None:
    table = catalog.create_table(
        "lake.hours", "dt STRING, hr INT, id BIGINT", partition_by=["dt", "hr"]
    )
    rows = [{"dt": DAY, "hr": hour, "id": 1} for hour in (9, 10)]
    table.append(pa.Table.from_pylist(rows))
    sensor = PaimonPartitionSensor(task_id="t", table="lake.hours", partition=f"dt={DAY}")

    paths = [f"dt={DAY}/hr=10", f"dt={DAY}/hr=9"]
    assert sensor.poke({}).xcom_value == {"snapshot_id": 1, "partitions": paths}
    done = PaimonPartitionDoneSensor(task_id="t", table="lake.hours", partition=f"dt={DAY}")
    with pytest.raises(FAILURE, match="lacks hr"):
        done.poke({})


def test_a_dropped_partition_does_not_exist(orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAY, NEXT_DAY)
    orders.drop_partitions([f"dt={NEXT_DAY}"])

    assert not make_sensor("partition").poke({}).is_done


def test_marks_that_cannot_be_read_are_refused(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, NEXT_DAY)
    option = "partition.mark-done-action"
    catalog.alter_table("lake.orders", [SetOption(option, "mark-event")])
    with pytest.raises(FAILURE, match="add success-file to it"):
        make_sensor("done").poke({})

    catalog.alter_table("lake.orders", [SetOption(option, "done-partition")])
    with pytest.raises(FAILURE, match="needs a table that was opened through a catalog"):
        make_sensor("done").poke({})

    # a mark that cannot be read does not matter if another one can
    catalog.alter_table("lake.orders", [SetOption(option, "mark-event,success-file")])
    assert not make_sensor("done").poke({}).is_done


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limits": {"level_0": 1}}, "unknown checks for lake.orders: level_0"),
        ({"limits": {"file_references": 0}}, "file_references reads all snapshots"),
    ],
)
def test_wrong_limits_fail_without_a_retry(
    orders: Table, arguments: dict[str, Any], message: str
) -> None:
    sensor = PaimonTableHealthSensor(task_id="t", table="lake.orders", **arguments)

    with pytest.raises(FAILURE, match=message):
        sensor.poke({})


def test_a_limit_of_none_drops_a_check(orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAY)
    kept = {"level0_backlog": 0.0}
    dropped: dict[str, float | None] = {"level0_backlog": None}

    assert not PaimonTableHealthSensor(task_id="t", table="lake.orders", limits=kept).poke({})
    result = PaimonTableHealthSensor(task_id="u", table="lake.orders", limits=dropped).poke({})
    assert "level0_backlog" not in result.xcom_value


def test_a_column_that_is_not_a_partition_column_fails_without_a_retry(
    orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAY)
    sensor = PaimonPartitionSensor(task_id="t", table="lake.orders", partition="day=2026-01-01")

    with pytest.raises(FAILURE, match="'day' is not a partition column"):
        sensor.poke({})
