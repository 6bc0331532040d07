"""Orphan cleanup deletes nothing if metadata cannot be read, or changes during the cleanup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.clocks import replace_waits
from support.histories import (
    backdate_files,
    branch_of,
    create_orphan_files,
    make_table,
    read_all_branches,
    unreferenced_files,
)
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch.errors import (
    CorruptFileError,
    MissingFileError,
    NotFoundError,
    PaimonError,
    StorageError,
    UnsupportedError,
)
from paimon_orch.steps.cleanup import remove_orphan_files as step
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import FileInfo, LocalFileIO
from paimon_orch.table.cleanup.orphan_candidates import ManifestUnit
from paimon_orch.table.table import Table


def metadata_files(table: Table) -> list[Path]:
    return sorted(Path(table.paths.manifest_dir).iterdir())


def test_the_cleanup_fails_on_unreadable_metadata_with_its_name_in_the_error(
    table: Table,
) -> None:
    create_orphan_files(table)
    before = stored_files(table)
    damages = 0
    for path in metadata_files(table):
        if path.name in ("manifest-0", ".manifest-1.x.tmp"):
            continue
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(CorruptFileError, match=path.name):
            remove_orphan_files(table)
        path.write_bytes(content)
        damages += 1
        assert stored_files(table) == before
    assert damages > 10


def test_the_cleanup_fails_on_a_missing_manifest_with_its_name_in_the_error(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_waits(monkeypatch, lambda _: None)
    create_orphan_files(table)
    for pattern in ("manifest-list-*", "manifest-[0-9a-f]*-*", "index-manifest-*"):
        path = next(Path(table.paths.manifest_dir).glob(pattern))
        content = path.read_bytes()
        path.unlink()
        before = stored_files(table)

        with pytest.raises(MissingFileError, match=path.name) as caught:
            remove_orphan_files(table)

        assert "refers to this file" in caught.value.__notes__[0]
        assert stored_files(table) == before
        path.write_bytes(content)
    assert remove_orphan_files(table).files == 9


@pytest.mark.sampled(1)
@pytest.mark.parametrize("content", [b"", b"{}", b"no json", b'{"version": 99}'])
@pytest.mark.parametrize("name", ["snapshot/snapshot-2", "tag/tag-t0", "changelog/changelog-1", "branch/branch-dev/snapshot/snapshot-1"])  # fmt: skip
def test_an_unreadable_version_stops_the_cleanup(table: Table, name: str, content: bytes) -> None:
    create_orphan_files(table)
    path = Path(table.paths.root) / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    before = stored_files(table)

    with pytest.raises(PaimonError, match=path.name):
        remove_orphan_files(table)
    assert stored_files(table) == before


def test_a_branch_without_a_schema_stops_the_cleanup(table: Table) -> None:
    create_orphan_files(table)
    for path in Path(table.paths.root).glob("branch/branch-dev/schema/*"):
        path.unlink()

    with pytest.raises(NotFoundError, match="branch-dev has no schema"):
        remove_orphan_files(table)


def test_files_of_a_table_without_snapshots_are_not_deleted(table: Table) -> None:
    before = len(list(Path(table.paths.root).glob("p=*/*/*")))
    for path in Path(table.paths.root).rglob("*"):
        if path.parent.name in ("snapshot", "tag"):
            path.unlink()

    with pytest.raises(UnsupportedError, match="no snapshot, tag or changelog"):
        remove_orphan_files(table)
    assert len(list(Path(table.paths.root).glob("p=*/*/*"))) == before


def test_a_table_that_was_never_written_to_has_nothing_to_clean(tmp_path: Path) -> None:
    assert remove_orphan_files(new_table(tmp_path)).files == 0


class NameLosingExecutor(InProcessExecutor):
    """Loses the names in manifests, except those of the first part."""

    def shuffle(self, split: Any, units: Any, join: Any, **given: Any) -> list[bytes]:
        def losing(unit: Any) -> list[tuple[int, bytes]]:
            return [
                name for name in split(unit) if name[0] == 0 or not isinstance(unit, ManifestUnit)
            ]

        return super().shuffle(losing, units, join, **given)


class SeparatingExecutor(InProcessExecutor):
    """Joins each piece separately: stored names are not compared with manifests."""

    def shuffle(self, split: Any, units: Any, join: Any, **_given: Any) -> list[bytes]:
        return [join([piece]) for unit in units for _, piece in split(unit)]


@pytest.mark.parametrize("executor", [NameLosingExecutor(), SeparatingExecutor()])
def test_names_lost_in_the_shuffle_stop_the_cleanup(
    table: Table, executor: InProcessExecutor
) -> None:
    create_orphan_files(table)
    before = stored_files(table)

    with pytest.raises(StorageError, match="were lost between tasks, or a part was split"):
        step.plan(table, step.RemoveOrphanFilesRequest(manifests_per_unit=1), executor=executor)

    assert stored_files(table) == before
    assert remove_orphan_files(table).files == 9


class ConcurrentActionFileIO(LocalFileIO):
    """Runs an action when a path is listed or read for the first time."""

    def __init__(self, part: str, action: Any) -> None:
        self.part, self.action = part, action

    def _pass(self, path: str) -> None:
        if self.part in path and self.action is not None:
            action, self.action = self.action, None
            action()

    def list_dir(self, path: str) -> Any:
        self._pass(path)
        return super().list_dir(path)

    def read_bytes(self, path: str) -> bytes:
        self._pass(path)
        return super().read_bytes(path)


@pytest.mark.parametrize("part", ["/snapshot", "/snapshot/snapshot-", "/manifest/manifest-list"])
def test_a_concurrent_expiration_deletes_no_file_of_the_next_snapshot(
    tmp_path: Path, part: str
) -> None:
    """The only snapshot is replaced by another during the cleanup (apache/paimon#7710)."""
    table = make_table(tmp_path, "plain", [("upsert", 1)])
    expire_snapshots(table, retain_max=1)
    backdate_files(table)

    def replaced() -> None:
        table.upsert(table_of("p k v", [(0, 1, "new")]))
        expire_snapshots(table, retain_max=1)

    io = ConcurrentActionFileIO(part, replaced)
    remove_orphan_files(Table(table.identifier, io, table.paths))

    assert io.action is None
    assert table.stores.snapshots.ids() == [3]
    assert check(table, deep=True).findings == ()
    assert (0, 1, "new") in rows_of(table)


def test_old_files_committed_during_the_cleanup_are_kept(table: Table) -> None:
    """A slow writer commits between planning and deleting (apache/paimon#3074)."""
    snapshot = table.stores.snapshots.get(1)
    rows = rows_of(table, snapshot_id=1)
    Path(table.tags.path("t0")).unlink()
    table.branches.delete("dev")
    snapshot_json = Path(table.stores.snapshots.path(1)).read_bytes()
    expire = [table.stores.snapshots.path(number) for number in (1, 2)]
    for path in expire:
        Path(path).unlink()
    planned = step.plan(table, step.RemoveOrphanFilesRequest())
    assert any(snapshot.delta_manifest_list in file.path for file in planned.files)

    tag = Path(table.paths.tag_dir) / "tag-back"
    tag.write_bytes(snapshot_json)
    for _ in range(2):  # the plan may be executed again after a failure
        run_step(step.REMOVE_ORPHAN_FILES, table, planned)

        assert rows_of(table, tag="back") == rows
        assert check(table, deep=True)


@pytest.mark.parametrize("part", ["/bucket-0", "/manifest", "/snapshot"])
def test_old_files_committed_during_the_listing_are_kept(tmp_path: Path, part: str) -> None:
    """References are read after the listing, not before (apache/paimon#3074)."""
    table = make_table(tmp_path, "plain", [("upsert", 1)])

    def committed() -> None:
        table.upsert(table_of("p k v", [(0, 1, "new")]))
        backdate_files(table)

    io = ConcurrentActionFileIO(part, committed)
    remove_orphan_files(Table(table.identifier, io, table.paths))

    assert io.action is None
    assert (0, 1, "new") in rows_of(table)
    assert check(table, deep=True).findings == ()


class FlickeringFileIO(LocalFileIO):
    """Lists a folder as empty the first time, as a store may during a transient failure."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.listed = 0

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        if path.endswith(self.folder):
            self.listed += 1
            if self.listed == 1:
                return
        yield from super().list_dir(path)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "folder",
    ["/t", "/p=0", "/p=0/bucket-0", "/t/snapshot", "/tag", "/branch", "branch-dev/snapshot", "/t/schema", "/manifest"],
)  # fmt: skip
def test_a_transient_listing_failure_deletes_no_file(table: Table, folder: str) -> None:
    """A folder that is listed as empty is not deleted with its files (apache/paimon#7920)."""
    orphans = create_orphan_files(table)
    before, files = read_all_branches(table), stored_files(table) - {str(path) for path in orphans}
    io = FlickeringFileIO(folder)

    with suppress(NotFoundError):  # a folder without a schema is not a table
        remove_orphan_files(Table(table.identifier, io, table.paths))

    assert io.listed
    assert stored_files(table) >= files
    assert read_all_branches(table) == before
    assert check(table, deep=True).findings == ()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("place", ["p=0/bucket-0", "manifest", "index", "snapshot", "tag"])
def test_directories_are_never_orphans(table: Table, place: str) -> None:
    """Deletes are never recursive (apache/paimon#7920)."""
    names = ("data-0.parquet", "manifest-0", ".x.tmp")
    directories = [Path(table.paths.root) / place / name / "precious" for name in names]
    for path in directories:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"precious")
    backdate_files(table)

    assert remove_orphan_files(table).files == 0
    assert all(path.exists() for path in directories)


def test_files_that_only_a_branch_references_are_kept(tmp_path: Path) -> None:
    """Rows, deletion vectors, changelog and tags that only a branch has (apache/paimon#2769)."""
    for kind in ("vectors", "changelog"):
        table = make_table(tmp_path / kind, kind, [("tag", 0), ("branch", 0), ("on branch", 1)])
        branch = branch_of(table, "dev")
        branch.tags.create("own")
        compact(branch, InProcessExecutor(), strategy="full")
        branch.upsert(table_of("p k v", [(0, 1, "later")]))
        compact(branch, InProcessExecutor())
        expire_snapshots(branch, retain_max=1)
        table.tags.delete("t0")
        expire_snapshots(table, retain_max=1)
        backdate_files(table)
        before = read_all_branches(table)

        remove_orphan_files(table)

        assert read_all_branches(table) == before
        assert {"dev tag own", f"dev {branch.stores.snapshots.latest_id()}"} <= set(before)
        assert check(table, deep=True).findings == ()
        assert unreferenced_files(table) == set()


def test_a_snapshot_whose_expiration_was_killed_does_not_stop_the_cleanup(table: Table) -> None:
    """Snapshots before the hint EARLIEST may be incomplete."""
    table.stores.snapshots.write_hint("EARLIEST", 3)
    table.tags.delete("t0")
    table.branches.delete("dev")
    (Path(table.paths.manifest_dir) / table.stores.snapshots.get(1).delta_manifest_list).unlink()
    orphan = Path(table.paths.manifest_dir) / "manifest-0"
    orphan.write_bytes(b"orphan")
    backdate_files(table)
    before = read_all_branches(table)

    remove_orphan_files(table)

    assert not orphan.exists()
    assert read_all_branches(table) == before
    assert check(table, deep=True)
