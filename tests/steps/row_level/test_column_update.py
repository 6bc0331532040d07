"""Updates and deletes of data-evolution tables: only changed columns are written, ids remain."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.data_evolution import RowChanges, evolving_table, files_of, rows_by_id
from support.tables import deletion_vectors_of, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, StorageError, UnsupportedError
from paimon_orch.format.manifest.index_manifest import GlobalIndexMeta, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.column_update import ColumnUpdate, RowRange
from paimon_orch.steps.row_level.row_level_write import RowLevelRequest, delete
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
VECTORS = {"deletion_vectors__enabled": "true"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table of the rows 0 to 9 in two files."""
    created = evolving_table(tmp_path, **VECTORS)
    for first in (0, 5):
        created.append(table_of("a b c", [(n, n, n) for n in range(first, first + 5)]))
    return created


def test_only_the_changed_columns_of_changed_ranges_are_written(table: Table) -> None:
    changes = RowChanges(updated={7: {"c": 70, "b": None}, 6: {"c": 60, "b": 1}})

    result = changes.commit(table)

    expected = {n: (n, n, n) for n in range(10)} | {6: (6, 1, 60), 7: (7, None, 70)}
    assert rows_by_id(table) == expected
    assert (result.updated, result.files_added, result.files_removed) == (2, 1, 0)
    new = files_of(table)[-1]
    assert (new.first_row_id, new.row_count, new.write_cols) == (5, 5, ("b", "c"))
    assert (new.min_sequence_number, new.max_sequence_number, new.file_source) == (3, 3, 0)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.next_row_id) == (CommitKind.APPEND, 10)
    sequences = rows_of(table, columns=["_SEQUENCE_NUMBER", "_ROW_ID"])
    assert sequences == [(1, n) for n in range(5)] + [(3, n) for n in range(5, 10)]
    assert check(table, deep=True).findings == ()


def test_updates_deletes_and_new_rows_are_one_commit(table: Table) -> None:
    RowChanges(deleted=[0, 5]).commit(table)

    result = RowChanges(
        updated={1: {"b": 11}, 9: {"b": 19}}, deleted=[2, 8], inserted=[(100, 1, 2)]
    ).commit(table)

    expected = {n: (n, n, n) for n in (3, 4, 6, 7)}
    expected |= {1: (1, 11, 1), 9: (9, 19, 9), 10: (100, 1, 2)}
    assert rows_by_id(table) == expected
    assert (result.updated, result.deleted, result.inserted) == (2, 2, 1)
    anchors = {file.file_name for file in files_of(table) if file.write_cols is None}
    assert set(deletion_vectors_of(table)) < anchors
    assert check(table, deep=True).findings == ()
    compact(table, EXECUTOR, strategy="full")
    assert rows_by_id(table) == expected


def test_rows_are_deleted_by_a_filter_on_newer_columns(table: Table) -> None:
    RowChanges(updated={1: {"c": 70}, 7: {"c": 70}}).commit(table)

    # the statistics of the first file do not include 70
    result = delete(table, EXECUTOR, "c = 70 OR a = 4")

    assert result.deleted == 3
    assert sorted(rows_by_id(table)) == [0, 2, 3, 5, 6, 8, 9]
    assert delete(table, EXECUTOR, "c = 7").snapshot_id is None


def test_deletes_need_deletion_vectors(tmp_path: Path) -> None:
    table = evolving_table(tmp_path)
    table.append(table_of("a b c", [(1, 2, 3)]))

    with pytest.raises(UnsupportedError, match=r"'deletion-vectors\.enabled' = true"):
        delete(table, EXECUTOR, "a = 1")
    with pytest.raises(UnsupportedError, match=r"'deletion-vectors\.enabled' = true"):
        row_level.plan(table, RowLevelRequest(operation="merge"))
    RowChanges(updated={0: {"a": 5}}).commit(table)
    assert rows_by_id(table) == {0: (5, 2, 3)}


def test_a_column_that_was_added_or_renamed_is_updated(table: Table, tmp_path: Path) -> None:
    changes: list[SchemaChange] = [
        AddColumn(column="d", type="STRING"),
        RenameColumn("b", "e"),
    ]
    Catalog(str(tmp_path)).alter_table("db.t", changes)

    RowChanges(updated={3: {"d": "x", "e": 33}}).commit(table)

    assert rows_by_id(table)[3] == (3, 33, 3, "x")
    assert rows_by_id(table)[4] == (4, 4, 4, None)


def test_partitions_are_updated_separately(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, "p INT, a BIGINT", partition_by=["p"])
    table.append(table_of("p a", [(0, 1), (1, 2), (0, 3)]))
    before = rows_by_id(table)

    RowChanges(updated={n: {"a": -n} for n in before}).commit(table)

    assert rows_by_id(table) == {n: (p, -n) for n, (p, _) in before.items()}
    assert [file.row_count for file in files_of(table) if file.write_cols] in ([2, 1], [1, 2])


def test_two_changes_of_a_row_are_refused_and_leave_no_files(table: Table) -> None:
    before = stored_files(table)

    with pytest.raises(InputError, match="match the same row"):
        RowChanges(updated={1: {"a": 5}}, deleted=[1], inserted=[(1, 2, 3)]).commit(table)

    assert stored_files(table) == before


