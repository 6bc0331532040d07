"""Spark reads, ingest and compaction, compared with Spark's Parquet reader and Paimon's connector.

    python benchmarks/spark.py [--rows 10000000] [--files 1000] [--repeat 3] [--no-peers]
        [--only read,merge,ingest,executors,driver]

- read: all rows of a compacted table, through the data source and through
  ``paimon_orch.spark.read``, compared with Spark's Parquet reader and Java. A data source that
  yields one batch in memory repeatedly shows the limit for any Python source.
- merge: the same number of rows in five overlapping runs, compared with Java.
- ingest: half of the rows, as eight columns of a Parquet file, into a primary-key table, an append
  table with buckets and one without, compared with Java. "frame" writes a data frame of the file;
  "file" reads the file in the tasks, as ``paimon-orch ingest`` does.
- executors: compaction of eight buckets with 2.5 times the rows, one executor and two.
- driver: share of planning and commit in the compaction of many files of rows / 2,000 rows each.

All parts run on ``local[2]``, except for executors: these have one core each and are separate
processes (``local-cluster``). CPU seconds include the driver, the JVM and all workers; wall-clock
speedups are printed too, but vary more on a shared machine. Java Paimon is its connector on the
Spark version that it was built for, from a Maven repository or the jar that PAIMON_SPARK_JAR names.
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
from itertools import count, product
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from compaction import VALUES, make_rows
from measurement import HERE, console, run_json, show
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from spark_timing import compare
from support.peers.environments import SPARK, PeerUnavailableError, peer_start

from paimon_orch import Catalog
from paimon_orch.spark import SparkExecutor, read, spark_session, stop_session
from paimon_orch.spark.frame_writer import RowSource, cluster_by_bucket, run_ingest, write
from paimon_orch.spark.parquet_source import open_parquet_files
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.ingest import IngestRequest
from paimon_orch.steps.ingest_files import read_input_files
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.write_builder import WriteBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

COLUMNS = f"id BIGINT NOT NULL, {VALUES}"
PARTS = ("read", "merge", "ingest", "executors", "driver")
RUNS, BUCKETS, EXECUTOR_BUCKETS = 5, 4, 8
INGEST_TABLES = {
    "key": "primary key, 4 buckets",
    "buckets": "append, 4 buckets",
    "append": "append without buckets",
}
INGEST_GROUP_ROWS = 250_000
CHUNK = 2_500_000
BATCH_ROWS = 65_536
Line = tuple[str, ...]
Times = tuple[float, float]


@contextmanager
def run_session(master: str, **config: str) -> Iterator[SparkSession]:
    """Start a session with two shuffle partitions, and stop it afterwards."""
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "4g"}
    session = spark_session(master, config=settings | config)
    yield session
    stop_session(session)


def create_table(warehouse: Path, buckets: int, name: str = "db.t", **options: str) -> Table:
    """Create a primary-key table without automatic compaction."""
    options = {"bucket": str(buckets), "write-only": "true", "write-buffer-size": "8 gb"} | options
    catalog = Catalog(str(warehouse))
    return catalog.create_table(name, COLUMNS, primary_key=["id"], options=options)


def upsert_rows(table: Table, rows: int, seed: int = 0) -> None:
    """Upsert rows with the keys 0 to ``rows`` - 1, in chunks."""
    for start in range(0, rows, CHUNK):
        numbers = np.arange(start, min(rows, start + CHUNK))
        table.upsert(make_rows("bigint", numbers, seed).drop_columns("kind"))


def one_batch_source(rows: int) -> type[DataSource]:
    """Return a data source without work: two tasks yield one batch of the workload repeatedly."""
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


def compute(frame: DataFrame) -> None:
    """Compute all rows and columns without storing them."""
    frame.write.format("noop").mode("overwrite").save()


def time_java(
    command: str, warehouse: Path, rows: Path, repeat: int, *tables: str
) -> dict[str, Times]:
    """Measure Paimon's connector; if it is not available, print the reason and return nothing."""
    try:
        start = peer_start(SPARK)
    except PeerUnavailableError as error:
        console.print(f"Skipped Paimon's connector: {error}")
        return {}
    arguments = (start.command[-1], command, str(warehouse), str(rows), str(repeat), *tables)
    times = run_json(start.command[0], HERE / "spark_java_worker.py", *arguments)
    return {name: (cpu, wall_clock) for name, (cpu, wall_clock) in times.items()}


def make_line(title: str, ours: Times, theirs: Times | None) -> Line:
    """Return a row of the result: both CPU seconds, our speedup in CPU and in wall-clock time."""
    if theirs is None:
        return (title, f"{ours[0]:.1f}", "-", "-", "-")
    ratios = (f"{other / own:.2f}" for own, other in zip(ours, theirs, strict=True))
    return (title, f"{ours[0]:.1f}", f"{theirs[0]:.1f}", *ratios)


