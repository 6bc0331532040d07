"""Compaction of one large bucket: peak memory, and the speedup of two cores compared with one.

    python benchmarks/large_bucket.py [--rows 16000000]

Runs full compactions of the workload of compaction.py in one bucket, on Spark. Goals: the peak
memory of a task does not grow with the rows (it is the same for all rows and for a sixteenth of
them); two cores are at least 1.7 times as fast as one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from compaction import create_table
from measurement import HERE, run_json, show

SMALL_BUCKET_DIVISOR = 16


def main(
    rows: Annotated[int, typer.Option(help="Rows of the large bucket.")] = 16_000_000,
) -> None:
    """Measure and print."""
    worker = HERE / "compaction_worker.py"
    memory, speed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for count in (rows // SMALL_BUCKET_DIVISOR, rows):
            warehouse = Path(folder) / str(count)
            table = create_table(warehouse, "bigint", count, {"bucket": "1"})
            result = run_json(sys.executable, worker, str(warehouse), table.identifier)
            memory.append(
                (
                    f"{count:,}",
                    f"{result['peak_mb']:.0f}",
                    f"{result['mb_before']:.0f}",
                    f"{result['units']}",
                )
            )
        masters = ("local[1]", "local[2]")
        times = [
            run_json(sys.executable, worker, str(warehouse), table.identifier, master)["seconds"]
            for master in masters
        ]
        speed = [
            (master, f"{seconds:.1f}", f"{times[0] / seconds:.2f}")
            for master, seconds in zip(masters, times, strict=True)
        ]
    show("Memory of a full compaction", ("rows", "peak MB", "MB before", "units"), memory)
    show(f"Full compaction of {rows:,} rows", ("", "wall-clock s", "speedup"), speed)


if __name__ == "__main__":
    typer.run(main)
