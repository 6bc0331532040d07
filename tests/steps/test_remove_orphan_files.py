"""Orphan cleanup: what goes, what never goes, and that it fails closed (invariants 35 to 38)."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steps.histories import (
    KINDS,
    Operation,
    branch_of,
    contents,
    loose_files,
    make_old,
    make_table,
    operations,
)
from tables import new_table, rows_of, small_batches, stored_files, table_of

from paimon_orch.errors import (
    CorruptFileError,
    InputError,
    MissingFileError,
    NotFoundError,
    PaimonError,
    UnsupportedError,
)
from paimon_orch.steps import remove_orphan_files as step
from paimon_orch.steps.check import check
from paimon_orch.steps.expire_snapshots import expire_snapshots
from paimon_orch.steps.quarantine import Quarantine
from paimon_orch.steps.remove_orphan_files import remove_orphan_files
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.table import Table

HISTORY: list[Operation] = [("tag", 0), ("branch", 0), ("on branch", 1), ("full", 0), ("upsert", 2), ("minor", 0)]  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with a tag and a branch, all of whose files are old."""
    table = make_table(tmp_path / "w", "vectors", HISTORY)
    make_old(table)
    return table


def litter(table: Table) -> list[Path]:
    """Leave an old file that nothing refers to in every folder that is looked into."""
    root = Path(table.paths.root)
    names = [
        "manifest/manifest-0", "manifest/.manifest-1.x.tmp", "index/index-0", "statistics/stat-0",
        "p=0/bucket-0/data-0.parquet", "p=9/bucket-3/data-0.parquet.index",
        "snapshot/.snapshot-9.x.tmp", "branch/branch-dev/snapshot/junk", "tag/.tag-x.y.tmp",
    ]  # fmt: skip
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"orphan")
    make_old(table)
    return [root / name for name in names]


def test_orphans_go_and_nothing_else(table: Table) -> None:
    before, rows = stored_files(table), contents(table)
    orphans = litter(table)

    planned = step.plan(table)
    assert stored_files(table) == before | {str(path) for path in orphans}
    result = remove_orphan_files(table)

    assert (len(planned.files), planned.bytes) == (result.files, result.bytes) == (9, 54)
    assert {file.path for file in planned.files} == {str(path) for path in orphans}
    assert stored_files(table) == before
    assert contents(table) == rows
    assert not (Path(table.paths.root) / "p=9").exists(), "nothing is left in that partition"
    assert remove_orphan_files(table).files == 0
    assert check(table, deep=True)


def test_files_elsewhere_are_never_touched(table: Table) -> None:
    root = Path(table.paths.root)
    names = [
        "README", "p=0/_SUCCESS", "p=0/bucket-0/data-x.managed.blob", "p=0/bucket-0/folder/data-0.parquet", "other/bucket-0/data.parquet",
        "q=1/bucket-0/data.parquet", "service/service-x", "schema/note", "tag/note",
        "consumer/consumer-x", "snapshot/snapshot-0.backup", "manifest/folder/manifest-0",
    ]  # fmt: skip
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"mine")
    make_old(table)
    before = stored_files(table)

    assert remove_orphan_files(table).files == 0
    assert stored_files(table) == before


def test_young_files_survive(table: Table) -> None:
    orphans = litter(table)
    for path, hours in zip(orphans, (23, 25, 23, 25, 0, 48, 1, 2, 3), strict=True):
        then = time.time() - hours * 3600
        os.utime(path, (then, then))

    remove_orphan_files(table)

    assert [path.exists() for path in orphans] == [True, False, True, False, True, False, True, True, True]  # fmt: skip
    two_hours_ago = int((time.time() - 7000) * 1000)
    remove_orphan_files(table, older_than=two_hours_ago)
    assert [path.exists() for path in orphans] == [False, False, False, False, True, False, True, False, False]  # fmt: skip


def test_a_time_in_the_future_is_refused(table: Table) -> None:
    with pytest.raises(InputError, match="future"):
        step.plan(table, older_than=int((time.time() + 60) * 1000))


