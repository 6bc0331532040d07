"""The news of a watched table: due partitions with reasons, as JSON values."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from paimon_orch import Catalog
from paimon_orch.errors import NotFoundError, UnsupportedError
from paimon_orch.orchestration.cursor import Cursor
from paimon_orch.orchestration.table_watch import (
    AwaitedTableError,
    TableNews,
    TableWatch,
    find_due_partitions,
)
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
Upsert = Callable[..., None]


def poll(catalog: Catalog, cursor: Cursor | None = None, limit: int = 10) -> TableNews | None:
    return TableWatch(table="lake.orders", max_partitions=limit).poll(catalog, cursor)


def paths(news: TableNews | None) -> list[str]:
    assert news is not None
    return [decision.partition for decision in news.due]


def test_a_table_that_is_missing_or_empty_has_no_news(catalog: Catalog) -> None:
    catalog.create_database("lake")
    assert poll(catalog) is None
    catalog.create_table("lake.orders", "id BIGINT")
    assert poll(catalog) is None


def test_the_news_are_json_values(catalog: Catalog, orders: Table, upsert: Upsert) -> None:
    upsert(orders, DAYS[0])

    news = poll(catalog)

    assert news is not None
    values = json.loads(json.dumps(news.to_dict()))
    [due] = values.pop("due")
    assert (due["partition"], due["strategy"]) == (f"dt={DAYS[0]}", "minor")
    assert due["reason"]
    assert values == {
        "table": "lake.orders",
        "snapshot_id": 1,
        "data_snapshots": [1],
        "whole_table_reason": "first evaluation",
        "postponed_partitions": 0,
        "refusal": "",
    }


def test_only_partitions_with_new_commits_are_due(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[0])
    first = poll(catalog)
    assert first is not None
    upsert(orders, DAYS[1])
    second = poll(catalog, first.cursor)
    assert second is not None
    compact(orders, InProcessExecutor())
    third = poll(catalog, second.cursor)

    assert paths(second) == [f"dt={DAYS[1]}"]
    assert second.whole_table_reason is None
    assert third is not None
    assert (third.due, third.data_snapshots) == ((), ())
    assert poll(catalog, third.cursor) is None


def test_partitions_beyond_the_limit_are_pending(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, *DAYS)

    first = poll(catalog, limit=2)
    assert first is not None
    second = poll(catalog, first.cursor, limit=2)

    assert first.to_dict()["postponed_partitions"] == 1
    assert sorted(paths(first) + paths(second)) == [f"dt={day}" for day in DAYS]
    assert second is not None
    assert poll(catalog, second.cursor) is None


def test_a_refused_table_has_no_due_partitions(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[0])
    catalog.alter_table("lake.orders", [SetOption("metadata.iceberg-compatible", "true")])

    news = poll(catalog)

    assert news is not None
    assert news.due == ()
    assert "metadata.iceberg-compatible" in news.refusal
    assert news.cursor.pending == {}
    with pytest.raises(UnsupportedError, match=r"metadata\.iceberg-compatible"):
        find_due_partitions(orders, CompactionPolicy())


def test_due_partitions_are_those_of_the_policy(orders: Table, upsert: Upsert) -> None:
    assert find_due_partitions(orders, CompactionPolicy()) == ()
    upsert(orders, DAYS[0])
    upsert(orders, DAYS[0], DAYS[1])

    due = find_due_partitions(orders, CompactionPolicy(level0_files=2, sorted_runs=9))

    assert [decision.partition for decision in due] == [f"dt={DAYS[0]}"]


@pytest.mark.parametrize(
    ("table", "near"),
    [
        ("lake.order", "orders"),
        ("lak.orders", "lake"),
        ("lake.ordres", "orders"),
        ("lake.Orders", "orders"),
    ],
)
def test_a_name_that_is_misspelled_is_an_error(catalog: Catalog, table: str, near: str) -> None:
    catalog.create_table("lake.orders", "id BIGINT")

    with pytest.raises(NotFoundError, match=rf"did you mean {near}\?") as raised:
        TableWatch(table=table).poll(catalog, None)
    assert not isinstance(raised.value, AwaitedTableError)


@pytest.mark.parametrize(
    "table", ["lake.orders_2026", "lake.orders_eu", "lake.returns", "shop.orders"]
)
def test_a_table_that_its_writer_has_not_created_yet_is_awaited(
    catalog: Catalog, table: str
) -> None:
    catalog.create_table("lake.orders", "id BIGINT")

    with pytest.raises(AwaitedTableError, match=f"^{table} does not exist yet: "):
        TableWatch(table=table).evaluate(catalog, None)
    assert TableWatch(table=table).poll(catalog, None) is None
