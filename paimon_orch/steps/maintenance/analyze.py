"""Count rows and compute column statistics.

See docs/format/statistics.md#statistics-file.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from paimon_orch.errors import REFUSED_COMMIT_ERRORS, InputError
from paimon_orch.files.stats.analyze_columns import ColumnStatsBuilder, can_collect_stats
from paimon_orch.files.uncommitted_files import delete_unused_files
from paimon_orch.format.display import Displayable, format_count, format_size
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import FileNameGenerator
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.table_statistics import TableStatistics
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.steps.common.argument import Argument, ParsedRequest, split_names
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.step import Step, StepOutcome, TextTable, WorkUnits, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.bucket_split import BucketSplit, count_visible_rows
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_builder import build_loaded_scan
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_UnitStatistics = list[Any]
"""A row count, and the encoded statistics of each column."""
_HEADER = ("column", "distinct", "nulls", "smallest", "largest", "average", "longest")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeRequest(ParsedRequest):
    """Selects the columns to analyze."""

    columns: Annotated[
        Sequence[str] | None,
        Argument("Columns to read.", split=split_names, separator=",", metavar="COLUMN,..."),
    ] = ()
    """The columns to compute statistics for; None selects all except nested ones."""
    all_columns: Annotated[bool, Argument("Read all columns except nested ones.")] = False

    def __post_init__(self) -> None:
        super(AnalyzeRequest, self).__post_init__()
        if self.columns and self.all_columns:
            raise InputError("columns and all_columns cannot be combined; set one of them")


@dataclass(frozen=True, slots=True)
class AnalyzeScan:
    """The scan of the rows, and the columns to compute statistics for."""

    scan: Scan
    columns: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class AnalyzeUnit:
    """One bucket to read."""

    split: BucketSplit
    partition_text: str
    """``k1=v1/k2=v2``, or an empty string."""

    @property
    def bytes(self) -> int:
        """Return the size of the files of the bucket."""
        return sum(file.file_size for file in self.split.files)

    def to_dict(self) -> dict[str, object]:
        """Return the unit as JSON values."""
        return {
            "partition": self.partition_text,
            "bucket": self.split.bucket,
            "files": len(self.split.files),
            "rows": self.split.row_count,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzePlan(Displayable):
    """The buckets to read. The plan is falsy if the table has no snapshot."""

    request: AnalyzeRequest
    state: TableState = field(repr=False, compare=False)
    snapshot: Snapshot | None = None
    schema_id: int
    scan: AnalyzeScan | None = None
    columns: tuple[Field, ...] = ()
    units: tuple[AnalyzeUnit, ...] = ()
    counted_rows: int = 0
    """The number of rows in buckets whose row count is known from metadata."""
    physical_rows: int = 0
    """The number of rows in all files."""
    bytes: int = 0
    """The total size of the files in bytes."""

    def __bool__(self) -> bool:
        """Return whether there is a snapshot to analyze."""
        return self.snapshot is not None

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "snapshot_id": None if self.snapshot is None else self.snapshot.id,
            "columns": [column.name for column in self.columns],
            "buckets_to_read": len(self.units),
            "rows_known": self.counted_rows,
            "units": [unit.to_dict() for unit in self.units],
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"read {format_count(len(self.units), 'bucket')}",
            nothing="the table is empty: it has no snapshot",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeResult(StepOutcome):
    """The statistics and their snapshot; both are None for a table without a snapshot."""

    snapshot_id: int | None = None
    statistics: TableStatistics | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values."""
        statistics = {} if self.statistics is None else json.loads(self.statistics.to_json())
        return {"snapshot_id": self.snapshot_id, "statistics": statistics}

    def describe(self) -> list[str]:
        """Return the number of rows, the size and the snapshot."""
        if self.statistics is None:
            return []
        rows, size = self.statistics.row_count or 0, format_size(self.statistics.size or 0)
        return [f"{format_count(rows, 'row')}, {size}", f"snapshot {self.snapshot_id}"]

    def tabulate(self) -> TextTable:
        """Return the statistics of the columns."""
        columns = {} if self.statistics is None else self.statistics.columns or {}
        rows = [
            [
                name,
                *(
                    "" if value is None else str(value)
                    for value in (
                        column.distinct_count,
                        column.null_count,
                        column.min,
                        column.max,
                        column.average_length,
                        column.max_length,
                    )
                ),
            ]
            for name, column in columns.items()
        ]
        return _HEADER, rows


