"""ANALYZE: how many rows a reader sees, and figures of columns, for those who plan queries.

See docs/format/statistics.md#statistics-file.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_orch.errors import CommitConflictError, InputError, UnsupportedError
from paimon_orch.files.stats.column_stats import ColumnStatsBuilder, can_collect_stats
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import FileNameGenerator
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.table_statistics import TableStatistics
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.scan_planner import BucketSplit, count_visible_rows
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True)
class AnalyzeUnit:
    """The rows of one bucket to read; ``scan`` tells which columns."""

    scan: Scan
    split: BucketSplit
    columns: tuple[Field, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the unit for people and machines."""
        return {
            "partition": format_partition(self.split.partition, self.scan.schema),
            "bucket": self.split.bucket,
            "files": len(self.split.files),
            "rows": self.split.row_count,
            "bytes": sum(file.file_size for file in self.split.files),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzePlan:
    """What an analysis would read; without a snapshot there is nothing to analyze. Also the dry run.

    ``counted`` are the rows of buckets that metadata alone tells, ``physical`` the rows and ``bytes`` the size of all
    files.
    """

    snapshot: Snapshot | None
    schema_id: int
    columns: tuple[Field, ...] = ()
    units: tuple[AnalyzeUnit, ...] = ()
    counted_rows: int = 0
    physical: int = 0
    bytes: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the plan for people and machines."""
        return {
            "snapshot_id": None if self.snapshot is None else self.snapshot.id,
            "columns": [column.name for column in self.columns],
            "buckets_to_read": len(self.units),
            "rows_known": self.counted_rows,
            "units": [unit.to_dict() for unit in self.units],
        }


@dataclass(frozen=True, slots=True)
class AnalyzeResult:
    """What an analysis found and the snapshot that refers to it; None for a table without snapshot."""

    snapshot_id: int | None
    statistics: TableStatistics | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values."""
        found = {} if self.statistics is None else json.loads(self.statistics.to_json())
        return {"snapshot_id": self.snapshot_id, "statistics": found}


def plan(table: Table, columns: Sequence[str] | None = ()) -> AnalyzePlan:
    """Read the metadata of the newest snapshot; buckets are read where the rows, or ``columns``, need it.

    ``columns`` are those to gather figures of: none by default, all (but nested ones) with None. Raises
    :class:`InputError` for a nested column, :class:`NotFoundError` for an unknown one.
    """
    table.stores.check_step(StepKind.METADATA)
    schema, snapshot = table.schema, table.snapshot()
    chosen = tuple(
        _select_columns(schema.fields if columns is None else schema.select(list(columns)), columns)
    )
    if snapshot is None:
        return AnalyzePlan(snapshot=None, schema_id=schema.id)
    # rows of tables with a key are counted by it
    read = [field.name for field in chosen] or [*schema.trimmed_primary_keys, *schema.names][:1]
    scan = replace(table.scan(read, snapshot_id=snapshot.id), fallback=None)
    units, counted = [], 0
    for split in scan.plan():
        rows = None if chosen else count_visible_rows(split, schema)
        counted += rows or 0
        if rows is None:
            units.append(AnalyzeUnit(scan, split, chosen))
    files = [file for split in table.files(snapshot) for file in split.files]
    return AnalyzePlan(
        snapshot=snapshot,
        schema_id=schema.id,
        columns=chosen,
        units=tuple(units),
        counted_rows=counted,
        physical=sum(file.row_count for file in files),
        bytes=sum(file.file_size for file in files),
    )


def _select_columns(fields: Sequence[Field], columns: Sequence[str] | None) -> list[Field]:
    for column in fields:
        if columns is not None and not can_collect_stats(column):
            raise InputError(
                f"column {column.name!r} is {type_to_sql(column.type)}: nested columns have no statistics"
            )
    return [column for column in fields if can_collect_stats(column)]


def run(unit: AnalyzeUnit) -> bytes:
    """Read one bucket and return its row count and the figures of its columns, encoded."""
    rows = 0
    builders = [ColumnStatsBuilder(column) for column in unit.columns]
    for batch in unit.scan.read_split(unit.split):
        rows += batch.num_rows
        for builder in builders:
            builder.add(batch.column(builder.column.name))
    return json.dumps([rows, *(builder.encode() for builder in builders)]).encode()


def commit(table: Table, planned: AnalyzePlan, results: Sequence[bytes]) -> AnalyzeResult:
    """Write the statistics file and a snapshot that refers to it; the rows of the table stay as they are.

    Raises :class:`CommitConflictError` if the schema has changed since the plan; nothing is left behind then.
    """
    if planned.snapshot is None:
        return AnalyzeResult(None)
    statistics = _merge_statistics(planned, results)
    name = FileNameGenerator().next("stat-")
    path = f"{table.paths.statistics_dir}/{name}"
    with table.io.open_output(path) as sink:
        sink.write(statistics.to_json())
    try:
        snapshot = table.stores.new_commit(StepKind.METADATA).commit(
            CommitChanges(kind=CommitKind.ANALYZE, statistics=name)
        )
    except (CommitConflictError, InputError, UnsupportedError):
        table.io.delete(path)
        raise
    return AnalyzeResult(snapshot.id, statistics)


def _merge_statistics(planned: AnalyzePlan, results: Sequence[bytes]) -> TableStatistics:
    assert planned.snapshot is not None
    rows = planned.counted_rows
    builders = [ColumnStatsBuilder(column) for column in planned.columns]
    for result in results:
        count, *texts = json.loads(result)
        rows += count
        for builder, text in zip(builders, texts, strict=True):
            builder.merge(ColumnStatsBuilder.decode(builder.column, text))
    size = planned.bytes * rows // planned.physical if planned.physical else 0
    columns = {builder.column.name: builder.build() for builder in builders}
    return TableStatistics(
        snapshot_id=planned.snapshot.id,
        schema_id=planned.schema_id,
        row_count=rows,
        size=size,
        columns=columns,
    )


def analyze(
    table: Table,
    executor: Executor,
    *,
    columns: Sequence[str] | None = (),
    progress: Progress | None = None,
) -> AnalyzeResult:
    """Plan, run and commit; see :func:`plan`."""
    planned = plan(table, columns)
    label = f"analyze {table.identifier}"
    results = executor.map(run, planned.units, label=label, progress=progress)
    return commit(table, planned, results)
