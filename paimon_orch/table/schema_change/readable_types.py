"""Checks before a column gets another type that its values in existing files can be read as it.

A change of a type is checked against the newest schema, but files keep the type of their own.

See docs/format/schema-evolution.md#casts.
"""

from collections.abc import Sequence

from paimon_orch.errors import InputError
from paimon_orch.table.older_state import describe_unreadable_files
from paimon_orch.table.schema_change.apply_schema_changes import apply_schema_changes
from paimon_orch.table.schema_change.schema_changes import SchemaChange, UpdateType
from paimon_orch.table.table_state import TableState


def check_files_have_readable_types(state: TableState, changes: Sequence[SchemaChange]) -> None:
    """Raise :class:`InputError` for a type that values of a live file cannot be cast to."""
    if state.snapshot is None or not any(isinstance(change, UpdateType) for change in changes):
        return
    newest = state.schema
    changed = apply_schema_changes(newest, changes, has_snapshots=True, time_millis=0)
    types = {field.id: field.type for field in newest.fields}
    retyped = [field for field in changed.fields if types.get(field.id, field.type) != field.type]
    unreadable = describe_unreadable_files(state, state.snapshot, retyped)
    if unreadable is not None:
        raise InputError(f"{unreadable}; add a column of the new type instead")
