"""Reading: a compacted table beside pyarrow.dataset, merge-on-read beside pypaimon and pypaimon-rust, and memory.

    python benchmarks/read.py [--rows 5000000] [--merge-rows 2000000] [--memory-rows 10000000] [--repeat 5] [--no-peers]

Goals: 0.8 of the rows per second of pyarrow.dataset on the same files; ten times pypaimon and level with pypaimon-rust
on overlapping runs, on one thread; memory of the batch reader flat from 1 to 10 million rows. A size of 0 leaves a
part out.
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
from measure import HERE, medians, peer_seconds, run_json, show

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.table.table import Table

COLUMNS = "id BIGINT, amount BIGINT, price DOUBLE, status STRING, note STRING, day INT"
STATUS = np.array(["PENDING", "PAID", "SENT", "RETURNED"])
RUNS = 5


def make_rows(count: int, seed: int) -> pa.Table:
    """Return rows with sorted keys, about half of which are also in the rows of another seed."""
    random = np.random.default_rng(seed)
    keys: npt.NDArray[np.int64] = 2 * np.arange(count) + random.integers(0, 2, count)
    return pa.table(
        {
            "id": keys,
            "amount": random.integers(0, 1_000_000, count),
            "price": pa.array(random.random(count), mask=random.random(count) < 0.1),
            "status": STATUS[random.integers(0, len(STATUS), count)],
            "note": pc.binary_join_element_wise("a note", pa.array(keys).cast(pa.string()), " "),
            "day": (keys % 365).astype(np.int32),
        }
    )


def make_table(warehouse: Path, name: str, count: int, runs: int) -> Table:
    """Return a table of one bucket with so many sorted runs that overlap."""
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
    table = make_table(warehouse, "compacted", count, 1)
    compact.compact(table, InProcessExecutor(), strategy="full")
    files = [
        table.paths.data_file(table.schema, split.partition, split.bucket, file)
        for split in table.files()
        for file in split.files
    ]
    names = table.schema.names
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
    show(title, ("", "CPU seconds", "million rows/s", "speed beside dataset"), lines)


def measure_merge(warehouse: Path, count: int, repeat: int, *, peers: bool) -> None:
    """Compare merge-on-read with the other implementations."""
    table = make_table(warehouse, "runs", count, RUNS)
    seconds = medians({"ours": lambda: table.scan().to_arrow()}, repeat)
    left = table.scan().to_arrow().num_rows
    for peer, times in (("pypaimon-rust", repeat), ("pypaimon", 1)) if peers else ():
        theirs = peer_seconds(peer, "read", warehouse, "db.runs", times)
        if theirs is not None:
            assert theirs["rows"] == left, (peer, theirs["rows"], left)
            seconds[peer] = theirs["plan"] + theirs["read"]
    base = seconds["ours"]
    lines = [(name, f"{value:.3f}", f"{value / base:.2f}") for name, value in seconds.items()]
    title = f"Merge-on-read of {RUNS} overlapping runs, {count:,} rows in, {left:,} out"
    show(title, ("", "CPU seconds", "beside ours"), lines)


def measure_memory(warehouse: Path, most: int) -> None:
    """Compare the peak memory of processes that read a tenth of the rows and all of them, batch by batch."""
    lines = []
    for count in (most // 10, most):
        make_table(warehouse, f"m{count}", count, 2)
        found = run_json(sys.executable, HERE / "memory_side.py", str(warehouse), f"db.m{count}")
        lines.append(
            (f"{count:,}", f"{found['rows']:,}", f"{found['mb']:.0f}", f"{found['base']:.0f}")
        )
    columns = ("rows in", "rows out", "peak MB", "before reading")
    show("Memory of the batch reader, merging 2 runs", columns, lines)


def main(
    rows: Annotated[int, typer.Option(help="Rows of the compacted table.")] = 5_000_000,
    merge_rows: Annotated[int, typer.Option(help="Rows of the overlapping runs.")] = 2_000_000,
    memory_rows: Annotated[
        int, typer.Option(help="Most rows to measure memory with.")
    ] = 10_000_000,
    repeat: Annotated[int, typer.Option(help="Runs, of which the median counts.")] = 5,
    peers: Annotated[bool, typer.Option(help="Also run the others.")] = True,  # noqa: FBT002
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
