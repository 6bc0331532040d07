"""Whenever a process dies, every retained version reads as before, and the step done again completes.

Invariants 2 and 28: a snapshot is visible wholly or not at all; what a dead process leaves is completed or cleaned.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from steps.histories import (
    Operation,
    branch_of,
    contents,
    kept,
    loose_files,
    make_old,
    make_table,
)
from steps.kill import deaths
from tables import rows_of, table_of

from paimon_orch.steps.check import check
from paimon_orch.steps.compact import compact
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.steps.expire_snapshots import expire_snapshots
from paimon_orch.steps.expire_tags import delete_tag
from paimon_orch.steps.quarantine import Quarantine
from paimon_orch.steps.remove_orphan_files import remove_orphan_files
from paimon_orch.table.table import Table

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

HISTORY: list[Operation] = [("tag", 0), ("branch", 0), ("on branch", 1), ("full", 0), ("upsert", 2), ("minor", 0)]  # fmt: skip
ROWS = table_of("p k v", [(0, 0, "new"), (1, 77, "new")])


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it has written: only a machine that dies does."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def clean(table: Table) -> None:
    """Remove what dead processes left; nothing else is loose then."""
    make_old(table)
    remove_orphan_files(table)
    assert loose_files(table) == set()
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("kind", ["vectors", "changelog"])
def test_expiration_killed_anywhere(tmp_path: Path, kind: str) -> None:
    table = make_table(tmp_path / "table", kind, HISTORY)
    before = contents(table)

    def action(table: Table) -> None:
        expire_snapshots(table, retain_max=2)

    for dead in deaths(table, tmp_path, action):
        after = contents(dead)
        assert after == kept(before, after)
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert len(dead.snapshots.ids()) == 2
        clean(dead)
        after = contents(dead)
        assert after == kept(before, after)


def test_expiration_that_keeps_changelogs_killed_anywhere(tmp_path: Path) -> None:
    table = make_table(tmp_path / "table", "changelog", [("upsert", 1), ("full", 0), ("upsert", 2)])
    from paimon_orch import Catalog
    from paimon_orch.table.schema_changes import SetOption

    catalog = Catalog(str(tmp_path / "table"))
    catalog.alter_table("db.t", [SetOption("changelog.num-retained.max", "20"), SetOption("changelog.time-retained", "30 d")])  # fmt: skip
    changes = sorted(map(str, table.incremental(0, 4, "changelog").to_arrow().to_pylist()))

    def action(table: Table) -> None:
        expire_snapshots(table, retain_max=1)

    for dead in deaths(table, tmp_path, action):
        assert check(dead, deep=True).findings == ()
        action(dead)
        found = sorted(map(str, dead.incremental(0, 4, "changelog").to_arrow().to_pylist()))
        assert found == changes
        clean(dead)


@pytest.mark.parametrize("quarantine", [False, True])
def test_orphan_cleanup_killed_anywhere(tmp_path: Path, quarantine: bool) -> None:
    table = make_table(tmp_path / "table", "vectors", [*HISTORY, ("upsert", 3)])
    table.rollback(4)
    table.branches.delete("dev")
    make_old(table)
    before = contents(table)

    def action(table: Table) -> None:
        remove_orphan_files(table, quarantine=quarantine)

    for dead in deaths(table, tmp_path, action):
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert contents(dead) == before
        assert loose_files(dead) == loose_files(dead) & set(quarantined(dead))


def quarantined(table: Table) -> list[str]:
    return [str(p) for p in Path(Quarantine(table.io, table.paths.root).path).rglob("*")]


def ingest(table: Table) -> None:
    table.upsert(ROWS)


def full(table: Table) -> None:
    compact(table, InProcessExecutor(), strategy="full")


def overwrite(table: Table) -> None:
    table.overwrite(ROWS)


@pytest.mark.parametrize(
    ("kind", "action"),
    [("dynamic", ingest), ("lookup", full), ("vectors", full), ("lookup", overwrite)],
)
def test_commits_killed_anywhere(
    tmp_path: Path, kind: str, action: Callable[[Table], None]
) -> None:
    table = make_table(tmp_path / "table", kind, [("tag", 0), ("minor", 0), ("upsert", 1)])
    before, newest = contents(table), table.snapshots.latest_id()
    assert newest is not None
    outcomes = set()
    for dead in deaths(table, tmp_path, action):
        after = contents(dead)
        assert kept(after, before) == before, "what was there is as it was"
        committed = [name for name in after if name not in before]
        assert committed in ([], [f"main {newest + 1}"])
        outcomes.add(len(committed))
        assert check(dead, deep=True).findings == ()
        action(dead)
        if action is ingest:
            assert dead.snapshots.latest_id() == newest + 1 + len(committed)
        clean(dead)
    assert outcomes == {0, 1}


def tag(table: Table) -> None:
    if "new" not in table.tags.names():
        table.tags.create("new", 3)


def branch(table: Table) -> None:
    if "second" not in table.branches.names():
        table.branches.create("second", "t0")


@pytest.mark.parametrize("action", [tag, branch])
def test_tags_and_branches_killed_anywhere(tmp_path: Path, action: Callable[[Table], None]) -> None:
    table = make_table(tmp_path / "table", "vectors", HISTORY)
    before = contents(table)
    for dead in deaths(table, tmp_path, action):
        if action is branch and "second" in dead.branches.names():
            made = branch_of_or_none(dead)
            if made is None:  # begun and not done: its removal is what completes it
                dead.branches.delete("second")
        assert kept(contents(dead), before) == before
        action(dead)
        assert kept(contents(dead), before) == before
        assert check(dead, deep=True).findings == ()


def branch_of_or_none(table: Table) -> Table | None:
    found = Path(table.paths.root) / "branch" / "branch-second" / "schema"
    complete = found.is_dir() and any(path.name.startswith("schema-") for path in found.iterdir())
    return branch_of(table, "second") if complete else None


def test_deleting_a_tag_killed_anywhere(tmp_path: Path) -> None:
    table = make_table(tmp_path / "table", "vectors", HISTORY)
    table.branches.delete("dev")
    expire_snapshots(table, retain_max=1)
    before = contents(table)

    def action(table: Table) -> None:
        if "t0" in table.tags.names():
            delete_tag(table, "t0")

    for dead in deaths(table, tmp_path, action):
        assert check(dead, deep=True).findings == ()
        action(dead)
        clean(dead)
        after = contents(dead)
        assert after == kept(before, after)
        assert dead.tags.names() == []


def test_rollback_killed_anywhere(tmp_path: Path) -> None:
    table = make_table(tmp_path / "table", "vectors", [*HISTORY, ("tag", 2)])
    expected, before = rows_of(table, snapshot_id=3), contents(table)

    def action(table: Table) -> None:
        table.rollback(3)

    for dead in deaths(table, tmp_path, action):
        after = contents(dead)
        assert after == kept(before, after)
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert (dead.snapshots.latest_id(), rows_of(dead)) == (3, expected)
        clean(dead)


def test_fast_forward_killed_anywhere(tmp_path: Path) -> None:
    table = make_table(tmp_path / "table", "plain", [("tag", 0), ("branch", 0), ("on branch", 1), ("upsert", 2)])  # fmt: skip
    expected = rows_of(branch_of(table, "dev"))

    def action(table: Table) -> None:
        table.branches.fast_forward("dev")

    for dead in deaths(table, tmp_path, action):
        assert rows_of(branch_of(dead, "dev")) == expected
        action(dead)
        assert rows_of(dead) == rows_of(branch_of(dead, "dev")) == expected
        clean(dead)
