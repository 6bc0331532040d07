"""Tables as frames: Spark's own Parquet reader for files that hold rows as they are, our tasks for all others.

The data source ``paimon`` hands over every row as an Arrow batch from a Python worker, and turning batches into Spark's rows
alone costs what its Parquet reader costs in all. Where nothing has to be merged, hidden or converted, Spark reads
the files itself, and then prunes columns and skips row groups as it does for any Parquet file.
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
from paimon_orch.spark.datasource.input_partitions import divide_splits, pack_splits
from paimon_orch.spark.execution.tasks import map_units_in_spark
from paimon_orch.spark.row_conversion import to_spark_schema
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.file_pruner import is_file_raw_convertible
from paimon_orch.table.scan.lazy_rows import BaseScan
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_planner import BucketSplit, filter_partitions

_GLOB_CHARACTERS = frozenset("*?[]{}\\")  # in a path these are a pattern to Spark
_HIDDEN_PREFIXES = ("_", ".")  # files that begin so are passed over by Spark, in silence
_STRICT_OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}


def read(session: SparkSession, scan: BaseScan, *, native: bool | None = None) -> DataFrame:
    """Return the rows of a scan as a frame, in no order; the files are planned now and read when the frame is.

    Changes (:meth:`Table.incremental`) and the rows of system tables are read by tasks.

    Spark's own Parquet reader takes the files whose rows are rows of the table as they lie: of a scan without a filter on
    rows, no other file with the same keys, no vector, no change of the columns since, no nested or finer type than Spark
    has. All other rows come from tasks that read as ``scan`` does, through file indexes too. The types are those of
    the data source (:mod:`paimon_orch.spark.column_types`).

    :param native: whether Spark reads files itself; if not given, where they are local. In a store Spark needs that store's
        settings (``spark.hadoop.*``) of its own
    :raises InputError: if the scan has a limit or an order, which belong to the frame: ``read(...).limit(10)``
    """
    if not isinstance(scan, Scan):
        reader = PaimonReader(scan, build_visible_schema(scan.arrow_schema))
        return _read_in_tasks(session, reader, reader.partitions())
    if scan.limit is not None or scan.order:
        raise InputError(
            "a scan with a limit or an order cannot be read as a frame; use the frame's own limit() and orderBy()"
        )
    warn_of_rows_left_out(scan)
    target = build_visible_schema(scan.arrow_schema)
    schema = to_spark_schema(target)
    local = isinstance(scan.io, LocalFileIO)
    files, others = (
        separate_native_files(scan)
        if native or (native is None and local)
        else ([], _plan_pieces(scan))
    )
    parts = [BatchInputPartition(tuple(splits)) for splits in pack_splits(others, scan.schema)]
    frames = []
    if files:
        # a path without scheme lies in the file system that is the session's own, which may be HDFS
        uris = [f"file://{path}" if local else path for path in files]
        frames.append(session.read.schema(schema).options(**_STRICT_OPTIONS).parquet(*uris))
    if parts or not files:
        frames.append(
            _read_in_tasks(session, PaimonReader(scan, target), parts or [BatchInputPartition()])
        )
    return reduce(DataFrame.union, frames)


def separate_native_files(scan: Scan) -> tuple[list[str], list[BucketSplit]]:
    """Return the paths that Spark can read itself, and what is left for tasks of ours."""
    splits = _plan_pieces(scan)
    if not _can_read_natively(scan):
        return [], splits
    schemas = scan.schemas.get_all(file.schema_id for split in splits for file in split.files)
    plain = {number for number, schema in schemas.items() if _has_same_columns(scan, schema)}
    wanted = filter_partitions((s.partition for s in splits), scan.schema, scan.predicate)
    files, others = list[str](), list[BucketSplit]()
    for split in splits:
        if split.partition not in wanted:
            continue
        path = _find_raw_file(scan, split)
        if path is not None and split.files[0].schema_id in plain:
            files.append(path)
        else:
            others.append(split)
    return files, others


def _can_read_natively(scan: Scan) -> bool:
    """Tell whether rows of a file can be rows of a scan as they are."""
    schema, by_partition = scan.schema, set(scan.schema.partition_keys)
    return (
        (scan.predicate is None or collect_columns(scan.predicate) <= by_partition)
        and not scan.is_audit_log
        and not has_data_evolution(schema)
        # Java 0.9 wrote rows of such tables whose key is null among the values; ours reads it from its own column
        and not (schema.primary_keys and schema.typed_options.merge_engine == "partial-update")
        and all(is_exact(field.type) for field in scan.arrow_schema)
    )


def _has_same_columns(scan: Scan, written: TableSchema) -> bool:
    """Tell whether files of a schema hold the columns of a scan under their names and types, which Spark tells apart."""
    stored = {(field.id, field.name, field.type) for field in written.fields}
    distinct = {name.lower() for name in written.names}  # Spark knows no upper and lower case
    return len(distinct) == len(stored) and all(
        (field.id, field.name, field.type) in stored for field in scan.fields
    )


def _find_raw_file(scan: Scan, split: BucketSplit) -> str | None:
    """Return the path of the one Parquet file of a piece, if nothing hides a row of it."""
    file = split.files[0]
    if (
        len(split.files) > 1
        or split.vectors
        or not is_file_raw_convertible(split.files, file, scan.schema)
    ):
        return None
    path = scan.paths.data_file(scan.schema, split.partition, split.bucket, file)
    plain = not (_GLOB_CHARACTERS & set(path) or file.file_name.startswith(_HIDDEN_PREFIXES))
    return path if plain and path.endswith(".parquet") else None


def _plan_pieces(scan: Scan) -> list[BucketSplit]:
    return divide_splits(scan.plan(), scan)


def _read_in_tasks(
    session: SparkSession, reader: PaimonReader, parts: Sequence[InputPartition]
) -> DataFrame:
    """Return the rows of parts, one task each, which unpickles only its own."""
    pickled = [cloudpickle.dumps(part) for part in parts]

    def run(number: int) -> Iterator[pa.RecordBatch]:
        return reader.read(cloudpickle.loads(pickled[number]))

    return map_units_in_spark(session, len(parts), run, to_spark_schema(reader.target))
