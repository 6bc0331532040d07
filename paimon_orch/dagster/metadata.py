"""What runs report: one class for our keys, so that names cannot drift, and views of plans and schemas.

Figures are reported as numbers, which Dagster plots.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

import dagster as dg

from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.compaction.compact import CompactionResult, CompactionUnit
from paimon_orch.steps.compaction.policy import CompactionDecision
from paimon_orch.steps.inspection.inspect import TableReport
from paimon_orch.steps.maintenance.rewrite_file_index import (
    FileIndexRewritePlan,
    FileIndexRewriteResult,
)
from paimon_orch.table.scan.visibility import Visibility
from paimon_orch.table.table import Table
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets

MAX_TABLE_RECORDS = 50

_PLAN_COLUMNS = {
    "bucket": "int",
    "reason": "string",
    "files": "int",
    "rows": "int",
    "bytes": "int",
    "output_level": "int",
}
_INDEX_COLUMNS = {"partition": "string", "bucket": "int", "files": "int", "rows": "int", "bytes": "int"}  # fmt: skip

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

Metadata = dict[str, Any]
"""Metadata by key, of whatever Dagster takes as a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaimonMetadata:
    """The keys below ``paimon/``, each optional; sizes are in bytes, counts are of the asset or partition.

    :ivar deletion_vector_rows: rows that deletion vectors hide
    :ivar rows_not_visible: records that batch readers do not see before a compaction
    :ivar read_amplification: sorted runs in the bucket with the most: what its readers merge
    :ivar write_amplification: bytes that were written for each byte of level 0 that was taken away
    :ivar small_file_ratio: the part of the files that is small and shares its bucket with others
    :ivar planned_buckets: buckets that were compacted; :attr:`skipped_buckets` had nothing to do
    :ivar indexed_files: files that got other indexes, of :attr:`bytes_read` bytes; :attr:`skipped_files` had them
    :ivar embedded_indexes: files whose indexes are in the manifest, :attr:`index_files` those that have them beside
    :ivar plan: the decision: which buckets, and why (at most 50 of them)
    """

    snapshot_id: int | None = None
    schema_id: int | None = None
    snapshots: int | None = None
    rows_written: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    files: int | None = None
    files_before: int | None = None
    files_after: int | None = None
    bytes_rewritten: int | None = None
    write_amplification: float | None = None
    bytes: int | None = None
    level0_files: int | None = None
    rows_not_visible: int | None = None
    read_amplification: int | None = None
    read_amplification_before: int | None = None
    deletion_vector_rows: int | None = None
    small_file_ratio: float | None = None
    duration_seconds: float | None = None
    commit_attempts: int | None = None
    planned_buckets: int | None = None
    skipped_buckets: int | None = None
    indexed_files: int | None = None
    skipped_files: int | None = None
    bytes_read: int | None = None
    embedded_indexes: int | None = None
    index_files: int | None = None
    plan: dg.TableMetadataValue | None = None
    before_after: dg.TableMetadataValue | None = None

    def to_dagster(self) -> Metadata:
        """Return the keys that have a value, in Dagster's form."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            f"paimon/{name}": round(value, 3) if isinstance(value, float) else value
            for name, value in found.items()
            if value is not None
        }


def filter_report(report: TableReport, path: str) -> TableReport:
    """Return a report cut down to one partition."""
    return replace(report, buckets=tuple(b for b in report.buckets if b.partition == path))


def filter_result(result: CompactionResult, path: str) -> CompactionResult:
    """Return a result whose plan is cut down to one partition; its sums stay those of the commit."""
    units = tuple(unit for unit in result.plan.units if unit.partition_text == path)
    return replace(result, plan=replace(result.plan, units=units))


def build_table_state(report: TableReport) -> PaimonMetadata:
    """Return what a table or partition looks like."""
    return PaimonMetadata(
        files=report.file_count,
        bytes=report.bytes,
        level0_files=report.level0_files,
        rows_not_visible=_get_rows_not_visible(report),
        read_amplification=_compute_max_sorted_runs(report),
        deletion_vector_rows=report.deleted_rows,
        small_file_ratio=report.small_files / max(report.file_count, 1),
    )


def count_rows_not_visible(table: Table, snapshot: Snapshot) -> int | None:
    """Return the records of a snapshot that wait for compaction, None for tables whose readers see all files."""
    schema = table.schema
    visibility = Visibility(schema)
    if not (visibility.skips_level_0 or has_postpone_buckets(schema)):
        return None
    return visibility.rows_not_visible(table.stores.manifests, snapshot)


def _get_rows_not_visible(report: TableReport) -> int | None:
    """Return the records that wait for compaction, None for tables whose readers see all files."""
    hides = Visibility(report.schema).skips_level_0 or has_postpone_buckets(report.schema)
    return report.rows_not_visible if hides else None


def _compute_max_sorted_runs(report: TableReport) -> int:
    """Return what readers merge in the bucket with the most."""
    if not report.schema.primary_keys:
        return 0
    buckets = (bucket.files for bucket in report.buckets if bucket.bucket >= 0)
    return max((len(build_bucket_runs(files, report.schema)) for files in buckets), default=0)


def build_row_count_metadata(report: TableReport, *, partition: bool) -> Metadata:
    """Return the rows of a table or partition, nothing where only a merge can tell."""
    key = "dagster/partition_row_count" if partition else "dagster/row_count"
    return {} if report.row_count is None else {key: report.row_count}


def build_compaction_metadata(
    before: TableReport,
    after: TableReport,
    result: CompactionResult,
    *,
    partition: bool,
    alone: bool = True,
) -> Metadata:
    """Return what a compaction did to a table or partition, and the decision that it followed.

    :param alone: whether the result is of nothing else; sums over several partitions are left out
    """
    units, now = result.plan.units, build_table_state(after)
    level0 = sum(f.file_size for f in result.plan.inputs if f.level == 0)
    state = replace(
        now,
        snapshot_id=after.snapshot_id,
        files=None,
        files_before=before.file_count,
        files_after=after.file_count,
        bytes_rewritten=result.plan.bytes,
        duration_seconds=result.duration_seconds,
        commit_attempts=result.attempts,
        planned_buckets=result.plan.buckets,
        skipped_buckets=max(len(before.buckets) - result.plan.buckets, 0),
        read_amplification_before=_compute_max_sorted_runs(before),
        plan=build_plan_table(units, partition=partition) if units else None,
        before_after=_build_before_after_table(build_table_state(before), now),
    )
    if alone:
        state = replace(
            state,
            rows_written=result.rows_written,
            bytes_written=result.bytes_written,
            write_amplification=result.bytes_written / level0 if level0 else None,
        )
    return state.to_dagster() | build_row_count_metadata(after, partition=partition)


def _build_before_after_table(
    before: PaimonMetadata, after: PaimonMetadata
) -> dg.TableMetadataValue:
    """Return the state before and after a run, side by side."""
    rows = (
        {"figure": name, "before": getattr(before, name), "after": getattr(after, name)}
        for name in _STATE_METRICS
    )
    return build_metadata_table(rows, {"figure": "string", "before": "float", "after": "float"})


def build_plan_table(units: Sequence[CompactionUnit], *, partition: bool) -> dg.TableMetadataValue:
    """Return the first buckets of a compaction plan as a table; plans begin with the largest.

    :param partition: whether all buckets are of one partition, which is left out then
    """
    names = list(_PLAN_COLUMNS)
    rows = (
        ({} if partition else {"partition": unit.partition_text})
        | {name: getattr(unit, name) for name in names}
        for unit in units
    )
    return build_metadata_table(
        rows, ({} if partition else {"partition": "string"}) | _PLAN_COLUMNS
    )


def build_decisions_metadata(decisions: Sequence[CompactionDecision]) -> Metadata:
    """Return what a policy decided: how many partitions it compacts and leaves, and why, those it compacts first."""
    if not decisions:
        return {}
    chosen = sum(decision.compact for decision in decisions)
    rows = [decision.to_dict() for decision in sorted(decisions, key=lambda d: not d.compact)]
    shown = ({name: row[name] for name in _DECISION_COLUMNS} for row in rows)
    return {
        "paimon/partitions_to_compact": chosen,
        "paimon/partitions_not_now": len(decisions) - chosen,
        "paimon/decisions": build_metadata_table(shown, _DECISION_COLUMNS),
    }


def build_metadata_table(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]
) -> dg.TableMetadataValue:
    """Return the first rows as a table of columns with these types; how many there are is another figure."""
    records = [dg.TableRecord(dict(row)) for row in islice(rows, MAX_TABLE_RECORDS)]
    schema = dg.TableSchema([dg.TableColumn(*item) for item in columns.items()])
    return dg.MetadataValue.table(records, schema=schema)


def build_index_metadata(
    plan: FileIndexRewritePlan,
    result: FileIndexRewriteResult,
    partition: str | None = None,
    *,
    alone: bool = True,
) -> Metadata:
    """Return what a rewrite of file indexes did to a partition, without one to the whole table.

    :param alone: whether the result is of nothing else; sums over several partitions are left out
    """
    units = [unit.to_dict() for unit in plan.units]
    rows = [row for row in units if partition in (None, row["partition"])]
    state = PaimonMetadata(
        snapshot_id=result.snapshot_id or plan.snapshot_id,
        indexed_files=sum(int(str(row["files"])) for row in rows),
        bytes_read=sum(int(str(row["bytes"])) for row in rows),
        duration_seconds=result.duration_seconds,
        plan=build_metadata_table(rows, _INDEX_COLUMNS) if rows else None,
    )
    if alone:
        state = replace(
            state,
            skipped_files=plan.skipped_files,
            embedded_indexes=result.embedded,
            index_files=result.index_files,
        )
    return state.to_dagster()


def build_column_metadata(schema: TableSchema, source: dg.AssetKey) -> Metadata:
    """Return the columns of an asset whose rows are those of the table's asset, and that each comes from its own."""
    deps = {name: [dg.TableColumnDep(source, name)] for name in schema.names}
    return {
        "dagster/column_schema": build_column_schema(schema),
        "dagster/column_lineage": dg.TableColumnLineage(deps),
    }


def build_column_schema(schema: TableSchema) -> dg.TableSchema:
    """Return a table's columns as Dagster shows them, with its keys as constraints."""
    return dg.TableSchema(
        [
            dg.TableColumn(
                field.name,
                type_to_sql(field.type.with_nullable(True)),
                field.description,
                dg.TableColumnConstraints(
                    nullable=field.type.nullable, unique=schema.primary_keys == (field.name,)
                ),
            )
            for field in schema.fields
        ],
        dg.TableConstraints(
            [
                f"{kind} ({', '.join(names)})"
                for kind, names in (
                    ("primary key", schema.primary_keys),
                    ("partitioned by", schema.partition_keys),
                )
                if names
            ]
        ),
    )
