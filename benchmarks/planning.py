"""Scan planning: find the live files of a snapshot, compared with fastavro and pypaimon.

    python benchmarks/planning.py [--files 100000] [--repeat 5] [--no-peers]

Goal: at most a third of the time that fastavro takes to read the same manifests, and a tenth of the
time of pypaimon.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import fastavro
import typer
from measurement import medians, peer_seconds, show

from paimon_orch import Catalog
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table

COLUMNS = (
    "id BIGINT NOT NULL, dt STRING NOT NULL, amount BIGINT, status STRING, price DOUBLE, "
    "customer STRING, items INT, note STRING"
)
DAYS, BUCKETS, COMMITS = 30, 16, 4


def create_table(warehouse: Path, files: int) -> Table:
    """Create a table with manifest entries only; planning does not open data files."""
    table = Catalog(str(warehouse)).create_table(
        "db.t",
        COLUMNS,
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": str(BUCKETS)},
    )
    step = -(-files // COMMITS)
    for start in range(0, files, step):
        numbers = range(start, min(start + step, files))
        entries = tuple(_make_entry(table, number) for number in numbers)
        table.stores.new_commit(StepKind.WRITE_ROWS).commit(
            CommitChanges(kind=CommitKind.APPEND, entries=entries)
        )
    return table


def _make_entry(table: Table, number: int) -> ManifestEntry:
    schema = table.load().schema
    types = [field.type for field in schema.fields]
    key_types = [field.type for field in schema.key_fields]
    day = f"2026-01-{number % DAYS + 1:02d}"
    low, high = number * 1_000, number * 1_000 + 999
    min_values, max_values = (
        serialize_row([n, day, n * 3, "PENDING", n / 7, f"customer {n:09d}", n % 9, None], types)
        for n in (low, high)
    )
    min_key, max_key = (serialize_row([n], key_types) for n in (low, high))
    counts = (0, 0, number % 17, 0, number % 5, 0, number % 1_009, 1_000)
    file = DataFileMeta(
        file_name=f"data-{uuid4()}-0.parquet",
        file_size=40_000 + number % 1_000,
        row_count=1_000,
        min_key=min_key,
        max_key=max_key,
        key_stats=SimpleStats(min_key, max_key, (0,)),
        value_stats=SimpleStats(min_values, max_values, counts),
        min_sequence_number=low,
        max_sequence_number=high,
        creation_time=1_767_225_600_000 + number,
        delete_row_count=0,
        file_source=0,
    )
    partition = serialize_row([day], [field.type for field in schema.partition_fields])
    return ManifestEntry(
        kind=FileKind.ADD,
        partition=partition,
        bucket=number % BUCKETS,
        total_buckets=BUCKETS,
        file=file,
    )


def main(
    files: Annotated[int, typer.Option(help="Number of data files.")] = 100_000,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 5,
    peers: Annotated[bool, typer.Option(help="Compare with pypaimon.")] = True,  # noqa: FBT002
) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        table = create_table(Path(folder), files)
        snapshot = table.snapshot()
        assert snapshot is not None
        paths = [
            Path(table.paths.manifest_dir, manifest.file_name)
            for manifest in table.stores.manifests.manifests(snapshot)
        ]
        seconds = medians(
            {
                "fastavro": lambda: [
                    list(fastavro.reader(io.BytesIO(path.read_bytes()))) for path in paths
                ],
                "plan": lambda: table.scan().plan(),
                "plan of one partition": lambda: table.scan(filter="dt = '2026-01-07'").plan(),
            },
            repeat,
        )
        planned_files = sum(len(split.files) for split in table.scan().plan())
        assert planned_files == files, planned_files
        if peers:
            pypaimon_seconds = peer_seconds("pypaimon", "plan", Path(folder), "db.t", 1)
            for name, value in (pypaimon_seconds or {}).items():
                seconds[f"pypaimon: {name}"] = value
    base, plan = seconds["fastavro"], seconds["plan"]
    rows = [
        (name, f"{value:.3f}", f"{value / base:.2f}", f"{value / plan:.1f}")
        for name, value in seconds.items()
    ]
    title = f"Planning {files:,} data files in {len(paths)} manifests"
    show(title, ("", "CPU seconds", "ratio to fastavro", "ratio to our plan"), rows)


if __name__ == "__main__":
    typer.run(main)
