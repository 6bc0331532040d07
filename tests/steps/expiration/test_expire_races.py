"""Readers, commits, tags and other expirations during an expiration lose no files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.histories import (
    branch_of,
    make_table,
    read_all_branches,
    select_retained,
    unreferenced_files,
)
from support.tables import rows_of, table_of

from paimon_orch.errors import NotFoundError
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.steps.expiration.expire_snapshots import (
    ExpireSnapshotsRequest,
    expire_snapshots,
    plan,
    run_expiration,
)
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.metadata.branches import Branches
from paimon_orch.table.table import Table


class _AtEarliest(LocalFileIO):
    """Runs an action after an expiration has moved the hint."""

    def __init__(self, action: Any) -> None:
        self.action = action
        self.error: NotFoundError | None = None

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data)
        if path.endswith("EARLIEST") and self.action is not None:
            action, self.action = self.action, None
            try:
                action()
            except NotFoundError as error:
                self.error = error


def test_readers_of_the_earliest_snapshot_never_see_an_expiring_one(tmp_path: Path) -> None:
    """New readers see complete snapshots during an expiration (apache/paimon#6978)."""
    table = make_table(tmp_path, "plain", [("upsert", 1), ("full", 0), ("upsert", 2)])
    expected = rows_of(table, snapshot_id=3)
    reads = []

    class Watching(LocalFileIO):
        def delete(self, path: str) -> None:
            super().delete(path)
            earliest = table.stores.snapshots.earliest_id()
            reads.append((earliest, rows_of(table, snapshot_id=earliest)))

    watched = Table(table.identifier, Watching(), table.paths)
    expire_snapshots(watched, retain_max=2)

    assert len(reads) > 5
    assert all(result == (3, expected) for result in reads)


def test_a_snapshot_tagged_during_expiration_is_retained_or_the_tag_is_refused(
    tmp_path: Path,
) -> None:
    table = make_table(tmp_path / "a", "plain", [("upsert", 1), ("full", 0), ("upsert", 2)])
    io = _AtEarliest(lambda: table.tags.create("late", 2))
    expire_snapshots(Table(table.identifier, io, table.paths), retain_max=1)
    assert io.error is not None
    assert table.tags.names() == []

    # Other engines do not check the hint. Expiration then finds the new tag and keeps its files.
    history = [("tag", 0), ("upsert", 1), ("full", 0), ("upsert", 2)]
    table = make_table(tmp_path / "b", "plain", history)
    rows = rows_of(table, snapshot_id=2)
    data = Path(table.stores.snapshots.path(2)).read_bytes()
    tag = Path(table.paths.tag_dir) / "tag-late"
    io = _AtEarliest(lambda: tag.write_bytes(data))
    expire_snapshots(Table(table.identifier, io, table.paths), retain_max=1)
    assert rows_of(table, tag="late") == rows
    assert check(table, deep=True)


def test_a_tag_cannot_be_moved_to_an_expiring_snapshot(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [("upsert", 1), ("upsert", 2), ("upsert", 3), ("tag", 0)])
    io = _AtEarliest(lambda: table.tags.replace("t0", 2))

    expire_snapshots(Table(table.identifier, io, table.paths), retain_max=1)

    assert io.error is not None
    assert table.tags.get("t0").id == 4
    assert check(table, deep=True).findings == ()


class _AtDeletion(LocalFileIO):
    """Runs an action right after a tag was deleted."""

    def __init__(self, action: Any) -> None:
        self.action = action

    def delete(self, path: str) -> None:
        super().delete(path)
        if "/tag/tag-" in path and self.action is not None:
            action, self.action = self.action, None
            action()


@pytest.mark.parametrize("other", ["branch", "tag"])
def test_the_files_of_a_branch_from_a_tag_that_is_being_deleted_are_kept(
    tmp_path: Path, other: str
) -> None:
    """Another engine read the tag before it was deleted."""
    table = make_table(tmp_path, "vectors", [("tag", 0), ("tag", 5), ("full", 0), ("upsert", 2)])
    expire_snapshots(table, retain_max=1)
    table.tags.delete("t5")
    rows = rows_of(table, tag="t0")
    data = Path(table.tags.path("t0")).read_bytes()

    def taken_up() -> None:
        if other == "tag":
            Path(table.paths.tag_dir, "tag-late").write_bytes(data)
            return
        Path(table.paths.tag_dir, "tag-t0").write_bytes(data)
        table.branches.create("dev", "t0")
        Path(table.paths.tag_dir, "tag-t0").unlink()

    delete_tag(Table(table.identifier, _AtDeletion(taken_up), table.paths), "t0")

    late = table if other == "tag" else branch_of(table, "dev")
    assert rows_of(late, tag="late" if other == "tag" else "t0") == rows
    assert check(table, deep=True).findings == ()


def test_a_branch_cannot_be_created_from_a_deleted_tag(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [("tag", 0), ("upsert", 1)])
    expire_snapshots(table, retain_max=1)

    class Slow(LocalFileIO):
        def create(self, path: str, data: bytes) -> bool:
            if "/branch-dev/schema/" in path:
                delete_tag(table, "t0")
            return super().create(path, data)

    with pytest.raises(NotFoundError, match="no tag 't0'"):
        Branches(Slow(), table.paths.root).create("dev", "t0")

    assert table.branches.names() == []
    assert check(table, deep=True).findings == ()
    assert unreferenced_files(table) == set()


def test_concurrent_commits_lose_no_files(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [("upsert", 1), ("full", 0), ("upsert", 2)])
    rows = table_of("p k v", [(0, 99, "late")])
    io = _AtEarliest(lambda: table.upsert(rows))

    result = expire_snapshots(Table(table.identifier, io, table.paths), retain_max=1)

    assert (result.snapshots, result.attempts) == (3, 1)
    assert table.stores.snapshots.ids() == [4, 5]
    assert (0, 99, "late") in rows_of(table)
    assert check(table, deep=True).findings == ()


def test_a_plan_is_made_again_if_the_newest_snapshot_was_replaced(tmp_path: Path) -> None:
    """The new snapshot has the same id, and refers to files that the old one had removed."""
    table = make_table(tmp_path, "plain", [("upsert", 1), ("full", 0)])
    planned = plan(table, ExpireSnapshotsRequest(retain_max=1, retain_min=1))
    newest = planned.end
    assert newest is not None
    table.rollback(newest - 1)
    table.upsert(table_of("p k v", [(0, 99, "late")]))
    rows = rows_of(table)

    result = run_expiration(table, planned)

    assert (result.snapshots, result.attempts) == (newest - 1, 2)
    assert table.stores.snapshots.ids() == [newest]
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()


def test_a_plan_is_made_again_if_the_newest_snapshot_was_rolled_back(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [("upsert", 1), ("full", 0)])
    planned = plan(table, ExpireSnapshotsRequest(retain_max=1, retain_min=1))
    table.rollback(2)
    rows = rows_of(table)

    result = run_expiration(table, planned)

    assert (result.snapshots, result.attempts) == (1, 2)
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize(("branch", "attempts"), [("old", 1), ("new", 2)])
def test_a_plan_is_made_again_if_a_branch_was_created_and_not_if_it_was_changed(
    tmp_path: Path, branch: str, attempts: int
) -> None:
    table = make_table(tmp_path, "plain", [("upsert", 1), ("tag", 0), ("upsert", 2)])
    table.branches.create("old", "t0")

    def change() -> None:
        if branch == "new":
            table.branches.create("new", "t0")
        branch_of(table, branch).upsert(table_of("p k v", [(0, 99, "late")]))

    io = _AtEarliest(change)
    result = expire_snapshots(Table(table.identifier, io, table.paths), retain_max=1)

    assert result.attempts == attempts
    assert (0, 99, "late") in rows_of(branch_of(table, branch))
    assert check(table, deep=True).findings == ()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("other", [1, 2, 3])
def test_concurrent_expirations_lose_no_files(tmp_path: Path, other: int) -> None:
    table = make_table(tmp_path, "vectors", [("upsert", 1), ("full", 0), ("tag", 0), ("upsert", 2), ("minor", 0)])  # fmt: skip
    before = read_all_branches(table)
    io = _AtEarliest(lambda: expire_snapshots(table, retain_max=other))

    expire_snapshots(Table(table.identifier, io, table.paths), retain_max=2)

    after = read_all_branches(table)
    assert after == select_retained(before, after)
    assert table.stores.snapshots.ids() == list(range(6 - min(other, 2), 6))
    assert check(table, deep=True).findings == ()
    assert unreferenced_files(table) == set()
