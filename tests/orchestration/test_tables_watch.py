"""One cursor for many tables, the order of evaluations, and the share of each table."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from paimon_orch import Catalog
from paimon_orch.orchestration import tables_watch
from paimon_orch.orchestration.table_watch import TableEvaluation, TableWatch
from paimon_orch.orchestration.tables_watch import TablesCursor, evaluate_tables, share_requests
from paimon_orch.table.table import Table

Upsert = Callable[..., None]


def test_a_cursor_of_many_tables_is_a_short_text() -> None:
    numbers = random.Random(1)  # noqa: S311 - no secret
    texts = {
        f"lake.table_{number:03}": f'{{"v": 1, "handled": {{"snapshot_id": {number}, "time_millis": '
        f'{numbers.randrange(10**13)}}}, "table": "/w/lake.db/table_{number:03}"}}'
        for number in range(300)
    }
    cursor = TablesCursor(texts, "lake.table_007")

    text = cursor.to_text()

    assert TablesCursor.from_text(text) == cursor
    assert len(text) < 16_000


@pytest.mark.parametrize("text", [None, "", "x", "eJw=", '{"v": 1}', TablesCursor().to_text()[:-4]])
def test_another_text_is_no_cursor(text: str | None) -> None:
    assert TablesCursor.from_text(text) is None


def test_the_next_evaluation_begins_with_the_next_table() -> None:
    tables = ["c", "a", "d"]

    assert TablesCursor().rotate(tables) == ["a", "c", "d"]
    assert TablesCursor(first="c").rotate(tables) == ["c", "d", "a"]
    assert TablesCursor(first="b").rotate(tables) == ["c", "d", "a"]  # b was dropped
    assert TablesCursor(first="e").rotate(tables) == ["a", "c", "d"]


def test_a_busy_table_leaves_requests_to_the_others() -> None:
    assert share_requests({"a": 90, "b": 1, "c": 3}, 10) == {"a": 6, "b": 1, "c": 3}
    assert share_requests({"a": 9, "b": 9, "c": 9}, 4) == {"a": 2, "b": 1, "c": 1}
    assert share_requests({"a": 1, "b": 0}, 25) == {"a": 1, "b": 0}
    assert share_requests({}, 25) == {}


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_table_that_fails_does_not_stop_the_others(
    catalog: Catalog,
    orders: Table,
    upsert: Upsert,
    monkeypatch: pytest.MonkeyPatch,
    is_remote: bool,
) -> None:
    monkeypatch.setattr(Catalog, "waits_for_network", is_remote)
    upsert(orders, "2026-01-01")
    names = ["lake.missing", "lake.orders"]

    results = dict(
        evaluate_tables(catalog, [TableWatch(table=name) for name in names], TablesCursor())
    )

    assert list(results) == names
    assert "lake.missing" in str(results["lake.missing"])
    evaluation = results["lake.orders"]
    assert isinstance(evaluation, TableEvaluation)
    assert evaluation.changes is not None
    cursor = TablesCursor({"lake.orders": evaluation.changes.cursor.to_json()})
    [(_, pending)] = evaluate_tables(catalog, [TableWatch(table="lake.orders")], cursor)
    assert isinstance(pending, TableEvaluation)  # its partition was not requested


def test_no_table_is_evaluated_after_the_iterator_is_closed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Catalog, "waits_for_network", True)
    evaluated: list[str] = []
    monkeypatch.setattr(TableWatch, "evaluate", lambda watch, *_: evaluated.append(watch.table))
    watches = [TableWatch(table=f"lake.t{number}") for number in range(200)]

    evaluations = tables_watch.evaluate_tables(catalog, watches, TablesCursor())
    next(evaluations)
    evaluations.close()

    assert len(evaluated) < 100
