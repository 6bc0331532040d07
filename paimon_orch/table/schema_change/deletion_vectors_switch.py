"""Checks before deletion vectors are enabled or disabled in a table with rows.

With deletion vectors enabled, readers do not merge files. With deletion vectors disabled, readers
ignore existing ones. After a full compaction, a bucket has no files to merge and no deletion
vectors. No other process may write between the compaction and the change of the option.

See docs/format/lookup-compaction.md#options-for-deletion-vectors.
"""

from collections.abc import Iterable

from paimon_orch.errors import InputError
from paimon_orch.table.older_state import find_bucket_to_merge
from paimon_orch.table.schema_change.schema_changes import ResetOption, SchemaChange, SetOption
from paimon_orch.table.table_state import TableState

_DELETION_VECTORS_OPTION = "deletion-vectors.enabled"


def check_deletion_vectors_change(state: TableState, changes: Iterable[SchemaChange]) -> None:
    """Raise :class:`InputError` while a bucket has rows to merge or deletion vectors."""
    schema = state.schema
    is_enabled_after = schema.typed_options.has_deletion_vectors
    for change in changes:
        if isinstance(change, SetOption) and change.key == _DELETION_VECTORS_OPTION:
            is_enabled_after = change.value.strip().lower() == "true"
        elif isinstance(change, ResetOption) and change.key == _DELETION_VECTORS_OPTION:
            is_enabled_after = False
    if is_enabled_after == schema.typed_options.has_deletion_vectors:
        return
    bucket = find_bucket_to_merge(state.newest_files(), schema, state.identifier)
    if bucket is not None:
        raise InputError(
            f"option {_DELETION_VECTORS_OPTION!r} can only change after a full compaction of the "
            f"whole table, because {bucket}; run compact(table, executor, strategy='full') first"
        )
