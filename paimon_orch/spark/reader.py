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
from paimon_orch.format.types.predicate import columns_of
from paimon_orch.spark.column_types import is_exact, visible_schema
from paimon_orch.spark.datasource.batch_read import PaimonReader, Part, warn_of_rows_left_out
from paimon_orch.spark.datasource.input_partitions import packed, pieces
from paimon_orch.spark.execution.tasks import in_tasks
from paimon_orch.spark.row_conversion import spark_schema
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.table.scan.data_evolution import is_evolving
from paimon_orch.table.scan.file_pruner import takes_first
from paimon_orch.table.scan.lazy_rows import Rows
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_planner import BucketSplit, matching_partitions

_PATTERN = frozenset("*?[]{}\\")  # in a path these are a pattern to Spark
_HIDDEN = ("_", ".")  # files that begin so are passed over by Spark, in silence
_STRICT = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}


def read(session: SparkSession, scan: Rows, *, native: bool | None = None) -> DataFrame:
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
        reader = PaimonReader(scan, visible_schema(scan.arrow_schema))
        return _by_tasks(session, reader, reader.partitions())
    if scan.limit is not None or scan.order:
        raise InputError(
            "a scan with a limit or an order cannot be read as a frame; use the frame's own limit() and orderBy()"
        )
    warn_of_rows_left_out(scan)
    target = visible_schema(scan.arrow_schema)
    schema = spark_schema(target)
    local = isinstance(scan.io, LocalFileIO)
    files, others = divided(scan) if native or (native is None and local) else ([], _pieces(scan))
    parts = [Part(tuple(splits)) for splits in packed(others, scan.schema)]
    frames = []
    if files:
        # a path without scheme lies in the file system that is the session's own, which may be HDFS
        uris = [f"file://{path}" if local else path for path in files]
        frames.append(session.read.schema(schema).options(**_STRICT).parquet(*uris))
    if parts or not files:
        frames.append(_by_tasks(session, PaimonReader(scan, target), parts or [Part()]))
    return reduce(DataFrame.union, frames)


def divided(scan: Scan) -> tuple[list[str], list[BucketSplit]]:
    """Return the paths that Spark can read itself, and what is left for tasks of ours."""
    splits = _pieces(scan)
    if not _takes_files(scan):
        return [], splits
    schemas = scan.schemas.get_all(file.schema_id for split in splits for file in split.files)
    plain = {number for number, schema in schemas.items() if _as_they_are(scan, schema)}
    wanted = matching_partitions((s.partition for s in splits), scan.schema, scan.predicate)
    files, others = list[str](), list[BucketSplit]()
    for split in splits:
        if split.partition not in wanted:
            continue
        path = _raw_file(scan, split)
        if path is not None and split.files[0].schema_id in plain:
            files.append(path)
        else:
            others.append(split)
    return files, others


def _takes_files(scan: Scan) -> bool:
    """Tell whether rows of a file can be rows of a scan as they are."""
    schema, by_partition = scan.schema, set(scan.schema.partition_keys)
    return (
        (scan.predicate is None or columns_of(scan.predicate) <= by_partition)
        and not scan.audit
        and not is_evolving(schema)
        # Java 0.9 wrote rows of such tables whose key is null among the values; ours reads it from its own column
        and not (schema.primary_keys and schema.typed_options.merge_engine == "partial-update")
        and all(is_exact(field.type) for field in scan.arrow_schema)
    )


def _as_they_are(scan: Scan, written: TableSchema) -> bool:
    """Tell whether files of a schema hold the columns of a scan under their names and types, which Spark tells apart."""
    stored = {(field.id, field.name, field.type) for field in written.fields}
    distinct = {name.lower() for name in written.names}  # Spark knows no upper and lower case
    return len(distinct) == len(stored) and all(
        (field.id, field.name, field.type) in stored for field in scan.fields
    )


def _raw_file(scan: Scan, split: BucketSplit) -> str | None:
    """Return the path of the one Parquet file of a piece, if nothing hides a row of it."""
    file = split.files[0]
    if len(split.files) > 1 or split.vectors or not takes_first(split.files, file, scan.schema):
        return None
    path = scan.paths.data_file(scan.schema, split.partition, split.bucket, file)
    plain = not (_PATTERN & set(path) or file.file_name.startswith(_HIDDEN))
    return path if plain and path.endswith(".parquet") else None


def _pieces(scan: Scan) -> list[BucketSplit]:
    return [piece for split in scan.plan() for piece in pieces(split, scan)]


def _by_tasks(
    session: SparkSession, reader: PaimonReader, parts: Sequence[InputPartition]
) -> DataFrame:
    """Return the rows of parts, one task each, which unpickles only its own."""
    pickled = [cloudpickle.dumps(part) for part in parts]

    def run(number: int) -> Iterator[pa.RecordBatch]:
        return reader.read(cloudpickle.loads(pickled[number]))

    return in_tasks(session, len(parts), run, spark_schema(reader.target))