def plan(table: Table, request: AnalyzeRequest) -> AnalyzePlan:
    """Select the buckets of the latest snapshot to read.

    Raises :class:`InputError` for a nested column, and :class:`NotFoundError` for an unknown one.
    """
    state = table.load()
    for kind in (StepKind.METADATA, StepKind.READ):
        state.check_step(kind)
    schema, snapshot = state.schema, state.snapshot
    names = None if request.all_columns else request.columns
    columns = tuple(
        _select_columns(schema.fields if names is None else schema.select(list(names)), names)
    )
    if snapshot is None:
        return AnalyzePlan(request=request, state=state, schema_id=schema.id)
    # The row count of a table with a primary key requires a read of the key columns.
    read = [column.name for column in columns] or [*schema.trimmed_primary_keys, *schema.names][:1]
    scan = build_loaded_scan(state, read)
    units, counted_rows = [], 0
    for split in scan.plan():
        rows = None if columns else count_visible_rows(split, schema)
        counted_rows += rows or 0
        if rows is None:
            units.append(AnalyzeUnit(split, format_partition(split.partition, schema)))
    files = state.manifests.read_live_files(snapshot)
    return AnalyzePlan(
        request=request,
        state=state,
        snapshot=snapshot,
        schema_id=schema.id,
        scan=AnalyzeScan(scan, columns),
        columns=columns,
        units=tuple(units),
        counted_rows=counted_rows,
        physical_rows=int(files.row_counts.sum()),
        bytes=int(files.file_sizes.sum()),
    )


def _select_columns(fields: Sequence[Field], columns: Sequence[str] | None) -> list[Field]:
    for column in fields:
        if columns is not None and not can_collect_stats(column):
            raise InputError(
                f"column {column.name!r} is {type_to_sql(column.type)}: "
                "nested columns have no statistics"
            )
    return [column for column in fields if can_collect_stats(column)]


def _collect_work(_table: Table, plan: AnalyzePlan) -> WorkUnits[AnalyzeScan | None, AnalyzeUnit]:
    return WorkUnits(
        shared=plan.scan,
        units=plan.units,
        bytes=sum(unit.bytes for unit in plan.units),
    )


def run(shared: AnalyzeScan | None, unit: AnalyzeUnit) -> bytes:
    """Read one bucket; return its row count and column statistics, encoded."""
    assert shared is not None
    rows = 0
    builders = [ColumnStatsBuilder(column) for column in shared.columns]
    for batch in shared.scan.read_split(unit.split):
        rows += batch.num_rows
        for builder in builders:
            builder.add(batch.column(builder.column.name))
    return json.dumps([rows, *(builder.encode() for builder in builders)]).encode()


def commit(table: Table, plan: AnalyzePlan, results: Sequence[_UnitStatistics]) -> AnalyzeResult:
    """Write and commit the statistics.

    Raises :class:`CommitConflictError` if another writer changed the schema.
    """
    if not plan:
        return AnalyzeResult()
    statistics = _merge_statistics(plan, results)
    name = FileNameGenerator().next("stat-")
    path = f"{table.paths.statistics_dir}/{name}"
    with table.io.open_output(path) as sink:
        sink.write(statistics.to_json())
    try:
        snapshot = plan.state.new_commit(StepKind.METADATA).commit(
            CommitChanges(kind=CommitKind.ANALYZE, statistics=name)
        )
    except REFUSED_COMMIT_ERRORS:
        delete_unused_files(table.io, [path])
        raise
    return AnalyzeResult(snapshot_id=snapshot.id, statistics=statistics)


def _merge_statistics(plan: AnalyzePlan, results: Sequence[_UnitStatistics]) -> TableStatistics:
    assert plan.snapshot is not None
    rows = plan.counted_rows
    builders = [ColumnStatsBuilder(column) for column in plan.columns]
    for row_count, *statistics in results:
        rows += row_count
        for builder, encoded in zip(builders, statistics, strict=True):
            builder.merge(ColumnStatsBuilder.decode(builder.column, encoded))
    size = plan.bytes * rows // plan.physical_rows if plan.physical_rows else 0
    columns = {builder.column.name: builder.build() for builder in builders}
    return TableStatistics(
        snapshot_id=plan.snapshot.id,
        schema_id=plan.schema_id,
        row_count=rows,
        size=size,
        columns=columns,
    )


ANALYZE = Step(
    title="analyze",
    planner=plan,
    work=_collect_work,
    run=run,
    decode=json.loads,
    commit=commit,
    max_attempts=1,
)


@take_fields(AnalyzeRequest)
def analyze(
    table: Table, request: AnalyzeRequest, executor: Executor | None, progress: Progress | None
) -> AnalyzeResult:
    """Count the rows of a table, compute statistics of columns, and commit them."""
    return plan_and_run(ANALYZE, table, request, executor, progress=progress)


DECLARATION = declare_step(
    ANALYZE,
    AnalyzeRequest,
    help="Commits the number of distinct values and of nulls, the smallest and largest value, and the "
    "average and maximum length of each column in a new snapshot. The system table "
    "DATABASE.TABLE$statistics has them. Without columns, only the rows are counted; for most tables, "
    "the row count comes from metadata.",
    examples=["/lake db.orders --columns status,price"],
)
