"""Hand-written code for data files, compared with libraries that could replace it.

    python benchmarks/hand_written_files.py [--rows 1000000] [--repeat 5]

``paimon_orch/files/parquet/page_reader.py`` reads single pages of Parquet files and
``paimon_orch/files/stats/analyze_columns.py`` counts distinct values; the docstrings of both state
the ratios measured here.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Annotated

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from measurement import medians, show

from paimon_orch.files.parquet import SMALL_PAGES, ParquetFileReader, ParquetFileWriter
from paimon_orch.files.stats.analyze_columns import DistinctCounter
from paimon_orch.format.types.data_types import parse_columns

BATCH_ROWS = 65_536
ROWS_PER_GROUP = 250_000
MAX_HASHES = 1 << 16


class CountingFile(io.BytesIO):
    """A file in memory that counts the bytes read from it."""

    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read and count the bytes."""
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def count_distinct(rows: int, repeat: int) -> None:
    """Estimate distinct values with a theta sketch of datasketches and with numpy."""
    numbers = np.random.default_rng(5).integers(0, rows, rows)
    batches = [
        pa.array(numbers[start : start + BATCH_ROWS]) for start in range(0, rows, BATCH_ROWS)
    ]

    def theta() -> int:
        counter = DistinctCounter()
        for batch in batches:
            counter.add(batch)
        return counter.count

    def smallest_hashes() -> int:
        hashes = np.empty(0, np.uint64)
        for batch in batches:
            values = batch.unique().to_numpy()
            batch_hashes = pd.util.hash_array(values, categorize=False)
            if len(hashes) == MAX_HASHES:
                batch_hashes = batch_hashes[batch_hashes < hashes[-1]]
            hashes = np.unique(np.concatenate([hashes, batch_hashes]))[:MAX_HASHES]
        if len(hashes) < MAX_HASHES:
            return len(hashes)
        return round((MAX_HASHES - 1) * 2.0**64 / float(hashes[-1]))

    exact = len(np.unique(numbers))
    sketches = {"theta of datasketches": theta, "smallest hashes in numpy": smallest_hashes}
    seconds = medians(sketches, repeat)
    estimates, base = {name: run() for name, run in sketches.items()}, min(seconds.values())
    show(
        f"Distinct values of {rows:,} numbers",
        ("", "CPU seconds", "ratio", "error"),
        [
            (name, f"{s:.3f}", f"{s / base:.1f}", f"{estimates[name] / exact - 1:+.2%}")
            for name, s in seconds.items()
        ],
    )


def read_pages(rows: int, repeat: int) -> None:
    """Read one row in a thousand of a Parquet file: single pages, or row groups with pyarrow."""
    fields = parse_columns("id BIGINT, note STRING")
    random = np.random.default_rng(7)
    notes = random.integers(48, 112, (rows, 80), np.uint8).view("S80").ravel().astype("U80")
    table, sink = pa.table({"id": np.arange(rows), "note": notes}), io.BytesIO()
    writer = ParquetFileWriter(sink, fields, "zstd", 1, pages=SMALL_PAGES)
    for start in range(0, rows, ROWS_PER_GROUP):
        writer.write(table.slice(start, ROWS_PER_GROUP))
    writer.close()
    data = sink.getvalue()
    starts = np.sort(random.choice(rows // 20, max(1, rows // 20_000), replace=False))
    positions = (starts[:, None] * 20 + np.arange(20)).ravel()
    by_group = {
        group: positions[positions // ROWS_PER_GROUP == group] - group * ROWS_PER_GROUP
        for group in np.unique(positions // ROWS_PER_GROUP).tolist()
    }
    bytes_read: dict[str, int] = {}

    def with_byte_count(
        name: str, read: Callable[[CountingFile], pa.Table]
    ) -> Callable[[], object]:
        def run() -> int:
            source = CountingFile(data)
            rows = read(source)
            bytes_read[name] = source.bytes_read
            assert rows.column("id").to_pylist() == positions.tolist()
            return len(rows)

        return run

    def pages(source: CountingFile) -> pa.Table:
        reader = ParquetFileReader(source)
        plans = reader.plan_pages(["id", "note"], by_group)
        assert len(plans) == len(by_group)
        return pa.concat_tables([reader.read_pages(plan) for plan in plans.values()])

    def row_groups(source: CountingFile) -> pa.Table:
        file = pq.ParquetFile(source)
        groups = [file.read_row_group(g, use_threads=False).take(r) for g, r in by_group.items()]
        return pa.concat_tables(groups)

    seconds = medians(
        {
            "single pages": with_byte_count("single pages", pages),
            "pyarrow": with_byte_count("pyarrow", row_groups),
        },
        repeat,
    )
    base = seconds["single pages"]
    show(
        f"{len(positions):,} of {rows:,} rows in ranges of 20, {len(data) / 1e6:.0f} MB",
        ("", "CPU seconds", "ratio", "MB read"),
        [
            (name, f"{s:.4f}", f"{s / base:.1f}", f"{bytes_read[name] / 1e6:.2f}")
            for name, s in seconds.items()
        ],
    )


def main(
    rows: Annotated[int, typer.Option(help="Number of rows.")] = 1_000_000,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 5,
) -> None:
    """Measure and print."""
    count_distinct(rows, repeat)
    read_pages(rows, repeat)


if __name__ == "__main__":
    typer.run(main)
