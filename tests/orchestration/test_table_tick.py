"""A table is evaluated only if it has news, and what is not requested remains in the cursor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paimon_orch import Catalog
from paimon_orch.errors import NotFoundError
from paimon_orch.orchestration.changes_since_cursor import (
    ChangesSinceCursor,
    CompactionDecider,
    collect_changes,
)
from paimon_orch.orchestration.cursor import Cursor
from paimon_orch.orchestration.planned_runs import PlannedRun
from paimon_orch.orchestration.table_tick import (
    explain_no_run,
    find_compaction_refusal,
    open_table_with_news,
    postpone_runs,
)
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

DAYS = ("2026-01-01", "2026-01-02")
EAGER = CompactionPolicy()
Upsert = Callable[..., None]


def evaluate(
    catalog: Catalog, cursor: Cursor | None, policy: CompactionPolicy = EAGER
) -> ChangesSinceCursor | None:
    """Return the changes of lake.orders since the cursor, or None if there are none."""
    tick = open_table_with_news(catalog, "lake.orders", cursor, policy)
    if tick is None:
        return None
    decider = CompactionDecider(tick.table, tick.state, policy)
    return collect_changes(decider, cursor, 100, tick.found)


def test_a_table_without_news_is_not_loaded(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, *DAYS)
    first = evaluate(catalog, None)
    assert first is not None
    handled = postpone_runs(first.cursor, [], {})

    assert evaluate(catalog, handled) is None
    upsert(orders, DAYS[1])
    changes = evaluate(catalog, handled)

    assert changes is not None
    assert changes.touched_partitions == frozenset({f"dt={DAYS[1]}"})


def test_partitions_that_are_not_requested_are_evaluated_again(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, *DAYS)
    first = evaluate(catalog, None)
    assert first is not None
    runs = [PlannedRun((d.partition,), (d,)) for d in first.decisions]
    assert [run.keys for run in runs] == [(f"dt={day}",) for day in DAYS]

    cursor = postpone_runs(first.cursor, runs[1:], first.cursor.pending)
    changes = evaluate(catalog, cursor)

    assert changes is not None
    assert [d.partition for d in changes.decisions if d.compact] == [f"dt={DAYS[1]}"]


def test_a_missing_table_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError):
        evaluate(catalog, None)


def test_a_compaction_does_not_lead_to_another_one(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, *DAYS)
    first = evaluate(catalog, None)
    assert first is not None
    assert compact(orders, InProcessExecutor()).snapshot_id == 2

    changes = evaluate(catalog, postpone_runs(first.cursor, [], {}))

    assert changes is not None
    assert changes.decisions == ()
    assert explain_no_run(orders, changes) == "lake.orders: nothing to compact up to snapshot 2"


def test_the_explanation_names_the_first_decisions(
    catalog: Catalog, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, *(f"2026-01-{day:02}" for day in range(1, 5)))
    changes = evaluate(catalog, None, CompactionPolicy(level0_files=9, sorted_runs=9))
    assert changes is not None

    text = explain_no_run(orders, changes)

    assert text.startswith("lake.orders: nothing to compact up to snapshot 1; dt=2026-01-01")
    assert text.endswith("; and 1 other")


def test_options_that_forbid_a_compaction_are_named(catalog: Catalog, orders: Table) -> None:
    assert find_compaction_refusal(orders.load()) == ""
    catalog.alter_table("lake.orders", [SetOption("metadata.iceberg-compatible", "true")])
    assert "metadata.iceberg-compatible" in find_compaction_refusal(orders.load())
