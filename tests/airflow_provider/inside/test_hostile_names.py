"""Names from storage that Airflow cannot store: they end no triggerer, and no DAG of a lake."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paimon_orch import Catalog
from paimon_orch.airflow.maintenance_dag import DEFAULT_STEPS, _Tasks
from paimon_orch.airflow.triggers import PaimonTableSnapshotTrigger, PaimonWaitTrigger
from paimon_orch.orchestration.table_watch import TableNews, TableWatch
from paimon_orch.table.table import Table

POLICY = {"level0_files": 1}
POLL = TableWatch.poll
HOSTILE = "dt=\udcff\0"
SHOWN = "dt=\\udcff\\x00"


Upsert = Callable[..., None]


class HostileTrigger(PaimonWaitTrigger):
    def find(self, table: Table) -> dict[str, Any]:  # noqa: ARG002 - the base class has it
        return {"partitions": [HOSTILE], HOSTILE: 1}


async def first_event(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended")


def test_the_event_of_a_wait_can_be_sent(orders: Table) -> None:
    payload = asyncio.run(first_event(HostileTrigger(table=orders.identifier)))

    assert payload == {"partitions": [SHOWN], SHOWN: 1}
    assert msgspec.msgpack.encode(payload)


def test_the_event_of_a_due_partition_can_be_sent(
    orders: Table, upsert: Upsert, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert(orders, "2026-01-01")
    trigger = PaimonTableSnapshotTrigger(table=orders.identifier, policy=POLICY)

    def poll_hostile(*arguments: Any) -> TableNews | None:
        news = POLL(*arguments)
        assert news is not None
        return replace(news, due=tuple(replace(due, partition=HOSTILE) for due in news.due))

    monkeypatch.setattr(TableWatch, "poll", poll_hostile)

    payload = asyncio.run(first_event(trigger))

    assert [due["partition"] for due in payload["due"]] == [SHOWN]
    assert msgspec.msgpack.encode(payload)


def test_a_table_whose_name_cannot_be_stored_is_left_out(
    orders: Table, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    source = Path(orders.paths.root)
    for name in (b"bad\xff", b"{{ 7 * 7 }}"):
        shutil.copytree(source, source.with_name(os.fsdecode(name)))
    assert len(catalog.find_tables()) == 3
    tasks = _Tasks(["*"], [], DEFAULT_STEPS, None, False, "paimon_default")

    tables = tasks.find_tables()

    assert tables == ["lake.orders", "lake.{{ 7 * 7 }}"]
    assert msgspec.msgpack.encode(tables)
    assert "lake.bad\\udcff is left out" in caplog.text
