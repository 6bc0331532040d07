"""Sends rows to the tasks that write them, as Arrow streams in binary rows.

Rows are converted to the table's types before the shuffle. So Spark moves few and large rows; each
has the number of its task, and an Arrow stream or the error of the task that read the rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from paimon_orch.format.arrays import Int32Array, Int64Array
from paimon_orch.spark.execution.spark_executor import is_retryable
from paimon_orch.spark.execution.tasks import map_in_arrow
from paimon_orch.steps.common.unit_outcome import decode_error, encode_error

PrepareRows = Callable[[Iterable[pa.RecordBatch], int], Iterator[pa.Table]]
"""Converts the rows of a task, given the number of its first row."""

_TASK_COLUMN = "task"
_SHUFFLE_COLUMNS = f"{_TASK_COLUMN} INT, rows BINARY, error STRING"
_SHUFFLE_SCHEMA = pa.schema({_TASK_COLUMN: pa.int32(), "rows": pa.binary(), "error": pa.string()})
_MAX_BATCH_ROWS, _MAX_BATCH_BYTES = 65_536, 32 << 20  # limits of one combined batch
# A batch is split by number if it has at most this many numbers. Otherwise it is split by task,
# because many small pieces are too expensive.
_MAX_PIECES = 64
TASK_SHIFT_BITS = 33
"""Rows are numbered from ``task number << 33``, as in Spark's ``monotonically_increasing_id``."""


def current_task_number() -> int:
    """Return the number of the running Spark task, or 0 outside of a task."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def first_row_number(task_shift: int = TASK_SHIFT_BITS) -> int:
    """Return the number of this task's first row, for tasks of up to 2 ** ``task_shift`` rows."""
    return current_task_number() << task_shift


def shuffle_rows(
    frame: DataFrame,
    prepare: PrepareRows,
    number_of: Callable[[pa.Table], Int64Array],
    *,
    tasks: int,
    attempts: int,
) -> DataFrame:
    """Return a frame whose task ``i`` has the converted rows with number ``i`` modulo ``tasks``.

    If there are few numbers, each batch has only rows with the same number. :func:`unpack_rows`
    returns the rows, or raises the error of a task that prepared them.
    """
    addresses = np.array(_find_hash_preimages(frame.sparkSession, tasks), np.int32)

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for rows in prepare(_combine_batches(batches), first_row_number()):
                if rows.num_rows:
                    yield _pack_pieces(rows, number_of(rows), addresses)
        except Exception as error:
            if is_retryable(error, attempts):
                raise
            row = {_TASK_COLUMN: int(addresses[0]), "error": encode_error(error)}
            yield pa.RecordBatch.from_pylist([row], schema=_SHUFFLE_SCHEMA)

    return map_in_arrow(frame, pack, _SHUFFLE_COLUMNS).repartition(tasks, _TASK_COLUMN)


def unpack_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Decode the tables that the packed batches contain; raise the errors that they contain."""
    for batch in batches:
        for piece, error in zip(batch.column("rows"), batch.column("error"), strict=True):
            if error.is_valid:
                raise decode_error(error.as_py())
            with pa.ipc.open_stream(piece.as_buffer()) as stream:
                yield stream.read_all()


def _combine_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine small batches, so that each task receives enough rows of each batch."""
    pending, row_count, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        pending.append(batch)
        row_count, size = row_count + batch.num_rows, size + batch.nbytes
        if row_count >= _MAX_BATCH_ROWS or size >= _MAX_BATCH_BYTES:
            yield from pa.Table.from_batches(pending).combine_chunks().to_batches()
            pending, row_count, size = [], 0, 0
    if pending:
        yield from pa.Table.from_batches(pending).combine_chunks().to_batches()


def _pack_pieces(rows: pa.Table, numbers: Int64Array, addresses: Int32Array) -> pa.RecordBatch:
    """Return an Arrow stream for each number or task, with the hash value of the task."""
    tasks, lowest = len(addresses), int(numbers.min())
    codes = numbers - lowest
    if codes.max() >= _MAX_PIECES:
        codes, lowest = numbers % tasks, 0
    counts = np.bincount(codes)
    pieces = np.flatnonzero(counts)
    if len(pieces) > 1:
        # numpy sorts integers of up to 16 bits by radix, which is faster
        short = codes.astype(np.min_scalar_type(codes.max()))
        rows = rows.take(pa.array(np.argsort(short, kind="stable")))
    streams = _write_streams(rows, counts[pieces].tolist())
    owners = pa.array(addresses[(pieces + lowest) % tasks])
    no_errors = pa.nulls(len(pieces), pa.string())
    return pa.RecordBatch.from_arrays([owners, streams, no_errors], schema=_SHUFFLE_SCHEMA)


def _write_streams(rows: pa.Table, counts: Sequence[int]) -> pa.Array:
    """Split rows into consecutive pieces of ``counts`` rows; encode each as an Arrow stream."""
    sink, ends, start = pa.BufferOutputStream(), [0], 0
    for count in counts:
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows.slice(start, count))
        ends.append(sink.tell())
        start += count
    buffers = [None, pa.py_buffer(np.array(ends, np.int32)), sink.getvalue()]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers)


@cache
def _find_hash_preimages(session: SparkSession, tasks: int) -> Sequence[int]:
    """Return, for each task, an integer that ``repartition(tasks, column)`` sends to it."""
    numbers = session.range(0, 40 * tasks + 100).select(fn.col("id").cast("int").alias("value"))
    placed = numbers.select("value", fn.pmod(fn.hash("value"), fn.lit(tasks)).alias("task"))
    preimages = placed.groupBy("task").agg(fn.min("value").alias("value"))
    return tuple(preimages.toArrow().sort_by("task").column("value").to_pylist())
