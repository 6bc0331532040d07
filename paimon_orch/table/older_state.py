"""Reads and restores an older snapshot by the options that its rows were merged by.

A rollback keeps all schemas, so readers then use the newest options. See docs/format/rollback.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    AGGREGATION_REMOVE_RECORD_ON_DELETE,
    CHANGELOG_PRODUCER,
    DELETION_VECTORS_ENABLED,
    FAMILIES,
    FIELD_STATS_MODE,
    FIELDS_DEFAULT_AGGREGATE_FUNCTION,
    FORCE_LOOKUP,
    MERGE_ENGINE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP,
    PK_CLUSTERING_OVERRIDE,
    SEQUENCE_FIELD,
    SEQUENCE_FIELD_SORT_ORDER,
    SEQUENCE_SNAPSHOT_ORDERING,
)
from paimon_orch.format.options.option_lookup import find_option
from paimon_orch.format.options.table_option import AnyOption, OptionClass
from paimon_orch.format.options.typed_options import IGNORE_DELETE_OPTIONS
from paimon_orch.format.options.validation import parse_option_columns, rename_option_columns
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.cast_rules import find_unreadable_field
from paimon_orch.format.types.data_types import AtomicType, DataType, Field, TypeRoot, type_to_sql
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.bucket_split import BucketSplit

if TYPE_CHECKING:
    from paimon_orch.table.table_stores import TableStores

_LOOKUP_OPTIONS: tuple[AnyOption, ...] = (CHANGELOG_PRODUCER, FORCE_LOOKUP)
"""Options that matter to readers only by :attr:`Options.needs_lookup`."""
_MERGE_OPTIONS: tuple[AnyOption, ...] = (
    DELETION_VECTORS_ENABLED,
    MERGE_ENGINE,
    SEQUENCE_FIELD,
    SEQUENCE_FIELD_SORT_ORDER,
    SEQUENCE_SNAPSHOT_ORDERING,
    PK_CLUSTERING_OVERRIDE,
    AGGREGATION_REMOVE_RECORD_ON_DELETE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP,
    FIELDS_DEFAULT_AGGREGATE_FUNCTION,
    *IGNORE_DELETE_OPTIONS,
    *_LOOKUP_OPTIONS,
    *(
        option
        for option in FAMILIES
        if option.key.startswith("fields.")
        and option.option_class is OptionClass.HONOURED
        and option is not FIELD_STATS_MODE
    ),
)
"""Options by which readers merge files.

