"""The triggers fire for commits of any writer, and remember what they have reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger, TriggerEvent

from paimon_orch import Catalog, InputError
from paimon_orch.airflow import triggers
from paimon_orch.airflow.catalog_connection import open_connection
from paimon_orch.airflow.triggers import PaimonSnapshotTrigger, PaimonTableSnapshotTrigger
from paimon_orch.steps import compact
from paimon_orch.table.table import Table

DAY, NEXT_DAY = "2026-01-01", "2026-01-02"
Upsert = Callable[..., None]


class Store:
    """Airflow's store of a watched asset."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def aget(self, key: str) -> Any:
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = value


def make_trigger(store: Store | None = None, **arguments: Any) -> PaimonTableSnapshotTrigger:
    trigger = PaimonTableSnapshotTrigger(table="lake.orders", poll_interval=0.05, **arguments)
    if store is not None:
        trigger.asset_state_store = store
    return trigger


async def next_event(events: AsyncIterator[TriggerEvent], seconds: float = 20) -> Any:
    return (await asyncio.wait_for(anext(events), seconds)).payload


async def assert_no_event(events: AsyncIterator[TriggerEvent]) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await next_event(events, 1)


def rebuild(trigger: BaseTrigger) -> BaseTrigger:
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    rebuilt: BaseTrigger = getattr(import_module(module), name)(**arguments)
    return rebuilt


def test_an_event_has_the_due_partitions_with_reasons(orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAY)

    payload = asyncio.run(next_event(make_trigger().run()))

    [due] = payload.pop("due")
    assert due["partition"] == f"dt={DAY}"
    assert due["strategy"] == "minor"
    assert "level" in due["reason"]
    assert payload == {
        "table": "lake.orders",
        "snapshot_id": 1,
        "data_snapshots": [1],
        "whole_table_reason": "first evaluation",
        "postponed_partitions": 0,
        "refusal": "",
    }


def test_each_commit_is_reported_once(orders: Table, upsert: Upsert) -> None:
    async def watch() -> list[Any]:
        events = make_trigger().run()
        upsert(orders, DAY)
        payloads = [await next_event(events)]
        upsert(orders, NEXT_DAY)
        payloads.append(await next_event(events))
        compact(orders)
        await assert_no_event(events)
        return payloads

    first, second = asyncio.run(watch())
    assert [due["partition"] for due in first["due"]] == [f"dt={DAY}"]
    assert [due["partition"] for due in second["due"]] == [f"dt={NEXT_DAY}"]


def test_a_missing_table_is_waited_for(catalog: Catalog, upsert: Upsert) -> None:
    async def watch() -> Any:
        events = make_trigger().run()
        waiting = asyncio.ensure_future(next_event(events))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        columns = "dt STRING, id BIGINT, amount INT"
        options = {"bucket": "1", "deletion-vectors.enabled": "true"}
        orders = catalog.create_table(
            "lake.orders", columns, primary_key=["dt", "id"], options=options
        )
        upsert(orders, DAY)
        return await waiting

    assert asyncio.run(watch())["due"][0]["partition"] == ""


def test_a_missing_warehouse_is_waited_for(
    tmp_path: Path, upsert: Upsert, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "later"
    connection = {"conn_type": "paimon", "host": str(lake)}
    monkeypatch.setenv("AIRFLOW_CONN_PAIMON_DEFAULT", json.dumps(connection))

    async def watch() -> Any:
        waiting = asyncio.ensure_future(next_event(make_trigger().run()))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        orders = Catalog(str(lake)).create_table(
            "lake.orders",
            "dt STRING, id BIGINT, amount INT",
            primary_key=["dt", "id"],
            options={"bucket": "1", "deletion-vectors.enabled": "true"},
        )
        upsert(orders, DAY)
        return await waiting

    assert asyncio.run(watch())["snapshot_id"] == 1


def test_the_triggers_of_a_connection_share_one_catalog(
    orders: Table, upsert: Upsert, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[object]()

    def open_and_count(connection: Any) -> Catalog:
        opened.append(connection.host)
        return open_connection(connection)

    async def watch() -> list[Any]:
        running = [make_trigger().run() for _ in range(3)]
        return await asyncio.gather(*map(next_event, running))

    monkeypatch.setattr(triggers, "open_connection", open_and_count)
    upsert(orders, DAY)

    assert [event["snapshot_id"] for event in asyncio.run(watch())] == [1, 1, 1]
    assert len(opened) == 1
    asyncio.run(watch())
    assert len(opened) == 2, "a catalog that no trigger uses is closed"


def test_the_cursor_survives_in_the_store_of_the_asset(orders: Table, upsert: Upsert) -> None:
    store = Store()

    async def watch() -> Any:
        events = make_trigger(store).run()
        upsert(orders, DAY)
        await next_event(events)
        assert store.values == {}  # the event is not yet with the scheduler
        await assert_no_event(events)
        restarted = make_trigger(store).run()
        upsert(orders, NEXT_DAY)
        return await next_event(restarted)

    payload = asyncio.run(watch())
    assert payload["whole_table_reason"] is None
    assert [due["partition"] for due in payload["due"]] == [f"dt={NEXT_DAY}"]


def test_partitions_beyond_the_limit_follow(orders: Table, upsert: Upsert) -> None:
    async def watch() -> list[Any]:
        events = make_trigger(max_partitions=1).run()
        upsert(orders, DAY, NEXT_DAY)
        return [await next_event(events), await next_event(events)]

    first, second = asyncio.run(watch())
    assert first["postponed_partitions"] == 1
    assert {each["due"][0]["partition"] for each in (first, second)} == {
        f"dt={DAY}",
        f"dt={NEXT_DAY}",
    }


def test_changes_without_due_partitions_are_reported_if_asked(
    orders: Table, upsert: Upsert
) -> None:
    policy = {"level0_files": 10, "sorted_runs": 10}

    async def watch() -> Any:
        upsert(orders, DAY)
        await assert_no_event(make_trigger(policy=policy).run())
        return await next_event(make_trigger(policy=policy, fire_on="changed").run())

    assert asyncio.run(watch())["due"] == []


def test_an_error_does_not_end_the_watch(
    orders: Table, upsert: Upsert, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert(orders, DAY)
    trigger = make_trigger()
    watch, calls = trigger._watch, list[int]()

    class Failing:
        def poll(self, *arguments: Any) -> Any:
            calls.append(1)
            if len(calls) < 3:
                raise OSError("no route to host")
            return watch.poll(*arguments)

    monkeypatch.setattr(trigger, "_watch", Failing())

    assert asyncio.run(next_event(trigger.run()))["snapshot_id"] == 1
    assert len(calls) == 3


def test_triggers_are_rebuilt_from_their_arguments() -> None:
    policy = {"max_wait": "2 h"}
    trigger = make_trigger(policy=policy, fire_on="changed", max_partitions=5)
    waiting = PaimonSnapshotTrigger(table="lake.orders", after_snapshot_id=3, poll_interval=1)

    assert rebuild(trigger).serialize() == trigger.serialize()
    assert rebuild(waiting).serialize() == waiting.serialize()
    with pytest.raises(InputError, match="fire_on"):
        make_trigger(fire_on="never")


def test_a_wait_ends_with_the_next_snapshot(orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAY)

    async def watch() -> Any:
        trigger = PaimonSnapshotTrigger(
            table="lake.orders", after_snapshot_id=1, poll_interval=0.05
        )
        waiting = asyncio.ensure_future(next_event(trigger.run()))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        upsert(orders, DAY)
        return await waiting

    assert asyncio.run(watch()) == {"snapshot_id": 2}