def test_a_failed_range_leaves_no_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write, ranges = stored_files(table), ColumnUpdate._write_range, list[object]()

    def fail_at_second(self: ColumnUpdate, row_range: RowRange, *arguments: Any) -> DataFileMeta:
        ranges.append(row_range)
        if len(ranges) == 2:
            assert len(stored_files(table)) > len(before)
            raise StorageError("the disk is full")
        return write(self, row_range, *arguments)

    monkeypatch.setattr(ColumnUpdate, "_write_range", fail_at_second)
    with pytest.raises(StorageError, match="the disk is full"):
        RowChanges(updated={1: {"a": 5}, 6: {"a": 5}}, inserted=[(1, 2, 3)]).write(table)

    assert stored_files(table) == before


@pytest.mark.parametrize(
    ("other", "conflicts"),
    [
        (RowChanges(updated={1: {"a": 50}}), False),
        (RowChanges(updated={6: {"b": 50}}), False),
        (RowChanges(updated={2: {"b": 50}}), True),
        (RowChanges(inserted=[(7, 7, 7)]), False),
    ],
)
def test_updates_of_the_same_columns_of_a_range_conflict(
    table: Table, other: RowChanges, conflicts: bool
) -> None:
    planned, results = RowChanges(updated={1: {"b": 11}}).write(table)
    other.commit(table)
    before = rows_by_id(table)

    if conflicts:
        with pytest.raises(CommitConflictError, match="wrote the same columns of the same rows"):
            row_level.commit(table, planned, results, executor=EXECUTOR)
        assert rows_by_id(table) == before
    else:
        row_level.commit(table, planned, results, executor=EXECUTOR)
        assert rows_by_id(table) == {**before, 1: (before[1][0], 11, before[1][2])}


def test_a_delete_of_rows_that_were_updated_is_a_conflict(table: Table) -> None:
    planned, results = RowChanges(deleted=[1]).write(table)
    RowChanges(updated={2: {"a": 5}}).commit(table)

    with pytest.raises(CommitConflictError, match="wrote the same columns of the same rows"):
        row_level.commit(table, planned, results, executor=EXECUTOR)


def test_an_update_of_rows_that_were_compacted_is_a_conflict(table: Table) -> None:
    planned, results = RowChanges(updated={1: {"a": 5}}).write(table)
    compact(table, EXECUTOR, strategy="full")
    stored = stored_files(table)

    with pytest.raises(CommitConflictError, match="only a part of their rows in common"):
        row_level.commit(table, planned, results, executor=EXECUTOR)

    assert stored_files(table) < stored


def add_global_index(table: Table, column: str) -> None:
    entry = IndexManifestEntry(
        kind=FileKind.ADD,
        partition=EMPTY_ROW,
        bucket=0,
        index_type="btree",
        file_name="global-index-1",
        file_size=1,
        row_count=10,
        global_index=GlobalIndexMeta(
            row_range_start=0,
            row_range_end=9,
            index_field_id=table.load().schema.field(column).id,
            extra_field_ids=None,
            index_meta=None,
        ),
    )
    changes = CommitChanges(kind=CommitKind.APPEND, index=(entry,))
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(changes)


def test_updates_follow_the_option_for_columns_with_a_global_index(
    table: Table, tmp_path: Path
) -> None:
    def count_indexes() -> int:
        entries = table.stores.manifests.read_index_entries(table.snapshot())
        return sum(entry.global_index is not None for entry in entries)

    add_global_index(table, "b")
    RowChanges(updated={1: {"a": 5}}).commit(table)
    with pytest.raises(UnsupportedError, match=r"global-index\.column-update-action"):
        RowChanges(updated={1: {"b": 5}}).commit(table)

    assert count_indexes() == 1
    for action, remaining in [("IGNORE", 1), ("DROP_PARTITION_INDEX", 0)]:
        option = SetOption("global-index.column-update-action", action)
        Catalog(str(tmp_path)).alter_table("db.t", [option])
        RowChanges(updated={1: {"b": 5}}).commit(table)
        assert count_indexes() == remaining


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_columns_of_all_kinds_are_updated_in_all_formats(tmp_path: Path, form: str) -> None:
    columns = (
        "k INT NOT NULL, d DECIMAL(10, 2), t TIMESTAMP(6), l ARRAY<INT>, r ROW<x INT, y STRING>"
    )
    table = evolving_table(
        tmp_path, columns, file__format=form, file_index__bloom_filter__columns="k", **VECTORS
    )
    numbers, noon = range(5), datetime(2020, 1, 1, 12)
    rows = {
        "k": pa.array(numbers, pa.int32()),
        "d": [Decimal(n) for n in numbers],
        "t": [noon] * 5,
        "l": [[n] for n in numbers],
        "r": [{"x": n, "y": str(n)} for n in numbers],
    }
    table.append(pa.table(rows))
    before = rows_by_id(table)
    new = {"d": Decimal("1.25"), "t": None, "l": [7, 8], "r": {"x": None, "y": "new"}}

    RowChanges(updated={1: new, 3: dict.fromkeys(new)}, deleted=[2]).commit(table)

    expected = {0: before[0], 1: (1, *new.values()), 3: (3, *[None] * 4), 4: before[4]}
    assert rows_by_id(table) == expected
    assert check(table, deep=True).findings == ()
    compact(table, EXECUTOR, strategy="full")
    assert rows_by_id(table) == expected
    assert rows_of(table, columns=["l"], filter="k = 1") == [([7, 8],)]
    assert check(table, deep=True).findings == ()


def test_an_update_of_a_table_that_was_rolled_back_is_a_conflict(table: Table) -> None:
    RowChanges(updated={1: {"b": 11}}).commit(table)
    planned, results = RowChanges(updated={1: {"a": 12}}).write(table)
    table.rollback(2)

    with pytest.raises(CommitConflictError, match="run the step again"):
        row_level.commit(table, planned, results, executor=EXECUTOR)

    assert rows_by_id(table)[1] == (1, 1, 1)
