"""Compaction: whatever the interleaving, a reader sees the same rows, and the merge tree keeps its promises."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import (
    Row,
    assert_healthy,
    levels_of,
    new_table,
    rows_of,
    small_batches,
    stored_files,
    table_of,
    vectors_of,
)

from paimon_orch.errors import CommitConflictError, InputError, StorageError
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.compaction import BucketCompaction
from paimon_orch.steps import compact as step
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.table.commit import Changes
from paimon_orch.table.messages import CommitMessage
from paimon_orch.table.partitions import partition_text
from paimon_orch.table.table import Table
from paimon_orch.table.write import TableWriter, conform_rows

EXECUTOR = InProcessExecutor()
PARTITIONS = ("a", "b")

Key = tuple[str, int]
Rows = dict[Key, str]


@dataclass(frozen=True)
class Upsert:
    keys: list[int]
    partition: str


@dataclass(frozen=True)
class Delete:
    keys: list[int]
    partition: str


@dataclass(frozen=True)
class Compact:
    strategy: Literal["minor", "full"]
    partition: str | None


@dataclass
class Model:
    """What a dictionary knows: rows as written, and (with deletion vectors) as of the last compaction."""

    table: Table
    written: Rows = field(default_factory=dict)
    compacted: Rows = field(default_factory=dict)
    writes: int = 0

    @property
    def visible(self) -> Rows:
        return self.compacted if self.table.options.deletion_vectors else self.written

    def apply(self, operation: Upsert | Delete | Compact) -> None:
        match operation:
            case Upsert(keys, partition):
                self.writes += 1
                rows = {key: f"{self.writes}.{at}" for at, key in enumerate(keys)}  # last one wins
                values = [(partition, key, f"{self.writes}.{at}") for at, key in enumerate(keys)]
                self.table.upsert(table_of("p k v", values))
                self.written |= {(partition, key): value for key, value in rows.items()}
            case Delete(keys, partition):
                self.table.delete(table_of("p k", [(partition, key) for key in keys]))
                for key in keys:
                    self.written.pop((partition, key), None)
            case Compact(strategy, partition):
                self.compact(strategy, partition)

    def compact(self, strategy: Literal["minor", "full"], partition: str | None) -> None:
        specs = None if partition is None else [f"p={partition}"]
        result = step.compact(self.table, EXECUTOR, partitions=specs, strategy=strategy)
        chosen = PARTITIONS if partition is None else (partition,)
        kept = {key: value for key, value in self.compacted.items() if key[0] not in chosen}
        self.compacted = kept | {
            key: value for key, value in self.written.items() if key[0] in chosen
        }
        assert bool(result.plan) == (result.snapshot_id is not None)
        self.check_levels(strategy, chosen)

    def check_levels(self, strategy: str, chosen: tuple[str, ...]) -> None:
        deletion_vectors = self.table.options.deletion_vectors
        splits = {
            partition_text(split.partition, self.table.schema): split
            for split in self.table.files()
        }
        for name, split in splits.items():
            if name.removeprefix("p=") not in chosen:
                continue
            levels = {file.level for file in split.files}
            if deletion_vectors or strategy == "full":
                assert 0 not in levels
            if strategy == "full":
                assert levels <= {self.table.options.num_levels - 1}
                assert not any(file.delete_row_count for file in split.files)
                assert not {file.file_name for file in split.files} & set(vectors_of(self.table))

    def check(self) -> None:
        expected: list[Row] = sorted((p, k, v) for (p, k), v in self.visible.items())
        assert rows_of(self.table) == expected
        if self.table.snapshot() is not None:
            assert_healthy(self.table)


keys = st.lists(st.integers(0, 60), min_size=1, max_size=45)
partitions = st.sampled_from(PARTITIONS)
operations = st.lists(
    st.one_of(
        st.builds(Upsert, keys, partitions),
        st.builds(Delete, st.lists(st.integers(0, 60), min_size=1, max_size=10), partitions),
        st.builds(
            Compact,
            st.sampled_from(["minor", "minor", "full"]),
            st.none() | partitions,
        ),
    ),
    min_size=4,
    max_size=14,
)
VARIANTS: dict[str, dict[str, str]] = {
    "merge-on-read": {"num_sorted_run__compaction_trigger": "3"},
    "32-bit vectors": {
        "deletion_vectors__enabled": "true",
        "num_sorted_run__compaction_trigger": "3",
    },
    "64-bit vectors, many levels": {
        "deletion_vectors__enabled": "true",
        "deletion_vectors__bitmap64": "true",
        "bucket": "2",
        "num_levels": "6",
        "num_sorted_run__compaction_trigger": "6",
        "compaction__max_size_amplification_percent": "1000000",
        "compaction__size_ratio": "0",
    },
}


@pytest.fixture(autouse=True)
def _small_batches() -> Iterator[None]:
    with small_batches(5):
        yield


@pytest.mark.parametrize("variant", [pytest.param(v, id=name) for name, v in VARIANTS.items()])
def test_readers_see_what_a_dictionary_holds(variant: dict[str, str]) -> None:
    @settings(max_examples=15)
    @given(operations)
    def check(chosen: list[Upsert | Delete | Compact]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table = new_table(
                Path(folder),
                "p STRING, k BIGINT, v STRING",
                key=("p", "k"),
                partition_by=["p"],
                target_file_size="4 kb",
                **variant,
            )
            model = Model(table)
            for operation in chosen:
                model.apply(operation)
            model.check()
            model.compact("minor", None)
            model.check()
            model.compact("full", None)
            model.check()
            before = table.snapshot()
            model.compact("full", None)  # nothing is left to do
            assert table.snapshot() == before

    check()


def vectored(root: Path, **options: str) -> Table:
    return new_table(root, deletion_vectors__enabled="true", **options)


def upsert(table: Table, numbers: range, value: str) -> None:
    table.upsert(table_of("k v", [(number, value) for number in numbers]))


def compacted(root: Path, **options: str) -> Table:
    """A table with 100 keys on the highest level."""
    table = vectored(root, **options)
    upsert(table, range(100), "old")
    step.compact(table, EXECUTOR)
    return table


def test_minor_compaction_hides_replaced_rows_and_rewrites_none_of_them(tmp_path: Path) -> None:
    table = compacted(tmp_path)
    upsert(table, range(10, 30), "new")

    result = step.compact(table, EXECUTOR)

    assert levels_of(table) == [4, 5]
    assert (result.hidden_rows, result.rows_written, result.files_after) == (20, 0, 1)
    assert [vector.cardinality for vector in vectors_of(table).values()] == [20]
    assert_healthy(table)


def test_a_deleted_key_is_hidden_above_and_written_nowhere(tmp_path: Path) -> None:
    table = compacted(tmp_path)
    table.delete(table_of("k", [(number,) for number in range(5)]))

    step.compact(table, EXECUTOR)

    assert levels_of(table) == [5]
    assert rows_of(table) == [(number, "old") for number in range(5, 100)]
    assert_healthy(table)


def test_full_compaction_of_one_level_rewrites_only_the_files_with_hidden_rows(
    tmp_path: Path,
) -> None:
    table = compacted(tmp_path, target_file_size="500")
    assert len(levels_of(table)) > 2
    table.delete(table_of("k", [(0,)]))
    step.compact(table, EXECUTOR)
    (hidden,) = vectors_of(table)

    result = step.compact(table, EXECUTOR, strategy="full")

    assert result.files_before == 1
    assert not vectors_of(table)
    assert hidden not in {file.file_name for split in table.files() for file in split.files}
    assert_healthy(table)


def test_rewriting_a_file_that_has_only_hidden_rows_leaves_no_file(tmp_path: Path) -> None:
    table = compacted(tmp_path)
    table.delete(table_of("k", [(number,) for number in range(100)]))
    step.compact(table, EXECUTOR)

    step.compact(table, EXECUTOR, strategy="full")

    assert levels_of(table) == []
    assert rows_of(table) == []
    assert_healthy(table)


def test_several_files_and_row_groups_a_level_are_looked_up(tmp_path: Path) -> None:
    table = compacted(tmp_path, target_file_size="500")
    for start in (3, 50, 97):
        upsert(table, range(start, start + 3), f"from {start}")
        step.compact(table, EXECUTOR)
        assert_healthy(table)

    changed = {n: f"from {start}" for start in (3, 50, 97) for n in range(start, start + 3)}
    assert rows_of(table) == [(n, changed.get(n, "old")) for n in range(100)]


@pytest.mark.parametrize("strategy", ["minor", "full"])
def test_nothing_to_do_commits_nothing(tmp_path: Path, strategy: Literal["minor", "full"]) -> None:
    table = compacted(tmp_path)
    before = stored_files(table)

    result = step.compact(table, EXECUTOR, strategy=strategy)

    assert result.snapshot_id is None
    assert not result.plan
    assert stored_files(table) == before


def test_an_empty_table_has_nothing_to_compact(tmp_path: Path) -> None:
    assert step.compact(vectored(tmp_path), EXECUTOR).snapshot_id is None


def test_a_filter_over_other_than_partition_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="v is no partition column"):
        step.plan(compacted(tmp_path), where="v = 'old'")


def test_only_the_chosen_partitions_are_compacted(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "p INT, k BIGINT",
        key=("p", "k"),
        partition_by=["p"],
        deletion_vectors__enabled="true",
    )
    table.upsert(table_of("p k", [(p, k) for p in range(4) for k in range(3)]))

    by_spec = step.plan(table, partitions=["p=1", {"p": 2}])
    by_filter = step.plan(table, where="p >= 3")

    assert sorted(unit.partition_text for unit in by_spec.units) == ["p=1", "p=2"]
    assert [unit.partition_text for unit in by_filter.units] == ["p=3"]
    assert by_spec.skipped == 0


def test_a_plan_changes_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    table = vectored(tmp_path)
    upsert(table, range(10), "x")
    before = stored_files(table)

    planned = step.plan(table).to_dict()

    assert stored_files(table) == before
    assert (planned["snapshot_id"], planned["buckets"], planned["files"]) == (1, 1, 1)


def test_a_crash_of_a_unit_leaves_the_table_and_its_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = vectored(tmp_path, bucket="3")
    upsert(table, range(100), "old")
    upsert(table, range(50), "new")  # overlapping files are rewritten, not moved
    before, snapshot = stored_files(table), table.snapshot()
    compact_bucket, calls = BucketCompaction._compact, iter(range(9))

    def crash_in_the_last(self: BucketCompaction) -> None:
        compact_bucket(self)
        if next(calls) == 2:
            raise StorageError("the disk is full")

    monkeypatch.setattr(BucketCompaction, "_compact", crash_in_the_last)
    with pytest.raises(StorageError, match="the disk is full"):
        step.compact(table, EXECUTOR)

    assert stored_files(table) == before
    assert table.snapshot() == snapshot


def test_a_unit_that_cannot_write_its_vectors_removes_its_data_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = compacted(tmp_path)
    upsert(table, range(10), "a")
    upsert(table, range(10), "b")
    before = stored_files(table)

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr("paimon_orch.merge.vectors.BucketVectors.write", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        step.compact(table, EXECUTOR)

    assert stored_files(table) == before


def test_a_unit_that_runs_twice_harms_nothing(tmp_path: Path) -> None:
    table = vectored(tmp_path)
    upsert(table, range(20), "a")
    upsert(table, range(10), "b")
    planned = step.plan(table)
    (unit,) = planned.units
    step.run(unit)

    snapshot = step.commit(table, planned, [CommitMessage.decode(step.run(unit))])

    assert snapshot is not None
    assert_healthy(table)
    assert rows_of(table) == [(n, "b" if n < 10 else "a") for n in range(20)]


def test_of_equal_sequence_numbers_the_same_row_wins_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers that start from one snapshot number their rows alike; either may win, but it stays the winner."""
    table, clock = new_table(tmp_path), iter((1, 2))
    monkeypatch.setattr("paimon_orch.files.writer.local_wall_clock_millis", lambda: next(clock))
    written = []
    for value in ("first", "second"):
        writer = TableWriter(table.writer_factory(), {})
        writer.write(conform_rows(table_of("k v", [(1, value)]), table.schema))
        written.append(tuple(writer.close()))
    for entries in reversed(written):
        table.new_commit().commit(Changes(CommitKind.APPEND, entries))
    before = rows_of(table)
    monkeypatch.undo()

    step.compact(table, EXECUTOR, strategy="full")

    assert rows_of(table) == before


