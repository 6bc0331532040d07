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
from paimon_orch.spark.column_types import converted, target_schema, visible_schema
from paimon_orch.spark.datasource.datasource_options import FOLLOW, READ, SourceOptions
from paimon_orch.spark.datasource.filters import predicate_of
from paimon_orch.spark.datasource.input_partitions import packed, pieces
from paimon_orch.spark.execution.tasks import lighten_worker
from paimon_orch.spark.row_conversion import spark_schema
from paimon_orch.table.scan.incremental_scan import Incremental
from paimon_orch.table.scan.lazy_rows import ROW_KIND, Rows
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_planner import BucketSplit
from paimon_orch.table.scan.visibility import Visibility, not_visible_in_scan

if TYPE_CHECKING:  # Spark 4.0 has no filters
    from pyspark.sql.datasource import Filter

logger = logging.getLogger(__name__)

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


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


def schema_of(options: Mapping[str, str]) -> StructType:
    """Return the columns of what the options of a read or a stream name."""
    asked = SourceOptions.of(options, tuple(dict.fromkeys((*READ, *FOLLOW))))
    rows = _rows(asked, asked.columns())
    lighten_worker()
    return spark_schema(visible_schema(_offered(rows, asked)))


def _offered(rows: Rows, asked: SourceOptions) -> pa.Schema:
    """Return the columns to read; changes always come with their kind."""
    names = asked.columns() or rows.arrow_schema.names
    if isinstance(rows, Incremental) and ROW_KIND.name not in names:
        names = [ROW_KIND.name, *names]
    return pa.schema([rows.arrow_schema.field(name) for name in names])


def _rows(asked: SourceOptions, columns: Sequence[str] | None) -> Rows:
    if columns is None or "incremental-between" not in asked.values:
        return asked.rows(None if columns is None else list(columns))
    # the kind is no column of the table; without any other one all are read
    return asked.rows([name for name in columns if name != ROW_KIND.name] or None)


def reader_of(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return the reader of some columns; it takes filters where Spark hands them down and the options want it to.

    They do not by default: what one use of a frame or view reads Spark (4.1 to 4.3) takes for what all its uses read,
    whatever their filters are, and rows are missing.
    """
    asked = SourceOptions.of(options, READ)
    rows = _rows(asked, schema.names)
    target = target_schema(rows.arrow_schema, schema)
    pushes = asked.flag("pushdown", default=False) and _hands_filters_down()
    return (PushingReader if pushes else PaimonReader)(rows, target)


def _hands_filters_down() -> bool:
    """Tell whether this process plans with push-down, for which Spark has a worker of its own.

    Nothing else tells it: the setting is not known here, and where it is off Spark refuses readers that take filters.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(started, "name", "") == _PUSHING_WORKER


def warn_of_rows_left_out(rows: Rows) -> None:
    """Log how many records are left out until they are compacted, and the option that reads them."""
    left_out = rows.rows_not_visible
    if left_out and isinstance(rows, Scan | Incremental):
        *_, database, name = rows.paths.root.split("/")
        identifier = f"{database.removesuffix('.db')}.{name}"
        visibility = Visibility(rows.schema, rows.merge_level_0)
        merge = "the option merge-level-0" if visibility.can_merge_more else None
        text = not_visible_in_scan(identifier, rows.paths, left_out, merge)
        logger.warning("%s", text)


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads: files of one snapshot, or rows that are not cut further."""

    splits: tuple[BucketSplit, ...] = ()
    rows: Rows | None = None


class PaimonReader(DataSourceReader):
    """Reads the rows of one scan; made where Spark plans, sent to its tasks."""

    def __init__(self, rows: Rows, target: pa.Schema) -> None:
        self._rows, self.target = rows, target

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task: splits or changes, packed by size."""
        lighten_worker()
        rows = self._rows
        warn_of_rows_left_out(rows)
        if isinstance(rows, Scan):
            cut = [piece for split in rows.plan() for piece in pieces(split, rows.scan_of(split))]
            parts: list[InputPartition] = [Part(tuple(one)) for one in packed(cut, rows.schema)]
            return parts or [Part()]
        if isinstance(rows, Incremental) and rows.span.snapshots:
            return [Part(tuple(one)) for one in packed(rows.plan(), rows.schema)] or [Part()]
        return [Part(rows=rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        assert isinstance(partition, Part)
        for batch in self._batches(partition):
            if batch.num_rows:
                yield converted(batch, self.target)
        lighten_worker()

    def _batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        if part.rows is not None:
            yield from part.rows.to_batches()
        elif isinstance(self._rows, (Scan, Incremental)):
            for split in part.splits:
                yield from self._rows.read_split(split)


class PushingReader(PaimonReader):
    """A reader that takes filters, which Spark allows from 4.1 on where a setting says so."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - Spark's name
        """Use filters to read less; all are handed back, to be applied again."""
        pushed = predicate_of(filters, self._rows.arrow_schema)
        if pushed is not None:
            rows = cast("Scan", self._rows)  # each kind of rows has a predicate
            both = pushed if rows.predicate is None else And((rows.predicate, pushed))
            self._rows = replace(rows, predicate=both)
        return filters
