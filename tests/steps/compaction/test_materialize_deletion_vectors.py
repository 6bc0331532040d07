"""Materializing deletion vectors: deleted rows are removed, and row ids of their files change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.data_evolution import RowChanges, evolving_table, files_of, rows_by_id
from support.steps import run_units
from support.tables import deletion_vectors_of, stored_files, table_of

from paimon_orch.errors import CommitConflictError, StorageError, UnsupportedError
from paimon_orch.format.manifest.index_manifest import GlobalIndexMeta, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.compact.append_deletion_vectors import DeletionVectorRewrite
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.materialize_deletion_vectors import (
    MATERIALIZE_DELETION_VECTORS,
    materialize_deletion_vectors,
    plan,
)
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
VECTORS = {"deletion_vectors__enabled": "true"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table of the rows 0 to 14 in three files; columns of the first are in two files."""
    created = evolving_table(tmp_path, **VECTORS)
    for first in (0, 5, 10):
        created.append(table_of("a b c", [(n, n, n) for n in range(first, first + 5)]))
    RowChanges(updated={1: {"b": 11}}).commit(created)
    return created


def test_only_files_with_deleted_rows_are_rewritten(table: Table) -> None:
    RowChanges(deleted=[0, 11]).commit(table)
    before = rows_by_id(table)

    result = materialize_deletion_vectors(table, EXECUTOR)

    after = rows_by_id(table)
    # largest unit first: rows 1 to 4, then rows 10 and 12 to 14
    new_ids = dict(zip([1, 2, 3, 4, 10, 12, 13, 14], range(15, 23), strict=True))
    assert after == {new_ids.get(n, n): row for n, row in before.items()}
    assert deletion_vectors_of(table) == {}
    assert (result.files_before, result.files_after, result.deleted_rows) == (3, 2, 0)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.next_row_id) == (CommitKind.COMPACT, 23)
    new = files_of(table)[-1]
    assert (new.min_sequence_number, new.max_sequence_number, new.write_cols) == (6, 6, None)
    assert check(table, deep=True).findings == ()
    assert materialize_deletion_vectors(table, EXECUTOR).snapshot_id is None


def test_a_file_without_remaining_rows_is_removed(table: Table) -> None:
    RowChanges(deleted=range(5, 10)).commit(table)

    materialize_deletion_vectors(table, EXECUTOR)

    assert [file.first_row_id for file in files_of(table)] == [0, 0, 10]
    assert sorted(rows_by_id(table)) == [*range(5), *range(10, 15)]


def test_a_failed_rewrite_of_index_files_leaves_no_files(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    RowChanges(deleted=[0, 6]).commit(table)
    RowChanges(deleted=[11]).commit(table)
    rows, before = rows_by_id(table), stored_files(table)
    monkeypatch.setattr(DeletionVectorRewrite, "run", fail_with(StorageError("the disk is full")))

    with pytest.raises(StorageError, match="the disk is full"):
        materialize_deletion_vectors(table, EXECUTOR)

    assert stored_files(table) == before
    assert rows_by_id(table) == rows


def fail_with(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_partitions_are_selected(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, "p INT, a BIGINT", partition_by=["p"], **VECTORS)
    table.append(table_of("p a", [(0, 1), (0, 2), (1, 3), (1, 4)]))
    RowChanges(deleted=[0, 2]).commit(table)

    materialize_deletion_vectors(table, EXECUTOR, partitions=["p=1"])

    assert rows_by_id(table) == {1: (0, 2), 4: (1, 4)}
    assert len(deletion_vectors_of(table)) == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "change",
    [
        RowChanges(updated={2: {"c": 5}}),
        RowChanges(deleted=[2]),
        RowChanges(deleted=[12]),
    ],
)
def test_concurrent_changes_of_the_rows_are_conflicts(table: Table, change: RowChanges) -> None:
    RowChanges(deleted=[0, 11]).commit(table)
    planned = plan(table, PartitionRequest())
    assert {unit.output_level for unit in planned.units} == {0}
    messages = run_units(MATERIALIZE_DELETION_VECTORS, table, planned)
    change.commit(table)
    before, stored = rows_by_id(table), stored_files(table)

    with pytest.raises(CommitConflictError, match=r"run the step again|repeat the operation"):
        MATERIALIZE_DELETION_VECTORS.commit(table, planned, messages)

    assert rows_by_id(table) == before
    assert stored_files(table) < stored
    materialize_deletion_vectors(table, EXECUTOR)
    assert sorted(rows_by_id(table).values()) == sorted(before.values())


def test_changes_of_rows_that_got_new_ids_are_conflicts(table: Table) -> None:
    RowChanges(deleted=[0]).commit(table)
    planned, results = RowChanges(updated={2: {"c": 5}}).write(table)
    materialize_deletion_vectors(table, EXECUTOR)

    from paimon_orch.steps.row_level import row_level_write as row_level

    with pytest.raises(CommitConflictError, match="another commit replaced the files"):
        row_level.commit(table, planned, results, executor=EXECUTOR)


def test_global_indexes_of_the_old_ids_are_dropped(table: Table) -> None:
    entry = IndexManifestEntry(
        kind=FileKind.ADD,
        partition=EMPTY_ROW,
        bucket=0,
        index_type="btree",
        file_name="global-index-1",
        file_size=1,
        row_count=15,
        global_index=GlobalIndexMeta(
            row_range_start=0,
            row_range_end=14,
            index_field_id=0,
            extra_field_ids=None,
            index_meta=None,
        ),
    )
    changes = CommitChanges(kind=CommitKind.APPEND, index=(entry,))
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(changes)
    RowChanges(deleted=[0]).commit(table)

    compact(table, EXECUTOR, strategy="full")
    assert entry in table.stores.manifests.read_index_entries(table.snapshot())
    materialize_deletion_vectors(table, EXECUTOR)

    assert table.stores.manifests.read_index_entries(table.snapshot()) == []


@pytest.mark.parametrize("options", [{}, {"deletion_vectors__enabled": "false"}])
def test_other_tables_are_refused(tmp_path: Path, options: dict[str, str]) -> None:
    table = evolving_table(tmp_path, **options)

    with pytest.raises(UnsupportedError, match="keep deleted rows in a compaction"):
        materialize_deletion_vectors(table, EXECUTOR)
