"""``spark.read.format("paimon")``: a scan of a table that Python workers plan and read.

Spark finds and calls :mod:`pyspark_paimon`, which imports this module on first use.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from paimon_orch.errors import NotFoundError
from paimon_orch.format.types.predicate import And
from paimon_orch.safe_text import get_logger
from paimon_orch.spark.column_types import build_target_schema, build_visible_schema, convert_batch
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.spark.datasource.filters import to_predicate
from paimon_orch.spark.datasource.option_names import READ_OPTIONS, STREAM_READ_OPTIONS
from paimon_orch.spark.datasource.session_settings import (
    NO_PLANNED_SETTINGS,
    PlannedSettings,
    list_renamed,
    match_columns,
)
from paimon_orch.spark.datasource.version_options import build_rows, check_scan_mode, is_incremental
from paimon_orch.spark.datasource.worker_errors import hide_traceback
from paimon_orch.spark.execution.tasks import lighten_worker
from paimon_orch.spark.row_conversion import to_spark_schema
from paimon_orch.table.scan.base_scan import ROW_KIND, BaseScan
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.incremental_scan import IncrementalScan
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.split_generator import divide_splits, pack_splits
from paimon_orch.table.scan.unseen_rows import Visibility, describe_unseen_rows_in_scan

if TYPE_CHECKING:  # Spark 4.0 does not have this class
    from pyspark.sql.datasource import Filter

logger = get_logger(__name__)

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def read_source_schema(spark_options: Mapping[str, str]) -> StructType:
    """Return the columns of the table, for the options of a read or a stream."""
    options = DataSourceOptions.of(spark_options, READ_OPTIONS | STREAM_READ_OPTIONS)
    try:
        rows, names = _open_rows(options, options.columns())
    except NotFoundError:
        # a stream can start at a snapshot that does not exist yet, and a batch read fails later
        if options.spell("snapshot") == "snapshot" and options.spell("timestamp") == "timestamp":
            raise
        table = options.open()
        rows, names = table.scan(), options.columns() or table.scan().arrow_schema.names
    lighten_worker()
    # A read of changes always includes the row kind.
    if isinstance(rows, IncrementalScan) and ROW_KIND.name not in names:
        names = [ROW_KIND.name, *names]
    columns = pa.schema([rows.arrow_schema.field(name) for name in names])
    return to_spark_schema(build_visible_schema(columns))


def _open_rows(
    options: DataSourceOptions, columns: Sequence[str] | None
) -> tuple[BaseScan, list[str]]:
    """Return a scan of columns, and their names in the table."""
    if columns is None:
        rows = build_rows(options, None)
        return rows, rows.arrow_schema.names
    names = list(columns)
    try:
        return build_rows(options, _exclude_row_kind(names, options)), names
    except NotFoundError:
        matched = match_columns(names, build_rows(options, None).arrow_schema.names)
        if matched == names:
            raise
        return build_rows(options, _exclude_row_kind(matched, options)), matched


def _exclude_row_kind(names: list[str], options: DataSourceOptions) -> list[str] | None:
    """Return the columns of the table; the row kind of changes is not one of them.

    If no other column is requested, all columns are read.
    """
    if not is_incremental(options):
        return names
    return [name for name in names if name != ROW_KIND.name] or None


def build_reader(spark_options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return a reader of columns; with the option ``pushdown``, it accepts filters.

    Push-down is off by default: Spark 4.1 to 4.3 reuses the rows of a frame or view for queries
    with other filters, so that rows would be missing.
    """
    options = DataSourceOptions.of(spark_options, READ_OPTIONS)
    check_scan_mode(options)
    rows, names = _open_rows(options, schema.names)
    target = build_target_schema(rows.arrow_schema, schema, names)
    settings = PlannedSettings(list_renamed(schema.names, names), options.session_local_time)
    accepts_filters = options.flag("pushdown", default=False) and _is_pushdown_worker()
    return (PushdownReader if accepts_filters else SourceReader)(rows, target, names, settings)


