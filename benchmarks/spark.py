"""The data source, ingest and compaction on Spark, beside Spark's own Parquet reader and Java Paimon's connector.

    python benchmarks/spark.py [--rows 10000000] [--files 1000] [--repeat 3] [--only read,merge,ingest,executors,driver]
        [--no-peers]

So many rows are read, and merged from five runs; half of them are ingested, and of 2.5 times as many eight buckets are
compacted; each of the files has a 2,000th of them. What is read comes from the data source, and from ``paimon_orch.spark.read``;
beside the former stands a source that hands over one batch in memory again and again, as no Python source can be quicker.

All on ``local[2]``, but for the compaction by one and by two executors of one core each, which are processes of their own
(``local-cluster``). CPU seconds are those of the driver, the JVM and all workers together, as a shared machine's clock
drifts more; ratios by the clock stand beside. Java Paimon is its connector on the Spark that it was built for, and can
be had only where a Maven repository has it, or the variable PAIMON_SPARK_JAR names its jar.
"""

from __future__ import annotations

import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from itertools import count
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from compaction import VALUES, make_rows
from measure import HERE, console, run_json, show
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from spark_clock import compare
from support.peers.environments import SPARK, PeerUnavailableError, peer_start

from paimon_orch import Catalog
from paimon_orch.spark import SparkExecutor, read, spark_session, stop_session
from paimon_orch.spark.frame_writer import cluster_by_bucket, write
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.write_builder import WriteBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

COLUMNS = f"id BIGINT NOT NULL, {VALUES}"
PARTS = ("read", "merge", "ingest", "executors", "driver")
RUNS, BUCKETS, EXECUTOR_BUCKETS = 5, 4, 8
CHUNK = 2_500_000
BATCH_ROWS = 65_536
Line = tuple[str, ...]
Times = tuple[float, float]


@contextmanager
def started(master: str, **config: str) -> Iterator[SparkSession]:
    """Run a session with two shuffle tasks."""
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "4g"}
    session = spark_session(master, config=settings | config)
    yield session
    stop_session(session)


def new_table(warehouse: Path, buckets: int, name: str = "db.t", **options: str) -> Table:
    """Create a primary-key table that compacts only when it is told to."""
    options = {"bucket": str(buckets), "write-only": "true", "write-buffer-size": "8 gb"} | options
    catalog = Catalog(str(warehouse))
    return catalog.create_table(name, COLUMNS, primary_key=["id"], options=options)


def fill(table: Table, rows: int, seed: int = 0) -> None:
    """Upsert rows with the keys from 0 on, a part at a time."""
    for start in range(0, rows, CHUNK):
        numbers = np.arange(start, min(rows, start + CHUNK))
        table.upsert(make_rows("bigint", numbers, seed).drop_columns("kind"))


