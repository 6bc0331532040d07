"""Metadata of runs: keys that begin with ``paimon/``, and tables of plans, decisions and columns.

Dagster plots all numbers, so metrics are numbers, and ids are text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, Any

import dagster as dg

from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.orchestration.run_reports import (
    MAX_TABLE_ROWS,
    ReportTable,
    RunReport,
    build_decisions_table,
)
from paimon_orch.safe_text import (
    clean_line,
    escape_line,
    escape_markdown,
    escape_name,
    format_names,
)
from paimon_orch.steps.compaction.policy import CompactionDecision

if TYPE_CHECKING:  # definitions load without the steps
    from paimon_orch.steps.inspection.inspect import TableReport

_TEXT_KEYS = frozenset(
    {
        "snapshot_id",
        "schema_id",
        "iceberg_snapshot_id",
        "commit_attempts",
        "planned_buckets",
        "skipped_buckets",
    }
)
"""Numbers that are ids, or the same after almost all runs; a plot of them would show nothing."""

Metadata = dict[str, Any]
"""Metadata by key, with all values that Dagster accepts."""


def to_metadata(report: RunReport) -> Metadata:
    """Return the figures of a report that have a value, with keys that begin with ``paimon/``."""
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    return {
        f"paimon/{name}": _to_dagster_value(name, value)
        for name, value in values.items()
        if value is not None
    }


def _to_dagster_value(name: str, value: object) -> object:
    if isinstance(value, ReportTable):
        return build_metadata_table(value.rows, value.columns)
    if name in _TEXT_KEYS:
        return str(value)
    if isinstance(value, str):
        return clean_line(value)
    return round(value, 3) if isinstance(value, float) else value


def build_row_count_metadata(report: "TableReport", *, partition: bool) -> Metadata:
    """Return the row count of a table or partition as metadata.

    Returns no metadata if only a merge can count the rows.
    """
    key = "dagster/partition_row_count" if partition else "dagster/row_count"
    return {} if report.row_count is None else {key: report.row_count}


def build_decisions_metadata(decisions: Sequence[CompactionDecision]) -> Metadata:
    """Return the decisions of a policy, starting with partitions to compact, and their counts."""
    if not decisions:
        return {}
    to_compact = sum(decision.compact for decision in decisions)
    table = build_decisions_table(decisions)
    return {
        "paimon/partitions_to_compact": to_compact,
        "paimon/partitions_not_now": len(decisions) - to_compact,
        "paimon/decisions": build_metadata_table(table.rows, table.columns),
    }


def build_metadata_table(
    rows: Iterable[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    max_records: int = MAX_TABLE_ROWS,
) -> dg.TableMetadataValue:
    """Return the first ``max_records`` rows as a table; ``columns`` are types by name."""
    records = [_build_table_record(row) for row in islice(rows, max_records)]
    schema = dg.TableSchema([dg.TableColumn(*item) for item in columns.items()])
    return dg.MetadataValue.table(records, schema=schema)


def _build_table_record(row: Mapping[str, Any]) -> dg.TableRecord:
    # Dagster cannot serialize enums of other packages; names of partitions and files are texts
    return dg.TableRecord(
        {name: clean_line(v) if isinstance(v, str) else v for name, v in row.items()}
    )


def build_column_schema(schema: TableSchema) -> dg.TableSchema:
    """Return the columns of a table as Dagster shows them, with its keys as constraints."""
    keys = {"primary key": schema.primary_keys, "partitioned by": schema.partition_keys}
    constraints = [f"{kind} ({format_names(names)})" for kind, names in keys.items() if names]
    columns = [_build_table_column(schema, field) for field in schema.fields]
    return dg.TableSchema(columns, dg.TableConstraints(constraints))


def _build_table_column(schema: TableSchema, field: Field) -> dg.TableColumn:
    is_unique = schema.primary_keys == (field.name,)
    return dg.TableColumn(
        escape_name(field.name),
        escape_line(type_to_sql(field.type.with_nullable(True))),
        None if field.description is None else escape_markdown(field.description),
        dg.TableColumnConstraints(nullable=field.type.nullable, unique=is_unique),
    )
