"""One listing finds the newest schema and snapshot, and never hides a newer one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier

import pytest
from support.flat_store import FlatFileIO, PagingFileIO, in_flat_store
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import MissingFileError, NotFoundError
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileInfo
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshotStore
from paimon_orch.table.metadata import small_listings
from paimon_orch.table.metadata.snapshot_store import LATEST
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, "p INT, k INT, v STRING", key=["p", "k"], partition_by=["p"])
    for number in range(3):
        table.upsert(table_of("p k v", [(1, number, "a")]))
    return table


def snapshot_file(table: Table, number: int) -> Path:
    return Path(table.stores.snapshots.path(number))


def write_hint(table: Table, number: int) -> None:
    table.stores.snapshots.write_hint(LATEST, number)


def in_paging_store(table: Table, hint: int | None = None) -> tuple[Table, FlatFileIO]:
    flat, io = in_flat_store(table, PagingFileIO)
    flat.hint.snapshot_id = hint
    return flat, io


@pytest.mark.parametrize("hint", [None, 3])
def test_a_load_lists_schemas_and_snapshots_at_once(table: Table, hint: int | None) -> None:
    paging, io = in_paging_store(table, hint)
    state = paging.load()

    assert state.snapshot == table.load().snapshot
    assert io.listings == [f"{table.paths.root}/s*"]
    expected = ["schema-0", "snapshot-3"] if hint else ["LATEST", "schema-0", "snapshot-3"]
    assert io.names_read() == expected


@pytest.mark.parametrize("hint", [None, 1, 2, 3])
def test_a_load_finds_a_snapshot_that_the_hint_does_not_name(
    table: Table, hint: int | None
) -> None:
    write_hint(table, 2)
    paging, _ = in_paging_store(table, hint)

    assert paging.load().snapshot == table.load().snapshot
    newest = paging.load().snapshot
    assert newest is not None
    assert newest.id == 3


@pytest.mark.parametrize("hint", [None, 3])
def test_a_lost_newest_snapshot_is_an_error_also_with_a_listing(
    table: Table, hint: int | None
) -> None:
    snapshot_file(table, 3).unlink()
    paging, _ = in_paging_store(table, hint)

    with pytest.raises(MissingFileError, match="LATEST names snapshot 3"):
        paging.load()


def test_a_damaged_snapshot_before_the_newest_one_is_not_needed(table: Table) -> None:
    snapshot_file(table, 2).write_text("{")
    paging, _ = in_paging_store(table, 2)

    assert paging.load().snapshot == table.load().snapshot


def test_a_load_reads_the_snapshot_that_has_the_id_after_a_rollback(table: Table) -> None:
    paging, io = in_paging_store(table, 3)
    before = paging.load().snapshot
    table.rollback(2)
    after = table.upsert(table_of("p k v", [(1, 9, "b")]))
    paging.hint.snapshot_id = 3

    assert before is not None
    assert after is not None
    assert before.id == after.id
    assert paging.load().snapshot == after != before
    assert io.names_read().count("snapshot-3") == 2


def test_a_load_sees_a_table_that_was_created_again(table: Table, tmp_path: Path) -> None:
    paging, _ = in_paging_store(table, 3)
    old = paging.load()
    shutil.rmtree(table.paths.root)
    again = new_table(tmp_path, "other INT NOT NULL", key=["other"])
    for number in range(3):
        again.upsert(table_of("other", [(number,)]))
    new = paging.load()

    assert new.schema == again.load().schema != old.schema
    assert new.snapshot == again.load().snapshot != old.snapshot


class _ChangingFileIO(PagingFileIO):
    """Changes the table after a listing."""

    table: Table | None = None

    def list_few(
        self, prefix: str, limit: int, *, with_directories: bool = False
    ) -> list[FileInfo] | None:
        entries = super().list_few(prefix, limit, with_directories=with_directories)
        table, self.table = self.table, None
        if table is not None:
            self.change(table)
        return entries

    def change(self, table: Table) -> None:
        catalog = Catalog(table.paths.root.rsplit("/", 2)[0])
        catalog.alter_table("db.t", [AddColumn(column="n", type="INT")])
        catalog.table("db.t").upsert(table_of("p k v n", [(1, 1, "a", 1)]))


class _RollingBackFileIO(_ChangingFileIO):
    def change(self, table: Table) -> None:
        table.rollback(1)


@pytest.mark.parametrize("hint", [None, 3])
@pytest.mark.parametrize("kind", [_ChangingFileIO, _RollingBackFileIO])
def test_a_change_after_the_listing_is_seen_whole_or_not_at_all(
    table: Table, hint: int | None, kind: type[_ChangingFileIO]
) -> None:
    before = table.load()
    paging, io = in_flat_store(table, kind)
    paging.hint.snapshot_id = hint
    assert isinstance(io, _ChangingFileIO)
    io.table = table
    state, after = paging.load(), table.load()

    assert state.snapshot in (before.snapshot, after.snapshot)
    assert state.snapshot is not None
    assert state.schema.id >= state.snapshot.schema_id


def test_a_table_without_snapshots_is_empty_after_one_listing(tmp_path: Path) -> None:
    paging, io = in_paging_store(new_table(tmp_path))

    assert paging.load().snapshot is None
    assert io.listings == [f"{paging.paths.root}/s*"]


def test_a_table_without_a_schema_cannot_be_loaded_from_a_listing(table: Table) -> None:
    Path(f"{table.paths.schema_dir}/schema-0").unlink()
    paging, _ = in_paging_store(table)

    with pytest.raises(NotFoundError, match="is not a Paimon table"):
        paging.load()


def test_a_long_listing_is_tried_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_listings, "_MAX_ENTRIES", 4)
    paging, io = in_paging_store(table)
    newest = [paging.load().snapshot for _ in range(2)]

    assert newest == [table.load().snapshot] * 2
    assert io.listings == [f"{table.paths.root}/s*", *[table.paths.schema_dir] * 2]


def test_a_name_that_java_cannot_read_does_not_hide_the_newest_snapshot(table: Table) -> None:
    snapshot_file(table, 10**19).write_text("{}")
    paging, _ = in_paging_store(table, 3)

    assert paging.load().snapshot == table.load().snapshot


class _MeetingFileIO(PagingFileIO):
    """Reads a snapshot only while another one is read."""

    def __init__(self) -> None:
        super().__init__()
        self.barrier = Barrier(2)

    def read_bytes(self, path: str) -> bytes:
        if "/snapshot-" in path:
            self.barrier.wait(20)
        return super().read_bytes(path)


def test_a_load_after_a_long_listing_asks_for_both_snapshots_at_once(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_listings, "_MAX_ENTRIES", 4)
    in_paging_store(table)[0].load()
    flat, _ = in_flat_store(table, _MeetingFileIO)
    flat.hint.snapshot_id = 3

    assert flat.load().snapshot == table.load().snapshot


def list_versions(table: Table) -> dict[str, Snapshot]:
    versions = RetainedSnapshotStore(table.io, table.paths.root).all().by_path
    return {path: version.snapshot for path, version in versions.items()}


def walk_changes(table: Table) -> Iterator[None]:
    """Add one kind of version after the other."""
    yield
    table.tags.create("t", 2)
    yield
    table.branches.create("dev", "t")
    yield
    changelogs = Path(table.paths.changelog_dir)
    changelogs.mkdir()
    shutil.copy(snapshot_file(table, 1), changelogs / "changelog-1")
    yield


def test_all_versions_are_found_by_a_listing_of_the_folders(table: Table) -> None:
    for number, _ in enumerate(walk_changes(table)):
        paging, io = in_paging_store(table)
        versions = list_versions(paging)

        assert versions == list_versions(table)
        assert len(versions) == [3, 4, 6, 7][number]
        assert (table.paths.tag_dir in io.listings) == (number > 0)


class _TagMovingFileIO(PagingFileIO):
    """Makes a branch of a tag and deletes the tag, after the folders were listed."""

    table: Table | None = None

    def list_few(
        self, prefix: str, limit: int, *, with_directories: bool = False
    ) -> list[FileInfo] | None:
        entries = super().list_few(prefix, limit, with_directories=with_directories)
        table, self.table = self.table, None
        if table is not None:
            table.branches.create("dev", "t")
            table.tags.delete("t")
        return entries


def test_a_branch_that_replaces_a_tag_after_the_listing_of_the_folders_is_found(
    table: Table,
) -> None:
    table.tags.create("t", 2)
    flat, io = in_flat_store(table, _TagMovingFileIO)
    assert isinstance(io, _TagMovingFileIO)
    io.table = table

    assert TablePaths(table.paths.root, "dev").snapshot_dir + "/snapshot-2" in list_versions(flat)
