"""The data source ``paimon``: tables as Spark sees them, without a jar.

:mod:`pyspark_paimon` is what Spark finds and calls; the work is done here, imported when it is needed.
"""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from paimon_orch.format.types.predicate import And
from paimon_orch.spark.column_types import build_target_schema, build_visible_schema, convert_batch
from paimon_orch.spark.datasource.datasource_options import (
    READ_OPTIONS,
    STREAM_READ_OPTIONS,
    DataSourceOptions,
)
from paimon_orch.spark.datasource.filters import to_predicate
from paimon_orch.spark.datasource.input_partitions import divide_split, pack_splits
from paimon_orch.spark.execution.tasks import lighten_worker
from paimon_orch.spark.row_conversion import to_spark_schema
from paimon_orch.table.scan.incremental_scan import IncrementalScan
from paimon_orch.table.scan.lazy_rows import ROW_KIND, BaseScan
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_planner import BucketSplit
from paimon_orch.table.scan.visibility import Visibility, describe_unseen_rows_in_scan

if TYPE_CHECKING:  # Spark 4.0 has no filters
    from pyspark.sql.datasource import Filter

logger = logging.getLogger(__name__)

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def register(session: SparkSession) -> None:
    """Make ``paimon`` a format of one session.

    Hardly ever needed: wherever the workers' Python has paimon-orch when a session looks up its first format, Spark finds
    :mod:`pyspark_paimon` by itself. The look-up starts a worker, which takes seconds.
    """
    from pyspark_paimon import DefaultSource

    try:
        session.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # Spark 4.0 keeps what it has found by itself, later versions what they were told last.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def read_source_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of what the options of a read or a stream name."""
    asked = DataSourceOptions.of(
        options, tuple(dict.fromkeys((*READ_OPTIONS, *STREAM_READ_OPTIONS)))
    )
    rows = _open_rows(asked, asked.columns())
    lighten_worker()
    return to_spark_schema(build_visible_schema(_select_offered_columns(rows, asked)))


def _select_offered_columns(rows: BaseScan, asked: DataSourceOptions) -> pa.Schema:
    """Return the columns to read; changes always come with their kind."""
    names = asked.columns() or rows.arrow_schema.names
    if isinstance(rows, IncrementalScan) and ROW_KIND.name not in names:
        names = [ROW_KIND.name, *names]
    return pa.schema([rows.arrow_schema.field(name) for name in names])


def _open_rows(asked: DataSourceOptions, columns: Sequence[str] | None) -> BaseScan:
    if columns is None or "incremental-between" not in asked.values:
        return asked.rows(None if columns is None else list(columns))
    # the kind is no column of the table; without any other one all are read
    return asked.rows([name for name in columns if name != ROW_KIND.name] or None)


def build_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return the reader of some columns; it takes filters where Spark hands them down and the options want it to.

    They do not by default: what one use of a frame or view reads Spark (4.1 to 4.3) takes for what all its uses read,
    whatever their filters are, and rows are missing.
    """
    asked = DataSourceOptions.of(options, READ_OPTIONS)
    rows = _open_rows(asked, schema.names)
    target = build_target_schema(rows.arrow_schema, schema)
    pushes = asked.flag("pushdown", default=False) and _is_pushdown_worker()
    return (PushdownReader if pushes else PaimonReader)(rows, target)


def _is_pushdown_worker() -> bool:
    """Tell whether this process plans with push-down, for which Spark has a worker of its own.

    Nothing else tells it: the setting is not known here, and where it is off Spark refuses readers that take filters.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(started, "name", "") == _PUSHDOWN_WORKER


def warn_of_rows_left_out(rows: BaseScan) -> None:
    """Log how many records are left out until they are compacted, and the option that reads them."""
    left_out = rows.rows_not_visible
    if left_out and isinstance(rows, Scan | IncrementalScan):
        *_, database, name = rows.paths.root.split("/")
        identifier = f"{database.removesuffix('.db')}.{name}"
        visibility = Visibility(rows.schema, rows.merge_level_0)
        merge = "the option merge-level-0" if visibility.can_merge_more else None
        text = describe_unseen_rows_in_scan(identifier, rows.paths, left_out, merge)
        logger.warning("%s", text)


@dataclass(frozen=True)
class BatchInputPartition(InputPartition):
    """What one task reads: files of one snapshot, or rows that are not cut further."""

    splits: tuple[BucketSplit, ...] = ()
    rows: BaseScan | None = None


class PaimonReader(DataSourceReader):
    """Reads the rows of one scan; made where Spark plans, sent to its tasks."""

    def __init__(self, rows: BaseScan, target: pa.Schema) -> None:
        self._rows, self.target = rows, target

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task: splits or changes, packed by size."""
        lighten_worker()
        rows = self._rows
        warn_of_rows_left_out(rows)
        if isinstance(rows, Scan):
            cut = [
                piece
                for split in rows.plan()
                for piece in divide_split(split, rows.find_scan_of(split))
            ]
            parts: list[InputPartition] = [
                BatchInputPartition(tuple(one)) for one in pack_splits(cut, rows.schema)
            ]
            return parts or [BatchInputPartition()]
        if isinstance(rows, IncrementalScan) and rows.snapshot_range.snapshots:
            return [
                BatchInputPartition(tuple(one)) for one in pack_splits(rows.plan(), rows.schema)
            ] or [BatchInputPartition()]
        return [BatchInputPartition(rows=rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        assert isinstance(partition, BatchInputPartition)
        for batch in self._batches(partition):
            if batch.num_rows:
                yield convert_batch(batch, self.target)
        lighten_worker()

    def _batches(self, part: BatchInputPartition) -> Iterator[pa.RecordBatch]:
        if part.rows is not None:
            yield from part.rows.to_batches()
        elif isinstance(self._rows, (Scan, IncrementalScan)):
            for split in part.splits:
                yield from self._rows.read_split(split)


class PushdownReader(PaimonReader):
    """A reader that takes filters, which Spark allows from 4.1 on where a setting says so."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - Spark's name
        """Use filters to read less; all are handed back, to be applied again."""
        pushed = to_predicate(filters, self._rows.arrow_schema)
        if pushed is not None:
            rows = cast("Scan", self._rows)  # each kind of rows has a predicate
            both = pushed if rows.predicate is None else And((rows.predicate, pushed))
            self._rows = replace(rows, predicate=both)
        return filters
