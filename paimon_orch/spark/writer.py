"""DataFrame to table: rows go to the task of their bucket and are sorted there, not in the JVM.

Only key columns pass through Python before the shuffle. Placement is exact: tasks are addressed by pre-images of
Spark's own hash, so that no two buckets of a partition meet in one task while another has none.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import IntegerType

from paimon_orch.files.evolution import stored_as
from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.spark.executor import (
    RESULT_COLUMNS,
    SparkExecutor,
    result_batch,
    task_attempts,
)
from paimon_orch.steps import ingest
from paimon_orch.steps.executor import Progress
from paimon_orch.steps.ingest import IngestResult, Mode
from paimon_orch.table.table import Table
from paimon_orch.table.write import bucket_of_rows

_TASK = "_paimon_task"


def write(
    frame: DataFrame,
    table: Table,
    *,
    mode: Mode = "append",
    row_kind: str | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Write the rows of a frame into a table in one snapshot.

    On primary-key tables ``append`` inserts or updates by key; of several rows of one key the last in the frame wins.
    ``row_kind`` names a text column of ``+I``, ``-U``, ``+U``, ``-D``. ``overwrite`` replaces the partitions that
    receive rows (all, without partitions). Raises :class:`InputError` if the rows do not fit the table, which is then
    unchanged.
    """
    started = time.monotonic()
    planned = ingest.plan(table, frame.columns, mode=mode, row_kind=row_kind)
    session = frame.sparkSession
    schema, attempts = planned.factory.schema, task_attempts(session)
    clustered, tasks = cluster(frame, schema)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = iter(batches)
        first = next(rows, None)
        if first is not None:
            yield result_batch(_task_number(), lambda: planned.write(_chain(first, rows)), attempts)

    results = SparkExecutor(session).results(
        lambda _: clustered.mapInArrow(task, RESULT_COLUMNS),
        tasks,
        label=f"ingest into {table.identifier}",
        progress=progress,
        undo=lambda done: ingest.undo(table, done),
    )
    return ingest.commit(table, planned, results, time.monotonic() - started)


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _task_number() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def cluster(frame: DataFrame, schema: TableSchema) -> tuple[DataFrame, int]:
    """Return the frame with all rows of a bucket in one task, and the number of tasks.

    Primary-key tables also get ``_SEQUENCE_NUMBER``, the order of the rows before the shuffle. Tables whose rows may go
    anywhere are left as they are.
    """
    count = schema.typed_options.bucket
    tasks = _parallelism(frame.sparkSession)
    if not schema.primary_keys and count < 1:
        return frame, tasks
    if not schema.partition_keys:
        tasks = min(tasks, count)
    if schema.primary_keys:
        frame = frame.withColumn(SEQUENCE_NUMBER.name, fn.monotonically_increasing_id())
    bucket = _bucket_function(schema)(*(fn.col(f"`{f.name}`") for f in schema.bucket_key_fields))
    if schema.partition_keys:
        bucket = bucket + fn.hash(*(fn.col(f"`{name}`") for name in schema.partition_keys))
    addressed = frame.withColumn(
        _TASK, _address(frame.sparkSession, fn.pmod(bucket, fn.lit(tasks)), tasks)
    )
    return addressed.repartition(tasks, _TASK).drop(_TASK), tasks


def _bucket_function(schema: TableSchema) -> Callable[..., Column]:
    """Return a vectorised function of the bucket key columns."""
    fields = schema.bucket_key_fields

    def bucket_of(*columns: pa.Array) -> pa.Array:
        try:
            typed = {
                field.name: stored_as(column, arrow_type(field.type))
                for field, column in zip(fields, columns, strict=True)
            }
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # any task will do: the one that is to store the value says what is wrong with it
            return pa.repeat(pa.scalar(0, pa.int32()), len(columns[0]))
        return pa.array(bucket_of_rows(typed, schema), pa.int32())

    vectorised: Callable[..., Column]
    if hasattr(fn, "arrow_udf"):  # 4.1 and later
        vectorised = fn.arrow_udf(bucket_of, IntegerType())
        return vectorised

    import pandas as pd

    def bucket_of_series(*columns: pd.Series) -> pd.Series:
        buckets: pd.Series = bucket_of(*map(pa.Array.from_pandas, columns)).to_pandas()
        return buckets

    vectorised = fn.pandas_udf(bucket_of_series, IntegerType())  # type: ignore[attr-defined]
    return vectorised


def _address(session: SparkSession, task: Column, tasks: int) -> Column:
    """Return, for each task number, a value that Spark's hash partitioning sends to that task."""
    values = fn.array(*(fn.lit(value) for value in _preimages(session, tasks)))
    return fn.element_at(values, task + 1)


@cache
def _parallelism(session: SparkSession) -> int:
    """Return how many tasks run at once: as many as a range is cut into when nobody says."""
    numbers = session.range(0, 1 << 20).select(fn.spark_partition_id().alias("task"))
    return numbers.distinct().count()


@cache
def _preimages(session: SparkSession, tasks: int) -> tuple[int, ...]:
    """Return one int for each task that ``repartition(tasks, column)`` sends there."""
    numbers = session.range(0, 40 * tasks + 100).select(fn.col("id").cast("int").alias("value"))
    placed = numbers.select("value", fn.pmod(fn.hash("value"), fn.lit(tasks)).alias("task"))
    found = placed.groupBy("task").agg(fn.min("value").alias("value")).toArrow().sort_by("task")
    return tuple(found.column("value").to_pylist())