def measure_read(folder: Path, rows: int, repeat: int, *, peers: bool) -> Iterator[Line]:
    """Read a compacted table through the data source, and its files with Spark's Parquet reader."""
    table = create_table(folder, BUCKETS)
    upsert_rows(table, rows)
    compact.compact(table, InProcessExecutor(), strategy="full")
    files = [
        table.paths.data_file(table.load().schema, split.partition, split.bucket, file)
        for split in table.files()
        for file in split.files
    ]
    with run_session("local[2]") as spark:
        spark.dataSource.register(one_batch_source(rows))
        names = table.load().schema.names
        source = spark.read.format("paimon")
        one_batch = spark.read.format("one_batch")
        runs = {
            "read()": lambda: compute(read(spark, table.scan())),
            "source": lambda: compute(source.load(table.paths.root)),
            "one batch": lambda: compute(one_batch.load()),
            "native": lambda: compute(spark.read.parquet(*files).select(*names)),
        }
        times = compare(runs, repeat)
    java_times = time_java("read", folder, folder, repeat).get("read") if peers else None
    for name in ("read()", "source", "one batch"):
        title = f"{rows:,} rows, {name} vs. Spark's Parquet reader"
        yield make_line(title, times[name], times["native"])
    for name in ("read()", "source"):
        yield make_line(f"{rows:,} rows, {name} vs. Java", times[name], java_times)


