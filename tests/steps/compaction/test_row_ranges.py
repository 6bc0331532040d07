"""Compaction of data-evolution tables: rows, row ids and deleted rows stay the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from support.data_evolution import RowChanges, add_columns, evolving_table, files_of, rows_by_id
from support.steps import run_units
from support.tables import deletion_vectors_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, StorageError, UnsupportedError
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.compact.append_deletion_vectors import DeletionVectorRewrite
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import COMPACT, CompactRequest, compact, plan
from paimon_orch.steps.compaction.decide import decide
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.steps.compaction.row_ranges import RowRangeCompactionUnit
from paimon_orch.steps.compaction.sort_compact import SortOrder, SortRequest
from paimon_orch.steps.compaction.sort_compact import plan as plan_sort
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
VECTORS = {"deletion_vectors__enabled": "true"}


def delete_rows(table: Table, deleted: dict[str, list[int]]) -> None:
    """Commit deletion vectors of anchor files, with positions by file name."""
    [split] = table.files()
    index = DeletionVectorRewrite(
        reader=table.stores.reader(),
        partition=split.partition,
        bucket=split.bucket,
        index_files=split.vectors,
        live={file.file_name for file in split.files},
    )
    added = {name: DeletionVector.of(positions) for name, positions in deleted.items()}
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(
        CommitChanges(kind=CommitKind.OVERWRITE, index=tuple(index.run(add=added)))
    )


def rows_with_columns_in_several_files(root: Path, **options: str) -> Table:
    """Return a table of rows 0 to 8 in three ranges; some columns were written again."""
    table = evolving_table(root, **options)
    for first in (0, 3, 6):
        add_columns(table, table_of("a b c", [(first + n, 0, 0) for n in range(3)]))
    add_columns(table, table_of("b", [(10 + n,) for n in range(3)]), first_row_id=3)
    add_columns(table, table_of("c b", [(20 + n, 30 + n) for n in range(3)]), first_row_id=0)
    return table


def test_files_of_the_same_and_of_adjacent_rows_become_one_file(tmp_path: Path) -> None:
    table = rows_with_columns_in_several_files(tmp_path)
    before = rows_by_id(table)
    assert before[4] == (4, 11, 0)

    result = compact(table, EXECUTOR)

    assert rows_by_id(table) == before
    [file] = files_of(table)
    assert (file.first_row_id, file.row_count, file.write_cols) == (0, 9, None)
    assert (file.min_sequence_number, file.max_sequence_number) == (1, 5)
    assert (file.level, file.file_source) == (0, 0)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.next_row_id) == (CommitKind.COMPACT, 9)
    assert (result.files_before, result.files_after, result.rows_written) == (5, 1, 9)
    assert check(table, deep=True).findings == ()
    assert compact(table, EXECUTOR, strategy="full").snapshot_id is None


def test_columns_that_were_added_and_dropped_follow_the_newest_schema(tmp_path: Path) -> None:
    table = rows_with_columns_in_several_files(tmp_path)
    changes: list[SchemaChange] = [
        AddColumn(column="d", type="STRING"),
        DropColumn("b"),
        RenameColumn("c", "e"),
    ]
    Catalog(str(tmp_path)).alter_table("db.t", changes)
    add_columns(table, table_of("d", [("x",), ("y",), ("z",)]), first_row_id=6)
    before = rows_by_id(table)
    assert (before[0], before[7]) == ((0, 20, None), (7, 0, "y"))

    compact(table, EXECUTOR)

    assert rows_by_id(table) == before
    assert [file.schema_id for file in files_of(table)] == [table.load().schema.id]


def test_deletion_vectors_move_to_the_new_file(tmp_path: Path) -> None:
    table = rows_with_columns_in_several_files(tmp_path, **VECTORS)
    add_columns(table, table_of("a b c", [(9, 9, 9)] * 3))
    anchors = {file.first_row_id: file.file_name for file in files_of(table) if not file.write_cols}
    delete_rows(table, {anchors[0]: [0], anchors[3]: [1, 2], anchors[9]: [1]})
    before = rows_by_id(table)
    assert sorted(before) == [1, 2, 3, 6, 7, 8, 9, 11]

    # the last file remains, and its deletion vector is in the same index file
    planned = plan(table, CompactRequest())
    [unit] = planned.units
    assert isinstance(unit, RowRangeCompactionUnit)
    assert unit.output_level == 0
    unit = replace(unit, files_by_row_id=unit.files_by_row_id[:-1])
    planned = replace(planned, units=(unit,))
    messages = run_units(COMPACT, table, planned)
    result = COMPACT.commit(table, planned, messages)

    assert rows_by_id(table) == before
    assert [file.row_count for file in files_of(table)] == [9, 3]
    first, last = (file.file_name for file in files_of(table))
    vectors = {
        name: vector.positions().tolist() for name, vector in deletion_vectors_of(table).items()
    }
    assert vectors == {first: [0, 4, 5], last: [1]}
    assert result.deleted_rows == 4
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("bucket", [0, 1])
def test_a_failed_move_of_deletion_vectors_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int
) -> None:
    table = evolving_table(tmp_path, "p INT, k BIGINT", ["p"], **VECTORS, compaction__min__file_num="2")  # fmt: skip
    for number in range(4):
        table.append(table_of("p k", [(number // 2, 0), (number // 2, 1)]))
    RowChanges(deleted=range(0, 8, 2)).commit(table)
    before = stored_files(table)
    write, writes = DeletionVectorRewrite._write, count()

    def fail(self: DeletionVectorRewrite, vectors: Mapping[str, DeletionVector]) -> object:
        if next(writes) == bucket:
            raise StorageError("the disk is full")
        return write(self, vectors)

    monkeypatch.setattr(DeletionVectorRewrite, "_write", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        compact(table, EXECUTOR)

    assert next(writes) == bucket + 1
    assert stored_files(table) == before


def update_columns(table: Table) -> None:
    add_columns(table, table_of("b", [(50,), (51,), (52,)]), first_row_id=3)


def delete_more(table: Table) -> None:
    delete_rows(table, {files_of(table)[0].file_name: [2]})


@pytest.mark.parametrize("change", [update_columns, delete_more])
def test_a_concurrent_change_of_the_same_rows_is_a_conflict(tmp_path: Path, change: object) -> None:
    table = rows_with_columns_in_several_files(tmp_path, **VECTORS)
    delete_rows(table, {files_of(table)[0].file_name: [0]})
    planned = plan(table, CompactRequest())
    messages = run_units(COMPACT, table, planned)
    change(table)  # type: ignore[operator]
    before, stored = rows_by_id(table), stored_files(table)

    with pytest.raises(CommitConflictError, match=r"run the step again|repeat the operation"):
        COMPACT.commit(table, planned, messages)

    assert rows_by_id(table) == before
    assert stored_files(table) < stored
    compact(table, EXECUTOR)
    assert rows_by_id(table) == before


def test_an_update_of_rows_whose_files_were_compacted_is_a_conflict(tmp_path: Path) -> None:
    table = rows_with_columns_in_several_files(tmp_path)
    compact(table, EXECUTOR)
    before = rows_by_id(table)

    with pytest.raises(CommitConflictError, match="only a part of their rows in common"):
        update_columns(table)

    assert rows_by_id(table) == before


def test_rows_of_other_partitions_lie_between_the_files_of_a_partition(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, "p INT, a BIGINT", partition_by=["p"])
    table.append(table_of("p a", [(0, 1), (1, 2)]))
    table.append(table_of("p a", [(0, 3)]))
    table.append(table_of("p a", [(0, 4), (1, 5)]))
    before = rows_by_id(table)

    result = compact(table, EXECUTOR, partitions=["p=0"], strategy="full")

    assert rows_by_id(table) == before
    assert (result.files_before, result.files_after) == (2, 1)
    ranges = [(file.first_row_id, file.row_count) for file in files_of(table)]
    assert ranges == [(0, 1), (1, 1), (2, 2), (4, 1)]


def test_a_new_file_is_not_divided(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, target_file_size="1 kb", target_file_row_num="10")
    for first in range(0, 100, 10):
        table.append(table_of("a b c", [(n, n, n) for n in range(first, first + 10)]))

    compact(table, EXECUTOR, strategy="full")
    assert [file.row_count for file in files_of(table)] == [10] * 10
    Catalog(str(tmp_path)).alter_table("db.t", [SetOption("source.split.open-file-cost", "1 b")])
    compact(table, EXECUTOR, strategy="full")

    assert all(file.row_count > 10 for file in files_of(table))


def test_the_policy_counts_files_to_rewrite(tmp_path: Path) -> None:
    table = rows_with_columns_in_several_files(tmp_path)

    [decision] = decide(table, CompactionPolicy(small_files=2))

    assert decision.compact
    assert decision.metrics.rewrite_files == 5


def test_refused_options_and_sort_orders(tmp_path: Path) -> None:
    table = rows_with_columns_in_several_files(
        tmp_path, data_evolution__compaction__rewrite_row_ids="true"
    )

    with pytest.raises(UnsupportedError, match=r"data-evolution\.compaction\.rewrite-row-ids"):
        compact(table, EXECUTOR)
    table = rows_with_columns_in_several_files(tmp_path / "other")
    with pytest.raises(UnsupportedError, match=r"data-evolution\.enabled"):
        plan_sort(table, SortRequest(order=SortOrder(columns=("a",))))
