"""Reads Parquet files in the tasks of an ingest, without rows of the JVM.

Spark decodes a file into rows, and converts these to Arrow batches. That is a third of the CPU time
of an ingest, so tasks read local files with Arrow instead.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from paimon_orch.spark.frame_writer import RowSource, measure_parallelism
from paimon_orch.steps.parquet_parts import read_part, split_parquet_files
from paimon_orch.table.write.write_plan import WritePlan


def can_read_local_files(session: SparkSession) -> bool:
    """Return whether the tasks of a session run on this machine, and can read its files."""
    return not is_remote() and str(session.sparkContext.master).startswith("local")


def open_parquet_files(session: SparkSession, paths: Sequence[str], plan: WritePlan) -> RowSource:
    """Return the rows of local files, which :func:`read_input_files` accepts.

    Each task reads a part of the files. Rows are numbered in the order of the paths and the files,
    so the last row of a key wins.
    """
    parts = split_parquet_files(paths, measure_parallelism(session))

    def prepare(batches: Iterable[pa.RecordBatch], first_row: int) -> Iterator[pa.Table]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        return plan.prepare((rows for n in numbers for rows in read_part(parts[n])), first_row)

    # one row and one task for each part
    return RowSource(session.range(0, len(parts), 1, max(1, len(parts))), prepare, len(parts))
