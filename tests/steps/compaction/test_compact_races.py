"""Compactions that race with others: one wins, and no row is lost or comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import (
    assert_healthy,
    levels_of,
    rows_of,
    stored_files,
    table_of,
)
from support.tables_with_deletion_vectors import (
    EXECUTOR,
    compacted_deletion_vector_table,
    deletion_vector_table,
    upsert_numbers,
)

from paimon_orch.errors import CommitConflictError
from paimon_orch.steps.compaction import compact as step
from paimon_orch.table.write.commit_message import CommitMessage

pytestmark = pytest.mark.usefixtures("five_rows_a_batch")


def results(planned: step.CompactionPlan) -> list[CommitMessage]:
    return [CommitMessage.decode(step.run(unit)) for unit in planned.units]


def test_of_two_compactions_of_one_snapshot_the_second_is_refused(tmp_path: Path) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(100), "a")
    upsert_numbers(table, range(50), "b")
    first, second = step.plan(table), step.plan(table)
    done = results(first), results(second)
    step.commit(table, first, done[0])
    before, rows = stored_files(table), rows_of(table)
    written = {entry.file.file_name for message in done[1] for entry in message.added}

    with pytest.raises(CommitConflictError, match=r"Plan|plan"):
        step.commit(table, second, done[1])

    assert rows_of(table) == rows
    assert {Path(path).name for path in before - stored_files(table)} == written
    assert_healthy(table)


@pytest.mark.parametrize("order", ["upper levels first", "level 0 first"])
def test_vectors_do_not_come_loose_when_the_files_below_them_are_rewritten(
    tmp_path: Path, order: str
) -> None:
    """A full compaction of the upper levels, and a minor one that marks rows in them, from one snapshot."""
    table = compacted_deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "newer")
    step.compact(table, EXECUTOR)
    assert levels_of(table) == [4, 5]
    upper = step.plan(table, strategy="full")
    upper_done = results(upper)
    table.delete(table_of("k", [(50,)]))  # the row lies on level 5
    upsert_numbers(table, range(60, 61), "newest")
    minor = step.plan(table)
    minor_done = results(minor)
    pairs = [(upper, upper_done), (minor, minor_done)]
    (winner, done), (loser, late) = pairs if order.startswith("upper") else pairs[::-1]

    step.commit(table, winner, done)
    with pytest.raises(
        CommitConflictError, match=r"compacted by another commit|removed by another"
    ):
        step.commit(table, loser, late)
    step.compact(table, EXECUTOR)

    expected = {n: "newer" if n < 10 else "old" for n in range(100) if n != 50} | {60: "newest"}
    assert rows_of(table) == sorted(expected.items())
    assert_healthy(table)


def test_two_minor_compactions_that_mark_rows_of_one_file_do_not_both_win(tmp_path: Path) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "one")
    first = step.plan(table)
    first_done = results(first)
    upsert_numbers(table, range(10, 20), "two")
    second = step.plan(table)
    second_done = results(second)

    step.commit(table, first, first_done)
    with pytest.raises(CommitConflictError):
        step.commit(table, second, second_done)


def test_a_compaction_that_loses_plans_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(100), "a")
    upsert_numbers(table, range(50), "b")
    run, raced = step.run, list[step.CompactionUnit]()

    def run_while_another_commits(unit: step.CompactionUnit) -> bytes:
        if not raced:
            raced.append(unit)
            other = step.plan(table, strategy="full")
            step.commit(table, other, [CommitMessage.decode(run(unit)) for unit in other.units])
            upsert_numbers(table, range(7), "c")
        return run(unit)

    monkeypatch.setattr("paimon_orch.steps.compaction.plan.run", run_while_another_commits)
    result = step.compact(table, EXECUTOR)

    assert result.attempts == 2
    assert rows_of(table) == [(n, "c" if n < 7 else "b" if n < 50 else "a") for n in range(100)]
    assert_healthy(table)


def test_a_compaction_that_always_loses_reports_the_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "a")
    upsert_numbers(table, range(5), "a")
    run, number = step.run, iter(range(100, 200))

    def run_while_another_commits(unit: step.CompactionUnit) -> bytes:
        other = step.plan(table, strategy="full")
        step.commit(table, other, [CommitMessage.decode(run(unit)) for unit in other.units])
        start = next(number)
        upsert_numbers(table, range(start, start + 1), "c")
        return run(unit)

    monkeypatch.setattr("paimon_orch.steps.compaction.plan.run", run_while_another_commits)
    with pytest.raises(CommitConflictError):
        step.compact(table, EXECUTOR)

    assert_healthy(table)


def test_rows_that_arrive_meanwhile_stay_on_level_0(tmp_path: Path) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "first")
    planned = step.plan(table)
    done = results(planned)
    upsert_numbers(table, range(5), "second")

    step.commit(table, planned, done)

    assert levels_of(table) == [0, 4, 5]
    step.compact(table, EXECUTOR)
    assert rows_of(table)[:10] == [(n, "second" if n < 5 else "first") for n in range(10)]
    assert_healthy(table)
