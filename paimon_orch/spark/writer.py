"""DataFrame to table: rows go to the task of their bucket and are sorted there, not in the JVM.

Only key columns pass through Python before the shuffle. Placement is exact: tasks are addressed by pre-images of
Spark's own hash, so that no two buckets of a partition meet in one task while another has none.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import IntegerType

from paimon_orch.files.evolution import stored_as
from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.bucket import hash_rows
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.format.types import Field
from paimon_orch.spark.executor import (
    RESULT_COLUMNS,
    SparkExecutor,
    result_batch,
    task_attempts,
)
from paimon_orch.steps import ingest
from paimon_orch.steps.attempts import discard_results
from paimon_orch.steps.executor import Progress
from paimon_orch.steps.ingest import IngestResult, Mode
from paimon_orch.table.commit import CommitId
from paimon_orch.table.dynamic_bucket import has_dynamic_buckets
from paimon_orch.table.partitions import Spec
from paimon_orch.table.postpone import is_postponed
from paimon_orch.table.table import Table
from paimon_orch.table.write import bucket_of_rows

_TASK = "_paimon_task"


def write(
    frame: DataFrame,
    table: Table,
    *,
    mode: Mode = "append",
    row_kind: str | None = None,
    partitions: Spec | None = None,
    commit_id: CommitId | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Write the rows of a frame into a table in one snapshot.

    On primary-key tables ``append`` inserts or updates by key; of several rows of one key the last in the frame wins.
    ``row_kind`` names a text column of ``+I``, ``-U``, ``+U``, ``-D``. ``overwrite`` replaces the partitions that
    receive rows (all, without partitions), or those that ``partitions`` names: an empty mapping means all. What a
    ``commit_id`` names is committed once: a repeated call writes nothing. Raises :class:`InputError` if the rows do not
    fit the table, which is then unchanged.
    """
    started = time.monotonic()
    planned = ingest.plan(
        table,
        frame.columns,
        mode=mode,
        row_kind=row_kind,
        partitions=partitions,
        commit_id=commit_id,
    )
    committed = table.committed(commit_id)
    if committed is not None:
        return IngestResult(committed.id, 0, 0, 0, time.monotonic() - started)
    session = frame.sparkSession
    schema, attempts = planned.factory.schema, task_attempts(session)
    clustered, tasks = cluster(frame, schema)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = iter(batches)
        first = next(rows, None)
        if first is not None:
            yield result_batch(task_number(), lambda: planned.write(_chain(first, rows)), attempts)

    results = SparkExecutor(session).results(
        lambda _: clustered.mapInArrow(task, RESULT_COLUMNS),
        tasks,
        label=f"ingest into {table.identifier}",
        progress=progress,
        undo=partial(discard_results, table),
    )
    return ingest.commit(table, planned, results, time.monotonic() - started)


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def task_number() -> int:
    """Return the number of the Spark task that runs this; 0 outside of one."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def cluster(frame: DataFrame, schema: TableSchema) -> tuple[DataFrame, int]:
    """Return the frame with all rows of a bucket in one task, and the number of tasks.

    With dynamic or postpone buckets all rows of a partition are in one task, which assigns them: a table without partitions is
    written by a single task. Primary-key tables also get ``_SEQUENCE_NUMBER``, the order of the rows before the
    shuffle. Tables whose rows may go anywhere are left as they are.
    """
    count = schema.typed_options.bucket
    dynamic = has_dynamic_buckets(schema) or is_postponed(schema)
    tasks = _parallelism(frame.sparkSession)
    if not schema.primary_keys and count < 1:
        return frame, tasks
    if not schema.partition_keys:
        tasks = 1 if dynamic else min(tasks, count)
    if schema.primary_keys:
        frame = frame.withColumn(SEQUENCE_NUMBER.name, fn.monotonically_increasing_id())
    if tasks == 1:
        return frame.repartition(1), 1
    owner = fn.pmod(_partition_hash(schema) if dynamic else _bucket(schema), fn.lit(tasks))
    addressed = frame.withColumn(_TASK, _address(frame.sparkSession, owner, tasks))
    return addressed.repartition(tasks, _TASK).drop(_TASK), tasks


def _bucket(schema: TableSchema) -> Column:
    """Return the bucket of a row, moved on by its partition so that small partitions do not meet in one task."""
    bucket = _number(schema.bucket_key_fields, lambda typed: bucket_of_rows(typed, schema))
    if not schema.partition_keys:
        return bucket
    return bucket + fn.hash(*(fn.col(f"`{name}`") for name in schema.partition_keys))


def _partition_hash(schema: TableSchema) -> Column:
    """Return a hash of a row's partition in the table's types: however a value is spelt, one task gets it."""
    fields = schema.partition_fields
    types = [field.type for field in fields]
    return _number(fields, lambda typed: hash_rows([*typed.values()], types))


def _number(
    fields: Sequence[Field],
    function: Callable[[Mapping[str, pa.Array]], npt.NDArray[np.int32]],
) -> Column:
    """Return a number for each row, by a function of some columns in the table's types."""

    def number_of(*columns: pa.Array) -> pa.Array:
        try:
            typed = {
                field.name: stored_as(column, arrow_type(field.type))
                for field, column in zip(fields, columns, strict=True)
            }
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # any task will do: the one that is to store the value says what is wrong with it
            return pa.repeat(pa.scalar(0, pa.int32()), len(columns[0]))
        return pa.array(function(typed), pa.int32())

    vectorised: Callable[..., Column]
    if hasattr(fn, "arrow_udf"):  # 4.1 and later
        vectorised = fn.arrow_udf(number_of, IntegerType())
    else:
        import pandas as pd

        def number_of_series(*columns: pd.Series) -> pd.Series:
            numbers: pd.Series = number_of(*map(pa.Array.from_pandas, columns)).to_pandas()
            return numbers

        vectorised = fn.pandas_udf(number_of_series, IntegerType())  # type: ignore[attr-defined]
    return vectorised(*(fn.col(f"`{field.name}`") for field in fields))


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
