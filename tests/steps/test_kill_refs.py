"""Kill processes that change tags or branches, roll back, or empty a quarantine.

Invariants 2 and 28, as in ``test_kill``: retained versions are unchanged, and repeating the step
completes it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from support.histories import (
    HISTORY,
    backdate_files,
    branch_of,
    make_table,
    read_all_branches,
    read_versions,
    select_retained,
    stored_names,
    unreferenced_files,
)
from support.kill import MARKS, kill_at_each_change, remove_orphans_of_killed
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.expiration.expire_tags import expire_tags
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.trigger_tag_automatic_creation import create_tags
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

pytestmark = [pytest.mark.slow, *MARKS]

TAGGED = HISTORY[:1]


def create_tag(table: Table) -> None:
    if "new" not in table.tags.names():
        table.tags.create("new", 3)


def replace_tag(table: Table) -> None:
    table.tags.replace("t0", 3)


def rename_tag(table: Table) -> None:
    if "t0" in table.tags.names():
        table.tags.rename("t0", "new")


def make_due_tags(table: Table) -> None:
    create_tags(table)


@pytest.mark.parametrize("action", [create_tag, replace_tag, rename_tag, make_due_tags])
def test_a_killed_change_of_tags_can_be_repeated(
    tmp_path: Path, action: Callable[[Table], None]
) -> None:
    table = make_table(tmp_path / "table", "vectors", HISTORY)
    Catalog(str(tmp_path / "table")).alter_table(
        "db.t", [SetOption("tag.automatic-creation", "process-time")]
    )
    before = read_all_branches(table)
    before |= {"main tag new": before["main 1" if action is rename_tag else "main 3"]}
    outcomes = set()
    for dead in kill_at_each_change(table, tmp_path, action):
        after = read_all_branches(dead)
        snapshot_by_tag = {
            name: rows for name, rows in after.items() if name in before and name != "main tag t0"
        }
        assert snapshot_by_tag == select_retained(before, snapshot_by_tag)
        assert after.get("main tag t0", before["main 1"]) in (before["main 1"], before["main 3"])
        assert check(dead, deep=True).findings == ()
        outcomes.add(tuple(dead.tags.names()))
        action(dead)
        names = dead.tags.names()
        assert check(dead, deep=True).findings == ()
        assert len(names) == (1 if action in (replace_tag, rename_tag) else 2)
    assert tuple(names) in outcomes
    assert ("t0",) in outcomes


def create_branch(table: Table) -> None:
    if not complete(table, "second"):
        table.branches.create("second", "t0")


def complete(table: Table, branch: str) -> bool:
    """Return whether a branch exists with its schemas and its snapshot."""
    root = Path(table.paths.root) / "branch" / f"branch-{branch}"
    return all(list(root.glob(f"{folder}/{folder}-*")) for folder in ("schema", "snapshot"))


def test_a_killed_creation_of_a_branch_can_be_repeated(tmp_path: Path) -> None:
    table = make_table(tmp_path / "table", "vectors", TAGGED)
    Catalog(str(tmp_path / "table")).alter_table("db.t", [SetOption("num-levels", "4")])
    before = read_all_branches(table)
    for dead in kill_at_each_change(table, tmp_path, create_branch):
        assert select_retained(read_versions(dead, "main "), before) == before
        create_branch(dead)
        assert read_all_branches(dead) == before | {
            "second 1": before["main 1"], "second tag t0": before["main 1"],
        }  # fmt: skip
        assert check(dead, deep=True).findings == ()


def test_a_killed_deletion_of_a_branch_can_be_repeated(tmp_path: Path) -> None:
    table = make_table(tmp_path / "table", "vectors", HISTORY)
    before = read_versions(table)

    def action(table: Table) -> None:
        if "dev" in table.branches.names():
            table.branches.delete("dev")

    for dead in kill_at_each_change(table, tmp_path, action):
        assert read_versions(dead) == before
        action(dead)
        assert dead.branches.names() == []
        remove_orphans_of_killed(dead)
        assert read_versions(dead) == before


def delete(table: Table) -> None:
    if "t0" in table.tags.names():
        delete_tag(table, "t0")


def expire(table: Table) -> None:
    expire_tags(table)


@pytest.mark.parametrize("action", [delete, expire])
def test_a_killed_deletion_of_a_tag_can_be_repeated(
    tmp_path: Path, action: Callable[[Table], None]
) -> None:
    table = make_table(tmp_path / "table", "vectors", HISTORY)
    table.branches.delete("dev")
    table.tags.replace("t0", 1, time_retained=timedelta(microseconds=1))
    expire_snapshots(table, retain_max=1)
    before = read_all_branches(table)
    for dead in kill_at_each_change(table, tmp_path, action):
        assert check(dead, deep=True).findings == ()
        action(dead)
        remove_orphans_of_killed(dead)
        after = read_all_branches(dead)
        assert after == select_retained(before, after)
        assert dead.tags.names() == []


@pytest.mark.parametrize("tag", [None, "t0"])
def test_a_killed_rollback_can_be_repeated(tmp_path: Path, tag: str | None) -> None:
    table = make_table(tmp_path / "table", "vectors", [*HISTORY, ("tag", 2)])
    if tag is not None:  # the rollback must restore the snapshot of the tag
        expire_snapshots(table, retain_max=3)
    target = 3 if tag is None else 1
    expected = rows_of(table, snapshot_id=3) if tag is None else rows_of(table, tag=tag)
    before = read_all_branches(table) | {f"main {target}": list(map(repr, expected))}

    def action(table: Table) -> None:
        table.rollback(3 if tag is None else None, tag=tag, delete_tags=True)

    for dead in kill_at_each_change(table, tmp_path, action):
        after = read_all_branches(dead)
        assert after == select_retained(before, after)
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert (dead.stores.snapshots.latest_id(), rows_of(dead)) == (target, expected)
        remove_orphans_of_killed(dead)


def test_a_killed_fast_forward_can_be_repeated(tmp_path: Path) -> None:
    table = make_table(tmp_path / "table", "plain", [("tag", 0), ("branch", 0), ("on branch", 1), ("upsert", 2)])  # fmt: skip
    expected = rows_of(branch_of(table, "dev"))

    def action(table: Table) -> None:
        table.branches.fast_forward("dev")

    for dead in kill_at_each_change(table, tmp_path, action):
        assert rows_of(branch_of(dead, "dev")) == expected
        action(dead)
        assert rows_of(dead) == rows_of(branch_of(dead, "dev")) == expected
        remove_orphans_of_killed(dead)


def restore(table: Table) -> None:
    Quarantine(table.io, table.paths.root).restore()


def empty(table: Table) -> None:
    Quarantine(table.io, table.paths.root).empty(timedelta(0))


@pytest.mark.parametrize("action", [restore, empty])
def test_a_killed_quarantine_command_can_be_repeated(
    tmp_path: Path, action: Callable[[Table], None]
) -> None:
    table = make_table(tmp_path / "table", "vectors", [*TAGGED, ("upsert", 3)])
    table.rollback(1, delete_tags=True)
    backdate_files(table)
    names = stored_names(table)
    result = remove_orphan_files(table, quarantine=True)
    before = read_all_branches(table)
    for dead in kill_at_each_change(table, tmp_path, action):
        assert read_all_branches(dead) == before
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert Quarantine(dead.io, dead.paths.root).list_folders() == []
        assert read_all_branches(dead) == before
        if action is restore:
            assert stored_names(dead) == names
            assert len(unreferenced_files(dead)) == result.files > 3
        else:
            assert unreferenced_files(dead) == set()
