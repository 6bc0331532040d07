"""Finds schema changes by which readers see other values of existing rows.

Java Paimon makes these changes without a warning. See docs/format/schema.md#schema-changes.
"""

from paimon_orch.format.display import format_count
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.cast_rules import may_lose_values
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.table.older_state import describe_changed_merge
from paimon_orch.table.table_state import TableState


def describe_changed_rows(state: TableState, older: TableSchema, newer: TableSchema) -> list[str]:
    """Describe which rows of a table readers see differently under a newer schema."""
    types = {field.id: field.type for field in newer.fields}
    retyped = [
        f"the values of column {field.name!r} in {{rows}} as {type_to_sql(types[field.id])}"
        for field in older.fields
        if field.id in types and may_lose_values(field.type, types[field.id])
    ]
    changes = list[str]()
    if retyped and (rows := sum(split.row_count for split in state.newest_files())):
        changes += [text.format(rows=format_count(rows, "row")) for text in retyped]
    merge = describe_changed_merge(state, older, newer)
    return changes if merge is None else [*changes, merge]
