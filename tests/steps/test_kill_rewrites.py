"""Kill processes that rewrite or drop rows, files or metadata: readers see all changes or none.

Invariants 2 and 28, as in ``test_kill``: existing versions are unchanged, the newest version has
the rows before or after the step, and repeating the step completes it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from support.damage import data_files
from support.data_evolution import RowChanges, evolving_table
from support.histories import make_table, read_all_branches, select_retained
from support.kill import MARKS, kill_at_each_change, remove_orphans_of_killed
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import sort_compact
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.materialize_deletion_vectors import materialize_deletion_vectors
from paimon_orch.steps.compaction.move_postponed import move_postponed
from paimon_orch.steps.expiration.expire_changelogs import expire_changelogs
from paimon_orch.steps.expiration.expire_partitions import expire_partitions
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.steps.maintenance.reassign_row_ids import reassign_row_ids
from paimon_orch.steps.maintenance.rescale import rescale
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.steps.repairs.remove_unexisting_files import remove_unexisting_files
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.steps.row_level.row_target import RowSource
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table
from paimon_orch.table.write.table_write import write_rows

pytestmark = [pytest.mark.slow, *MARKS]

EXECUTOR = InProcessExecutor()
Action = Callable[[Table], object]


def create_merged_table(root: Path) -> Table:
    """A table of two partitions with deletion vectors and little data on level 0."""
    return make_table(root, "vectors", [("upsert", 1), ("full", 0), ("upsert", 2), ("minor", 0)])


def create_merge_on_read_table(root: Path) -> Table:
    """A table whose readers merge."""
    return make_table(root, "plain", [("upsert", 1)])


def create_append_table(root: Path) -> Table:
    """A table without primary key, partitioned by day."""
    table = new_table(
        root, "p STRING, k BIGINT", key=(), partition_by=["p"], bucket="-1",
        file_index__bitmap__columns="k", file_index__in_manifest_threshold="0 b",
    )  # fmt: skip
    for day, start in (("2020-01-01", 20), ("2020-01-01", 0), ("2999-01-01", 10)):
        table.append(table_of("p k", [(day, start + n) for n in range(4)]))
    return table


def create_evolved_table(root: Path) -> Table:
    """A table with columns of rows in several files, deleted rows, and gaps between row ids."""
    table = evolving_table(
        root, "p INT, a BIGINT", partition_by=["p"], deletion_vectors__enabled="true"
    )
    for first in (0, 4):
        table.append(table_of("p a", [(n % 2, n) for n in range(first, first + 4)]))
    RowChanges(updated={2: {"a": 20}, 4: {"a": 40}}, deleted=[1, 5]).commit(table)
    return table


def create_postponed_table(root: Path) -> Table:
    """A table with postponed rows."""
    options = {"bucket": "-2", "postpone__batch_write_fixed_bucket": "false"}
    table = new_table(root, **options)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    table.upsert(table_of("k v", [(2, "c")]))
    return table


def create_unindexed_table(root: Path) -> Table:
    """A table whose files were written before it was configured with an index."""
    table = make_table(root, "plain", [("full", 0)])
    beside = SetOption("file-index.in-manifest-threshold", "0 b")
    Catalog(str(root)).alter_table("db.t", [SetOption("file-index.bitmap.columns", "v"), beside])
    return table


def sort(table: Table) -> object:
    """Sort a table as Spark does, in one task."""
    planned = sort_compact.plan(
        table, sort_compact.SortRequest(order=sort_compact.SortOrder(("k",)))
    )
    if not planned:
        return None
    fields = table.load().schema.fields
    rows = pa.concat_tables(
        part
        for unit in sort_compact.plan_read_units(planned)
        for part in unit.read(RowSource(table.stores.reader()), fields)
    )
    ordered = rows.select(table.load().schema.names).sort_by("k").combine_chunks()
    writing = ingest.plan(table, ingest.IngestRequest(columns=table.load().schema.names))
    message = write_rows(writing, writing.prepare(ordered.to_batches()))
    return sort_compact.commit(table, planned, [message])


REWRITES: dict[str, tuple[Callable[[Path], Table], Action]] = {
    "rescale": (create_merged_table, lambda table: rescale(table, 3)),
    "compact_manifests": (create_merged_table, compact_manifests),
    "analyze": (create_merged_table, lambda table: analyze(table, EXECUTOR, columns=["v"])),
    "rewrite_file_index": (
        create_unindexed_table,
        lambda table: rewrite_file_index(table, EXECUTOR),
    ),
    "sort compaction": (create_append_table, sort),
    "compaction of an append table": (
        create_append_table,
        lambda t: compact(t, EXECUTOR, strategy="full"),
    ),
    "compaction of a data-evolution table": (
        create_evolved_table,
        lambda t: compact(t, EXECUTOR, strategy="full"),
    ),
    "materialize_deletion_vectors": (
        create_evolved_table,
        lambda t: materialize_deletion_vectors(t, EXECUTOR),
    ),
    "reassign_row_ids": (create_evolved_table, reassign_row_ids),
}
CHANGES: dict[str, tuple[Callable[[Path], Table], Action]] = {
    "drop_partitions": (
        create_merged_table, lambda table: table.drop_partitions([{"p": 0}], commit_id=CommitId("drop", 1)),
    ),
    "truncate": (create_merged_table, lambda table: table.truncate()),
    "expire_partitions": (
        create_append_table, lambda table: expire_partitions(table, expiration_time=timedelta(days=30)),
    ),
    "delete": (create_merge_on_read_table, lambda table: delete(table, EXECUTOR, "k = 3")),
    "delete from an append table": (create_append_table, lambda table: delete(table, EXECUTOR, "k = 21")),
    "update of columns": (
        create_evolved_table, lambda table: RowChanges(updated={7: {"a": 70}}, inserted=[(0, 1)]).commit(table),
    ),
    "move_postponed": (create_postponed_table, lambda table: move_postponed(table, EXECUTOR)),
}  # fmt: skip


@pytest.mark.parametrize("step", [*REWRITES, *CHANGES])
def test_a_killed_step_with_one_commit_can_be_repeated(tmp_path: Path, step: str) -> None:
    make, action = (REWRITES | CHANGES)[step]
    table = make(tmp_path / "table")
    before, rows = read_all_branches(table), rows_of(table)
    newest = table.stores.snapshots.latest_id()
    outcomes = set()
    for dead in kill_at_each_change(table, tmp_path, action):
        after = read_all_branches(dead)
        assert select_retained(after, before) == before, "existing versions are unchanged"
        added = [name for name in after if name not in before]
        assert added in ([], [f"main {(newest or 0) + 1}"])
        outcomes.add(len(added))
        assert check(dead, deep=True).findings == ()
        if not added or step in REWRITES:
            assert rows_of(dead) == rows
        action(dead)
        rows_after = rows_of(dead)
        assert (rows_after == rows) == (step in REWRITES)
        remove_orphans_of_killed(dead)
        assert select_retained(read_all_branches(dead), before) == before
        assert rows_of(dead) == rows_after
    assert outcomes == {0, 1}


def test_a_killed_removal_of_missing_files_can_be_repeated(tmp_path: Path) -> None:
    table = create_merged_table(tmp_path / "table")
    rows = rows_of(table)
    missing_file = next(path for path in data_files(table) if "p=0" in str(path))
    missing_file.unlink()
    for dead in kill_at_each_change(table, tmp_path, remove_unexisting_files):
        remove_unexisting_files(dead)
        rows_after = rows_of(dead)
        assert set(rows_after) < set(rows)
        assert {row for row in rows if row[0] == 1} <= set(rows_after)
        assert not remove_unexisting_files(dead)


def test_a_killed_expiration_of_changelogs_can_be_repeated(tmp_path: Path) -> None:
    table = new_table(
        tmp_path / "table", changelog_producer="input",
        changelog__num_retained__max="20", changelog__num_retained__min="1",
    )  # fmt: skip
    for number in range(5):
        table.upsert(table_of("k v", [(number % 2, str(number))]))
    expire_snapshots(table, retain_max=1)
    before = read_all_branches(table)
    changes = table.incremental(3, 5, "changelog").to_arrow().to_pylist()

    def action(table: Table) -> None:
        expire_changelogs(table, retain_max=2)

    for dead in kill_at_each_change(table, tmp_path, action):
        assert read_all_branches(dead) == before
        assert dead.incremental(3, 5, "changelog").to_arrow().to_pylist() == changes
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert dead.incremental(3, 5, "changelog").to_arrow().to_pylist() == changes
        remove_orphans_of_killed(dead)
