"""Compaction keeps the visible rows and the invariants of the merge tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from support.steps import commit_plan, run_units
from support.tables import (
    assert_healthy,
    deletion_vectors_of,
    levels_of,
    new_table,
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

from paimon_orch.errors import InputError, StorageError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.compact.bucket_compaction import BucketCompaction
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.write.conform_rows import convert_rows
from paimon_orch.table.write.table_write import TableWriter
from paimon_orch.table.write.write_plan import WritePlan


def test_minor_compaction_deletes_replaced_rows_by_deletion_vectors(tmp_path: Path) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10, 30), "new")

    result = step.compact(table, EXECUTOR)

    assert levels_of(table) == [4, 5]
    assert (result.deleted_rows, result.rows_written, result.files_after) == (20, 0, 1)
    assert [vector.cardinality for vector in deletion_vectors_of(table).values()] == [20]
    assert_healthy(table)


def test_a_deleted_key_gets_a_deletion_vector_and_is_not_written(tmp_path: Path) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    table.delete(table_of("k", [(number,) for number in range(5)]))

    step.compact(table, EXECUTOR)

    assert levels_of(table) == [5]
    assert rows_of(table) == [(number, "old") for number in range(5, 100)]
    assert_healthy(table)


def test_full_compaction_of_one_level_rewrites_only_files_with_deleted_rows(
    tmp_path: Path,
) -> None:
    table = compacted_deletion_vector_table(tmp_path, target_file_size="500")
    assert len(levels_of(table)) > 2
    table.delete(table_of("k", [(0,)]))
    step.compact(table, EXECUTOR)
    (file_with_vector,) = deletion_vectors_of(table)

    result = step.compact(table, EXECUTOR, strategy="full")

    assert result.files_before == 1
    assert not deletion_vectors_of(table)
    assert file_with_vector not in {
        file.file_name for split in table.files() for file in split.files
    }
    assert_healthy(table)


def test_rewriting_a_file_with_only_deleted_rows_writes_no_file(tmp_path: Path) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    table.delete(table_of("k", [(number,) for number in range(100)]))
    step.compact(table, EXECUTOR)

    step.compact(table, EXECUTOR, strategy="full")

    assert levels_of(table) == []
    assert rows_of(table) == []
    assert_healthy(table)


def test_lookups_cover_several_files_and_row_groups_per_level(tmp_path: Path) -> None:
    table = compacted_deletion_vector_table(tmp_path, target_file_size="500")
    for start in (3, 50, 97):
        upsert_numbers(table, range(start, start + 3), f"from {start}")
        step.compact(table, EXECUTOR)
        assert_healthy(table)

    changed = {n: f"from {start}" for start in (3, 50, 97) for n in range(start, start + 3)}
    assert rows_of(table) == [(n, changed.get(n, "old")) for n in range(100)]


@pytest.mark.parametrize("strategy", ["minor", "full"])
def test_a_plan_without_units_commits_nothing(
    tmp_path: Path, strategy: Literal["minor", "full"]
) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    before = stored_files(table)

    result = step.compact(table, EXECUTOR, strategy=strategy)

    assert result.snapshot_id is None
    assert not result.plan
    assert stored_files(table) == before


def test_an_empty_table_has_nothing_to_compact(tmp_path: Path) -> None:
    assert step.compact(deletion_vector_table(tmp_path), EXECUTOR).snapshot_id is None


def test_a_filter_over_columns_other_than_partition_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a partition column: v"):
        step.plan(compacted_deletion_vector_table(tmp_path), step.CompactRequest(where="v = 'old'"))


def test_only_the_selected_partitions_are_compacted(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "p INT, k BIGINT",
        key=("p", "k"),
        partition_by=["p"],
        deletion_vectors__enabled="true",
    )
    table.upsert(table_of("p k", [(p, k) for p in range(4) for k in range(3)]))

    by_spec = step.plan(table, step.CompactRequest(partitions=["p=1", {"p": 2}]))
    by_filter = step.plan(table, step.CompactRequest(where="p >= 3"))

    assert sorted(unit.partition_text for unit in by_spec.units) == ["p=1", "p=2"]
    assert [unit.partition_text for unit in by_filter.units] == ["p=3"]
    assert by_spec.skipped_buckets == 0


def test_a_plan_shows_the_work_and_changes_nothing(tmp_path: Path) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "x")
    before = stored_files(table)

    planned = step.plan(table, step.CompactRequest()).to_dict()

    assert stored_files(table) == before
    assert (planned["snapshot_id"], planned["buckets"], planned["files"]) == (1, 1, 1)


def test_a_crash_of_a_unit_leaves_the_table_and_its_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = deletion_vector_table(tmp_path, bucket="3")
    upsert_numbers(table, range(100), "old")
    upsert_numbers(table, range(50), "new")  # overlapping files are rewritten, not moved
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


def test_a_unit_that_cannot_write_its_deletion_vectors_removes_its_data_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = compacted_deletion_vector_table(tmp_path)
    upsert_numbers(table, range(10), "a")
    upsert_numbers(table, range(10), "b")
    before = stored_files(table)

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(
        "paimon_orch.merge.compact.bucket_deletion_vectors.BucketDeletionVectors.write", fail
    )
    with pytest.raises(StorageError, match="the disk is full"):
        step.compact(table, EXECUTOR)

    assert stored_files(table) == before


def test_a_unit_can_run_twice(tmp_path: Path) -> None:
    table = deletion_vector_table(tmp_path)
    upsert_numbers(table, range(20), "a")
    upsert_numbers(table, range(10), "b")
    planned = step.plan(table, step.CompactRequest())
    run_units(step.COMPACT, table, planned)

    result = commit_plan(step.COMPACT, table, planned)

    assert result.snapshot_id == 3
    assert_healthy(table)
    assert rows_of(table) == [(n, "b" if n < 10 else "a") for n in range(20)]


def test_compaction_keeps_the_row_that_readers_select_among_equal_sequence_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers from one snapshot use equal numbers; compaction must not change the winner."""
    table, clock = new_table(tmp_path), iter((1, 2))
    monkeypatch.setattr(
        "paimon_orch.files.data_file_writer.local_wall_clock_millis", lambda: next(clock)
    )
    written = []
    for value in ("first", "second"):
        writer = TableWriter(WritePlan(factory=table.stores.build_writer_factory()))
        writer.write(convert_rows(table_of("k v", [(1, value)]), table.load().schema))
        written.append(writer.close().entries)
    for entries in reversed(written):
        table.stores.new_commit(StepKind.WRITE_ROWS).commit(
            CommitChanges(kind=CommitKind.APPEND, entries=entries)
        )
    before = rows_of(table)
    monkeypatch.undo()

    step.compact(table, EXECUTOR, strategy="full")

    assert rows_of(table) == before


def test_runs_up_to_a_level_are_merged_without_those_above(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(number, "old") for number in range(9)]))
    step.compact(table, strategy="full")
    for number in range(2):
        table.upsert(table_of("k v", [(number, "new")]))
    before = rows_of(table)
    planned = step.plan(table, step.CompactRequest(up_to_level=0))

    result = step.run_compaction(table, planned)

    assert (levels_of(table), result.files_before, result.rows_written) == ([4, 5], 2, 2)
    assert rows_of(table) == before
    assert not step.plan(table, step.CompactRequest(up_to_level=4 - 1))
    assert_healthy(table)


def test_runs_up_to_a_level_need_a_table_with_levels(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")

    with pytest.raises(InputError, match="only in primary-key tables"):
        step.plan(table, step.CompactRequest(up_to_level=0))


def test_the_partitions_of_a_commit_that_emptied_one_can_be_compacted(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k INT", key=("p", "k"), partition_by=["p"])
    table.upsert(table_of("p k", [(1, 1), (2, 2)]))
    dropped = table.drop_partitions(["p=1"])
    assert dropped is not None

    step.compact_written_partitions(table, dropped.id, InProcessExecutor())

    assert rows_of(table) == [(2, 2)]
