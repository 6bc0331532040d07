"""Tables with a history of operations, and the rows of all their retained versions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from support.damage import edit_snapshot
from support.tables import catalog_of, new_table, rows_of, small_batches, stored_files, table_of

from paimon_orch.errors import NotFoundError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.cleanup.references import ReferencedFiles
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshotStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST
from paimon_orch.table.table import Table

Operation = tuple[str, int]


class CountingFileIO(LocalFileIO):
    """Counts how often each file is read."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        self.reads[path] += 1
        return super().read_bytes(path)


KINDS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "vectors": {"deletion_vectors__enabled": "true"},
    "changelog": {"changelog_producer": "input"},
    "lookup": {"changelog_producer": "lookup"},
    "dynamic": {"bucket": "-1"},
}
# In this history, the versions of main, a tag and a branch share files.
HISTORY: list[Operation] = [("tag", 0), ("branch", 0), ("on branch", 1), ("full", 0), ("upsert", 2), ("minor", 0)]  # fmt: skip
_ACTIONS = ("upsert", "upsert", "delete", "minor", "full", "overwrite", "drop", "tag", "untag", "branch", "on branch")  # fmt: skip


def operations(max_size: int = 12) -> st.SearchStrategy[list[Operation]]:
    """Draw a history: actions with numbers that make their rows differ."""
    return st.lists(st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 5)), min_size=2, max_size=max_size)  # fmt: skip


def make_table(
    root: Path, kind: str, history: Iterable[Operation], *, batch_rows: int | None = None
) -> Table:
    """Create a partitioned table of a kind and apply a history, perhaps with small batches."""
    columns = "p INT, k BIGINT, v STRING"
    table = new_table(root, columns, key=("p", "k"), partition_by=("p",), **KINDS[kind])
    if batch_rows is not None:
        table = small_batches(table, batch_rows)
    for step, (action, number) in enumerate([("upsert", 0), *history]):
        apply_action(table, action, number, f"{step}")
    return table


def make_snapshots(root: Path, snapshots: int, **options: str) -> Table:
    """Create a table with a number of snapshots; the n-th has the commit time ``n * 1000``."""
    table = new_table(root, **options)
    for number in range(1, snapshots + 1):
        table.upsert(table_of("k v", [(number, str(number))]))
        edit_snapshot(table, number, time_millis=number * 1000)
    return table


def apply_action(table: Table, action: str, number: int, text: str) -> None:
    """Apply an action to a table if its state permits it."""
    rows = table_of("p k v", [(k % 2, k, f"{text}-{k}") for k in range(number, number + 4)])
    tag, tagged = f"t{number}", f"t{number}" in table.tags.names()
    branched = "dev" in table.branches.names()
    actions: dict[str, tuple[bool, Callable[[], object]]] = {
        "upsert": (True, lambda: table.upsert(rows)),
        "delete": (True, lambda: table.delete(rows.select(["p", "k"]).slice(0, 2))),
        "minor": (True, lambda: compact(table, InProcessExecutor())),
        "full": (True, lambda: compact(table, InProcessExecutor(), strategy="full")),
        "overwrite": (True, lambda: table.overwrite(rows)),
        "drop": (True, lambda: drop_partition(table, {"p": number % 2})),
        "tag": (not tagged, lambda: table.tags.create(tag)),
        "untag": (tagged, lambda: table.tags.delete(tag)),
        "branch": (tagged and not branched, lambda: table.branches.create("dev", tag)),
        "on branch": (branched, lambda: branch_of(table, "dev").upsert(rows)),
    }
    possible, act = actions[action]
    if possible:
        act()


def drop_partition(table: Table, partition: dict[str, object]) -> None:
    """Drop a partition, if the table has it."""
    with suppress(NotFoundError):
        table.drop_partitions([partition])


def branch_of(table: Table, name: str) -> Table:
    """Return a branch of a table as a table."""
    branch = catalog_of(table).table(f"{table.identifier}$branch_{name}")
    return replace(branch, batch_sizes=table.batch_sizes)


def read_all_branches(table: Table) -> dict[str, list[str]]:
    """Return the rows of every retained version of every branch as text, so that NaN equals NaN."""
    versions = read_versions(table, "main ")
    for name in table.branches.names():
        versions |= read_versions(branch_of(table, name), f"{name} ")
    return versions


def read_versions(table: Table, prefix: str = "") -> dict[str, list[str]]:
    """Return the rows of every retained version of a table or one branch, as text."""
    versions: dict[str, list[str]] = {}
    for tag in table.tags.names():
        versions[f"{prefix}tag {tag}"] = list(map(repr, rows_of(table, tag=tag)))
    earliest = table.stores.snapshots.earliest_id() or 0
    for number in table.stores.snapshots.ids():
        if number >= earliest:
            versions[f"{prefix}{number}"] = list(map(repr, rows_of(table, snapshot_id=number)))
    return versions


def select_retained(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the earlier values of the later keys."""
    return {name: before[name] for name in after}


def unreferenced_files(table: Table) -> set[str]:
    """Return the unreferenced files, without snapshots, schemas, tags, changelogs and consumers."""
    used = ReferencedFiles(store=RetainedSnapshotStore(table.io, table.paths.root))
    used.update()
    folders = ("schema", "snapshot", "tag", "changelog", "consumer")
    return {
        path
        for path in stored_files(table)
        if Path(path).name not in used.names and Path(path).parent.name not in folders
    }


def backdate_files(table: Table, seconds: float = 7 * 24 * 3600) -> None:
    """Set back the modification times of all files and directories of a table."""
    for path in [Path(table.paths.root), *Path(table.paths.root).rglob("*")]:
        if not path.is_symlink():
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))


def snapshot_range(table: Table) -> tuple[list[int], int | None]:
    """Return the ids of the existing snapshots, and the hint EARLIEST."""
    return table.stores.snapshots.ids(), table.stores.snapshots.hint(EARLIEST)


def create_orphan_files(table: Table) -> list[Path]:
    """Create an old unreferenced file in every folder that orphan cleanup lists."""
    root = Path(table.paths.root)
    names = [
        "manifest/manifest-0", "manifest/.manifest-1.x.tmp", "index/index-0", "statistics/stat-0",
        "p=0/bucket-0/data-0.parquet", "p=9/bucket-3/data-0.parquet.index",
        "snapshot/.snapshot-9.x.tmp", "branch/branch-dev/snapshot/junk", "tag/.tag-x.y.tmp",
    ]  # fmt: skip
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"orphan")
    backdate_files(table)
    return [root / name for name in names]


def stored_names(table: Table) -> set[str]:
    """Return the relative paths of all files below the table's directory."""
    return {str(Path(path).relative_to(table.paths.root)) for path in stored_files(table)}
