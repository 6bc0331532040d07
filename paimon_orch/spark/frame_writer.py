"""Writes data frames: converts rows, sends them to the task of their bucket, and sorts them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.bucket.bucket_function import hash_rows
from paimon_orch.format.schema import TableSchema
from paimon_orch.spark.column_types import cast_times
from paimon_orch.spark.datasource.session_settings import is_case_sensitive, match_columns
from paimon_orch.spark.execution.spark_executor import (
    RESULT_COLUMNS,
    SparkExecutor,
    build_result_batch,
    read_task_attempts,
)
from paimon_orch.spark.execution.tasks import map_in_arrow
from paimon_orch.spark.row_conversion import cast_timestamps
from paimon_orch.spark.shuffle import (
    PrepareRows,
    current_task_number,
    first_row_number,
    shuffle_rows,
    unpack_rows,
)
from paimon_orch.steps import ingest
from paimon_orch.steps.common.conflict_retry import discard_results
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.ingest import IngestPreview, IngestRequest, IngestResult, WriteMode
from paimon_orch.steps.row_level.column_update import ColumnUpdate, number_row_ranges
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.filter.partition_spec import PartitionSpec
from paimon_orch.table.table import Table
from paimon_orch.table.write.bucket_routing import BUCKET_COLUMN
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.dynamic_bucket import has_dynamic_buckets
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.write_plan import WritePlan


def write(
    frame: DataFrame,
    table: Table,
    *,
    mode: WriteMode = "append",
    row_kind: str | None = None,
    partitions: PartitionSpec | Sequence[PartitionSpec] | None = None,
    commit_id: CommitId | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Write the rows of a frame to a table in one snapshot.

    In primary-key tables, ``append`` inserts or updates by key; the last row of a key in the frame
    wins. ``overwrite`` replaces the partitions that match ``partitions``, by default the partitions
    of the rows, or all rows of a table without partitions.

    :param row_kind: a text column with ``+I``, ``-U``, ``+U``, ``-D``
    :param partitions: column values of the partitions to replace, one or more mappings; an empty
        one means all
    :param commit_id: makes the call safe to repeat: a second call writes nothing
    :raises InputError: if the rows are not valid for the table, which is then unchanged

    Column names ignore case, unless ``spark.sql.caseSensitive`` is true.
    """
    frame = match_frame_columns(frame, table)
    request = IngestRequest(
        columns=frame.columns,
        mode=mode,
        row_kind=row_kind,
        partitions=partitions,
        commit_id=commit_id,
    )
    planned = ingest.plan(table, request)
    source = RowSource(frame, cast_times(planned.prepare, planned.schema.fields))
    return run_ingest(source, table, planned, progress=progress)


def match_frame_columns(frame: DataFrame, table: Table) -> DataFrame:
    """Return a frame with the table's names of its columns, which may differ in case."""
    if is_case_sensitive(frame.sparkSession):
        return frame
    names = match_columns(frame.columns, table.stores.get_schema().names)
    return frame if names == frame.columns else frame.toDF(*names)


@dataclass(frozen=True, slots=True)
class RowSource:
    """The rows of an ingest."""

    frame: DataFrame
    """The rows, or one row for each task that reads rows in ``prepare``."""
    prepare: PrepareRows
    """Returns the rows in the types of the table."""
    task_count: int | None = None
    """The number of tasks that read rows, if it is known."""


def run_ingest(
    source: RowSource,
    table: Table,
    plan: WritePlan,
    *,
    progress: Progress | None = None,
    sources: Sequence[str] = (),
) -> IngestResult:
    """Execute the plan of an ingest; see :func:`write` and :func:`ingest.run_ingest`."""
    return ingest.run_ingest(
        table, plan, lambda: _write_rows(source, table, plan, progress), sources=sources
    )


def _write_rows(
    source: RowSource, table: Table, plan: WritePlan, progress: Progress | None
) -> list[CommitMessage]:
    clustered = cluster_by_bucket(source, plan.schema)
    results = clustered.collect(
        lambda rows: write_rows(plan, rows).encode(),
        SparkExecutor(source.frame.sparkSession),
        label=f"ingest into {table.identifier}",
        progress=progress,
        undo=partial(discard_results, table),
    )
    return [CommitMessage.decode(result) for result in results]


def preview(
    source: RowSource, table: Table, plan: WritePlan, *, progress: Progress | None = None
) -> IngestPreview:
    """Return what :func:`run_ingest` would do, without writing; raises the same errors."""
    results = _keep_unclustered(source, plan.schema).collect(
        partial(ingest.count_rows, plan),
        SparkExecutor(source.frame.sparkSession),
        label=f"ingest into {table.identifier}",
        progress=progress,
    )
    return ingest.build_preview(table, plan, results)


