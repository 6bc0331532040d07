"""Maintenance: plan an orphan cleanup and expire many snapshots, compared with a baseline and Java.

    python benchmarks/maintenance.py [--files 200000] [--snapshots 1000] [--no-peers]

Goals: planning takes at most twice the time of listing all files with os.scandir and decoding the
manifests once, in less than 300 MB; expiring decodes every manifest at most once, and its time
depends on the number of deleted files; Java takes twice as long for both, not counting its start,
and the same files remain.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar
from uuid import uuid4

import typer
from measurement import HERE, console, medians, show
from support.peers.peers import Peer, PeerUnavailableError

from paimon_orch import Catalog
from paimon_orch.format.manifest.columnar_manifest import open_manifest
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from paimon_orch.steps.cleanup import remove_orphan_files as orphan_step
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.metadata.manifest_io import ManifestWriter
from paimon_orch.table.table import Table

PARTITIONS = 100
ORPHAN_SHARE = 0.1
MERGE_EVERY = 50
OLD_TIME = time.time() - 7 * 24 * 3600

T = TypeVar("T")


class TableHistory:
    """Writes the snapshots of a table with fake data files, which neither step reads."""

    def __init__(self, warehouse: Path) -> None:
        self.table = Catalog(str(warehouse)).create_table(
            "db.t", "p INT NOT NULL, k BIGINT", partition_by=["p"], options={"bucket": "-1"}
        )
        types = [field.type for field in self.table.load().schema.partition_fields]
        self.partitions = [serialize_row([p], types) for p in range(PARTITIONS)]
        self.writer = ManifestWriter(self.table.io, self.table.paths, self.table.load().schema)
        self.live: dict[str, ManifestEntry] = {}
        self.manifests: list[ManifestFileMeta] = []
        self.rows = 0
        self.file_count = 0

    def commit(self, added: int, deleted: int) -> None:
        """Add files, and delete the ``deleted`` oldest files."""
        entries = [self.live.pop(name).deleted() for name in list(self.live)[:deleted]]
        new = [self._new_entry() for _ in range(added)]
        self.live |= {entry.file.file_name: entry for entry in new}
        entries += new
        store = self.table.stores.snapshots
        number = (store.latest_id() or 0) + 1
        base = self.writer.manifest_list(self.manifests)
        metas = self.writer.manifests(entries)
        delta = self.writer.manifest_list(metas)
        self.manifests += metas
        if number % MERGE_EVERY == 0:
            self.manifests = self.writer.manifests(list(self.live.values()))
        self.writer.flush()
        self.rows += added - deleted
        snapshot = Snapshot(
            id=number,
            schema_id=0,
            base_manifest_list=base[0],
            delta_manifest_list=delta[0],
            commit_user="bench",
            commit_identifier=BATCH_COMMIT_IDENTIFIER,
            commit_kind=CommitKind.OVERWRITE,
            time_millis=int(OLD_TIME * 1000) + number,
            total_record_count=self.rows,
            delta_record_count=added - deleted,
            base_manifest_list_size=base[1],
            delta_manifest_list_size=delta[1],
            next_row_id=0,
        )
        store.io.write(store.path(number), snapshot.to_json())
        store.write_hint("LATEST", number)

    def _new_entry(self) -> ManifestEntry:
        self.file_count += 1
        partition = self.file_count % PARTITIONS
        directory = Path(self.table.paths.root) / f"p={partition}" / "bucket-0"
        directory.mkdir(parents=True, exist_ok=True)
        file = DataFileMeta(
            file_name=f"data-{uuid4()}-0.parquet",
            file_size=4,
            row_count=1,
            file_source=0,
            delete_row_count=0,
            value_stats=SimpleStats(),
            value_stats_cols=(),
        )
        write_old_file(directory / file.file_name)
        return ManifestEntry(
            kind=FileKind.ADD,
            partition=self.partitions[partition],
            bucket=0,
            total_buckets=-1,
            file=file,
        )


def write_old_file(path: Path) -> None:
    """Write a small file with an old modification time."""
    path.write_bytes(b"data")
    os.utime(path, (OLD_TIME, OLD_TIME))


def backdate_manifests(table: Table) -> None:
    """Set old modification times on the manifests."""
    for path in Path(table.paths.manifest_dir).iterdir():
        os.utime(path, (OLD_TIME, OLD_TIME))


def run_baseline(table: Table) -> int:
    """List all files and decode every manifest once, which any plan must do; count the orphans."""
    pending, names = [table.paths.root], set[str]()
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    pending.append(entry.path)
                else:
                    names.add(entry.name)
                    entry.stat()
    referenced = set[str]()
    for path in Path(table.paths.manifest_dir).glob("manifest-[0-9a-f]*-*-*-*-*-*"):
        referenced.update(open_manifest(path.read_bytes(), str(path)).names)
    return len(names - referenced)


def measure_orphan_cleanup(root: Path, files: int, java: Peer | None) -> None:
    """Plan an orphan cleanup."""
    history = TableHistory(root)
    live_files = int(files * (1 - ORPHAN_SHARE))
    for _ in range(20):
        history.commit(live_files // 20, 0)
    for number in range(files - live_files):
        directory = Path(history.table.paths.root) / f"p={number % PARTITIONS}" / "bucket-0"
        write_old_file(directory / f"data-{uuid4()}-0.parquet")
    backdate_manifests(history.table)
    orphan_count, peak_kb = _plan_in_new_process(root)
    assert orphan_count == files - live_files
    request = orphan_step.RemoveOrphanFilesRequest()
    seconds = medians(
        {
            "plan": lambda: orphan_step.plan(history.table, request),
            "baseline": lambda: run_baseline(history.table),
        },
        3,
    )
    rows = [
        ("scandir, decode manifests once", f"{seconds['baseline']:.2f}", ""),
        (
            "plan",
            f"{seconds['plan']:.2f}",
            f"{seconds['plan'] / seconds['baseline']:.2f} times the baseline (goal 2)",
        ),
    ]
    rows.append(("peak memory of the planning process", f"{peak_kb / 1024:.0f} MB", "goal 300"))
    if java is not None:
        ours, plan = _measure_wall_clock(lambda: orphan_step.plan(history.table, request))
        theirs, java_orphans = _measure_wall_clock(
            lambda: java._oracle("orphans", root, "db.t")  # noqa: SLF001
        )
        our_orphans = {os.path.relpath(f.path, history.table.paths.root) for f in plan.files}
        rows.append(("Java, wall-clock", f"{theirs:.2f}", f"{theirs / ours:.1f} times ours"))
        rows.append(("same files as Java", str(our_orphans == set(java_orphans)), ""))
    show(f"Orphan cleanup of {files:,} files", ("", "seconds", "ratio"), rows)


def _plan_in_new_process(root: Path) -> tuple[int, int]:
    """Plan in a separate process; return the number of orphans and its peak memory in KB."""
    script = (
        "import resource, sys; from paimon_orch import Catalog; "
        "from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest, plan; "
        "result = plan(Catalog(sys.argv[1]).table('db.t'), RemoveOrphanFilesRequest()); "
        "print(len(result.files), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", script, str(root)]
    process = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=True)
    orphan_count, peak_kb = process.stdout.split()
    return int(orphan_count), int(peak_kb)


def _measure_wall_clock(run: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def measure_expiration(root: Path, snapshots: int, java: Peer | None) -> None:
    """Expire all snapshots except the latest."""
    rows = []
    for count in (snapshots // 4, snapshots):
        history = TableHistory(root / str(count))
        history.commit(100 * snapshots, 0)
        for _ in range(count):
            history.commit(20, 20)
        backdate_manifests(history.table)
        copy = root / f"java-{count}"
        if java is not None:
            shutil.copytree(root / str(count), copy, copy_function=shutil.copy2)
        reads: Counter[str] = Counter()

        class CountingIO(LocalFileIO):
            def read_bytes(self, path: str) -> bytes:
                reads[path] += "/manifest/" in path  # noqa: B023
                return super().read_bytes(path)

        table = Table("db.t", CountingIO(), history.table.paths)
        seconds, result = _measure_wall_clock(
            lambda: expire_snapshots(table, retain_max=1, max_deletes=10**6)  # noqa: B023
        )
        deleted = result.data_files + result.metadata_files + result.snapshots
        name = f"{count} snapshots of {100 * snapshots:,} files"
        rows.append((name, f"{seconds:.2f}", f"{1e6 * seconds / deleted:.0f} us per deleted file"))
        rows.append(("most reads of one manifest", str(max(reads.values())), "goal 1"))
        if java is not None:
            theirs, _ = _measure_wall_clock(lambda: java.expire(copy, 1))  # noqa: B023
            same = _files(copy) == _files(root / str(count))
            rows.append(("Java", f"{theirs:.2f}", f"{theirs / seconds:.1f} times ours"))
            rows.append(("same files remain as with Java", str(same), ""))
    show("Expiring snapshots, wall-clock", ("", "seconds", "ratio"), rows)


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def main(
    files: Annotated[
        int, typer.Option(help="Number of data files; a tenth are orphans.")
    ] = 200_000,
    snapshots: Annotated[int, typer.Option(help="Snapshots to expire.")] = 1_000,
    peers: Annotated[bool, typer.Option(help="Compare with Java.")] = True,  # noqa: FBT002
) -> None:
    """Measure and print."""
    java = None
    if peers:
        try:
            java = Peer("java-0.9")
        except PeerUnavailableError as error:
            console.print(f"Skipped Java: {error}")
    with tempfile.TemporaryDirectory() as root:
        measure_orphan_cleanup(Path(root) / "orphans", files, java)
        measure_expiration(Path(root) / "expire", snapshots, java)
    if java is not None:
        java.close()


if __name__ == "__main__":
    typer.run(main)
