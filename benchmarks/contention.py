"""A compaction of small files beside writers: python benchmarks/contention.py [--help].

Each writer is a process that upserts single rows into its own partition as fast as it can, while
this process compacts another partition. Prints how often the compaction did its work, its time
without and with the writers, and how many commits of the writers were refused.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from queue import Empty
from typing import Annotated, Any

import pyarrow as pa
import typer
from measurement import console, show

from paimon_orch import Catalog, CommitConflictError
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table
from paimon_orch.table.write.table_write import write_rows

WARM_UP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Setting:
    """The table and the load."""

    catalog: dict[str, str]
    """The arguments of :class:`Catalog`."""
    writers: int
    files: int

    def open_table(self) -> Table:
        """Return the table, which exists."""
        return Catalog(**self.catalog).table("db.t")  # type: ignore[arg-type]


@dataclass(slots=True)
class Load:
    """What the writers did."""

    commits: int = 0
    refused: int = 0
    attempts: list[int] = field(default_factory=list)
    seconds: float = 0.0
    slowest: float = 0.0


def build_row(partition: int, key: int, value: str) -> pa.Table:
    """Return one row of the table."""
    types = pa.schema([("p", pa.int32()), ("k", pa.int32()), ("v", pa.string())])
    return pa.table([[partition], [key], [value]], schema=types)


def write_beside(setting: Setting, number: int, stop: Event, results: Any) -> None:
    """Upsert single rows until ``stop``; a process."""
    table, load, start = setting.open_table(), Load(), time.perf_counter()
    while not stop.is_set():
        begin = time.perf_counter()
        try:
            table.upsert(build_row(number, load.commits % 100, f"{begin}"))
            load.commits += 1
        except CommitConflictError:
            load.refused += 1
        load.slowest = max(load.slowest, time.perf_counter() - begin)
    load.seconds = time.perf_counter() - start
    results.put(load)


@contextmanager
def run_writers(setting: Setting) -> Iterator[list[Load]]:
    """Run the writers beside the block; the list gets what each of them did."""
    context = multiprocessing.get_context("spawn")
    stop, results, loads = context.Event(), context.Queue(), list[Load]()
    processes = [
        context.Process(target=write_beside, args=(setting, number + 1, stop, results))
        for number in range(setting.writers)
    ]
    for process in processes:
        process.start()
    time.sleep(WARM_UP_SECONDS)
    try:
        yield loads
    finally:
        stop.set()
        for _ in processes:
            try:
                loads.append(results.get(timeout=60))
            except Empty:
                console.print("a writer did not end")
        for process in processes:
            process.join(timeout=60)


def add_files(table: Table, files: int) -> None:
    """Add small files to the partition 0, in one commit."""
    planned = ingest.plan(table, ingest.IngestRequest(columns=["p", "k", "v"]))
    written = [
        write_rows(planned, planned.prepare(build_row(0, key % 50, "x" * 20).to_batches()))
        for key in range(files)
    ]
    ingest.commit(table, planned, written)


def measure_compactions(
    setting: Setting, table: Table, rounds: int
) -> tuple[list[float], list[int]]:
    """Return the seconds and the number of times of the work of some compactions."""
    seconds, works = list[float](), list[int]()
    for _ in range(rounds):
        add_files(table, setting.files)
        start = time.perf_counter()
        try:
            outcome = compact(table, InProcessExecutor(), partitions=["p=0"], strategy="full")
            works.append(outcome.attempts)
        except CommitConflictError as error:
            console.print(f"a compaction was refused: {error}")
            works.append(-1)
        seconds.append(time.perf_counter() - start)
    return seconds, works


def main(
    *,
    writers: Annotated[int, typer.Option(help="Writers beside the compaction.")] = 4,
    files: Annotated[int, typer.Option(help="Files to compact.")] = 300,
    rounds: Annotated[int, typer.Option(help="Compactions without and with the writers.")] = 5,
    warehouse: Annotated[str, typer.Option(help="The default is a temporary directory.")] = "",
    options: Annotated[str, typer.Option(help="Options of the catalog, as JSON.")] = "{}",
) -> None:
    """Measure compactions alone and beside writers."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = {"uri": warehouse or folder, **json.loads(options)}
        setting = Setting(catalog, writers, files)
        columns, key = "p INT, k INT, v STRING", ["p", "k"]
        table = Catalog(**catalog).create_table(
            "db.t", columns, primary_key=key, partition_by=["p"], options={"bucket": "1"}
        )
        alone, _ = measure_compactions(setting, table, rounds)
        before = table.stores.snapshots.latest_id() or 0
        with run_writers(setting) as loads:
            start = time.perf_counter()
            beside, works = measure_compactions(setting, table, rounds)
            elapsed = time.perf_counter() - start
        after = table.stores.snapshots.latest_id() or 0
    commits = sum(load.commits for load in loads)
    seconds = max((load.seconds for load in loads), default=0.0)
    rows = [
        ("compaction alone", f"{statistics.median(alone):.2f} s"),
        ("beside writers: median", f"{statistics.median(beside):.2f} s"),
        ("beside writers: slowest", f"{max(beside):.2f} s"),
        ("times the work was done", " ".join(map(str, works))),
        ("commits of writers", f"{commits} ({commits / max(seconds, 1e-9):.1f}/s)"),
        ("refused commits of writers", str(sum(load.refused for load in loads))),
        ("slowest upsert", f"{max((load.slowest for load in loads), default=0.0):.2f} s"),
        ("snapshots in all", f"{after - before} in {elapsed:.0f} s and the warm-up"),
    ]
    show(f"Compaction of {files} files, {writers} writers", ("figure", "value"), rows)


if __name__ == "__main__":
    typer.run(main)
