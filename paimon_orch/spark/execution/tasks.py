"""Runs functions in Spark tasks: one task per unit, or on the rows of a frame.

Spark reuses Python workers, and PySpark cleans up before and after each task. Once the modules of
this package are imported, this cleanup takes 80 ms of CPU time, as much as a small task.
:func:`lighten_worker` avoids most of it.
"""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

Batches = Iterable[pa.RecordBatch]
ArrowTask = Callable[[Iterator[pa.RecordBatch]], Batches]


def map_units_in_spark(
    session: SparkSession, count: int, run: Callable[[int], Batches], schema: StructType | str
) -> DataFrame:
    """Return a frame with the batches of ``run(number)`` for ``count`` numbers, one task each."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from run(number)

    numbers = session.range(0, count, 1, max(1, count))
    return numbers.mapInArrow(build_worker_task(task, ["id"]), schema)


def map_in_arrow(frame: DataFrame, task: ArrowTask, schema: StructType | str) -> DataFrame:
    """Return ``frame.mapInArrow(task, schema)``; also supports column names with dots."""
    names = frame.columns
    numbered = frame.toDF(*map(str, range(len(names))))
    return numbered.mapInArrow(build_worker_task(task, names), schema)


def build_worker_task(
    task: ArrowTask, names: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task that names the columns, and calls :func:`lighten_worker` when it ends."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(batch.rename_columns(names) for batch in batches)
        finally:
            lighten_worker()

    return run


def lighten_worker() -> None:
    """Reduce the work of PySpark between tasks, if this process is a Python worker.

    Before each task PySpark invalidates all import finders, and up to Python 3.11 each finder for a
    folder of ``pyspark.zip`` or of a jar then reads the names of the whole archive again. Cached
    zip importers are evicted; Python recreates the ones it needs. After each task PySpark runs the
    garbage collector; the objects of loaded modules are frozen, so that it skips them.
    """
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    if started_as is not None and started_as.name == "pyspark.daemon":
        for path, finder in list(sys.path_importer_cache.items()):
            if isinstance(finder, zipimporter):
                sys.path_importer_cache.pop(path, None)
        _freeze_objects()


@cache
def _freeze_objects() -> None:
    """Freeze all objects, once per process: after the first task, most belong to modules."""
    gc.collect()
    gc.freeze()