_MAX_UPDATE_TASKS = 1000  # a task holds the changed rows of its ranges in memory


@dataclass(frozen=True, slots=True)
class ClusteredFrame:
    """A frame in which each row is in the task that writes it."""

    frame: DataFrame
    tasks: int
    prepare: PrepareRows | None
    """Converts the rows in the task that writes them, or None if they are converted already."""

    def collect(
        self,
        run: Callable[[Iterator[pa.Table]], bytes],
        executor: SparkExecutor,
        *,
        label: str,
        progress: Progress | None = None,
        undo: Callable[[list[bytes]], None] | None = None,
    ) -> list[bytes]:
        """Run a function on the converted rows of each task, and return the results."""
        return executor.collect_results(
            lambda _: self.map(run), self.tasks, label=label, progress=progress, undo=undo
        )

    def map(self, run: Callable[[Iterator[pa.Table]], bytes]) -> DataFrame:
        """Return a frame of the results of :meth:`collect`."""
        attempts, prepare = read_task_attempts(self.frame.sparkSession), self.prepare

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            first = next(batches, None)
            if first is None:
                return
            every = chain([first], batches)
            rows = unpack_rows(every) if prepare is None else prepare(every, first_row_number())
            yield build_result_batch(current_task_number(), partial(run, rows), attempts)

        return map_in_arrow(self.frame, task, RESULT_COLUMNS)


def _keep_unclustered(source: RowSource, schema: TableSchema) -> ClusteredFrame:
    frame = cast_timestamps(source.frame, schema.fields)
    tasks = source.task_count or measure_parallelism(frame.sparkSession)
    return ClusteredFrame(frame, tasks, source.prepare)


def cluster_by_bucket(source: RowSource, schema: TableSchema) -> ClusteredFrame:
    """Move all rows of a bucket to one task; does not move rows of a table without buckets.

    With dynamic or postpone buckets, one task receives all rows of a partition and assigns them to
    buckets, so a single task writes a table without partitions. With fixed buckets and without
    partitions, the buckets are distributed evenly over the tasks.
    """
    is_assigned_by_task = has_dynamic_buckets(schema) or has_postpone_buckets(schema)
    if schema.is_bucket_unaware:
        return _keep_unclustered(source, schema)
    session = source.frame.sparkSession
    tasks = measure_parallelism(session)
    if not schema.partition_keys:
        tasks = 1 if is_assigned_by_task else min(tasks, schema.typed_options.bucket)
    rows = shuffle_rows(
        cast_timestamps(source.frame, schema.fields),
        source.prepare,
        partial(_compute_task_numbers, schema=schema),
        tasks=tasks,
        attempts=read_task_attempts(session),
    )
    return ClusteredFrame(rows, tasks, prepare=None)


def cluster_by_row_range(
    frame: DataFrame, update: ColumnUpdate, prepare: PrepareRows
) -> ClusteredFrame:
    """Move all changed rows of a range of row ids to one task."""
    tasks = min(len(update.ranges), _MAX_UPDATE_TASKS)
    rows = shuffle_rows(
        cast_timestamps(frame, update.writing.schema.fields),
        prepare,
        number_row_ranges,
        tasks=tasks,
        attempts=read_task_attempts(frame.sparkSession),
    )
    return ClusteredFrame(rows, tasks, prepare=None)


def _compute_task_numbers(rows: pa.Table, schema: TableSchema) -> Int64Array:
    """Return a number for each row: the hash of its partition, plus its bucket if it is known.

    Consecutive numbers distribute the buckets of a small partition over tasks. Any task can process
    rows without values, such as the addresses of rows to delete.
    """
    numbers = np.zeros(rows.num_rows, np.int64)
    if schema.names[0] not in rows.column_names:
        return numbers
    if BUCKET_COLUMN in rows.column_names:
        numbers += rows.column(BUCKET_COLUMN).combine_chunks().to_numpy()
    fields = schema.partition_fields
    if fields:
        columns = [rows.column(field.name).combine_chunks() for field in fields]
        numbers += hash_rows(columns, [field.type for field in fields])
    return numbers


@cache
def measure_parallelism(session: SparkSession) -> int:
    """Return the number of tasks that run in parallel: the default partitions of a range."""
    numbers = session.range(0, 1 << 20).select(fn.spark_partition_id().alias("task"))
    return numbers.distinct().count()
