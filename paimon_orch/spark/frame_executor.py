"""The executor on Spark with data frames: it loads and merges files, and evaluates SQL expressions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from paimon_orch.spark import frame_writer, update_and_merge
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.spark.frame_writer import RowSource
from paimon_orch.spark.input_files import read_files
from paimon_orch.spark.parquet_source import can_read_local_files, open_parquet_files
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactionResult
from paimon_orch.steps.ingest import IngestPreview, IngestResult
from paimon_orch.steps.ingest_files import CsvFormat, detect_common_format, read_input_files
from paimon_orch.steps.ingest_json import JsonTypes
from paimon_orch.steps.row_level.ingest import FileLoad, add_missing_columns
from paimon_orch.steps.row_level.merge_clauses import MergeClauses
from paimon_orch.steps.row_level.row_level_write import RowLevelPlan, RowLevelResult
from paimon_orch.steps.row_level.update import UpdateRequest
from paimon_orch.steps.source_files import SparkRequiredError
from paimon_orch.table.table import Table


class SparkFrameExecutor(SparkExecutor):
    """Runs work units and data frames on a session; implements :class:`FrameExecutor`."""

    def load_files(
        self, load: FileLoad, *, preview: bool, progress: Progress | None
    ) -> IngestResult | IngestPreview:
        """Load files into a table, or count what this would change."""
        session = self._session
        columns = _find_parquet_columns(load) if can_read_local_files(session) else None
        if columns is not None:
            planned = load.plan(columns)
            source = open_parquet_files(session, load.paths, planned)
        else:
            types = JsonTypes.of(load.table.stores.get_schema())
            rows = read_files(session, load.paths, csv_format=load.csv_format, json_types=types)
            columns = rows.columns
            planned = load.plan(columns)
            source = RowSource(rows, planned.prepare)
        loaded = (
            frame_writer.preview(source, load.table, planned, progress=progress)
            if preview
            else frame_writer.run_ingest(
                source, load.table, planned, progress=progress, sources=load.paths
            )
        )
        return add_missing_columns(loaded, planned, columns)

    def open_merge(
        self,
        table: Table,
        paths: Sequence[str],
        csv_format: CsvFormat,
        on: str,
        clauses: MergeClauses,
    ) -> "FrameMerge":
        """Return a merge of files into a table."""
        _silence_pyspark_loggers()
        rows = read_files(self._session, paths, csv_format=csv_format)
        # the values of a merge of files are text
        return FrameMerge(rows, table, on, cast("update_and_merge.MergeClauses", clauses))

    def update_rows(
        self, table: Table, planned: RowLevelPlan, progress: Progress | None
    ) -> RowLevelResult:
        """Execute the plan of an update."""
        request = planned.request
        assert isinstance(request, UpdateRequest)
        _silence_pyspark_loggers()
        assignments = {
            name: value if isinstance(value, str) else fn.lit(value)
            for name, value in request.assignments.items()
        }
        return update_and_merge.update(
            self._session,
            table,
            assignments,
            request.where,
            plan=planned,
            progress=progress,
        )

    def sort_rows(
        self, table: Table, planned: CompactionPlan, progress: Progress | None
    ) -> CompactionResult:
        """Execute the plan of a sort compaction."""
        from paimon_orch.spark.sort_compact import run_sort

        return run_sort(self._session, table, planned, progress=progress)


@dataclass(frozen=True, slots=True)
class FrameMerge:
    """A merge of the rows of a frame into a table."""

    rows: DataFrame
    table: Table
    on: str
    clauses: update_and_merge.MergeClauses

    def preview(self) -> RowLevelResult:
        """Count the rows that would change; writes nothing."""
        return update_and_merge.preview_merge(self.rows, self.table, self.on, **self.clauses)

    def run(self, progress: Progress | None = None) -> RowLevelResult:
        """Change the rows."""
        return update_and_merge.merge_into(
            self.rows, self.table, self.on, progress=progress, **self.clauses
        )


def _find_parquet_columns(load: FileLoad) -> Sequence[str] | None:
    """Return the columns of local Parquet files that Arrow reads as Spark does, or None."""
    if detect_common_format(load.paths) != "parquet":
        return None
    try:
        return read_input_files(load.paths, load.table.stores.get_schema()).columns
    except SparkRequiredError:
        return None


def _silence_pyspark_loggers() -> None:
    """Prevent Spark from logging a page about an invalid expression; our error has one line."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
