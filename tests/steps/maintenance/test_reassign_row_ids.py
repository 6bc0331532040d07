"""Reassigning row ids: rows of a partition get consecutive ids, and only metadata changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.data_evolution import RowChanges, evolving_table, files_of, rows_by_id
from support.tables import new_table, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, UnsupportedError
from paimon_orch.format.manifest.index_manifest import GlobalIndexMeta, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.compaction.compact import CompactRequest, compact
from paimon_orch.steps.compaction.compact import commit as commit_compaction
from paimon_orch.steps.compaction.compact import plan as plan_compaction
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.reassign_row_ids import commit, plan, reassign_row_ids
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.row_id_reassignment import RowIdRuns
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage

EXECUTOR = InProcessExecutor()
VECTORS = {"deletion_vectors__enabled": "true"}
# Rows 0, 1 and 4, 5 are in partition 0, rows 2, 3 and 6, 7 in partition 1, row 8 in partition 2.
NEW_IDS = {0: 9, 1: 10, 4: 11, 5: 12, 2: 13, 3: 14, 6: 15, 7: 16, 8: 8}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = evolving_table(tmp_path, "p INT, a BIGINT", partition_by=["p"], **VECTORS)
    for first in (0, 4):
        rows = [(n // 2 % 2, n) for n in range(first, first + 4)]
        created.append(table_of("p a", rows))
    created.append(table_of("p a", [(2, 8)]))
    RowChanges(updated={4: {"a": 40}}, deleted=[3]).commit(created)
    return created


def data_files(table: Table) -> set[str]:
    return {path for path in stored_files(table) if "/bucket-" in path}


@pytest.mark.slow
def test_rows_of_partitions_with_gaps_get_consecutive_ids(table: Table) -> None:
    before, files = rows_by_id(table), data_files(table)

    result = reassign_row_ids(table)

    assert rows_by_id(table) == {NEW_IDS[n]: row for n, row in before.items()}
    assert data_files(table) == files
    assert result.plan.to_dict() == {
        "partitions": 2,
        "rows": 8,
        "first_row_id": 9,
        "next_row_id": 17,
    }
    snapshot = table.snapshot()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.next_row_id) == (CommitKind.OVERWRITE, 17)
    assert snapshot.delta_record_count == 0
    assert check(table, deep=True).findings == ()
    assert reassign_row_ids(table).snapshot_id is None

    # files that had a gap between them are joined now
    compact(table, EXECUTOR, strategy="full")
    assert [file.row_count for file in files_of(table)] == [1, 4, 4]
    assert rows_by_id(table) == {NEW_IDS[n]: row for n, row in before.items()}
    expire_snapshots(table, retain_max=1)
    assert rows_by_id(table) == {NEW_IDS[n]: row for n, row in before.items()}
    assert check(table, deep=True).findings == ()


def test_partitions_and_long_runs_are_left_out(table: Table, tmp_path: Path) -> None:
    before = rows_by_id(table)
    option = SetOption("data-evolution.reassign.skip-contiguous-row-count", "1")
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [option])
    assert reassign_row_ids(catalog.table("db.t")).snapshot_id is None
    catalog.alter_table("db.t", [SetOption(option.key, "0")])

    reassign_row_ids(catalog.table("db.t"), partitions=["p=1"])

    new_ids = {2: 9, 3: 10, 6: 11, 7: 12}
    assert rows_by_id(table) == {new_ids.get(n, n): row for n, row in before.items()}


def test_another_commit_since_the_plan_is_a_conflict(table: Table) -> None:
    planned = plan(table, PartitionRequest())
    table.append(table_of("p a", [(0, 9)]))
    before, stored = rows_by_id(table), stored_files(table)

    with pytest.raises(CommitConflictError, match="run the step again"):
        commit(table, planned)

    assert (rows_by_id(table), stored_files(table)) == (before, stored)


def test_compactions_and_updates_of_the_old_ids_are_conflicts(table: Table) -> None:
    planned = plan_compaction(table, CompactRequest(strategy="full"))
    messages = [unit.run(planned.reader) for unit in planned.units if planned.reader]
    update, results = RowChanges(updated={5: {"a": 5}}).write(table)
    reassign_row_ids(table)
    before = rows_by_id(table)

    with pytest.raises(CommitConflictError, match="got new ids from another commit"):
        commit_compaction(table, planned, [CommitMessage.decode(each) for each in messages])
    with pytest.raises(CommitConflictError, match="another commit replaced the files"):
        row_level.commit(table, update, results, executor=EXECUTOR)

    assert rows_by_id(table) == before


def test_global_indexes_keep_their_rows_or_are_dropped(table: Table) -> None:
    [partition] = {
        s.partition for s in table.files() if min(f.first_row_id or 0 for f in s.files) == 2
    }

    def index(name: str, start: int, end: int) -> IndexManifestEntry:
        ids = GlobalIndexMeta(
            row_range_start=start,
            row_range_end=end,
            index_field_id=1,
            extra_field_ids=None,
            index_meta=None,
        )
        return IndexManifestEntry(
            kind=FileKind.ADD,
            partition=partition,
            bucket=0,
            index_type="btree",
            file_name=name,
            file_size=1,
            row_count=1,
            global_index=ids,
        )

    added = (index("in-a-run", 6, 7), index("in-two-runs", 2, 7), index("elsewhere", 100, 101))
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(
        CommitChanges(kind=CommitKind.APPEND, index=added)
    )

    reassign_row_ids(table)

    indexes = {
        entry.file_name: (entry.global_index.row_range_start, entry.global_index.row_range_end)
        for entry in table.stores.manifests.read_index_entries(table.snapshot())
        if entry.global_index is not None
    }
    assert indexes == {"in-a-run": (15, 16), "elsewhere": (100, 101)}


def test_runs_find_ids_and_overlaps() -> None:
    runs = RowIdRuns(np.array([2, 10]), np.array([5, 12]), np.array([100, 103]))

    assert [runs.find_new_id(n, n + 1) for n in (1, 2, 4, 5, 9, 10, 11, 12)] == [
        *(None, 100, 102, None, None, 103, 104, None)
    ]
    assert runs.find_new_id(2, 6) is None
    assert [runs.overlaps(*each) for each in [(0, 2), (0, 3), (4, 6), (5, 10), (11, 20)]] == [
        *(False, True, True, False, True)
    ]


def test_other_tables_are_refused_and_tables_without_partitions_have_nothing_to_do(
    tmp_path: Path,
) -> None:
    tracked = new_table(tmp_path / "a", key=(), bucket="-1", row_tracking__enabled="true")
    table = evolving_table(tmp_path / "b")
    table.append(table_of("a b c", [(1, 2, 3)]))

    with pytest.raises(UnsupportedError, match=r"data-evolution\.enabled"):
        reassign_row_ids(tracked)
    assert reassign_row_ids(table).snapshot_id is None