Expiration of records is none of them: only compactions drop expired rows.
"""
_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_STRINGS = (TypeRoot.VARCHAR, TypeRoot.VARBINARY)
_MERGE_KEYS = frozenset(option.key for option in _MERGE_OPTIONS)


def check_same_rows_under_newest_options(stores: "TableStores", target: Snapshot) -> None:
    """Raise :class:`InputError` if the newest schema would show other rows of a snapshot.

    Its options, and the types of columns by which rows are merged, matter only while a bucket has
    files to merge or deletion vectors.
    """
    newest, older = stores.schemas.latest(), stores.schemas.get(target.schema_id)
    if newest.id != older.id:
        unreadable = describe_unreadable_files(stores, target, newest.fields)
        if unreadable is not None:
            raise InputError(
                f"{unreadable}, so the table could not be read after a return to snapshot "
                f"{target.id}; read it by time travel or by a tag instead"
            )
    changed, retyped = _find_changed_options(older, newest), _find_retyped_columns(older, newest)
    if not changed and not retyped:
        return
    bucket = find_bucket_to_merge(stores.files(target), older, stores.paths.root)
    if bucket is None:
        return
    if retyped:
        raise InputError(
            f"the type of column {', '.join(map(repr, retyped))}, by which rows are merged, has "
            f"changed since snapshot {target.id}, and {bucket} in that snapshot, so the table "
            "would show other rows than the snapshot; read it by time travel or by a tag instead"
        )
    names = ", ".join(map(repr, changed))
    actions = " and ".join(
        f"reset {key!r}" if value is None else f"set {key!r} to {value!r} again"
        for key, value in changed.items()
    )
    raise InputError(
        f"option {names} has changed since snapshot {target.id}, and {bucket} in that snapshot, "
        f"so the table would show other rows than the snapshot; to roll back, {actions} first, "
        "after the full compaction that this may need"
    )


def describe_unreadable_files(
    stores: "TableStores", snapshot: Snapshot, fields: Sequence[Field]
) -> str | None:
    """Describe files of a snapshot with values that cannot be cast to the types of ``fields``."""
    schemas = stores.schemas.get_all(stores.schemas.ids())
    unreadable = {
        number: pair
        for number, schema in schemas.items()
        if (pair := find_unreadable_field(schema.fields, fields)) is not None
    }
    if not unreadable:
        return None
    for split in stores.files(snapshot):
        for file in split.files:
            if file.schema_id in unreadable:
                old, new = unreadable[file.schema_id]
                return (
                    f"files of schema {file.schema_id} have column {new.name!r} as "
                    f"{type_to_sql(old.type)}, which cannot be cast to {type_to_sql(new.type)}"
                )
    return None


def describe_changed_merge(
    stores: "TableStores", older: TableSchema, newer: TableSchema
) -> str | None:
    """Describe how a newer schema changes the merge of files that are not compacted, or None."""
    names = [f"option {key!r}" for key in _find_changed_options(older, newer)]
    names += [f"the type of column {name!r}" for name in _find_retyped_columns(older, newer)]
    latest = stores.get_snapshot() if names else None
    if latest is None:
        return None
    bucket = find_bucket_to_merge(stores.files(latest), older, stores.paths.root)
    if bucket is None:
        return None
    return f"the merge of rows by {' and '.join(names)}, because {bucket}"


def find_bucket_to_merge(
    splits: Iterable[BucketSplit], schema: TableSchema, table: str
) -> str | None:
    """Describe the first bucket with rows to merge or deletion vectors, or return None."""
    for split in splits:
        levels = {file.level for file in split.files}
        merges = bool(schema.primary_keys) and (len(levels) > 1 or 0 in levels)
        if merges or has_vectors_of_live_files(split):
            where = format_partition(split.partition, schema) or table
            return f"bucket {split.bucket} of {where} has rows to merge or deletion vectors"
    return None


def has_vectors_of_live_files(split: BucketSplit) -> bool:
    """Return whether a deletion vector of the bucket belongs to one of its files."""
    names = {file.file_name for file in split.files}
    return any(item.data_file in names for entry in split.vectors for item in entry.ranges or ())


def apply_older_options(newest: TableSchema, older: TableSchema) -> TableSchema:
    """Return the newest columns with the options by which an older schema merges rows.

    Raises :class:`InputError` if such an option needs a column that was dropped, or that has
    another type now.
    """
    if newest.id == older.id:
        return newest
    if retyped := _find_retyped_columns(older, newest):
        raise InputError(
            f"the rows of schema {older.id} are merged by column {', '.join(map(repr, retyped))}, "
            "whose type has changed; read the snapshots of this schema by time travel"
        )
    merging = {k: value for k, value in _translate(older, newest).items() if _merges(k, newest)}
    for key, value in merging.items():
        for name in parse_option_columns(key, value):
            if name not in newest.names:
                raise InputError(
                    f"the rows of schema {older.id} are merged by option {key!r} = {value!r}, but "
                    f"the newest schema has no column {name!r}; read the snapshots of schema "
                    f"{older.id} by time travel"
                )
    others = {key: value for key, value in newest.options.items() if not _merges(key, newest)}
    return replace(newest, options=others | merging)


def _merges(key: str, schema: TableSchema) -> bool:
    """Return whether an option determines the rows that readers of the table see."""
    option = find_option(key)
    if option is None or option.key not in _MERGE_KEYS:
        return False
    return bool(schema.primary_keys) or option is DELETION_VECTORS_ENABLED


def _translate(older: TableSchema, newest: TableSchema) -> Mapping[str, str]:
    """Return the options of a schema with the newest names of its columns."""
    names = {field.id: field.name for field in newest.fields}
    renamed = {
        field.name: names[field.id]
        for field in older.fields
        if names.get(field.id, field.name) != field.name
    }
    values = older.options
    for name in renamed:  # columns may have exchanged their names
        values = rename_option_columns(values, name, f"\0{name}")
    for name, new in renamed.items():
        values = rename_option_columns(values, f"\0{name}", new)
    return values


def _find_retyped_columns(older: TableSchema, newest: TableSchema) -> list[str]:
    """Return the columns by whose values rows are merged and whose values another type changes.

    Integers that become wider and texts that may become longer keep their values and their order.
    """
    if older.id == newest.id:
        return []
    merging = [item for item in older.options.items() if _merges(item[0], newest)]
    names = {name for key, value in merging for name in parse_option_columns(key, value)}
    is_merged = _merges(MERGE_ENGINE.key, newest)
    if is_merged and older.typed_options.get(MERGE_ENGINE) == "aggregation":
        names |= set(older.names)
    types = {field.id: field.type.with_nullable(True) for field in newest.fields}
    return [
        field.name
        for field in older.fields
        if field.name in names
        and not _keeps_values(field.type.with_nullable(True), types.get(field.id))
    ]


def _keeps_values(older: DataType, newer: DataType | None) -> bool:
    if newer is None or older == newer:  # options of dropped columns are another matter
        return True
    if not (isinstance(older, AtomicType) and isinstance(newer, AtomicType)):
        return type(older) is type(newer)  # fields of nested rows were added or dropped
    if older.name in _INTEGERS and newer.name in _INTEGERS:
        return _INTEGERS.index(older.name) < _INTEGERS.index(newer.name)
    return older.name == newer.name and older.name in _STRINGS and older.params <= newer.params


def _find_changed_options(older: TableSchema, newest: TableSchema) -> dict[str, str | None]:
    """Return the older values of the options by which readers merge and that differ."""
    if older.id == newest.id:
        return {}
    before, after = Options(_translate(older, newest)), newest.typed_options
    unchanged = set[str]()
    if before.ignores_delete == after.ignores_delete:
        unchanged |= {option.key for option in IGNORE_DELETE_OPTIONS}
    if before.needs_lookup == after.needs_lookup:
        unchanged |= {option.key for option in _LOOKUP_OPTIONS}
    changed = {}
    for key in sorted({*before.values, *after.values} - unchanged):
        option = find_option(key)
        if option is None or not _merges(key, newest):
            continue
        member, value = replace(option, key=key), before.values.get(key)
        # an explicit false of one name of ``ignore-delete`` overrules the next name
        is_equal = value == after.values.get(key) or (
            option not in IGNORE_DELETE_OPTIONS and before.get(member) == after.get(member)
        )
        if not is_equal:
            changed[key] = value
    return changed
