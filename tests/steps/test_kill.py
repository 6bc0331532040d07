"""If a process is killed, retained versions are unchanged, and repeating the step completes it.

Invariants 2 and 28: snapshots are visible completely or not at all, and leftovers are cleaned up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.histories import (
    HISTORY,
    backdate_files,
    make_table,
    read_all_branches,
    select_retained,
    unreferenced_files,
)
from support.kill import MARKS, kill_at_each_change, remove_orphans_of_killed
from support.tables import table_of

from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

pytestmark = MARKS

ROWS = table_of("p k v", [(0, 0, "new"), (1, 77, "new")])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["vectors", "changelog"])
def test_a_killed_expiration_keeps_retained_snapshots(tmp_path: Path, kind: str) -> None:
    table = make_table(tmp_path / "table", kind, HISTORY)
    before = read_all_branches(table)

    def action(table: Table) -> None:
        expire_snapshots(table, retain_max=2)

    for dead in kill_at_each_change(table, tmp_path, action):
        after = read_all_branches(dead)
        assert after == select_retained(before, after)
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert len(dead.stores.snapshots.ids()) == 2
        remove_orphans_of_killed(dead)
        after = read_all_branches(dead)
        assert after == select_retained(before, after)


@pytest.mark.slow
def test_a_killed_expiration_keeps_retained_changelogs(tmp_path: Path) -> None:
    table = make_table(tmp_path / "table", "changelog", [("upsert", 1), ("full", 0), ("upsert", 2)])
    from paimon_orch import Catalog
    from paimon_orch.table.schema_change.schema_changes import SetOption

    catalog = Catalog(str(tmp_path / "table"))
    catalog.alter_table("db.t", [SetOption("changelog.num-retained.max", "20"), SetOption("changelog.time-retained", "30 d")])  # fmt: skip
    changes = sorted(map(str, table.incremental(0, 4, "changelog").to_arrow().to_pylist()))

    def action(table: Table) -> None:
        expire_snapshots(table, retain_max=1)

    for dead in kill_at_each_change(table, tmp_path, action):
        assert check(dead, deep=True).findings == ()
        action(dead)
        changelog = sorted(map(str, dead.incremental(0, 4, "changelog").to_arrow().to_pylist()))
        assert changelog == changes
        remove_orphans_of_killed(dead)


@pytest.mark.slow
@pytest.mark.parametrize("quarantine", [False, True])
def test_a_killed_orphan_cleanup_can_be_repeated(tmp_path: Path, quarantine: bool) -> None:
    table = make_table(tmp_path / "table", "vectors", [*HISTORY, ("upsert", 3)])
    table.rollback(4)
    table.branches.delete("dev")
    backdate_files(table)
    before = read_all_branches(table)

    def action(table: Table) -> None:
        remove_orphan_files(table, quarantine=quarantine)

    for dead in kill_at_each_change(table, tmp_path, action):
        assert check(dead, deep=True).findings == ()
        action(dead)
        assert read_all_branches(dead) == before
        assert unreferenced_files(dead) == unreferenced_files(dead) & set(
            list_quarantined_files(dead)
        )


def list_quarantined_files(table: Table) -> list[str]:
    return [str(p) for p in Path(Quarantine(table.io, table.paths.root).path).rglob("*")]


def ingest(table: Table) -> None:
    table.upsert(ROWS)


def compact_fully(table: Table) -> None:
    compact(table, InProcessExecutor(), strategy="full")


def overwrite(table: Table) -> None:
    table.overwrite(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("dynamic", ingest),
        ("lookup", compact_fully),
        ("vectors", compact_fully),
        ("lookup", overwrite),
    ],
)
def test_a_killed_commit_is_visible_completely_or_not_at_all(
    tmp_path: Path, kind: str, action: Callable[[Table], None]
) -> None:
    table = make_table(tmp_path / "table", kind, [("tag", 0), ("minor", 0), ("upsert", 1)])
    before, newest = read_all_branches(table), table.stores.snapshots.latest_id()
    assert newest is not None
    outcomes = set()
    for dead in kill_at_each_change(table, tmp_path, action):
        after = read_all_branches(dead)
        assert select_retained(after, before) == before, "existing versions are unchanged"
        committed = [name for name in after if name not in before]
        assert committed in ([], [f"main {newest + 1}"])
        outcomes.add(len(committed))
        assert check(dead, deep=True).findings == ()
        action(dead)
        if action is ingest:
            assert dead.stores.snapshots.latest_id() == newest + 1 + len(committed)
        remove_orphans_of_killed(dead)
    assert outcomes == {0, 1}