def _is_pushdown_worker() -> bool:
    """Return whether this process is the worker in which Spark plans reads with push-down.

    Other workers must not return a reader that accepts filters: Spark refuses it if its setting
    for push-down is off, and workers cannot read this setting.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(started, "name", "") == _PUSHDOWN_WORKER


def warn_of_rows_left_out(rows: BaseScan) -> None:
    """Warn of records that the read leaves out, and of the option that includes them."""
    left_out = rows.rows_not_visible
    if left_out and isinstance(rows, Scan | IncrementalScan):
        visibility = Visibility(rows.schema, rows.merge_level_0)
        merge = "the option merge-level-0" if visibility.can_merge_more else None
        text = describe_unseen_rows_in_scan(rows.state.label, left_out, merge)
        logger.warning("%s", text)


@dataclass(frozen=True)
class BatchInputPartition(InputPartition):
    """The rows that one task reads."""

    splits: tuple[BucketSplit, ...] = ()
    """Files of one snapshot."""
    rows: BaseScan | None = None
    """A scan that cannot be divided among tasks."""


class PaimonReader(DataSourceReader):
    """Reads the rows of one scan; created when Spark plans, and sent to its tasks."""

    def __init__(
        self,
        rows: BaseScan,
        target: pa.Schema,
        names: Sequence[str] | None = None,
        settings: PlannedSettings = NO_PLANNED_SETTINGS,
    ) -> None:
        """Read the columns ``names`` of a scan as ``target``; by default, those of its names."""
        self._rows, self.target, self._settings = rows, target, settings
        self._names = target.names if names is None else names

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task: files or changes, packed by size."""
        lighten_worker()
        rows = self._rows
        warn_of_rows_left_out(rows)
        if isinstance(rows, Scan) and (rows.order or rows.limit is not None):
            return [BatchInputPartition(rows=rows)]
        if isinstance(rows, Scan):
            splits = divide_splits(rows.plan(), rows)
        elif isinstance(rows, IncrementalScan) and rows.snapshot_range.snapshots:
            splits = rows.plan()
        else:
            return [BatchInputPartition(rows=rows)]
        tasks = pack_splits(splits, rows.schema)
        return [BatchInputPartition(tuple(task)) for task in tasks] or [BatchInputPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        assert isinstance(partition, BatchInputPartition)
        self._settings.verify_in_task()
        for batch in self._read_batches(partition):
            if batch.num_rows:
                yield convert_batch(batch, self.target, self._names)
        lighten_worker()

    def _read_batches(self, part: BatchInputPartition) -> Iterator[pa.RecordBatch]:
        if part.rows is not None:
            yield from part.rows.to_batches()
        elif isinstance(self._rows, Scan) and self._rows.limit is not None:
            yield from self._rows.read_first(part.splits)
        elif isinstance(self._rows, (Scan, IncrementalScan)):
            for split in part.splits:
                yield from self._rows.read_split(split)


class SourceReader(PaimonReader):
    """The reader of the format ``paimon``."""

    @hide_traceback()
    def partitions(self) -> list[InputPartition]:
        """Return one partition per task."""
        return super().partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        with hide_traceback():
            yield from super().read(partition)


class PushdownReader(SourceReader):
    """A reader that accepts filters, which requires Spark 4.1 and a setting."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - Spark's name
        """Use filters to read fewer rows; return all of them, so that Spark applies them again."""
        if isinstance(self._rows, Scan) and self._rows.limit is not None:
            return filters  # the limit counts the rows before the filter
        pushed = to_predicate(filters, self._rows.arrow_schema)
        if pushed is not None:
            rows = cast("Scan", self._rows)  # every kind of scan has a predicate
            combined = pushed if rows.predicate is None else And((rows.predicate, pushed))
            self._rows = replace(rows, predicate=combined)
        return filters
