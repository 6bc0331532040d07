"""One large bucket: the memory of its compaction, and what a second core brings.

    python benchmarks/one_bucket.py [--rows 16000000]

The memory of a task must stay flat from a sixteenth of the rows to all of them; two cores must do all of them at least
1.7 times as fast as one. Full compactions of the workload of compaction.py in one bucket, on the session of Spark.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from compaction import make_table
from measure import HERE, run_json, show

SHARE = 16


def main(
    rows: Annotated[int, typer.Option(help="Rows of the large bucket.")] = 16_000_000,
) -> None:
    """Measure and print."""
    side = HERE / "compact_side.py"
    memory, speed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for count in (rows // SHARE, rows):
            warehouse = Path(folder) / str(count)
            table = make_table(warehouse, "bigint", count, {"bucket": "1"})
            found = run_json(sys.executable, side, str(warehouse), table.identifier)
            memory.append(
                (f"{count:,}", f"{found['mb']:.0f}", f"{found['base']:.0f}", f"{found['parts']}")
            )
        masters = ("local[1]", "local[2]")
        times = [
            run_json(sys.executable, side, str(warehouse), table.identifier, master)["seconds"]
            for master in masters
        ]
        speed = [
            (m, f"{s:.1f}", f"{times[0] / s:.2f}") for m, s in zip(masters, times, strict=True)
        ]
    show("Memory of a full compaction", ("rows", "peak MB", "before", "parts"), memory)
    show(f"Full compaction of {rows:,} rows", ("", "seconds", "times as fast"), speed)


if __name__ == "__main__":
    typer.run(main)
