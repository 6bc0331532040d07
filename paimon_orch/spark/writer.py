"""DataFrame to table: rows go to the task of their bucket and are sorted there, not in the JVM.

Placement is exact: no two buckets of a table without partitions meet in one task while another has none.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from paimon_orch.errors import InputError
from paimon_orch.files.schema_evolution.default_values import fill_default
from paimon_orch.files.schema_evolution.evolve import convert_to_arrow_type
from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.bucket.bucket_function import hash_rows
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.spark.execution.spark_executor import (
    RESULT_COLUMNS,
    SparkExecutor,
    build_result_batch,
    read_task_attempts,
)
from paimon_orch.spark.execution.tasks import map_in_arrow
from paimon_orch.spark.row_conversion import cast_timestamps
from paimon_orch.spark.shuffle import current_task_number, shuffle_by_bucket, unpack_rows
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.common.retry import discard_results
from paimon_orch.steps.ingest import IngestPreview, IngestResult, WriteMode
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.partition_spec import PartitionSpec
from paimon_orch.table.table import Table
from paimon_orch.table.write.dynamic_bucket import has_dynamic_buckets
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets
from paimon_orch.table.write.table_write import assign_fixed_buckets
from paimon_orch.table.write.write_builder import WriteBuilder


def write(
    frame: DataFrame,
    table: Table,
    *,
    mode: WriteMode = "append",
    row_kind: str | None = None,
    partitions: PartitionSpec | None = None,
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
    committed = WriteBuilder(table.stores, commit_id=commit_id).find_committed()
    if committed is not None:
        return IngestResult(
            snapshot_id=committed.id,
            rows=0,
            files=0,
            bytes=0,
            duration_seconds=time.monotonic() - started,
        )
    clustered = cluster_by_bucket(frame, planned.factory.schema)
    results = SparkExecutor(frame.sparkSession).collect_results(
        lambda _: clustered.written(planned.write),
        clustered.tasks,
        label=f"ingest into {table.identifier}",
        progress=progress,
        undo=partial(discard_results, table),
    )
    return ingest.commit(table, planned, results, time.monotonic() - started)


def preview(
    frame: DataFrame,
    table: Table,
    *,
    mode: WriteMode = "append",
    row_kind: str | None = None,
    partitions: PartitionSpec | None = None,
    progress: Progress | None = None,
) -> IngestPreview:
    """Return what :func:`write` would do; raises the same errors for the rows, and writes nothing."""
    planned = ingest.plan(table, frame.columns, mode=mode, row_kind=row_kind, partitions=partitions)
    frame = cast_timestamps(frame, planned.factory.schema.fields)
    tasks = _measure_parallelism(frame.sparkSession)
    results = SparkExecutor(frame.sparkSession).collect_results(
        lambda _: ClusteredFrame(frame, tasks, packed=False).written(planned.preview_rows),
        tasks,
        label=f"ingest into {table.identifier}",
        progress=progress,
    )
    return ingest.build_preview(table, planned, results)


@dataclass(frozen=True, slots=True)
class ClusteredFrame:
    """A frame whose rows are, or are packed up, in the task that writes them."""

    frame: DataFrame
    tasks: int
    packed: bool

    def written(self, write: Callable[[Iterator[pa.RecordBatch]], bytes]) -> DataFrame:
        """Return a frame that writes: what ``write`` makes of the rows of each task that has some."""
        attempts, is_packed = read_task_attempts(self.frame.sparkSession), self.packed

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = unpack_rows(batches) if is_packed else iter(batches)
            first = next(rows, None)
            if first is not None:
                every = chain([first], rows)
                yield build_result_batch(current_task_number(), lambda: write(every), attempts)

        return map_in_arrow(self.frame, task, RESULT_COLUMNS)


def cluster_by_bucket(frame: DataFrame, schema: TableSchema) -> ClusteredFrame:
    """Bring all rows of a bucket into one task.

    With dynamic or postpone buckets all rows of a partition are in one task, which assigns them: a table without
    partitions is written by a single task. Primary-key tables also get ``_SEQUENCE_NUMBER``, the order of the rows before
    the shuffle. Tables whose rows may go anywhere are left as they are.
    """
    count = schema.typed_options.bucket
    dynamic = has_dynamic_buckets(schema) or has_postpone_buckets(schema)
    tasks = _measure_parallelism(frame.sparkSession)
    frame = cast_timestamps(frame, schema.fields)
    if not schema.primary_keys and count < 1:
        return ClusteredFrame(frame, tasks, packed=False)
    if not schema.partition_keys:
        tasks = 1 if dynamic else min(tasks, count)
    number_of = partial(_compute_bucket_numbers, schema=schema, by_bucket=not dynamic)
    rows = shuffle_by_bucket(frame, number_of, tasks, numbered=bool(schema.primary_keys))
    return ClusteredFrame(rows, tasks, packed=True)


def _compute_bucket_numbers(
    rows: pa.RecordBatch, schema: TableSchema, *, by_bucket: bool
) -> Int64Array:
    """Return a number for each row by its partition, and one for each bucket of it: small partitions spread over tasks."""
    numbers = np.zeros(rows.num_rows, np.int64)
    partition, bucket = schema.partition_fields, schema.bucket_key_fields if by_bucket else []
    try:
        typed = {
            field.name: fill_default(
                convert_to_arrow_type(rows.column(field.name), to_arrow_type(field.type)), field
            )
            for field in (*partition, *bucket)
        }
        if bucket:
            numbers = numbers + assign_fixed_buckets(typed, schema)
        if partition:
            columns = [typed[field.name] for field in partition]
            numbers = numbers + hash_rows(columns, [field.type for field in partition])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InputError):
        # any task will do: the one that is to store the value says what is wrong with it
        return np.zeros(rows.num_rows, np.int64)
    return numbers


@cache
def _measure_parallelism(session: SparkSession) -> int:
    """Return how many tasks run at once: as many as a range is cut into when nobody says."""
    numbers = session.range(0, 1 << 20).select(fn.spark_partition_id().alias("task"))
    return numbers.distinct().count()
