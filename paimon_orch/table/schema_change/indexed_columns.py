"""Checks before columns with global indexes are dropped or get another type.

Index files do not state the type of their keys, and nothing but the name of its column selects an
index to drop. Java Paimon has no such check.

See docs/format/global-index-files.md#use-on-read.
"""

from collections.abc import Iterable

from paimon_orch.errors import InputError
from paimon_orch.format.manifest.index_source import covers_data_files
from paimon_orch.table.schema_change.schema_changes import (
    DropColumn,
    RenameColumn,
    SchemaChange,
    UpdateType,
)
from paimon_orch.table.table_state import TableState


def check_no_index_of_changed_columns(state: TableState, changes: Iterable[SchemaChange]) -> None:
    """Raise :class:`InputError` if a column with a global index is dropped or gets another type."""
    ids = {field.name: field.id for field in state.schema.fields}
    changed = dict[int, str]()
    for change in changes:
        if not isinstance(change, DropColumn | RenameColumn | UpdateType):
            continue
        name = change.column if isinstance(change.column, str) else change.column[0]
        if isinstance(change, RenameColumn):
            if isinstance(change.column, str) and name in ids:
                ids[change.to] = ids.pop(name)
        elif name in ids:
            changed[ids[name]] = name
    if not changed:
        return
    for entry in state.manifests.read_index_entries(state.snapshot):
        index = entry.global_index
        for field_id in () if index is None or covers_data_files(entry) else index.field_ids:
            if field_id in changed:
                raise InputError(
                    f"column {changed[field_id]!r} of {state.identifier} has a {entry.index_type} "
                    "index and cannot be dropped or change its type; drop the index first with "
                    "drop-global-index"
                )
