"""Functions of ours in Spark's tasks: a task for each of some units, or for the rows of a frame.

Python workers live on from task to task, and before and after each PySpark cleans up: 80 ms of
processor time where our modules are loaded, as long as a small task takes. :func:`lighten_worker`
leaves it little to do.
"""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
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
    """Return as a frame what ``run`` yields for each number below ``count``, a Spark task each."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from run(number)

    numbers = session.range(0, count, 1, max(1, count))
    return numbers.mapInArrow(lighten_worker_after(task), schema)


def map_in_arrow(frame: DataFrame, task: ArrowTask, schema: StructType | str) -> DataFrame:
    """Return ``frame.mapInArrow(task, schema)``, whatever the columns are called: Spark takes a name with a dot apart."""
    names = frame.columns

    def named(batches: Iterator[pa.RecordBatch]) -> Batches:
        return task(batch.rename_columns(names) for batch in batches)

    numbered = frame.toDF(*map(str, range(len(names))))
    return numbered.mapInArrow(lighten_worker_after(named), schema)


def lighten_worker_after(
    task: ArrowTask,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task that calls :func:`lighten_worker` in the end."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(batches)
        finally:
            lighten_worker()

    return run


def lighten_worker() -> None:
    """Spare this process what PySpark does between tasks, or plans, if it is one of its workers.

    Before each task all finders of modules look again, and up to Python 3.11 each of those for a
    folder of ``pyspark.zip`` and of the jar beside it reads the names of the whole archive. They
    are forgotten; Python makes those anew that it asks. After each task all objects are looked
    through for garbage: those of the modules are taken out of it.
    """
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    if started_as is not None and started_as.name == "pyspark.daemon":
        _evict_zip_importers()
        _freeze_objects()


def _evict_zip_importers() -> None:
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)


@cache
def _freeze_objects() -> None:
    """Once is enough: what the first task leaves are modules, and little else."""
    gc.collect()
    gc.freeze()