# --- two compactions of the same snapshot


def results(planned: step.CompactionPlan) -> list[CommitMessage]:
    return [CommitMessage.decode(step.run(unit)) for unit in planned.units]


def test_of_two_compactions_of_one_snapshot_the_second_is_refused(tmp_path: Path) -> None:
    table = vectored(tmp_path)
    upsert(table, range(100), "a")
    upsert(table, range(50), "b")
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
    table = compacted(tmp_path)
    upsert(table, range(10), "newer")
    step.compact(table, EXECUTOR)
    assert levels_of(table) == [4, 5]
    upper = step.plan(table, strategy="full")
    upper_done = results(upper)
    table.delete(table_of("k", [(50,)]))  # the row lies on level 5
    upsert(table, range(60, 61), "newest")
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
    table = compacted(tmp_path)
    upsert(table, range(10), "one")
    first = step.plan(table)
    first_done = results(first)
    upsert(table, range(10, 20), "two")
    second = step.plan(table)
    second_done = results(second)

    step.commit(table, first, first_done)
    with pytest.raises(CommitConflictError):
        step.commit(table, second, second_done)


def test_a_compaction_that_loses_plans_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = vectored(tmp_path)
    upsert(table, range(100), "a")
    upsert(table, range(50), "b")
    run, raced = step.run, list[step.CompactionUnit]()

    def run_while_another_commits(unit: step.CompactionUnit) -> bytes:
        if not raced:
            raced.append(unit)
            other = step.plan(table, strategy="full")
            step.commit(table, other, [CommitMessage.decode(run(unit)) for unit in other.units])
            upsert(table, range(7), "c")
        return run(unit)

    monkeypatch.setattr("paimon_orch.steps.compaction.run", run_while_another_commits)
    result = step.compact(table, EXECUTOR)

    assert result.attempts == 2
    assert rows_of(table) == [(n, "c" if n < 7 else "b" if n < 50 else "a") for n in range(100)]
    assert_healthy(table)


def test_a_compaction_that_always_loses_reports_the_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = vectored(tmp_path)
    upsert(table, range(10), "a")
    upsert(table, range(5), "a")
    run, number = step.run, iter(range(100, 200))

    def run_while_another_commits(unit: step.CompactionUnit) -> bytes:
        other = step.plan(table, strategy="full")
        step.commit(table, other, [CommitMessage.decode(run(unit)) for unit in other.units])
        start = next(number)
        upsert(table, range(start, start + 1), "c")
        return run(unit)

    monkeypatch.setattr("paimon_orch.steps.compaction.run", run_while_another_commits)
    with pytest.raises(CommitConflictError):
        step.compact(table, EXECUTOR)

    assert_healthy(table)


def test_rows_that_arrive_meanwhile_stay_on_level_0(tmp_path: Path) -> None:
    table = compacted(tmp_path)
    upsert(table, range(10), "first")
    planned = step.plan(table)
    done = results(planned)
    upsert(table, range(5), "second")

    step.commit(table, planned, done)

    assert levels_of(table) == [0, 4, 5]
    step.compact(table, EXECUTOR)
    assert rows_of(table)[:10] == [(n, "second" if n < 5 else "first") for n in range(10)]
    assert_healthy(table)
