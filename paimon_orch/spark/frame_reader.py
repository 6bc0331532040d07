"""Reads tables as frames: Spark's Parquet reader reads raw-convertible files, our tasks all others.

The data source ``paimon`` passes all rows as Arrow batches from Python workers, and the conversion
of these batches takes as long as Spark's Parquet reader. So Spark reads files without rows to
merge, delete or convert, and prunes their columns and row groups as for any Parquet file.
"""

from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.predicate import collect_columns
from paimon_orch.spark.column_types import build_visible_schema, is_exact
from paimon_orch.spark.datasource.batch_read import (
    BatchInputPartition,
    PaimonReader,
    warn_of_rows_left_out,
)
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.spark.row_conversion import to_spark_schema
from paimon_orch.table.scan.base_scan import BaseScan
from paimon_orch.table.scan.bucket_split import BucketSplit, is_file_raw_convertible
from paimon_orch.table.scan.data_evolution import has_data_evolution
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
    """Return the rows of a scan as a frame, without order; this call plans the files.

    Spark's Parquet reader reads a file if its rows are rows of the table: the scan has no filter on
    rows, no other file has the same keys, the file has no deletion vector, the columns have not
    changed after it was written, and Spark supports their types. Tasks read all other files,
    changes (:meth:`Table.incremental`) and system tables. The types are those of the data source
    (:mod:`paimon_orch.spark.column_types`).

    :param native: whether Spark's Parquet reader may be used; by default only for local files. For
        an object store, Spark needs separate settings (``spark.hadoop.*``)
    :raises InputError: if the scan has a limit or an order; use the frame's methods instead
    """
    if not isinstance(scan, Scan):
        reader = PaimonReader(scan, build_visible_schema(scan.arrow_schema))
        return _read_in_tasks(session, reader, reader.partitions())
    if scan.limit is not None or scan.order:
        raise InputError(
            "a scan with a limit or an order cannot be read as a frame; use the frame's own "
            "limit() and orderBy()"
        )
    warn_of_rows_left_out(scan)
    target = build_visible_schema(scan.arrow_schema)
    schema = to_spark_schema(target)
    is_local = scan.io.capabilities.is_local
    if is_local if native is None else native:
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
    schemas = scan.schemas.get_all(file.schema_id for split in own_splits for file in split.files)
    same_ids = {number for number, schema in schemas.items() if _has_same_columns(scan, schema)}
    partitions = filter_partitions((s.partition for s in splits), scan.schema, scan.predicate)
    files, other_splits = list[str](), list[BucketSplit]()
    for split in splits:
        if split.partition not in partitions:
            continue
        # files of other branches have other schemas
        path = None if split.is_fallback else _find_raw_file(scan, split)
        if path is not None and split.files[0].schema_id in same_ids:
            scan.io.check_readable(path)  # Spark opens it
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
        # Java Paimon 0.9 wrote null instead of the key into the value columns of such tables, and
        # Spark would read the value columns
        and not (schema.primary_keys and schema.typed_options.merge_engine == "partial-update")
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
    path = scan.paths.data_file(scan.schema, split.partition, split.bucket, file)
    is_misread = _GLOB_CHARACTERS & set(path) or file.file_name.startswith(_HIDDEN_PREFIXES)
    return path if path.endswith(".parquet") and not is_misread else None


def _plan_parts(scan: Scan) -> list[BucketSplit]:
    return divide_splits(scan.plan(), scan)


def _read_in_tasks(
    session: SparkSession, reader: PaimonReader, parts: Sequence[InputPartition]
) -> DataFrame:
    """Return the rows of parts, one task each, which unpickles only its part."""
    pickled = [cloudpickle.dumps(part) for part in parts]

    def run(number: int) -> Iterator[pa.RecordBatch]:
        return reader.read(cloudpickle.loads(pickled[number]))

    return map_units_in_spark(session, len(parts), run, to_spark_schema(reader.target))
