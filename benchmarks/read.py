"""Reading: full scans vs. pyarrow.dataset, merge-on-read vs. pypaimon and pypaimon-rust, memory.

    python benchmarks/read.py [--rows 5000000] [--merge-rows 2000000] [--memory-rows 10000000]
        [--repeat 5] [--no-peers]

Goals: 0.8 of the rows per second of pyarrow.dataset on the same compacted files; on overlapping
runs and one thread, ten times as fast as pypaimon and as fast as pypaimon-rust; the same memory of
the batch reader for 1 and 10 million rows. A size of 0 skips a part.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import typer
from measurement import HERE, medians, peer_seconds, run_json, show

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.table.table import Table

COLUMNS = "id BIGINT, amount BIGINT, price DOUBLE, status STRING, note STRING, day INT"
STATUSES = np.array(["PENDING", "PAID", "SENT", "RETURNED"])
RUNS = 5


def make_rows(count: int, seed: int) -> pa.Table:
    """Return rows with sorted keys; about half of the keys are the same for two seeds."""
    random = np.random.default_rng(seed)
    keys: npt.NDArray[np.int64] = 2 * np.arange(count) + random.integers(0, 2, count)
    return pa.table(
        {
            "id": keys,
            "amount": random.integers(0, 1_000_000, count),
            "price": pa.array(random.random(count), mask=random.random(count) < 0.1),
            "status": STATUSES[random.integers(0, len(STATUSES), count)],
            "note": pc.binary_join_element_wise("a note", pa.array(keys).cast(pa.string()), " "),
            "day": (keys % 365).astype(np.int32),
        }
    )


def create_table(warehouse: Path, name: str, count: int, runs: int) -> Table:
    """Create a table with one bucket of overlapping sorted runs."""
    table = Catalog(str(warehouse)).create_table(
        f"db.{name}",
        COLUMNS,
        primary_key=["id"],
        options={"bucket": "1", "write-buffer-size": "4 gb"},
    )
    for run in range(runs):
        table.upsert(make_rows(count // runs, run))
    return table


def measure_compacted(warehouse: Path, count: int, repeat: int) -> None:
    """Compare a full read of a compacted table with pyarrow.dataset on the same files."""
    table = create_table(warehouse, "compacted", count, 1)
    compact.compact(table, InProcessExecutor(), strategy="full")
    files = [
        table.paths.data_file(table.load().schema, split.partition, split.bucket, file)
        for split in table.files()
        for file in split.files
    ]
    names = table.load().schema.names
    seconds = medians(
        {
            "pyarrow.dataset": lambda: ds.dataset(files).to_table(names, use_threads=False),
            "ours": lambda: table.scan().to_arrow(),
        },
        repeat,
    )
    base = seconds["pyarrow.dataset"]
    lines = [
        (name, f"{value:.3f}", f"{count / value / 1e6:.1f}", f"{base / value:.2f}")
        for name, value in seconds.items()
    ]
    title = f"Full read of {count:,} rows in {len(files)} compacted files"
    show(title, ("", "CPU seconds", "million rows/s", "speedup"), lines)


def measure_merge(warehouse: Path, count: int, repeat: int, *, peers: bool) -> None:
    """Compare merge-on-read with other implementations."""
    table = create_table(warehouse, "runs", count, RUNS)
    seconds = medians({"ours": lambda: table.scan().to_arrow()}, repeat)
    merged_rows = table.scan().to_arrow().num_rows
    for peer, peer_repeat in (("pypaimon-rust", repeat), ("pypaimon", 1)) if peers else ():
        result = peer_seconds(peer, "read", warehouse, "db.runs", peer_repeat)
        if result is not None:
            assert result["rows"] == merged_rows, (peer, result["rows"], merged_rows)
            seconds[peer] = result["plan"] + result["read"]
    base = seconds["ours"]
    lines = [(name, f"{value:.3f}", f"{value / base:.2f}") for name, value in seconds.items()]
    title = f"Merge-on-read of {RUNS} overlapping runs, {count:,} rows in, {merged_rows:,} out"
    show(title, ("", "CPU seconds", "ratio to ours"), lines)


def measure_memory(warehouse: Path, rows: int) -> None:
    """Compare the peak memory of two processes: one reads all rows, the other a tenth of them."""
    lines = []
    for count in (rows // 10, rows):
        create_table(warehouse, f"m{count}", count, 2)
        worker = HERE / "read_memory_worker.py"
        result = run_json(sys.executable, worker, str(warehouse), f"db.m{count}")
        lines.append(
            (
                f"{count:,}",
                f"{result['rows']:,}",
                f"{result['peak_mb']:.0f}",
                f"{result['mb_before']:.0f}",
            )
        )
    columns = ("rows in", "rows out", "peak MB", "MB before reading")
    show("Memory of the batch reader, merging 2 runs", columns, lines)


def main(
    rows: Annotated[int, typer.Option(help="Rows of the compacted table.")] = 5_000_000,
    merge_rows: Annotated[int, typer.Option(help="Rows of the overlapping runs.")] = 2_000_000,
    memory_rows: Annotated[
        int, typer.Option(help="Rows of the larger table for memory.")
    ] = 10_000_000,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 5,
    peers: Annotated[bool, typer.Option(help="Compare with pypaimon and pypaimon-rust.")] = True,  # noqa: FBT002
) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder)
        if rows:
            measure_compacted(warehouse, rows, repeat)
        if merge_rows:
            measure_merge(warehouse, merge_rows, repeat, peers=peers)
        if memory_rows:
            measure_memory(warehouse, memory_rows)


if __name__ == "__main__":
    typer.run(main)
