"""Rows on their way to the task that writes them, as Arrow batches inside binary rows.

Spark turns its rows into Arrow once, before the shuffle instead of behind it. What it moves are few and large rows, which
say nothing but the task they are for, and the columns that decide this pass through no Python function of their own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from paimon_orch.format.arrays import Int32Array, Int64Array
from paimon_orch.format.schema import SEQUENCE_NUMBER
from paimon_orch.spark.execution.tasks import map_in_arrow

_TASK_COLUMN = "task"
_SHUFFLE_SCHEMA = f"{_TASK_COLUMN} INT, rows BINARY"
_MAX_BATCH_ROWS, _MAX_BATCH_BYTES = 65_536, 32 << 20  # of what is cut by tasks at once
_MAX_PIECES = 64  # for many numbers the rows of a task stay together: small batches cost more than cutting them later
TASK_SHIFT_BITS = 33
"""By so many bits the numbers of a task's rows are moved on, as by Spark's ``monotonically_increasing_id``."""


def current_task_number() -> int:
    """Return the number of the Spark task that runs this; 0 outside of one."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def shuffle_by_bucket(
    frame: DataFrame,
    number_of: Callable[[pa.RecordBatch], Int64Array],
    tasks: int,
    *,
    numbered: bool = False,
) -> DataFrame:
    """Return a frame whose task ``i`` of so many has, in its binary rows, the rows with number ``i``, ``i + tasks`` and so on.

    Rows of one number come in batches of their own, if there are few numbers.
    ``numbered`` adds ``_SEQUENCE_NUMBER``, the order of the rows in the frame.
    """
    addresses = np.array(_find_hash_preimages(frame.sparkSession, tasks), np.int32)

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = _combine_batches(batches)
        for rows in add_sequence_numbers(gathered) if numbered else gathered:
            yield _pack_pieces(rows, number_of(rows), addresses)

    return map_in_arrow(frame, pack, _SHUFFLE_SCHEMA).repartition(tasks, _TASK_COLUMN)


def add_sequence_numbers(
    batches: Iterable[pa.RecordBatch], task_shift: int = TASK_SHIFT_BITS
) -> Iterator[pa.RecordBatch]:
    """Add ``_SEQUENCE_NUMBER`` to the rows of a task: their order in the frame, if no task has 2 ** ``task_shift``."""
    position = current_task_number() << task_shift
    for rows in batches:
        order = pa.array(np.arange(position, position + rows.num_rows))
        position += rows.num_rows
        yield rows.append_column(SEQUENCE_NUMBER.name, order)


def unpack_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that binary rows hold."""
    for batch in batches:
        for piece in batch.column(1):
            with pa.ipc.open_stream(piece.as_buffer()) as rows:
                yield from rows


def _combine_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches, so that not too few rows are for each task."""
    held, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MAX_BATCH_ROWS or size >= _MAX_BATCH_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, rows, size = [], 0, 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _pack_pieces(
    rows: pa.RecordBatch, numbers: Int64Array, addresses: Int32Array
) -> pa.RecordBatch:
    """Cut rows: a stream of Arrow for each number, or each task, behind the value that Spark sends to the task."""
    tasks, low = len(addresses), int(numbers.min())
    codes = numbers - low
    if codes.max() >= _MAX_PIECES:
        codes, low = numbers % tasks, 0
    counts = np.bincount(codes)
    found = np.flatnonzero(counts)
    if len(found) > 1:
        # numpy sorts short integers by counting
        short = codes.astype(np.min_scalar_type(codes.max()))
        rows = rows.take(pa.array(np.argsort(short, kind="stable")))
    sink, ends, start = pa.BufferOutputStream(), [0], 0
    for count in counts[found].tolist():
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows.slice(start, count))
        ends.append(sink.tell())
        start += count
    buffers = [None, pa.py_buffer(np.array(ends, np.int32)), sink.getvalue()]
    streams = pa.Array.from_buffers(pa.binary(), len(found), buffers)
    owners = pa.array(addresses[(found + low) % tasks])
    return pa.RecordBatch.from_arrays([owners, streams], [_TASK_COLUMN, "rows"])


@cache
def _find_hash_preimages(session: SparkSession, tasks: int) -> Sequence[int]:
    """Return one int for each task that ``repartition(tasks, column)`` sends there."""
    numbers = session.range(0, 40 * tasks + 100).select(fn.col("id").cast("int").alias("value"))
    placed = numbers.select("value", fn.pmod(fn.hash("value"), fn.lit(tasks)).alias("task"))
    found = placed.groupBy("task").agg(fn.min("value").alias("value")).toArrow().sort_by("task")
    return tuple(found.column("value").to_pylist())