def one_batch(rows: int) -> type[DataSource]:
    """Return a source without any work of its own: the workload's rows, one batch of them again and again, in two tasks."""
    table = make_rows("bigint", np.arange(BATCH_ROWS), 0).drop_columns("kind")
    (batch,) = table.combine_chunks().to_batches()

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(2)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Spark's signature
            for _ in range(rows // BATCH_ROWS // 2):
                yield batch

    class OneBatch(DataSource):
        @classmethod
        def name(cls) -> str:
            return "one_batch"

        def schema(self) -> str:
            return f"id BIGINT, {VALUES}"

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
            return Reader()

    return OneBatch


def discarded(frame: DataFrame) -> None:
    """Compute all rows and columns, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def java(command: str, warehouse: Path, rows: Path, repeat: int) -> Times | None:
    """Let Paimon's connector do the same; None where it cannot be had."""
    try:
        start = peer_start(SPARK)
    except PeerUnavailableError as error:
        console.print(f"Paimon's connector is left out: {error}")
        return None
    words = (start.command[-1], command, str(warehouse), str(rows), str(repeat))
    cpu, clock = run_json(start.command[0], HERE / "spark_java_side.py", *words)
    return cpu, clock


def line(title: str, ours: Times, theirs: Times | None) -> Line:
    """Return a line of the result: how many times as fast we are."""
    if theirs is None:
        return (title, f"{ours[0]:.1f}", "-", "-", "-")
    ratios = (f"{other / own:.2f}" for own, other in zip(ours, theirs, strict=True))
    return (title, f"{ours[0]:.1f}", f"{theirs[0]:.1f}", *ratios)


def measure_read(folder: Path, rows: int, repeat: int, *, peers: bool) -> Iterator[Line]:
    """Read a compacted table through the data source, and its files with Spark's own reader."""
    table = new_table(folder, BUCKETS)
    fill(table, rows)
    compact.compact(table, InProcessExecutor(), strategy="full")
    files = [
        table.paths.data_file(table.schema, split.partition, split.bucket, file)
        for split in table.files()
        for file in split.files
    ]
    with started("local[2]") as spark:
        spark.dataSource.register(one_batch(rows))
        names = table.schema.names
        source = spark.read.format("paimon")
        held = spark.read.format("one_batch")
        runs = {
            "read()": lambda: discarded(read(spark, table.scan())),
            "source": lambda: discarded(source.load(table.paths.root)),
            "one batch": lambda: discarded(held.load()),
            "native": lambda: discarded(spark.read.parquet(*files).select(*names)),
        }
        found = compare(runs, repeat)
    theirs = java("read", folder, folder, repeat) if peers else None
    for way in ("read()", "source", "one batch"):
        yield line(f"{rows:,} rows, {way}: Spark's Parquet", found[way], found["native"])
    for way in ("read()", "source"):
        yield line(f"{rows:,} rows, {way}: Java", found[way], theirs)


def measure_merge(folder: Path, rows: int, repeat: int, *, peers: bool) -> Iterator[Line]:
    """Read a table of overlapping runs, which have to be merged."""
    table = new_table(folder, BUCKETS)
    for run in range(RUNS):
        fill(table, rows // RUNS, run)
    with started("local[2]") as spark:
        frame = spark.read.format("paimon")
        runs = {
            "read()": lambda: discarded(read(spark, table.scan())),
            "source": lambda: discarded(frame.load(table.paths.root)),
        }
        found = compare(runs, repeat)
    theirs = java("read", folder, folder, repeat) if peers else None
    for way, times in found.items():
        yield line(f"merge {RUNS} runs, {rows:,} rows, {way}: Java", times, theirs)


def measure_ingest(folder: Path, rows: int, repeat: int, *, peers: bool) -> Iterator[Line]:
    """Write rows into primary-key tables: one shuffle, checked in the plan."""
    source = folder / "rows.parquet"
    numbers = np.random.default_rng(0).permutation(rows)
    pq.write_table(make_rows("bigint", numbers, 0).drop_columns("kind"), source)
    turns = 1 + repeat
    for turn in range(turns):
        new_table(folder / "ours", BUCKETS, f"db.w{turn}")
        new_table(folder / "java", BUCKETS, f"db.w{turn}")
    tables = (Catalog(str(folder / "ours")).table(f"db.w{turn}") for turn in count())
    with started("local[2]") as spark:
        frame = spark.read.parquet(str(source))
        _check_plan(frame, Catalog(str(folder / "ours")).table("db.w0"))
        found = compare({"ours": lambda: write(frame, next(tables))}, repeat)
    theirs = java("write", folder / "java", source, repeat) if peers else None
    yield line(f"ingest {rows:,} rows: Java, write-only", found["ours"], theirs)


def _check_plan(frame: DataFrame, table: Table) -> None:
    with redirect_stdout(io.StringIO()) as text:
        cluster_by_bucket(
            frame, table.schema, WriteBuilder(table.stores).plan().prepare
        ).frame.explain()
    shuffles = text.getvalue().count("Exchange hashpartitioning")
    by_rows = [word for word in ("BatchEvalPython", "PythonRDD") if word in text.getvalue()]
    if shuffles != 1 or by_rows:
        raise RuntimeError(f"not one shuffle without Python objects: {text.getvalue()}")


def measure_executors(folder: Path, rows: int, repeat: int) -> Iterator[Line]:
    """Compact a table on one and on two executors, each in a driver of its own, turn about."""
    table = new_table(folder, EXECUTOR_BUCKETS)
    for run in range(RUNS):
        fill(table, rows // RUNS, run)
    seconds: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(repeat):
        for executors, found in seconds.items():
            words = ("--part", executors, "--warehouse", str(folder))
            side = [sys.executable, __file__, *words]
            found.append(json.loads(subprocess.run(side, stdout=PIPE, check=True).stdout))
    one, two = (statistics.median(found) for found in seconds.values())
    title = f"compact {EXECUTOR_BUCKETS} buckets, {rows:,} rows: 1 executor (clock)"
    yield (title, f"{two:.1f}", f"{one:.1f}", "-", f"{one / two:.2f}")


def run_executors(warehouse: Path, executors: int) -> float:
    """Run the compaction of a table on some executors, and forget what it wrote; the last time counts."""
    table = Catalog(str(warehouse)).table("db.t")
    planned = compact.plan(table, compact.CompactRequest(strategy="full"))
    with started(f"local-cluster[{executors},1,1024]") as spark:
        executor = SparkExecutor(spark)
        seconds = 0.0
        for units in (planned.units[:executors], planned.units, planned.units):
            begin = time.monotonic()
            results = executor.map(partial(compact.run, planned.reader), units, label="compact")
            seconds = time.monotonic() - begin
            for result in results:
                for entry in CommitMessage.decode(result).added:
                    table.io.delete(
                        table.paths.data_file(
                            table.schema, entry.partition, entry.bucket, entry.file
                        )
                    )
    return seconds


def measure_driver(folder: Path, files: int, rows: int) -> Iterator[Line]:
    """Compact a table of many files, and tell what of the time was planning and committing."""
    table = new_table(folder, EXECUTOR_BUCKETS)
    for run in range(files // EXECUTOR_BUCKETS):
        fill(table, rows, run)
    with started("local[2]") as spark:
        executor = SparkExecutor(spark)
        executor.map(bytes, [1, 1], label="warm up")
        begin = time.monotonic()
        planned = compact.plan(table, compact.CompactRequest(strategy="full"))
        ready = time.monotonic()
        results = executor.map(partial(compact.run, planned.reader), planned.units, label="compact")
        done = time.monotonic()
        compact.commit(table, planned, [CommitMessage.decode(result) for result in results])
        end = time.monotonic()
    on_driver, whole = end - done + ready - begin, end - begin
    title = f"driver's part of compacting {files:,} files (clock)"
    yield (title, f"{on_driver:.1f}", f"{whole:.1f}", "-", f"{on_driver / whole:.3f}")


def main(
    rows: Annotated[int, typer.Option(help="Rows to read, half of them to ingest.")] = 10_000_000,
    files: Annotated[int, typer.Option(help="Files to plan over.")] = 1_000,
    repeat: Annotated[int, typer.Option(help="Runs, of which the median counts.")] = 3,
    only: Annotated[str, typer.Option(help="Which parts, with commas between.")] = ",".join(PARTS),
    peers: Annotated[bool, typer.Option(help="Also run Java.")] = True,  # noqa: FBT002
    part: Annotated[int, typer.Option(hidden=True)] = 0,
    warehouse: Annotated[Path, typer.Option(hidden=True)] = Path(),
) -> None:
    """Measure and print."""
    if part:
        sys.stdout.write(json.dumps(run_executors(warehouse, part)))
        return
    measures = {
        "read": lambda folder: measure_read(folder, rows, repeat, peers=peers),
        "merge": lambda folder: measure_merge(folder, rows, repeat, peers=peers),
        "ingest": lambda folder: measure_ingest(folder, rows // 2, repeat, peers=peers),
        "executors": lambda folder: measure_executors(folder, rows * 5 // 2, repeat),
        "driver": lambda folder: measure_driver(folder, files, rows // 250),
    }
    lines = []
    for name in only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            lines += list(measures[name](Path(folder)))
    columns = ("beside", "ours, CPU s", "theirs, CPU s", "times as fast", "by the clock")
    show("Spark, local[2]", columns, lines)


if __name__ == "__main__":
    typer.run(main)
