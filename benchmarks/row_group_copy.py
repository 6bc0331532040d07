"""Packing small files of an append table, compared with copying their bytes.

    python benchmarks/row_group_copy.py [--files 2000] [--rows 35500] [--repeat 3]

Workload: files of 1 MB (35,500 rows) with 8 columns and one row group each, packed into files of 128 MB by a full
compaction without its commit. "bytes" reads each file and writes its bytes to files of the same
total size; "row groups" is the compaction; "values" is the compaction that decodes all rows. All
run in one process, and CPU seconds include those of the operating system.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from measurement import console, medians, show

from paimon_orch import Catalog
from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES, BatchSizes
from paimon_orch.steps.compaction import compact
from paimon_orch.table.schema_change.schema_changes import ResetOption
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files

ROWS_PER_FILE, ROWS_PER_COMMIT = 35_500, 1_775_000
COLUMNS = (
    "id BIGINT, amount BIGINT, price DOUBLE, status STRING, note STRING, day INT, "
    "time TIMESTAMP(3), flag BOOLEAN"
)
STATUSES = np.array(["PENDING", "PAID", "SENT", "RETURNED"])
DECODE = BatchSizes(min_copied_group_bytes=1 << 60)


def make_rows(count: int, seed: int) -> pa.Table:
    """Return random rows."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(count) + seed * count,
            "amount": random.integers(0, 1_000_000, count),
            "price": pa.array(random.random(count), mask=random.random(count) < 0.1),
            "status": STATUSES[random.integers(0, len(STATUSES), count)],
            "note": pa.array(random.integers(0, 1 << 60, count)).cast(pa.string()),
            "day": random.integers(0, 365, count).astype(np.int32),
            "time": pa.array(random.integers(0, 1 << 40, count), pa.timestamp("ms")),
            "flag": random.random(count) < 0.5,
        }
    )


def create_table(warehouse: Path, files: int, rows: int = ROWS_PER_FILE) -> Table:
    """Create a table of small files with one row group each."""
    catalog = Catalog(str(warehouse))
    options = {"write-only": "true", "target-file-size": "1 kb"}
    table = catalog.create_table("db.t", COLUMNS, options=options)
    one_group = replace(DEFAULT_BATCH_SIZES, row_group_rows=rows, min_row_group_rows=rows)
    writer = replace(table, batch_sizes=one_group)
    step = max(1, ROWS_PER_COMMIT // rows)
    for commit, first in enumerate(range(0, files, step)):
        writer.append(make_rows(min(step, files - first) * rows, commit))
    catalog.alter_table("db.t", [ResetOption("target-file-size")])
    return catalog.table("db.t")


class Packing:
    """A planned compaction that can run repeatedly; its results are never committed."""

    def __init__(self, table: Table) -> None:
        self._reader = table.stores.reader()
        self._plan = compact.plan(table, compact.CompactRequest(strategy="full"))

    def count_bytes(self) -> int:
        """Return the size of the files that are packed."""
        return sum(file.file_size for unit in self._plan.units for file in unit.inputs)

    def run(self, sizes: BatchSizes) -> None:
        """Compact all units, one after another, and delete the new files."""
        reader = replace(self._reader, batch_sizes=sizes)
        messages = [CommitMessage.decode(compact.run(reader, unit)) for unit in self._plan.units]
        discard_written_files(self._reader, messages)

    def copy_bytes(self, folder: Path) -> None:
        """Copy the bytes of the files of each unit to one file, and delete these at the end.

        Like the files of :meth:`run`, they exist together, so that the same pages become dirty.
        """
        folder.mkdir()
        for number, unit in enumerate(self._plan.units):
            with (folder / str(number)).open("wb") as sink:
                for file in unit.inputs:
                    path = self._reader.paths.data_file(
                        self._reader.schema, unit.partition, unit.bucket, file
                    )
                    sink.write(Path(path).read_bytes())
        shutil.rmtree(folder)


def main(
    files: Annotated[int, typer.Option(help="Number of files.")] = 2_000,
    rows: Annotated[int, typer.Option(help="Number of rows of a file.")] = ROWS_PER_FILE,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 3,
) -> None:
    """Measure and print."""
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as folder:
        table = create_table(Path(folder) / "warehouse", files, rows)
        packing = Packing(table)
        sizes = [file.file_size for split in table.files() for file in split.files]
        console.print(f"{len(sizes)} files of {sum(sizes) / len(sizes) / 1e6:.2f} MB")
        seconds = medians(
            {
                "bytes": lambda: packing.copy_bytes(Path(folder) / "copy"),
                "row groups": lambda: packing.run(DEFAULT_BATCH_SIZES),
                "values": lambda: packing.run(DECODE),
            },
            repeat,
        )
    table_rows = [
        (
            name,
            f"{value:.2f}",
            f"{sum(sizes) / value / 1e9:.2f}",
            f"{seconds['bytes'] / value:.2f}",
            f"{seconds['values'] / value:.1f}",
        )
        for name, value in seconds.items()
    ]
    columns = ("", "CPU seconds", "GB/s", "speed of bytes", "speed of values")
    show(f"Packing {len(sizes)} files of an append table", columns, table_rows)


if __name__ == "__main__":
    typer.run(main)
