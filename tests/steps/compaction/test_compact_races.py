"""Concurrent compactions: one commits, and no row is lost or live again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.steps import commit_plan, run_units
from support.tables import assert_healthy, levels_of, rows_of, stored_files, table_of
from support.tables_with_deletion_vectors import (
    EXECUTOR,
    compacted_deletion_vector_table,
    deletion_vector_table,
    upsert_numbers,
)

from paimon_orch.errors import CommitConflictError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage


def results(table: Table, planned: step.CompactionPlan) -> list[CommitMessage]:
    return run_units(step.COMPACT, table, planned)


class CommittingFirst(InProcessExecutor):
    """Calls a function before it runs units, to commit between plan and commit."""

    def __init__(self, commit: Callable[[], object]) -> None:
        self._commit = commit

    def map(self, run: Any, units: Any, **named: Any) -> list[bytes]:
        self._commit()
        return super().map(run, units, **named)


def test_the_second_of_two_compactions_of_a_snapshot_is_refused(tmp_path: Path) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(100), "a")
    upsert_numbers(table, range(50), "b")
    first, second = step.plan(table, step.CompactRequest()), step.plan(table, step.CompactRequest())
    results_of_units = results(table, first), results(table, second)
    step.commit(table, first, results_of_units[0])
    before, rows = stored_files(table), rows_of(table)
    written = {entry.file.file_name for message in results_of_units[1] for entry in message.added}

    with pytest.raises(CommitConflictError, match=r"Plan|plan"):
        step.commit(table, second, results_of_units[1])

    assert rows_of(table) == rows
    assert {Path(path).name for path in before - stored_files(table)} == written
    assert_healthy(table)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("order", ["upper levels first", "level 0 first"])
def test_deletion_vectors_are_not_lost_when_their_files_are_rewritten(
    tmp_path: Path, order: str
) -> None:
    """A full and a minor compaction of one snapshot; the minor one deletes older rows."""
    table = compacted_deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "newer")
    step.compact(table, EXECUTOR)
    assert levels_of(table) == [4, 5]
    upper = step.plan(table, step.CompactRequest(strategy="full"))
    upper_done = results(table, upper)
    table.delete(table_of("k", [(50,)]))  # the row is on level 5
    upsert_numbers(table, range(60, 61), "newest")
    minor = step.plan(table, step.CompactRequest())
    minor_done = results(table, minor)
    pairs = [(upper, upper_done), (minor, minor_done)]
    (winner, messages), (loser, late) = pairs if order.startswith("upper") else pairs[::-1]

    step.commit(table, winner, messages)
    with pytest.raises(
        CommitConflictError, match=r"compacted by another commit|removed by another"
    ):
        step.commit(table, loser, late)
    step.compact(table, EXECUTOR)

    expected = {n: "newer" if n < 10 else "old" for n in range(100) if n != 50} | {60: "newest"}
    assert rows_of(table) == sorted(expected.items())
    assert_healthy(table)


def test_only_one_of_two_minor_compactions_with_deletion_vectors_for_one_file_commits(
    tmp_path: Path,
) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "one")
    first = step.plan(table, step.CompactRequest())
    first_done = results(table, first)
    upsert_numbers(table, range(10, 20), "two")
    second = step.plan(table, step.CompactRequest())
    second_done = results(table, second)

    step.commit(table, first, first_done)
    with pytest.raises(CommitConflictError):
        step.commit(table, second, second_done)


def test_a_compaction_plans_again_after_a_conflict(tmp_path: Path) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(100), "a")
    upsert_numbers(table, range(50), "b")
    commits: list[step.CompactionResult] = []

    def commit_once() -> None:
        if not commits:
            plan = step.plan(table, step.CompactRequest(strategy="full"))
            commits.append(commit_plan(step.COMPACT, table, plan))
            upsert_numbers(table, range(7), "c")

    result = step.compact(table, CommittingFirst(commit_once))

    assert result.attempts == 2
    assert rows_of(table) == [(n, "c" if n < 7 else "b" if n < 50 else "a") for n in range(100)]
    assert_healthy(table)


def test_the_plan_that_was_shown_is_executed(tmp_path: Path) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(100), "a")
    shown = step.plan(table, step.CompactRequest())

    result = step.run_compaction(table, shown)

    assert result.plan is shown
    assert result.attempts == 1


def test_rows_written_after_the_plan_was_shown_are_left_to_the_next_compaction(
    tmp_path: Path,
) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(100), "a")
    shown = step.plan(table, step.CompactRequest())
    upsert_numbers(table, range(50), "b")

    result = step.run_compaction(table, shown)

    assert result.plan is shown
    assert levels_of(table) == [0, 5]


def test_a_conflict_with_the_shown_plan_increases_the_number_of_attempts(
    tmp_path: Path,
) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(100), "a")
    request = step.CompactRequest(strategy="full")
    shown = step.plan(table, request)
    step.compact(table, EXECUTOR, strategy="full")
    upsert_numbers(table, range(50), "b")

    result = step.run_compaction(table, shown)

    assert result.attempts == 2
    assert result.plan is not shown
    assert result.plan.request is request
    assert levels_of(table) == [5]
    assert_healthy(table)


def test_a_compaction_that_always_conflicts_reports_it(tmp_path: Path) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "a")
    upsert_numbers(table, range(5), "a")
    numbers = iter(range(100, 200))

    def compact_and_write() -> None:
        plan = step.plan(table, step.CompactRequest(strategy="full"))
        commit_plan(step.COMPACT, table, plan)
        start = next(numbers)
        upsert_numbers(table, range(start, start + 1), "c")

    with pytest.raises(CommitConflictError):
        step.compact(table, CommittingFirst(compact_and_write))

    assert next(numbers) == 103
    assert_healthy(table)


def test_rows_of_concurrent_commits_remain_on_level_0(tmp_path: Path) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "first")
    planned = step.plan(table, step.CompactRequest())
    results_of_units = results(table, planned)
    upsert_numbers(table, range(5), "second")

    step.commit(table, planned, results_of_units)

    assert levels_of(table) == [0, 4, 5]
    step.compact(table, EXECUTOR)
    assert rows_of(table)[:10] == [(n, "second" if n < 5 else "first") for n in range(10)]
    assert_healthy(table)
