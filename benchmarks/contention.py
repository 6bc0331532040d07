"""A compaction of small files beside writers: python benchmarks/contention.py [--help].

Each writer is a process that upserts single rows into its own partition as fast as it can, while
this process compacts another partition. Prints how often the compaction did its work, its time
without and with the writers, and how many commits of the writers were refused.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from measurement import console, show
from support.s3_proxy import run_proxy
from support.seaweedfs import run_seaweedfs

from paimon_orch import Catalog, CommitConflictError
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table
from paimon_orch.table.write.table_write import write_rows

BUCKET = "contention"


@dataclass(frozen=True, slots=True)
class Setting:
    """The table and the load."""

    catalog: dict[str, Any]
    """The arguments of :class:`Catalog`."""
    writers: int
    files: int

    def open_table(self) -> Table:
        """Return the table, which exists."""
        return Catalog(**self.catalog).table("db.t")


@dataclass(slots=True)
class Load:
    """What the writers did."""

    commits: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0


def build_row(partition: int, key: int, value: str) -> pa.Table:
    """Return one row of the table."""
    types = pa.schema([("p", pa.int32()), ("k", pa.int32()), ("v", pa.string())])
    return pa.table([[partition], [key], [value]], schema=types)


def write_beside(
    setting: Setting, number: int, started: Semaphore, stop: Event, results: Any
) -> None:
    """Upsert single rows until ``stop``; a process."""
    table, load, start = setting.open_table(), Load(), 0.0
    while not stop.is_set():
        begin = time.perf_counter()
        try:
            table.upsert(build_row(number, load.commits % 100, f"{begin}"))
            load.commits += 1
        except CommitConflictError:
            load.refused += 1
        if not start:  # the first commit imports most modules
            load, start = Load(), time.perf_counter()
            started.release()
        else:
            load.slowest = max(load.slowest, time.perf_counter() - begin)
    load.seconds = time.perf_counter() - start
    results.put(load)


@contextmanager
def run_writers(setting: Setting) -> Iterator[list[Load]]:
    """Run the writers beside the block; the list gets what each of them did."""
    context = multiprocessing.get_context("spawn")
    started, stop = context.Semaphore(0), context.Event()
    results, loads = context.Queue(), list[Load]()
    processes = [
        context.Process(target=write_beside, args=(setting, number + 1, started, stop, results))
        for number in range(setting.writers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        started.acquire()
    try:
        yield loads
    finally:
        stop.set()
        loads += [results.get(timeout=120) for _ in processes]
        for process in processes:
            process.join()


def add_files(table: Table, files: int) -> None:
    """Add small files to the partition 0, in one commit."""
    planned = ingest.plan(table, ingest.IngestRequest(columns=["p", "k", "v"]))
    while True:
        written = [
            write_rows(planned, planned.prepare(build_row(0, key % 50, "x" * 20).to_batches()))
            for key in range(files)
        ]
        try:
            ingest.commit(table, planned, written)
        except CommitConflictError as error:
            console.print(f"the commit of the files to compact was refused: {error}")
        else:
            return


def measure_compactions(
    setting: Setting, table: Table, rounds: int
) -> tuple[list[float], list[str]]:
    """Return the seconds and the number of times of the work of some compactions."""
    seconds, works = list[float](), list[str]()
    for _ in range(rounds):
        add_files(table, setting.files)
        start = time.perf_counter()
        try:
            outcome = compact(table, InProcessExecutor(), partitions=["p=0"], strategy="full")
            works.append(str(outcome.attempts))
        except CommitConflictError:
            works.append("refused")
        seconds.append(time.perf_counter() - start)
    return seconds, works


@contextmanager
def open_store(folder: Path, delay_ms: float | None) -> Iterator[dict[str, Any]]:
    """Yield the arguments of a catalog: a directory, or S3 with a delay of each request."""
    if delay_ms is None:
        yield {"uri": str(folder)}
        return
    with run_seaweedfs(folder / "s3", BUCKET) as server:
        context = multiprocessing.get_context("spawn")
        ports = context.Queue()
        arguments = (server.address, str(folder / "requests"), delay_ms / 1000, ports)
        proxy = context.Process(target=serve_with_delay, args=arguments, daemon=True)
        proxy.start()
        try:
            yield {"uri": f"s3://{BUCKET}/warehouse", **server.options} | {
                "endpoint_url": ports.get(timeout=60)
            }
        finally:
            proxy.kill()


def serve_with_delay(server: tuple[str, int], log: str, delay: float, ports: Any) -> None:
    """Run the proxy; a process."""
    with run_proxy(server, Path(log), delay=delay) as proxy:
        ports.put(proxy.address)
        proxy.wait()


def main(
    *,
    writers: Annotated[int, typer.Option(help="Writers beside the compaction.")] = 4,
    files: Annotated[int, typer.Option(help="Files to compact.")] = 300,
    rounds: Annotated[int, typer.Option(help="Compactions without and with the writers.")] = 5,
    delay_ms: Annotated[
        float | None, typer.Option(help="Use S3 with this delay; by default, a local disk.")
    ] = None,
) -> None:
    """Measure compactions without and with writers beside them."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder), delay_ms) as catalog:
        setting = Setting(catalog, writers, files)
        columns, key = "p INT, k INT, v STRING", ["p", "k"]
        table = Catalog(**catalog).create_table(
            "db.t", columns, primary_key=key, partition_by=["p"], options={"bucket": "1"}
        )
        measure_compactions(setting, table, 1)  # imports modules
        alone, _ = measure_compactions(setting, table, rounds)
        with run_writers(setting) as loads:
            beside, works = measure_compactions(setting, table, rounds)
    commits = sum(load.commits for load in loads)
    rate = sum(load.commits / load.seconds for load in loads)
    rows = [
        ("compaction without writers", f"{statistics.median(alone):.2f} s"),
        ("beside writers: median", f"{statistics.median(beside):.2f} s"),
        ("beside writers: slowest", f"{max(beside):.2f} s"),
        ("times the work was done", " ".join(works)),
        ("commits of writers", f"{commits}, {rate:.1f} a second"),
        ("refused commits of writers", str(sum(load.refused for load in loads))),
        ("slowest upsert", f"{max(load.slowest for load in loads):.2f} s"),
    ]
    show(f"Compaction of {files} files, {writers} writers", ("figure", "value"), rows)


if __name__ == "__main__":
    typer.run(main)
