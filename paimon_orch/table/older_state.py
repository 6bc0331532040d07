"""Whether the files of an older snapshot have the same rows under the newest schema's options.

A rollback keeps all schemas, so readers then use the newest options. See docs/format/rollback.md.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paimon_orch.errors import InputError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.filter.partition_spec import format_partition

if TYPE_CHECKING:
    from paimon_orch.table.table_stores import TableStores

_DEFAULTS = {
    "deletion-vectors.enabled": "false",
    "merge-engine": "deduplicate",
    "sequence.field": "",
    "sequence.field.sort-order": "ascending",
    "sequence.snapshot-ordering": "false",
    "pk-clustering-override": "false",
    "ignore-delete": "false",
}
"""Options by which readers merge files, and their defaults."""
_COLUMN_OPTIONS = (
    ".sequence-group",
    ".aggregate-function",
    ".default-aggregate-function",
    ".distinct",
    ".ignore-retract",
    ".nested-key",
)


def check_same_rows_under_newest_options(stores: "TableStores", target: Snapshot) -> None:
    """Raise :class:`InputError` if the newest options would show other rows of a snapshot.

    Options matter only while a bucket has files to merge or deletion vectors.
    """
    newest, older = stores.schemas.latest(), stores.schemas.get(target.schema_id)
    if newest.id == older.id:
        return
    changed = _find_changed_options(older.options, newest.options)
    if not changed:
        return
    for split in stores.files(target):
        levels = {file.level for file in split.files}
        merges = bool(older.primary_keys) and (len(levels) > 1 or 0 in levels)
        if merges or any(entry.ranges for entry in split.vectors):
            name, value = next(iter(changed.items()))
            where = format_partition(split.partition, older) or str(stores.paths.root)
            action = f"set it to {value!r} again" if value else "reset it"
            raise InputError(
                f"option {name!r} has changed since snapshot {target.id}, and bucket {split.bucket} "
                f"of {where} has rows to merge or deletion vectors in that snapshot, so the table "
                f"would show other rows than the snapshot; to roll back, {action} first, after the "
                "full compaction that this may need"
            )


def _find_changed_options(older: Mapping[str, str], newest: Mapping[str, str]) -> dict[str, str]:
    """Return the older values of the options by which readers merge and that differ."""
    columns = {
        name
        for name in older.keys() | newest.keys()
        if name.startswith("fields.") and name.endswith(_COLUMN_OPTIONS)
    }
    changed = {}
    for name in (*_DEFAULTS, *sorted(columns)):
        default = _DEFAULTS.get(name, "")
        before, after = older.get(name, default).strip(), newest.get(name, default).strip()
        if before.lower() != after.lower():
            changed[name] = before
    return changed
