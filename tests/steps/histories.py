"""Tables with a past, and all that their versions hold: maintenance must not change it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.steps.compact import compact
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.table.references import Used, VersionStore
from paimon_orch.table.snapshots import EARLIEST
from paimon_orch.table.table import Table

Operation = tuple[str, int]
KINDS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "vectors": {"deletion_vectors__enabled": "true"},
    "changelog": {"changelog_producer": "input"},
    "lookup": {"changelog_producer": "lookup"},
    "dynamic": {"bucket": "-1"},
}
_ACTIONS = ("upsert", "upsert", "delete", "minor", "full", "overwrite", "drop", "tag", "untag", "branch", "on branch")  # fmt: skip


def operations(most: int = 12) -> st.SearchStrategy[list[Operation]]:
    """Draw a history: what is done, and a number that makes it different from others."""
    return st.lists(st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 5)), min_size=2, max_size=most)  # fmt: skip


def make_table(root: Path, kind: str, history: Iterable[Operation]) -> Table:
    """Make a partitioned table of a kind and go through a history."""
    columns = "p INT, k BIGINT, v STRING"
    table = new_table(root, columns, key=("p", "k"), partition_by=("p",), **KINDS[kind])
    for step, (action, number) in enumerate([("upsert", 0), *history]):
        apply(table, action, number, f"{step}")
    return table


def apply(table: Table, action: str, number: int, text: str) -> None:
    """Do one thing to a table; what is not possible in its state is left out."""
    rows = table_of("p k v", [(k % 2, k, f"{text}-{k}") for k in range(number, number + 4)])
    tag, tagged = f"t{number}", f"t{number}" in table.tags.names()
    branched = "dev" in table.branches.names()
    actions: dict[str, tuple[bool, Callable[[], object]]] = {
        "upsert": (True, lambda: table.upsert(rows)),
        "delete": (True, lambda: table.delete(rows.select(["p", "k"]).slice(0, 2))),
        "minor": (True, lambda: compact(table, InProcessExecutor())),
        "full": (True, lambda: compact(table, InProcessExecutor(), strategy="full")),
        "overwrite": (True, lambda: table.overwrite(rows)),
        "drop": (True, lambda: table.drop_partitions([{"p": number % 2}])),
        "tag": (not tagged, lambda: table.tags.create(tag)),
        "untag": (tagged, lambda: table.tags.delete(tag)),
        "branch": (tagged and not branched, lambda: table.branches.create("dev", tag)),
        "on branch": (branched, lambda: branch_of(table, "dev").upsert(rows)),
    }
    possible, act = actions[action]
    if possible:
        act()


def branch_of(table: Table, name: str) -> Table:
    """Return a branch of a table as a table."""
    warehouse = Path(table.paths.root).parents[1]
    return Catalog(str(warehouse)).table(f"{table.identifier}$branch_{name}")


def contents(table: Table) -> dict[str, list[str]]:
    """Return the rows of every retained version of every branch, as text: NaN equals itself then."""
    found: dict[str, list[str]] = {}
    for name in ("main", *table.branches.names()):
        one = table if name == "main" else branch_of(table, name)
        for tag in one.tags.names():
            found[f"{name} tag {tag}"] = list(map(repr, rows_of(one, tag=tag)))
        earliest = one.snapshots.earliest_id() or 0
        for number in one.snapshots.ids():
            if number >= earliest:
                found[f"{name} {number}"] = list(map(repr, rows_of(one, snapshot_id=number)))
    return found


def kept(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was there before, of what is there after."""
    return {name: before[name] for name in after}


def loose_files(table: Table) -> set[str]:
    """Return the names of all files that nothing refers to, but for those of snapshots, schemas and so on themselves."""
    used = Used(VersionStore(table.io, table.paths.root))
    used.update()
    folders = ("schema", "snapshot", "tag", "changelog", "consumer")
    return {
        path
        for path in stored_files(table)
        if Path(path).name not in used.names and Path(path).parent.name not in folders
    }


def make_old(table: Table, seconds: float = 7 * 24 * 3600) -> None:
    """Date all files and directories of a table back."""
    for path in [Path(table.paths.root), *Path(table.paths.root).rglob("*")]:
        if not path.is_symlink():
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))


def snapshot_range(table: Table) -> tuple[list[int], int | None]:
    """Return the ids of the snapshots that are there, and the hint EARLIEST."""
    return table.snapshots.ids(), table.snapshots.hint(EARLIEST)
