"""The state of a table: what one load reads, and what later commits change."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.histories import CountingFileIO
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import NotFoundError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.storage import FileInfo, LocalFileIO
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState, load_table_state


def test_a_state_does_not_change_and_a_refreshed_one_is_new(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    empty = table.load()
    first = table.upsert(table_of("k v", [(1, "a")]))
    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="n", type="INT")])

    newest = empty.refresh()
    assert (empty.snapshot, empty.schema.id) == (None, 0)
    assert (newest.snapshot, newest.schema.id) == (first, 1)
    assert newest.get_snapshot() is newest.snapshot
    assert newest.get_schema() is newest.schema


def test_a_refreshed_state_is_the_newest_behind_a_damaged_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first, _, third = (table.upsert(table_of("k v", [(k, "a")])) for k in range(3))
    assert first is not None
    old = load_table_state(table.stores, find=lambda: {1: first})
    Path(table.stores.snapshots.path(2)).write_text("{")
    newest = load_table_state(table.stores, 1)

    assert old.snapshot == newest.snapshot == third


def test_a_state_keeps_its_schema_and_snapshot_when_it_is_pickled(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    state = table.load()
    copied: TableState = pickle.loads(pickle.dumps(state))  # noqa: S301 - our own

    assert (copied.schema, copied.snapshot) == (state.schema, state.snapshot)
    assert copied.files() == state.files()


def test_a_table_without_a_schema_cannot_be_loaded(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    Path(f"{table.paths.schema_dir}/schema-0").unlink()

    with pytest.raises(NotFoundError, match="is not a Paimon table"):
        table.load()


class AlteringFileIO(LocalFileIO):
    """Changes the schema and commits after the schemas were listed."""

    table: Table | None = None

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        entries = list(super().list_dir(path))
        if path.endswith("/schema") and (table := self.table) is not None:
            AlteringFileIO.table = None
            catalog = Catalog(table.paths.root.rsplit("/", 2)[0])
            catalog.alter_table("db.t", [AddColumn(column="n", type="INT")])
            catalog.table("db.t").upsert(table_of("k v n", [(1, "a", 1)]))
        yield from entries


def test_a_state_has_the_schema_of_its_snapshot_if_both_change_during_the_load(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path)
    AlteringFileIO.table = table
    state = Table(table.identifier, AlteringFileIO(), table.paths).load()

    assert state.snapshot is not None
    assert state.snapshot.schema_id == state.schema.id == 1


def test_a_scan_reads_each_metadata_file_once(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))
    clear_metadata_cache()
    io = CountingFileIO()
    Table(table.identifier, io, table.paths).scan().to_arrow()

    assert [path for path, count in io.reads.items() if count > 1] == []


def test_the_stores_of_another_branch_do_not_have_the_state_of_the_first(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.branches.create("b")
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t$branch_b", [AddColumn(column="n", type="INT")])
    added = catalog.table("db.t$branch_b").upsert(table_of("k v n", [(2, "b", 1)]))

    branch = table.load().of_branch("b")
    assert (branch.get_schema().id, branch.get_snapshot()) == (1, added)
    assert branch.new_commit(StepKind.WRITE_ROWS).planned is None


@pytest.mark.parametrize("name", ["files", "file_key_ranges", "partitions", "buckets"])
def test_a_system_table_of_files_reads_each_schema_once(tmp_path: Path, name: str) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))
    clear_metadata_cache()
    io = CountingFileIO()
    rows = Table(table.identifier, io, table.paths).system(name).scan().to_arrow()

    assert rows.num_rows
    assert [path for path, count in io.reads.items() if count > 1] == []


def test_files_of_a_given_snapshot_need_no_newest_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    older = table.upsert(table_of("k v", [(1, "a")]))
    newest = table.upsert(table_of("k v", [(2, "b")]))
    assert newest is not None
    files = table.files(older)
    Path(table.stores.snapshots.path(newest.id)).unlink()

    assert table.files(older) == files
