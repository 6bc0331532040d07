"""Functions of ours in Spark's tasks: a task for each of some units, or for the rows of a frame."""

import sys
from collections.abc import Callable, Iterable, Iterator
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

Batches = Iterable[pa.RecordBatch]
ArrowTask = Callable[[Iterator[pa.RecordBatch]], Batches]


def in_tasks(
    session: SparkSession, count: int, run: Callable[[int], Batches], schema: StructType | str
) -> DataFrame:
    """Return as a frame what ``run`` yields for each number below ``count``, a Spark task each."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from run(number)

    numbers = session.range(0, count, 1, max(1, count))
    return numbers.mapInArrow(without_archives(task), schema)


def in_arrow(frame: DataFrame, task: ArrowTask, schema: StructType | str) -> DataFrame:
    """Return ``frame.mapInArrow(task, schema)``, whatever the columns are called: Spark takes a name with a dot apart."""
    names = frame.columns

    def named(batches: Iterator[pa.RecordBatch]) -> Batches:
        return task(batch.rename_columns(names) for batch in batches)

    numbered = frame.toDF(*map(str, range(len(names))))
    return numbered.mapInArrow(without_archives(named), schema)


def without_archives(
    task: ArrowTask,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task that calls :func:`forget_archives` in the end."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(batches)
        finally:
            forget_archives()

    return run


def forget_archives() -> None:
    """Forget who finds modules in archives; Python makes the few finders anew that it asks again.

    Before each task PySpark has all finders look again, and up to Python 3.11 each of those for a folder of ``pyspark.zip``
    and of the jar beside it reads the names of the whole archive: 40 ms a task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)
