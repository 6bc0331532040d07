"""Kill processes that update or merge rows: readers see all of the change or none.

Invariants 2 and 28, as in ``test_kill``. Arrow computes the new values instead of Spark; the code
that finds rows, writes and commits is the same as in Spark's tasks and driver.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.histories import make_table, read_all_branches, select_retained
from support.kill import MARKS, kill_at_each_change, remove_orphans_of_killed
from support.tables import new_table, rows_of, table_of

from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.task_result import ADDRESS_COLUMN, KIND_COLUMN, RowLevelTaskResult
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.table import Table

pytestmark = [pytest.mark.slow, *MARKS]


def create_table_with_key(root: Path) -> Table:
    """A table whose readers merge: keys 0 to 3 in one snapshot, 1 to 4 in the next."""
    return make_table(root, "plain", [("upsert", 1)])


def create_append_table(root: Path, **options: str) -> Table:
    """A table without primary key, whose files are rewritten to delete rows."""
    table = new_table(root, "p BIGINT, k BIGINT, v STRING", key=(), bucket="-1", **options)
    for start in (0, 3):
        table.append(table_of("p k v", [(k % 2, k, "old") for k in range(start, start + 3)]))
    return table


def create_deletion_vector_table(root: Path) -> Table:
    """A table without primary key, with deletion vectors."""
    return create_append_table(root, deletion_vectors__enabled="true")


def update(table: Table) -> None:
    """Give the rows of one key a new value."""
    planned = row_level.plan(table, row_level.RowLevelRequest(where="k = 3", operation="update"))
    rows = rows_found(planned)
    value = rows.schema.get_field_index("v")
    new = rows.set_column(value, "v", pa.repeat("new", len(rows)))
    write(table, planned, new.append_column(KIND_COLUMN, pa.repeat("+U", len(rows))))


def merge_into(table: Table) -> None:
    """Delete the rows of one key, update those of another, and insert missing rows of a third."""
    planned = row_level.plan(table, row_level.RowLevelRequest(where=None, operation="merge"))
    rows = rows_found(planned)
    matched = rows.filter(pc.is_in(rows.column("k"), pa.array([2, 3])))
    is_deleted = pc.equal(matched.column("k"), 2)
    kinds = pc.if_else(is_deleted, "-D", "+U")
    values = pc.if_else(is_deleted, matched.column("v"), "new")
    changed = matched.set_column(matched.schema.get_field_index("v"), "v", values)
    changed = changed.append_column(KIND_COLUMN, kinds)
    if 9 not in rows.column("k").to_pylist():
        added = {ADDRESS_COLUMN: [None], "p": [1], "k": [9], "v": ["new"], KIND_COLUMN: ["+I"]}
        changed = pa.concat_tables([changed, pa.table(added, schema=changed.schema)])
    write(table, planned, changed, guarded=not table.load().schema.primary_keys)


def rows_found(planned: row_level.RowLevelPlan) -> pa.Table:
    """Return the rows of a plan with their addresses."""
    fields, source = planned.schema.fields, planned.source
    assert source is not None
    return pa.concat_tables(part for unit in planned.units for part in unit.read(source, fields))


def write(
    table: Table, planned: row_level.RowLevelPlan, rows: pa.Table, *, guarded: bool = False
) -> None:
    """Write changed rows as a task does, and commit as the driver does."""
    kinds = [KIND_COLUMN] if planned.schema.primary_keys else []
    request = ingest.IngestRequest(
        columns=[*planned.schema.names, *kinds], row_kind=KIND_COLUMN if kinds else None
    )
    writing = ingest.plan(table, request)
    changes = row_level.prepare_changes(writing, rows.combine_chunks().to_batches())
    written = row_level.write_changes(writing, changes)
    guard = ReadGuard(planned.snapshot_id) if guarded else None
    row_level.commit(
        table,
        planned,
        [RowLevelTaskResult.decode(written)],
        executor=InProcessExecutor(),
        guard=guard,
        hashes=writing.hashes,
    )


def rows_updated(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(p, k, "new" if k == 3 else v) for p, k, v in rows]


def rows_merged(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted([row for row in rows_updated(rows) if row[1] != 2] + [(1, 9, "new")])


@pytest.mark.parametrize(
    ("make", "action", "change"),
    [
        (create_table_with_key, update, rows_updated),
        (create_append_table, update, rows_updated),
        (create_table_with_key, merge_into, rows_merged),
        (create_deletion_vector_table, merge_into, rows_merged),
    ],
)
def test_a_killed_row_level_change_is_visible_completely_or_not_at_all(
    tmp_path: Path,
    make: Callable[[Path], Table],
    action: Callable[[Table], None],
    change: Callable[[list[tuple[Any, ...]]], list[tuple[Any, ...]]],
) -> None:
    table = make(tmp_path / "table")
    before, rows = read_all_branches(table), rows_of(table)
    newest = table.stores.snapshots.latest_id()
    assert newest is not None
    expected = change(rows)
    outcomes = set()
    for dead in kill_at_each_change(table, tmp_path, action):
        after = read_all_branches(dead)
        assert select_retained(after, before) == before, "existing versions are unchanged"
        added = [name for name in after if name not in before]
        assert added in ([], [f"main {newest + 1}"])
        outcomes.add(len(added))
        assert rows_of(dead) == (expected if added else rows)
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert rows_of(dead) == expected
        remove_orphans_of_killed(dead)
        assert select_retained(read_all_branches(dead), before) == before
        assert rows_of(dead) == expected
    assert outcomes == {0, 1}