def measure_merge(folder: Path, rows: int, repeat: int, *, peers: bool) -> Iterator[Line]:
    """Read a table of overlapping runs that are merged while reading."""
    table = create_table(folder, BUCKETS)
    for run in range(RUNS):
        upsert_rows(table, rows // RUNS, run)
    with run_session("local[2]") as spark:
        frame = spark.read.format("paimon")
        runs = {
            "read()": lambda: compute(read(spark, table.scan())),
            "source": lambda: compute(frame.load(table.paths.root)),
        }
        times = compare(runs, repeat)
    java_times = time_java("read", folder, folder, repeat).get("read") if peers else None
    for name in runs:
        title = f"merge {RUNS} runs, {rows:,} rows, {name} vs. Java"
        yield make_line(title, times[name], java_times)


def measure_ingest(folder: Path, rows: int, repeat: int, *, peers: bool) -> Iterator[Line]:
    """Write a Parquet file into each kind of table: as a frame, as a file, and with Java."""
    source = folder / "rows.parquet"
    numbers = np.random.default_rng(0).permutation(rows)
    pq.write_table(make_wide_rows(numbers), source, row_group_size=INGEST_GROUP_ROWS)
    turns = range(1 + repeat)
    for kind, turn in product(INGEST_TABLES, turns):
        for writer in ("frame", "file", "java"):
            create_ingest_table(folder / writer, kind, f"db.{kind}_{turn}")
    with run_session("local[2]") as spark:
        frame = spark.read.parquet(str(source))
        _check_shuffle(frame, Catalog(str(folder / "frame")).table("db.key_0"))
        runs = {"arrow batches": partial(read_in_python, frame)}
        for kind in INGEST_TABLES:
            frames, files = (_open_tables(folder / name, kind) for name in ("frame", "file"))
            runs[f"frame {kind}"] = partial(_write_frame, frame, frames)
            runs[f"file {kind}"] = partial(_write_file, spark, source, files)
        times = compare(runs, repeat)
    java_times = (
        time_java("write", folder / "java", source, repeat, *INGEST_TABLES) if peers else {}
    )
    title = f"floor of a frame: {rows:,} rows of Spark as Arrow batches in Python"
    yield make_line(title, times["arrow batches"], None)
    for kind, writer in product(INGEST_TABLES, ("frame", "file")):
        title = f"ingest {rows:,} rows from a {writer}, {INGEST_TABLES[kind]} vs. Java"
        yield make_line(title, times[f"{writer} {kind}"], java_times.get(kind))


def make_wide_rows(numbers: np.ndarray) -> pa.Table:
    """Return a row of eight columns for each number."""
    random, rows = np.random.default_rng(1), make_rows("bigint", numbers, 0).drop_columns("kind")
    times = random.integers(1_700_000_000_000, 1_800_000_000_000, len(numbers))
    cities = np.array(["Amsterdam", "Berlin", "Chennai", "Dakar", "Edinburgh"])
    rows = rows.append_column("city", pa.array(random.choice(cities, len(numbers))))
    return rows.append_column("created", pa.array(times).cast(pa.timestamp("ms")))


def create_ingest_table(warehouse: Path, kind: str, name: str) -> None:
    """Create a table for :func:`make_wide_rows`."""
    has_key, is_bucketed = kind == "key", kind != "append"
    options = {"bucket": str(BUCKETS if is_bucketed else -1), "write-only": "true"}
    if is_bucketed and not has_key:
        options["bucket-key"] = "id"
    columns = f"{COLUMNS}, city STRING, created TIMESTAMP(3)"
    key = ["id"] if has_key else []
    Catalog(str(warehouse)).create_table(name, columns, primary_key=key, options=options)


def read_in_python(frame: DataFrame) -> None:
    """Send all rows to Python as Arrow batches, which is the least that any write in Python does."""

    def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return iter(())

    compute(frame.mapInArrow(drop, "id bigint"))


def _open_tables(warehouse: Path, kind: str) -> Iterator[Table]:
    return (Catalog(str(warehouse)).table(f"db.{kind}_{turn}") for turn in count())


def _write_frame(frame: DataFrame, tables: Iterator[Table]) -> None:
    write(frame, next(tables))


def _write_file(spark: SparkSession, path: Path, tables: Iterator[Table]) -> None:
    table = next(tables)
    columns = read_input_files([str(path)], table.load().schema).columns
    plan = ingest.plan(table, IngestRequest(columns=columns))
    run_ingest(open_parquet_files(spark, [str(path)], plan), table, plan)


def _check_shuffle(frame: DataFrame, table: Table) -> None:
    source = RowSource(frame, WriteBuilder(table.load()).plan().prepare)
    with redirect_stdout(io.StringIO()) as output:
        cluster_by_bucket(source, table.load().schema).frame.explain()
    query_plan = output.getvalue()
    shuffles = query_plan.count("Exchange hashpartitioning")
    uses_python_rows = any(name in query_plan for name in ("BatchEvalPython", "PythonRDD"))
    if shuffles != 1 or uses_python_rows:
        raise RuntimeError(f"expected one shuffle and no Python row objects: {query_plan}")


def measure_executors(folder: Path, rows: int, repeat: int) -> Iterator[Line]:
    """Compact a table on one and on two executors alternately, each in a new driver."""
    table = create_table(folder, EXECUTOR_BUCKETS)
    for run in range(RUNS):
        upsert_rows(table, rows // RUNS, run)
    seconds: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(repeat):
        for executors, times in seconds.items():
            arguments = ("--executors", executors, "--warehouse", str(folder))
            command = [sys.executable, __file__, *arguments]
            times.append(json.loads(subprocess.run(command, stdout=PIPE, check=True).stdout))
    one_executor, two_executors = (statistics.median(times) for times in seconds.values())
    title = f"compact {EXECUTOR_BUCKETS} buckets, {rows:,} rows: 2 vs. 1 executor (wall-clock s)"
    speedup = f"{one_executor / two_executors:.2f}"
    yield (title, f"{two_executors:.1f}", f"{one_executor:.1f}", "-", speedup)


def time_compaction(warehouse: Path, executors: int) -> float:
    """Run a compaction, delete its output files, and return its wall-clock seconds.

    The first two of three runs are warm-ups.
    """
    table = Catalog(str(warehouse)).table("db.t")
    plan = compact.plan(table, compact.CompactRequest(strategy="full"))
    with run_session(f"local-cluster[{executors},1,1024]") as spark:
        executor = SparkExecutor(spark)
        seconds = 0.0
        for units in (plan.units[:executors], plan.units, plan.units):
            start = time.monotonic()
            results = executor.map(partial(compact.run, plan.reader), units, label="compact")
            seconds = time.monotonic() - start
            for result in results:
                for entry in CommitMessage.decode(result).added:
                    table.io.delete(
                        table.paths.data_file(
                            table.load().schema, entry.partition, entry.bucket, entry.file
                        )
                    )
    return seconds


def measure_driver(folder: Path, files: int, rows: int) -> Iterator[Line]:
    """Compact a table of many files; return the share of the time that planning and commit take."""
    table = create_table(folder, EXECUTOR_BUCKETS)
    for run in range(files // EXECUTOR_BUCKETS):
        upsert_rows(table, rows, run)
    with run_session("local[2]") as spark:
        executor = SparkExecutor(spark)
        executor.map(bytes, [1, 1], label="warm up")
        start = time.monotonic()
        plan = compact.plan(table, compact.CompactRequest(strategy="full"))
        planned = time.monotonic()
        results = executor.map(partial(compact.run, plan.reader), plan.units, label="compact")
        compacted = time.monotonic()
        compact.commit(table, plan, [CommitMessage.decode(result) for result in results])
        end = time.monotonic()
    on_driver, total = planned - start + end - compacted, end - start
    title = f"planning and commit / whole compaction of {files:,} files (wall-clock s, share)"
    yield (title, f"{on_driver:.1f}", f"{total:.1f}", "-", f"{on_driver / total:.3f}")


def main(
    rows: Annotated[
        int, typer.Option(help="Rows to read; half of them are ingested.")
    ] = 10_000_000,
    files: Annotated[int, typer.Option(help="Number of files for the part driver.")] = 1_000,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 3,
    only: Annotated[str, typer.Option(help="Parts to run, separated by commas.")] = ",".join(PARTS),
    peers: Annotated[bool, typer.Option(help="Compare with Java.")] = True,  # noqa: FBT002
    executors: Annotated[int, typer.Option(hidden=True)] = 0,
    warehouse: Annotated[Path, typer.Option(hidden=True)] = Path(),
) -> None:
    """Measure and print."""
    if executors:
        sys.stdout.write(json.dumps(time_compaction(warehouse, executors)))
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
    columns = ("", "ours, CPU s", "other, CPU s", "CPU speedup", "wall-clock speedup")
    show("Spark, local[2]", columns, lines)


if __name__ == "__main__":
    typer.run(main)
