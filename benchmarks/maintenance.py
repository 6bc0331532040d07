"""Maintenance: planning an orphan cleanup, and expiring many snapshots, beside the least that both must do and Java.

    python benchmarks/maintenance.py [--files 200000] [--snapshots 1000] [--no-peers]

Goals: planning takes at most twice the time of listing all files with os.scandir and decoding the manifests once, in
less than 300 MB; expiring decodes every manifest at most once, and takes time by what is deleted; Java takes twice as
long for both, its start apart, and leaves the same files.
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
from measure import HERE, console, medians, show
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
ORPHANS = 0.1
MERGE_EVERY = 50
OLD = time.time() - 7 * 24 * 3600

T = TypeVar("T")


class Past:
    """Writes the snapshots of a table whose data files hold nothing: neither step looks into them."""

    def __init__(self, warehouse: Path) -> None:
        self.table = Catalog(str(warehouse)).create_table(
            "db.t", "p INT NOT NULL, k BIGINT", partition_by=["p"], options={"bucket": "-1"}
        )
        types = [field.type for field in self.table.schema.partition_fields]
        self.partitions = [serialize_row([p], types) for p in range(PARTITIONS)]
        self.writer = ManifestWriter(self.table.io, self.table.paths, self.table.schema)
        self.live: dict[str, ManifestEntry] = {}
        self.listed: list[ManifestFileMeta] = []
        self.rows = 0
        self.made = 0

    def commit(self, added: int, deleted: int) -> None:
        """Add files, and delete as many of the oldest ones as told."""
        entries = [self.live.pop(name).deleted() for name in list(self.live)[:deleted]]
        new = [self._entry() for _ in range(added)]
        self.live |= {entry.file.file_name: entry for entry in new}
        entries += new
        store = self.table.stores.snapshots
        number = (store.latest_id() or 0) + 1
        base = self.writer.manifest_list(self.listed)
        metas = self.writer.manifests(entries)
        delta = self.writer.manifest_list(metas)
        self.listed += metas
        if number % MERGE_EVERY == 0:
            self.listed = self.writer.manifests(list(self.live.values()))
        self.rows += added - deleted
        snapshot = Snapshot(
            id=number, schema_id=0, base_manifest_list=base[0], delta_manifest_list=delta[0], commit_user="bench", commit_identifier=BATCH_COMMIT_IDENTIFIER, commit_kind=CommitKind.OVERWRITE,
            time_millis=int(OLD * 1000) + number, total_record_count=self.rows, delta_record_count=added - deleted, base_manifest_list_size=base[1], delta_manifest_list_size=delta[1], next_row_id=0,
        )  # fmt: skip
        store.io.write(store.path(number), snapshot.to_json())
        store.write_hint("LATEST", number)

    def _entry(self) -> ManifestEntry:
        self.made += 1
        partition = self.made % PARTITIONS
        directory = Path(self.table.paths.root) / f"p={partition}" / "bucket-0"
        directory.mkdir(parents=True, exist_ok=True)
        file = DataFileMeta(
            file_name=f"data-{uuid4()}-0.parquet", file_size=4, row_count=1, file_source=0, delete_row_count=0,
            value_stats=SimpleStats(), value_stats_cols=(),
        )  # fmt: skip
        stray(directory / file.file_name)
        return ManifestEntry(
            kind=FileKind.ADD,
            partition=self.partitions[partition],
            bucket=0,
            total_buckets=-1,
            file=file,
        )


def stray(path: Path) -> None:
    """Write a small old file."""
    path.write_bytes(b"data")
    os.utime(path, (OLD, OLD))


def old(table: Table) -> None:
    """Date the metadata back."""
    for path in Path(table.paths.manifest_dir).iterdir():
        os.utime(path, (OLD, OLD))


def floor(table: Table) -> int:
    """List everything and decode every manifest once: what no planning can do without."""
    pending, names = [table.paths.root], set[str]()
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    pending.append(entry.path)
                else:
                    names.add(entry.name)
                    entry.stat()
    used = set[str]()
    for path in Path(table.paths.manifest_dir).glob("manifest-[0-9a-f]*-*-*-*-*-*"):
        used.update(open_manifest(path.read_bytes(), str(path)).names)
    return len(names - used)


def orphans(root: Path, files: int, java: Peer | None) -> None:
    """Plan an orphan cleanup."""
    past = Past(root)
    kept = int(files * (1 - ORPHANS))
    for _ in range(20):
        past.commit(kept // 20, 0)
    for number in range(files - kept):
        directory = Path(past.table.paths.root) / f"p={number % PARTITIONS}" / "bucket-0"
        stray(directory / f"data-{uuid4()}-0.parquet")
    old(past.table)
    found, peak = _alone(root)
    assert found == files - kept
    seconds = medians(
        {
            "plan": lambda: orphan_step.plan(past.table, orphan_step.RemoveOrphanFilesRequest()),
            "floor": lambda: floor(past.table),
        },
        3,
    )
    rows = [
        ("scandir and decoding once", f"{seconds['floor']:.2f}", ""),
        ("plan", f"{seconds['plan']:.2f}", f"{seconds['plan'] / seconds['floor']:.2f} (goal 2)"),
    ]
    rows.append(("peak memory of a process that plans", f"{peak / 1024:.0f} MB", "goal 300"))
    if java is not None:
        clock, ours = _clock(
            lambda: orphan_step.plan(past.table, orphan_step.RemoveOrphanFilesRequest())
        )
        theirs, listed = _clock(lambda: java._oracle("orphans", root, "db.t"))  # noqa: SLF001
        mine = {os.path.relpath(f.path, past.table.paths.root) for f in ours.files}
        rows.append(("Java, by the clock", f"{theirs:.2f}", f"{theirs / clock:.1f} times ours"))
        rows.append(("the same files", str(mine == set(listed)), ""))
    show(f"Orphans of {files:,} files", ("what", "seconds", "ratio"), rows)


def _alone(root: Path) -> tuple[int, int]:
    """Plan in a process of its own; return the number of orphans and the most memory it took, in KB."""
    script = (
        "import resource, sys; from paimon_orch import Catalog; "
        "from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest, plan; "
        "found = plan(Catalog(sys.argv[1]).table('db.t'), RemoveOrphanFilesRequest()); "
        "print(len(found.files), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    call = [sys.executable, "-c", script, str(root)]
    done = subprocess.run(call, cwd=HERE.parent, capture_output=True, text=True, check=True)
    orphans, peak = done.stdout.split()
    return int(orphans), int(peak)


def _clock(run: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def expiration(root: Path, snapshots: int, java: Peer | None) -> None:
    """Expire all snapshots but one."""
    rows = []
    for count in (snapshots // 4, snapshots):
        past = Past(root / str(count))
        past.commit(100 * snapshots, 0)
        for _ in range(count):
            past.commit(20, 20)
        old(past.table)
        copy = root / f"java-{count}"
        if java is not None:
            shutil.copytree(root / str(count), copy, copy_function=shutil.copy2)
        reads: Counter[str] = Counter()

        class Counting(LocalFileIO):
            def read_bytes(self, path: str) -> bytes:
                reads[path] += "/manifest/" in path  # noqa: B023
                return super().read_bytes(path)

        counted = Table("db.t", Counting(), past.table.paths)
        seconds, result = _clock(lambda: expire_snapshots(counted, retain_max=1, max_deletes=10**6))  # noqa: B023
        deleted = result.data_files + result.metadata_files + result.snapshots
        name = f"{count} snapshots of {100 * snapshots:,} files"
        rows.append((name, f"{seconds:.2f}", f"{1e6 * seconds / deleted:.0f} us a deleted file"))
        rows.append(("reads of one manifest at most", str(max(reads.values())), "goal 1"))
        if java is not None:
            theirs, _ = _clock(lambda: java._oracle("expire", copy, "db.t", "--retain", "1"))  # noqa: SLF001, B023
            same = _files(copy) == _files(root / str(count))
            rows.append(("Java", f"{theirs:.2f}", f"{theirs / seconds:.1f} times ours"))
            rows.append(("the same files left", str(same), ""))
    show("Expiring snapshots", ("what", "seconds", "ratio"), rows)


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def main(
    files: Annotated[int, typer.Option(help="data files, a tenth of them orphans")] = 200_000,
    snapshots: Annotated[int, typer.Option(help="snapshots to expire")] = 1_000,
    peers: Annotated[bool, typer.Option(help="run Java beside")] = True,  # noqa: FBT002
) -> None:
    """Measure, and print ratios of one run."""
    java = None
    if peers:
        try:
            java = Peer("java-0.9")
        except PeerUnavailableError as error:
            console.print(f"Java is left out: {error}")
    with tempfile.TemporaryDirectory() as root:
        orphans(Path(root) / "orphans", files, java)
        expiration(Path(root) / "expire", snapshots, java)
    if java is not None:
        java.close()


if __name__ == "__main__":
    typer.run(main)
