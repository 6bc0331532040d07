"""What runs report: one class for our keys, so that names cannot drift, and views of plans and schemas.

Figures are reported as numbers, which Dagster plots.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

import dagster as dg

from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types import type_to_sql
from paimon_orch.steps.compact import CompactionResult, CompactionUnit
from paimon_orch.steps.inspect import TableReport
from paimon_orch.steps.rewrite_file_index import RewritePlan, RewriteResult

MAX_RECORDS = 50

_PLAN_COLUMNS = {
    "bucket": "int",
    "reason": "string",
    "files": "int",
    "rows": "int",
    "bytes": "int",
    "output_level": "int",
}
_INDEX_COLUMNS = {"partition": "string", "bucket": "int", "files": "int", "rows": "int", "bytes": "int"}  # fmt: skip

Metadata = dict[str, Any]
"""Metadata by key, of whatever Dagster takes as a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaimonMetadata:
    """The keys below ``paimon/``, each optional; sizes are in bytes, counts are of the asset or partition.

    :ivar deletion_vector_rows: rows that deletion vectors hide
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
    bytes: int | None = None
    level0_files: int | None = None
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

    def to_dagster(self) -> Metadata:
        """Return the keys that have a value, in Dagster's form."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            f"paimon/{name}": round(value, 3) if isinstance(value, float) else value
            for name, value in found.items()
            if value is not None
        }


def partition_report(report: TableReport, path: str) -> TableReport:
    """Return a report cut down to one partition."""
    return replace(report, buckets=tuple(b for b in report.buckets if b.partition == path))


def partition_result(result: CompactionResult, path: str) -> CompactionResult:
    """Return a result whose plan is cut down to one partition; its sums stay those of the commit."""
    units = tuple(unit for unit in result.plan.units if unit.partition_text == path)
    return replace(result, plan=replace(result.plan, units=units))


def table_state(report: TableReport) -> PaimonMetadata:
    """Return what a table or partition looks like."""
    return PaimonMetadata(
        files=report.file_count,
        bytes=report.bytes,
        level0_files=report.level0_files,
        deletion_vector_rows=report.hidden_rows,
        small_file_ratio=report.small_files / max(report.file_count, 1),
    )


def compaction_metadata(
    before: TableReport, after: TableReport, result: CompactionResult, *, partition: bool
) -> Metadata:
    """Return what a compaction did to a table or partition, and the decision that it followed."""
    units = result.plan.units
    state = replace(
        table_state(after),
        snapshot_id=after.snapshot_id,
        files=None,
        files_before=before.file_count,
        files_after=after.file_count,
        bytes_rewritten=result.plan.bytes,
        duration_seconds=result.duration_seconds,
        commit_attempts=result.attempts,
        planned_buckets=result.plan.buckets,
        skipped_buckets=max(len(before.buckets) - result.plan.buckets, 0),
        plan=plan_table(units, partition=partition) if units else None,
    )
    rows = "dagster/partition_row_count" if partition else "dagster/row_count"
    return state.to_dagster() | ({} if after.row_count is None else {rows: after.row_count})


def plan_table(units: Sequence[CompactionUnit], *, partition: bool) -> dg.TableMetadataValue:
    """Return the first buckets of a compaction plan as a table; plans begin with the largest.

    :param partition: whether all buckets are of one partition, which is left out then
    """
    names = list(_PLAN_COLUMNS)
    rows = (
        ({} if partition else {"partition": unit.partition_text})
        | {name: getattr(unit, name) for name in names}
        for unit in units
    )
    return rows_table(rows, ({} if partition else {"partition": "string"}) | _PLAN_COLUMNS)


def rows_table(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]
) -> dg.TableMetadataValue:
    """Return the first rows as a table of columns with these types; how many there are is another figure."""
    records = [dg.TableRecord(dict(row)) for row in islice(rows, MAX_RECORDS)]
    schema = dg.TableSchema([dg.TableColumn(*item) for item in columns.items()])
    return dg.MetadataValue.table(records, schema=schema)


def index_metadata(
    plan: RewritePlan, result: RewriteResult, partition: str | None = None, *, alone: bool = True
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
        plan=rows_table(rows, _INDEX_COLUMNS) if rows else None,
    )
    if alone:
        state = replace(
            state,
            skipped_files=plan.skipped_files,
            embedded_indexes=result.embedded,
            index_files=result.index_files,
        )
    return state.to_dagster()


def column_schema(schema: TableSchema) -> dg.TableSchema:
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
