"""Reports of runs: a sentence, figures and tables, for the metadata of any orchestrator."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from paimon_orch.format.display import format_count
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.orchestration.reported_steps import ReportedCompaction, ReportedUnit
from paimon_orch.steps.compaction.policy import CompactionDecision
from paimon_orch.table.scan.unseen_rows import Visibility
from paimon_orch.table.table import Table
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets

if TYPE_CHECKING:  # definitions load without the steps
    from paimon_orch.steps.compaction.compact import CompactionResult, CompactionUnit
    from paimon_orch.steps.inspection.inspect import TableReport

CompactionOutcome: TypeAlias = "CompactionResult | ReportedCompaction"
"""A compaction by this process or by another one."""
MAX_TABLE_ROWS = 50

_PLAN_COLUMNS = {
    "bucket": "int",
    "reason": "string",
    "files": "int",
    "rows": "int",
    "bytes": "int",
    "output_level": "int",
}
_INDEX_COLUMNS = {
    "partition": "string",
    "bucket": "int",
    "files": "int",
    "rows": "int",
    "bytes": "int",
}

_STATE_METRICS = (
    "files",
    "bytes",
    "level0_files",
    "read_amplification",
    "deletion_vector_rows",
    "small_file_ratio",
)
_DECISION_COLUMNS = {
    "partition": "string",
    "compact": "string",
    "reason": "string",
    "level0_files": "int",
    "sorted_runs": "int",
    "small_files": "int",
    "deleted_ratio": "float",
    "rewrite_bytes": "int",
}


@dataclass(frozen=True, slots=True)
class ReportTable:
    """The first rows of a table; values have types that JSON has, or are enums of text."""

    rows: Sequence[Mapping[str, Any]]
    columns: Mapping[str, str]
    """The types by name: ``string``, ``int`` or ``float``."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> "ReportTable":
        """Return the table of the first :data:`MAX_TABLE_ROWS` rows."""
        return cls(tuple(islice(rows, MAX_TABLE_ROWS)), columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run did to a table or a partition, and its state; all figures are optional.

    Sizes are in bytes.
    """

    summary: str | None = None
    """A sentence on what the run did."""
    snapshot_id: int | None = None
    schema_id: int | None = None
    iceberg_snapshot_id: int | None = None
    """The snapshot that Iceberg readers see; only of tables with Iceberg metadata."""
    missing_partitions: int | None = None
    """Partitions or tags that the catalog lacks; only of tables with partitions in a catalog."""
    snapshots: int | None = None
    rows_written: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    files: int | None = None
    files_before: int | None = None
    files_after: int | None = None
    bytes_rewritten: int | None = None
    write_amplification: float | None = None
    """Bytes written per byte of level-0 files that the compaction removed."""
    bytes: int | None = None
    level0_files: int | None = None
    rows_not_visible: int | None = None
    """The number of records that batch readers do not see until the next compaction."""
    read_amplification: int | None = None
    """The maximum number of sorted runs that a reader merges in a bucket."""
    read_amplification_before: int | None = None
    deletion_vector_rows: int | None = None
    """The number of rows that deletion vectors mark as deleted."""
    small_file_ratio: float | None = None
    """The share of small files, except those that are the only file of their bucket."""
    duration_seconds: float | None = None
    commit_attempts: int | None = None
    planned_buckets: int | None = None
    """The number of buckets that were compacted."""
    skipped_buckets: int | None = None
    """The number of buckets without files to compact."""
    indexed_files: int | None = None
    """The number of files to which file indexes were added."""
    skipped_files: int | None = None
    """The number of files that had all file indexes of the table's options."""
    bytes_read: int | None = None
    """The size of the files that were read to build file indexes."""
    embedded_indexes: int | None = None
    """The number of data files whose file index is stored in the manifest."""
    index_files: int | None = None
    """The number of data files whose file index is stored in a separate file."""
    plan: ReportTable | None = None
    """The units of work and their reasons, largest first."""
    before_after: ReportTable | None = None


def filter_result(result: CompactionOutcome, path: str) -> CompactionOutcome:
    """Return a result with the plan of one partition; its totals are those of the whole commit."""
    units: Any = tuple(unit for unit in result.plan.units if unit.partition_text == path)
    plan: Any = replace(result.plan, units=units)
    return replace(result, plan=plan)


def build_table_report(report: "TableReport") -> RunReport:
    """Return the size and the read amplification of a table or partition.

    Leaves out metrics that are the same for all tables of its kind.
    """
    has_levels = bool(report.schema.primary_keys)
    has_deleted_rows = report.schema.typed_options.has_deletion_vectors or report.deleted_rows > 0
    return RunReport(
        files=report.file_count,
        bytes=report.bytes,
        level0_files=report.level0_files if has_levels else None,
        rows_not_visible=report.rows_not_visible
        if _can_have_rows_not_visible(report.schema)
        else None,
        read_amplification=report.max_sorted_runs if has_levels else None,
        deletion_vector_rows=report.deleted_rows if has_deleted_rows else None,
        small_file_ratio=report.small_files / max(report.file_count, 1),
    )


def count_rows_not_visible(table: Table, snapshot: Snapshot) -> int | None:
    """Return the number of records that readers do not see until the next compaction.

    Returns None for tables whose readers see all files.
    """
    stores = table.stores
    schema = stores.get_schema()
    if not _can_have_rows_not_visible(schema):
        return None
    return Visibility(schema).rows_not_visible(stores.manifests, snapshot)


def _can_have_rows_not_visible(schema: TableSchema) -> bool:
    return Visibility(schema).skips_level_0 or has_postpone_buckets(schema)


def build_compaction_report(
    before: "TableReport",
    after: "TableReport",
    result: CompactionOutcome,
    *,
    partition: bool,
    include_totals: bool = True,
) -> RunReport:
    """Return the effect of a compaction on a table or partition, and its plan.

    :param include_totals: False if the totals of the result also cover other partitions
    """
    units, state_after = result.plan.units, build_table_report(after)
    has_deleted_rows = before.deleted_rows > 0 or after.deleted_rows > 0
    report = replace(
        state_after,
        summary=_summarize_compaction(before, after, result),
        snapshot_id=after.snapshot_id,
        files=None,
        level0_files=None,  # this and the next are in the table of the states
        small_file_ratio=None,
        files_before=before.file_count,
        files_after=after.file_count,
        bytes_rewritten=result.plan.bytes,
        deletion_vector_rows=after.deleted_rows if has_deleted_rows else None,
        commit_attempts=result.attempts,
        planned_buckets=result.plan.buckets,
        skipped_buckets=max(before.bucket_count - result.plan.buckets, 0),
        read_amplification_before=build_table_report(before).read_amplification,
        plan=build_plan_table(units, partition=partition) if units else None,
        before_after=_build_before_after_table(build_table_report(before), state_after),
    )
    if include_totals:
        level0_bytes = sum(file.file_size for file in result.plan.inputs if file.level == 0)
        report = replace(
            report,
            duration_seconds=result.duration_seconds,
            rows_written=result.rows_written,
            bytes_written=result.bytes_written,
            write_amplification=result.bytes_written / level0_bytes if level0_bytes else None,
        )
    return report


def _summarize_compaction(
    before: "TableReport", after: "TableReport", result: CompactionOutcome
) -> str:
    units = result.plan.units
    if not units:
        return "Nothing to compact."
    files = sum(unit.files for unit in units)
    buckets = len({(unit.partition_text, unit.bucket) for unit in units})
    written = files + after.file_count - before.file_count
    reasons = ", ".join(sorted({str(unit.reason) for unit in units}))
    return (
        f"Compacted {format_count(files, 'file')} of {format_count(buckets, 'bucket')} into "
        f"{format_count(max(written, 0), 'file')} in {result.duration_seconds:.1f} s: {reasons}."
    )


def _build_before_after_table(before: RunReport, after: RunReport) -> ReportTable:
    """Return the state before and after a run as a table with one row per metric."""
    rows = (
        {"figure": name, "before": getattr(before, name), "after": getattr(after, name)}
        for name in _STATE_METRICS
        if getattr(before, name) is not None or getattr(after, name) is not None
    )
    return ReportTable.of(rows, {"figure": "string", "before": "float", "after": "float"})


def build_plan_table(
    units: "Sequence[CompactionUnit | ReportedUnit]", *, partition: bool
) -> ReportTable:
    """Return the largest units of a compaction plan as a table, largest first.

    :param partition: whether all units belong to one partition, which then has no column
    """
    columns = _PLAN_COLUMNS if partition else {"partition": "string"} | _PLAN_COLUMNS
    rows = (
        {
            name: unit.partition_text if name == "partition" else getattr(unit, name)
            for name in columns
        }
        for unit in units
    )
    return ReportTable.of(rows, columns)


def build_decisions_table(decisions: Sequence[CompactionDecision]) -> ReportTable:
    """Return the decisions of a policy, starting with partitions to compact."""
    decision_rows = (
        decision.to_dict() for decision in sorted(decisions, key=lambda d: not d.compact)
    )
    rows = ({name: row[name] for name in _DECISION_COLUMNS} for row in decision_rows)
    return ReportTable.of(rows, _DECISION_COLUMNS)


def build_index_report(
    plan: Mapping[str, Any],
    outcome: Mapping[str, Any],
    units: Iterable[Mapping[str, Any]],
    partition: str | None = None,
    *,
    include_totals: bool = True,
) -> RunReport:
    """Return the effect of a rewrite of file indexes on a partition, or on the whole table.

    The plan, the outcome and its units are JSON values.

    :param include_totals: False if the totals of the result also cover other partitions
    """
    rows = [row for row in units if partition in (None, row["partition"])]
    indexed_files = sum(row["files"] for row in rows)
    report = RunReport(
        summary=f"Added file indexes to {format_count(indexed_files, 'file')} in "
        f"{outcome['duration_seconds']:.1f} s."
        if indexed_files
        else "All files have the indexes of the table's options.",
        snapshot_id=outcome["snapshot_id"] or plan["snapshot_id"],
        indexed_files=indexed_files,
        bytes_read=sum(row["bytes"] for row in rows),
        plan=ReportTable.of(rows, _INDEX_COLUMNS) if rows else None,
    )
    if include_totals:
        report = replace(
            report,
            duration_seconds=outcome["duration_seconds"],
            skipped_files=plan["skipped_files"],
            embedded_indexes=outcome["embedded"],
            index_files=outcome["index_files"],
        )
    return report
