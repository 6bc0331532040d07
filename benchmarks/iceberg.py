"""Iceberg metadata: its share of a commit that changes one partition of a large table.

    python benchmarks/iceberg.py [--files 100000] [--partitions 1000] [--repeat 5]

Goal: publishing costs at most as much as the Paimon commit itself, and memory does not grow.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from measurement import show

from paimon_orch import Catalog
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table

COLUMNS = "id BIGINT, dt STRING, amount BIGINT, status STRING, price DOUBLE, customer STRING"
LOAD_COMMITS = 4


def create_table(warehouse: Path, files: int, partitions: int) -> Table:
    """Create a table with metadata only: neither commits nor publications open data files."""
    table = Catalog(str(warehouse)).create_table(
        "db.t",
        COLUMNS,
        partition_by=["dt"],
        options={"metadata.iceberg.storage": "table-location"},
    )
    step = -(-files // LOAD_COMMITS)
    for start in range(0, files, step):
        numbers = range(start, min(start + step, files))
        entries = tuple(make_entry(table, number, partitions) for number in numbers)
        commit_without_publication(table).commit(
            CommitChanges(kind=CommitKind.APPEND, entries=entries)
        )
    return table


def commit_without_publication(table: Table) -> TableCommit:
    """Return a commit that leaves the publication to the caller, who measures it."""
    commit = table.stores.new_commit(StepKind.WRITE_ROWS)
    commit.on_commit = lambda _: None
    return commit


def make_entry(table: Table, number: int, partitions: int) -> ManifestEntry:
    """Return the entry of a new file."""
    schema = table.load().schema
    types = [field.type for field in schema.fields]
    day = f"day-{number % partitions:05d}"
    low, high = number * 1_000, number * 1_000 + 999
    min_values, max_values = (
        serialize_row([n, day, n * 3, "PENDING", n / 7, f"customer {n:09d}"], types)
        for n in (low, high)
    )
    file = DataFileMeta(
        file_name=f"data-{uuid4()}-0.parquet",
        file_size=40_000 + number % 1_000,
        row_count=1_000,
        value_stats=SimpleStats(min_values, max_values, (0, 0, number % 17, 0, 0, 0)),
        min_sequence_number=low,
        max_sequence_number=high,
        creation_time=1_767_225_600_000 + number,
        delete_row_count=0,
        file_source=0,
    )
    partition = serialize_row([day], [field.type for field in schema.partition_fields])
    return ManifestEntry(
        kind=FileKind.ADD, partition=partition, bucket=0, total_buckets=-1, file=file
    )


def compact_partition(table: Table, number: int, partitions: int) -> CommitChanges:
    """Return the changes of a compaction that replaces the files of one partition by one."""
    day = f"day-{number:05d}"
    types = [field.type for field in table.load().schema.partition_fields]
    partition = serialize_row([day], types)
    snapshot = table.snapshot()
    assert snapshot is not None
    live = table.stores.manifests.read_live_entries(
        snapshot, partitions=lambda values: {p for p in values if p == partition}
    )
    new = make_entry(table, 10**9 * partitions + number, partitions)
    return CommitChanges(
        kind=CommitKind.COMPACT, entries=(*(entry.deleted() for entry in live), new)
    )


def main(
    files: Annotated[int, typer.Option(help="Number of data files.")] = 100_000,
    partitions: Annotated[int, typer.Option(help="Number of partitions.")] = 1_000,
    repeat: Annotated[int, typer.Option(help="Number of commits; the median is printed.")] = 5,
) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        table = create_table(Path(folder), files, partitions)
        started = time.process_time()
        table.stores.iceberg.publish()
        first = time.process_time() - started
        seconds: dict[str, list[float]] = {"commit": [], "publication": []}
        peaks = []
        for number in range(repeat):
            changes = compact_partition(table, number, partitions)
            started = time.process_time()
            commit_without_publication(table).commit(changes)
            committed = time.process_time()
            table.stores.iceberg.publish()
            seconds["commit"].append(committed - started)
            seconds["publication"].append(time.process_time() - committed)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
    commit, publication = (statistics.median(seconds[name]) for name in ("commit", "publication"))
    rows = [
        ("first publication (rebuild)", f"{first:.3f}", f"{first / commit:.2f}", ""),
        ("Paimon commit", f"{commit:.3f}", "1.00", ""),
        ("publication", f"{publication:.3f}", f"{publication / commit:.2f}", f"{peaks[-1]} MB"),
    ]
    title = f"Iceberg metadata of a commit to 1 of {partitions:,} partitions, {files:,} files"
    show(title, ("", "CPU seconds", "ratio to the commit", "peak memory"), rows)


if __name__ == "__main__":
    typer.run(main)
