"""Which files the versions of a table are read from, and in which order they are listed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.flat_store import FlatFileIO, in_flat_store
from support.histories import make_table

from paimon_orch.errors import NotFoundError
from paimon_orch.storage import FileInfo, LocalFileIO
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshotStore, RetainedVersions
from paimon_orch.table.table import Table

HISTORY = [("upsert", 1), ("tag", 0), ("upsert", 2), ("upsert", 3)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(tmp_path, "plain", HISTORY)


def read(table: Table, known: RetainedVersions | None = None) -> RetainedVersions:
    store = RetainedSnapshotStore(table.io, table.paths.root)
    return store.all({} if known is None else known.by_path)


def ids_of(versions: RetainedVersions) -> dict[str, int]:
    return {str(version): version.snapshot.id for version in versions.by_path.values()}


def test_versions_that_have_not_changed_are_read_once_in_a_store(table: Table) -> None:
    flat, io = in_flat_store(table)
    before = read(flat)
    io.reads.clear()

    assert read(flat, before) == before
    assert not [name for name in io.names_read() if name.startswith(("snapshot-", "tag-"))]


def test_new_and_replaced_versions_are_read_again(table: Table) -> None:
    flat, io = in_flat_store(table)
    before = read(flat)
    table.tags.replace("t0", 1)
    table.tags.create("new", 2)
    io.reads.clear()

    after = read(flat, before)

    assert ids_of(after) == ids_of(read(table))
    assert ids_of(after) == ids_of(before) | {"tag t0": 1, "tag new": 2}
    assert [n for n in io.names_read() if n.startswith(("snapshot-", "tag-"))] == [
        "tag-new",
        "tag-t0",
    ]


class _MovingTag(FlatFileIO):
    """Moves a tag before it is read, and back after that."""

    def __init__(self, path: str, other: bytes) -> None:
        super().__init__()
        self.path, self.other = path, other

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """State a version that depends only on the content, as some stores do."""
        for info in super().list_dir(path):
            content = "" if info.is_dir else Path(info.path).read_bytes().hex()
            yield FileInfo(
                path=info.path,
                size=info.size,
                modified=info.modified,
                is_dir=info.is_dir,
                version=content,
            )

    def read_bytes(self, path: str) -> bytes:
        if path != self.path:
            return super().read_bytes(path)
        file = Path(path)
        content, time = file.read_bytes(), file.stat().st_mtime
        file.write_bytes(self.other)
        data = super().read_bytes(path)
        file.write_bytes(content)
        os.utime(file, (time + 1, time + 1))
        return data


def test_a_tag_that_was_moved_and_moved_back_is_read_again(table: Table) -> None:
    path = table.tags.path("t0")
    io = _MovingTag(path, Path(table.stores.snapshots.path(1)).read_bytes())
    before = RetainedSnapshotStore(io, table.paths.root).all()
    assert before.by_path[path].snapshot.id == 1
    io.path = ""

    after = RetainedSnapshotStore(io, table.paths.root).all(before.by_path)

    assert after.by_path[path].snapshot.id == table.tags.get("t0").id != 1


class _AfterListing(LocalFileIO):
    """Runs an action when a directory of the table is listed."""

    def __init__(self, folder: str, action: Callable[[], object]) -> None:
        self.folder, self.action = folder, action

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        if path.endswith(self.folder):
            self.folder = "none"
            self.action()
        return super().list_dir(path)


def move(source: str, target: str) -> None:
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(source).rename(target)


@pytest.mark.parametrize("listed", ["/snapshot", "/tag", "/changelog", "/branch"])
@pytest.mark.parametrize("kind", ["tag", "changelog", "branch"])
def test_a_version_that_is_moved_during_the_listing_is_found(
    table: Table, kind: str, listed: str
) -> None:
    """A snapshot becomes a tag or a changelog, and a tag a branch, before it is deleted."""
    paths, expected = table.paths, 2

    def act() -> None:
        if kind == "branch":
            table.branches.create("dev", "t0")
            table.tags.delete("t0")
            return
        target = f"{paths.tag_dir}/tag-late"
        if kind == "changelog":
            target = f"{paths.changelog_dir}/changelog-2"
        move(table.stores.snapshots.path(2), target)

    if kind == "branch":
        expected = table.tags.get("t0").id
        for number in table.stores.snapshots.ids():
            if number <= expected:
                Path(table.stores.snapshots.path(number)).unlink()
    io = _AfterListing(listed, act)

    versions = RetainedSnapshotStore(io, paths.root).all()

    assert expected in {version.snapshot.id for version in versions.by_path.values()}


def test_a_branch_without_a_schema_is_refused(table: Table) -> None:
    table.branches.create("dev", "t0")
    for file in Path(table.paths.root, "branch/branch-dev/schema").iterdir():
        file.unlink()

    for checked in (table, in_flat_store(table)[0]):
        with pytest.raises(NotFoundError, match="has no schema"):
            read(checked)
