"""Reads tables as frames: Spark's Parquet reader reads raw-convertible files, our tasks all others.

The data source ``paimon`` passes all rows as Arrow batches from Python workers, and the conversion
of these batches takes as long as Spark's Parquet reader. So Spark reads files without rows to
merge, delete or convert, and prunes their columns and row groups as for any Parquet file.
"""

from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.functions import col

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.predicate import collect_columns
from paimon_orch.spark.column_types import build_visible_schema, is_exact
from paimon_orch.spark.datasource.batch_read import (
    BatchInputPartition,
    PaimonReader,
    warn_of_rows_left_out,
)
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.spark.row_conversion import quote_column, to_spark_schema
from paimon_orch.table.scan.base_scan import BaseScan
from paimon_orch.table.scan.bucket_split import BucketSplit, is_file_raw_convertible
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.order_by import SortKey
from paimon_orch.table.scan.partition_pruner import filter_partitions
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.split_generator import divide_splits, pack_splits

_GLOB_CHARACTERS = frozenset("*?[]{}\\")  # in a path, Spark interprets them as a pattern
_HIDDEN_PREFIXES = ("_", ".")  # Spark silently ignores files with these prefixes
_STRICT_OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}


def read(session: SparkSession, scan: BaseScan, *, native: bool | None = None) -> DataFrame:
    """Return the rows of a scan as a frame, in the order of the scan; this call plans the files.

    Spark's Parquet reader reads a file if its rows are rows of the table: the scan has no filter on
    rows, no other file has the same keys, the file has no deletion vector, the columns have not
    changed after it was written, and Spark supports their types. Tasks read all other files,
    changes (:meth:`Table.incremental`) and system tables. The types are those of the data source
    (:mod:`paimon_orch.spark.column_types`).

    If the scan has a limit, tasks read the files, and of each file only the rows that may be among
    the first ones, as far as range bitmaps and statistics tell; then Spark sorts these and returns
    the first.

    :param native: whether Spark's Parquet reader may be used; by default only for local files. For
        an object store, Spark needs separate settings (``spark.hadoop.*``)
    :raises UnsupportedError: if the order has a column that Spark does not represent exactly
    """
    if not isinstance(scan, Scan):
        reader = PaimonReader(scan, build_visible_schema(scan.arrow_schema))
        return _read_in_tasks(session, reader, reader.partitions())
    if scan.order:
        _check_order(scan)
        frame = _read_files(session, scan.with_sort_columns(), native=native)
        frame = frame.orderBy(*map(_build_sort_column, scan.order))
    else:
        frame = _read_files(session, scan, native=native)
    if scan.limit is not None:
        frame = frame.limit(scan.limit)
    return frame.select(*map(quote_column, scan.arrow_schema.names)) if scan.order else frame


def _check_order(scan: Scan) -> None:
    """Raise :class:`UnsupportedError` if Spark does not have the order of the scan."""
    for key in scan.order:
        field = scan.with_sort_columns().arrow_schema.field(key.column)
        if not is_exact(field.type):
            raise UnsupportedError(
                f"{scan.state.identifier}: Spark does not represent the values of column "
                f"{key.column!r} ({field.type}) exactly, so it cannot sort by them; read the scan with to_arrow()"
            )


def _build_sort_column(key: SortKey) -> Column:
    name = col(quote_column(key.column))
    if key.descending:
        return name.desc_nulls_first() if key.nulls_first else name.desc_nulls_last()
    return name.asc_nulls_first() if key.nulls_first else name.asc_nulls_last()


def _read_files(session: SparkSession, scan: Scan, *, native: bool | None) -> DataFrame:
    warn_of_rows_left_out(scan)
    target = build_visible_schema(scan.arrow_schema)
    schema = to_spark_schema(target)
    is_local = scan.state.io.capabilities.is_local
    is_native = scan.limit is None and (is_local if native is None else native)
    if is_native:
        files, splits = separate_native_files(scan)
    else:
        files, splits = [], _plan_parts(scan)
    parts = [BatchInputPartition(tuple(packed)) for packed in pack_splits(splits, scan.schema)]
    frames = []
    if files:
        # a path without a scheme is in the session's default file system, which may be HDFS
        uris = [f"file://{path}" if is_local else path for path in files]
        frames.append(session.read.schema(schema).options(**_STRICT_OPTIONS).parquet(*uris))
    if parts or not files:
        frames.append(
            _read_in_tasks(session, PaimonReader(scan, target), parts or [BatchInputPartition()])
        )
    return reduce(DataFrame.union, frames)


def separate_native_files(scan: Scan) -> tuple[list[str], list[BucketSplit]]:
    """Return the paths of files for Spark's Parquet reader, and the other parts of the scan."""
    splits = _plan_parts(scan)
    if not _can_read_natively(scan):
        return [], splits
    own_splits = [split for split in splits if not split.is_fallback]
    schemas = scan.state.schemas.get_all(
        file.schema_id for split in own_splits for file in split.files
    )
    same_ids = {number for number, schema in schemas.items() if _has_same_columns(scan, schema)}
    partitions = filter_partitions((s.partition for s in splits), scan.schema, scan.predicate)
    files, other_splits = list[str](), list[BucketSplit]()
    for split in splits:
        if split.partition not in partitions:
            continue
        # files of other branches have other schemas
        path = None if split.is_fallback else _find_raw_file(scan, split)
        if path is not None and split.files[0].schema_id in same_ids:
            scan.state.io.check_readable(path)  # Spark opens it
            files.append(path)
        else:
            other_splits.append(split)
    return files, other_splits


def _can_read_natively(scan: Scan) -> bool:
    """Return whether files can have the rows of the scan without conversion."""
    schema, partition_keys = scan.schema, set(scan.schema.partition_keys)
    return (
        (scan.predicate is None or collect_columns(scan.predicate) <= partition_keys)
        and not scan.is_audit_log
        and not has_data_evolution(schema)
        and not schema.keys_with_null_values  # Spark would read the value columns
        and all(is_exact(field.type) for field in scan.arrow_schema)
    )


def _has_same_columns(scan: Scan, written: TableSchema) -> bool:
    """Return whether a schema has the columns of a scan with the same names and types."""
    written_fields = {(field.id, field.name, field.type) for field in written.fields}
    distinct_names = {name.lower() for name in written.names}  # Spark ignores the case of names
    return len(distinct_names) == len(written_fields) and all(
        (field.id, field.name, field.type) in written_fields for field in scan.fields
    )


def _find_raw_file(scan: Scan, split: BucketSplit) -> str | None:
    """Return the path of a Parquet file that is not merged and has no deletion vector."""
    file = split.files[0]
    if (
        len(split.files) > 1
        or split.vectors
        or not is_file_raw_convertible(split.files, file, scan.schema)
    ):
        return None
    path = scan.state.paths.data_file(scan.schema, split.partition, split.bucket, file)
    is_misread = _GLOB_CHARACTERS & set(path) or file.file_name.startswith(_HIDDEN_PREFIXES)
    return path if path.endswith(".parquet") and not is_misread else None


def _plan_parts(scan: Scan) -> list[BucketSplit]:
    return divide_splits(scan.plan_first(), scan)


def _read_in_tasks(
    session: SparkSession, reader: PaimonReader, parts: Sequence[InputPartition]
) -> DataFrame:
    """Return the rows of parts, one task each, which unpickles only its part."""
    pickled = [cloudpickle.dumps(part) for part in parts]

    def run(number: int) -> Iterator[pa.RecordBatch]:
        return reader.read(cloudpickle.loads(pickled[number]))

    return map_units_in_spark(session, len(parts), run, to_spark_schema(reader.target))