def test_one_partition_is_cleaned(table: Table) -> None:
    orphans = litter(table)

    result = remove_orphan_files(table, partitions=["p=9", {"p": 7}])

    assert result.files == 1
    assert [path for path in orphans if not path.exists()] == [
        Path(table.paths.root) / "p=9/bucket-3/data-0.parquet.index"
    ]


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(KINDS)), operations(), st.booleans(), st.booleans())
def test_cleaning_changes_no_version_and_leaves_nothing(
    kind: str, history: list[Operation], expired: bool, rolled_back: bool
) -> None:
    with small_batches(3), tempfile.TemporaryDirectory() as root:
        table = make_table(Path(root), kind, history)
        if rolled_back:
            table.rollback(table.snapshots.ids()[len(table.snapshots.ids()) // 2])
        if expired:
            expire_snapshots(table, retain_max=2)
        if "dev" in table.branches.names() and rolled_back:
            table.branches.delete("dev")
        make_old(table)
        before = contents(table)

        planned = step.plan(table)
        result = remove_orphan_files(table)

        assert (len(planned.files), planned.bytes) == (result.files, result.bytes)
        assert contents(table) == before
        assert loose_files(table) == set()
        assert check(table, deep=True).findings == ()
        assert not step.plan(table)


def metadata_files(table: Table) -> list[Path]:
    return sorted(Path(table.paths.manifest_dir).iterdir())


def test_whatever_metadata_is_unreadable_nothing_is_deleted_and_the_error_names_it(
    table: Table,
) -> None:
    litter(table)
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


def test_a_missing_manifest_stops_the_cleanup_and_is_named(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paimon_orch.table.references._PAUSE_SECONDS", 0)
    litter(table)
    for pattern in ("manifest-list-*", "manifest-[0-9a-f]*-*", "index-manifest-*"):
        path = next(Path(table.paths.manifest_dir).glob(pattern))
        content = path.read_bytes()
        path.unlink()
        before = stored_files(table)

        with pytest.raises(MissingFileError, match=path.name) as caught:
            remove_orphan_files(table)

        assert "needs it" in caught.value.__notes__[0]
        assert stored_files(table) == before
        path.write_bytes(content)
    assert remove_orphan_files(table).files == 9


@pytest.mark.parametrize("content", [b"", b"{}", b"no json", b'{"version": 99}'])
@pytest.mark.parametrize("name", ["snapshot/snapshot-2", "tag/tag-t0", "changelog/changelog-1", "branch/branch-dev/snapshot/snapshot-1"])  # fmt: skip
def test_an_unreadable_version_stops_the_cleanup(table: Table, name: str, content: bytes) -> None:
    litter(table)
    path = Path(table.paths.root) / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    before = stored_files(table)

    with pytest.raises(PaimonError, match=path.name):
        remove_orphan_files(table)
    assert stored_files(table) == before


def test_a_branch_without_a_schema_stops_the_cleanup(table: Table) -> None:
    litter(table)
    for path in Path(table.paths.root).glob("branch/branch-dev/schema/*"):
        path.unlink()

    with pytest.raises(NotFoundError, match="branch-dev has no schema"):
        remove_orphan_files(table)


def test_a_table_whose_snapshots_are_gone_is_not_emptied(table: Table) -> None:
    before = len(list(Path(table.paths.root).glob("p=*/*/*")))
    for path in Path(table.paths.root).rglob("*"):
        if path.parent.name in ("snapshot", "tag"):
            path.unlink()

    with pytest.raises(UnsupportedError, match="no snapshot, tag or changelog"):
        remove_orphan_files(table)
    assert len(list(Path(table.paths.root).glob("p=*/*/*"))) == before


def test_a_table_that_was_never_written_to_has_nothing_to_clean(tmp_path: Path) -> None:
    assert remove_orphan_files(new_table(tmp_path)).files == 0


class Meanwhile(LocalFileIO):
    """Does something when a path is listed or read for the first time."""

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
def test_a_snapshot_that_expires_meanwhile_takes_no_file_of_its_successor(
    tmp_path: Path, part: str
) -> None:
    """Only one snapshot is kept, and goes for another while files are collected (apache/paimon#7710)."""
    table = make_table(tmp_path, "plain", [("upsert", 1)])
    expire_snapshots(table, retain_max=1)
    make_old(table)

    def replaced() -> None:
        table.upsert(table_of("p k v", [(0, 1, "new")]))
        expire_snapshots(table, retain_max=1)

    io = Meanwhile(part, replaced)
    remove_orphan_files(Table(table.identifier, io, table.paths))

    assert io.action is None
    assert table.snapshots.ids() == [3]
    assert check(table, deep=True).findings == ()
    assert (0, 1, "new") in rows_of(table)


def test_old_files_that_are_committed_while_the_cleanup_runs_stay(table: Table) -> None:
    """A writer that took more than a day commits between planning and deleting (apache/paimon#3074)."""
    snapshot = table.snapshots.get(1)
    rows = rows_of(table, snapshot_id=1)
    Path(table.tags.path("t0")).unlink()
    table.branches.delete("dev")
    kept = Path(table.snapshots.path(1)).read_bytes()
    expire = [table.snapshots.path(number) for number in (1, 2)]
    for path in expire:
        Path(path).unlink()
    planned = step.plan(table)
    assert any(snapshot.delta_manifest_list in file.path for file in planned.files)

    tag = Path(table.paths.tag_dir) / "tag-back"
    tag.write_bytes(kept)
    step.run(table, planned)

    assert rows_of(table, tag="back") == rows
    assert check(table, deep=True)


def test_a_snapshot_whose_expiration_was_killed_does_not_stop_the_cleanup(table: Table) -> None:
    """What lies below the hint EARLIEST may be incomplete."""
    table.snapshots.write_hint("EARLIEST", 3)
    table.tags.delete("t0")
    table.branches.delete("dev")
    (Path(table.paths.manifest_dir) / table.snapshots.get(1).delta_manifest_list).unlink()
    orphan = Path(table.paths.manifest_dir) / "manifest-0"
    orphan.write_bytes(b"orphan")
    make_old(table)
    before = contents(table)

    remove_orphan_files(table)

    assert not orphan.exists()
    assert contents(table) == before
    assert check(table, deep=True)


@pytest.mark.parametrize("link", ["p=0/bucket-0/data-link.parquet", "manifest/manifest-link", "p=8/bucket-0", "p=8", "index/link"])  # fmt: skip
def test_links_are_not_followed_and_not_removed(table: Table, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "precious"
    (outside / "bucket-0").mkdir(parents=True)
    (outside / "bucket-0" / "data.parquet").write_bytes(b"precious")
    target = outside / "bucket-0" / "data.parquet" if "-link" in link else outside
    path = Path(table.paths.root) / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    for file in outside.rglob("*"):
        os.utime(file, (1, 1))
    os.utime(path, (1, 1), follow_symlinks=False)

    remove_orphan_files(table)

    assert path.is_symlink()
    assert (outside / "bucket-0" / "data.parquet").read_bytes() == b"precious"


@pytest.mark.parametrize("folder", ["../elsewhere", "a/../../elsewhere"])
def test_a_data_folder_outside_the_table_is_refused(tmp_path: Path, folder: str) -> None:
    table = new_table(tmp_path / "w", data_file__path_directory="data")
    table.upsert(table_of("k v", [(1, "a")]))
    schema = Path(table.paths.schema_dir) / "schema-0"
    schema.write_text(schema.read_text().replace('"data"', f'"{folder}"'))

    with pytest.raises(CorruptFileError, match="is refused"):
        remove_orphan_files(table, older_than=int(time.time() * 1000))


def test_tables_with_a_data_folder_are_cleaned(tmp_path: Path) -> None:
    table = new_table(tmp_path, data_file__path_directory="data")
    table.upsert(table_of("k v", [(1, "a")]))
    orphan = Path(table.paths.root) / "data" / "bucket-0" / "data-0.parquet"
    orphan.write_bytes(b"x")
    make_old(table)

    assert [file.path for file in step.plan(table).files] == [str(orphan)]


def test_side_files_and_changelogs_are_used(tmp_path: Path) -> None:
    table = make_table(tmp_path, "changelog", [("upsert", 1)])
    make_old(table)

    assert not step.plan(table)


def test_quarantined_files_come_back(table: Table, tmp_path: Path) -> None:
    orphans = litter(table)
    before = stored_files(table)
    quarantine = Quarantine(table.io, table.paths.root)

    result = remove_orphan_files(table, quarantine=True)

    assert quarantine.folders() == [result.quarantine]
    assert not any(path.exists() for path in orphans)
    assert len([path for path in stored_files(table) if ".quarantine" in path]) == 9
    assert remove_orphan_files(table).files == 0, "what is in quarantine is no orphan"
    assert check(table, deep=True)

    assert quarantine.restore() == 9
    assert stored_files(table) == before
    assert quarantine.folders() == []


def test_a_name_that_is_taken_again_is_not_overwritten_by_a_restore(table: Table) -> None:
    orphans = litter(table)
    remove_orphan_files(table, quarantine=True)
    orphans[0].write_bytes(b"newer")
    quarantine = Quarantine(table.io, table.paths.root)

    assert quarantine.restore() == 8
    assert orphans[0].read_bytes() == b"newer"
    assert len(quarantine.folders()) == 1


def test_quarantine_is_emptied_after_its_time(table: Table) -> None:
    litter(table)
    now = time.time()
    quarantine = Quarantine(table.io, table.paths.root)
    remove_orphan_files(table, quarantine=True)
    later = Quarantine(table.io, table.paths.root, lambda: now + 8 * 24 * 3600)

    assert quarantine.empty(timedelta(days=7)) == 0
    assert later.empty(timedelta(days=7)) == 9
    assert not Path(quarantine.path).exists()
    with pytest.raises(NotFoundError, match="no folder"):
        quarantine.restore("20260101T000000000000")


def test_what_a_rollback_and_a_deleted_branch_leave_is_found(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [*HISTORY, ("upsert", 4)])
    branch_files = {entry.file.file_name for entry in branch_of(table, "dev").manifests.live(branch_of(table, "dev").snapshots.latest())}  # type: ignore[arg-type]  # fmt: skip
    table.rollback(3)
    table.branches.delete("dev")
    make_old(table)
    before = contents(table)

    found = {Path(file.path).name for file in step.plan(table).files}

    assert branch_files & found
    remove_orphan_files(table)
    assert contents(table) == before
    assert loose_files(table) == set()
