"""Applies schema changes (``ALTER TABLE``) and checks their rules.

See docs/format/schema.md#schema-changes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from paimon_orch.errors import CommitConflictError, InputError, NotFoundError, PaimonError
from paimon_orch.files.default_values import parse_default
from paimon_orch.format.bucket.bucket_function import build_bucket_key_signature
from paimon_orch.format.options.core_options import (
    ADD_COLUMN_BEFORE_PARTITION,
    ALTER_COLUMN_NULL_TO_NOT_NULL_DISABLED,
    BUCKET_FUNCTION_TYPE,
    BUCKET_KEY,
    DISABLE_EXPLICIT_TYPE_CASTING,
)
from paimon_orch.format.options.validation import (
    check_option_change,
    check_storable,
    drop_option_column,
    parse_option_columns,
    rename_option_columns,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import assign_field_ids, validate_schema
from paimon_orch.format.types.cast_rules import can_cast
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    RowType,
    is_blob,
    iterate_fields,
    parse_type,
    type_to_sql,
)
from paimon_orch.retry_policy import SCHEMA_CHANGE
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    ColumnPath,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetOption,
    UpdateColumnComment,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateType,
)

_PATH_PARTS = "the name of a row's field, 'element' for an array, and 'value' for a map"


def alter_schema(
    store: SchemaStore,
    changes: Iterable[SchemaChange],
    *,
    has_snapshots: Callable[[], bool],
    time_millis: int,
) -> TableSchema:
    """Write and return the next schema version, or return the newest one if nothing changes.

    If another writer creates the version first, the changes are applied to that version. Raises
    :class:`InputError` if a change breaks a rule of the format; the table is then unchanged.
    """
    changes = list(changes)

    def create_next() -> TableSchema | None:
        old = store.latest()
        new = apply_schema_changes(
            old, changes, has_snapshots=has_snapshots(), time_millis=time_millis
        )
        if replace(new, id=old.id, time_millis=old.time_millis) == old:
            return old
        return new if store.create(new) else None

    schema = SCHEMA_CHANGE.call_until_result(create_next)
    if schema is None:
        raise CommitConflictError(
            f"{store.paths.root}: another schema change was first each time (attempts: "
            f"{SCHEMA_CHANGE.attempts}); the table is unchanged. Try again."
        )
    return schema


def apply_schema_changes(
    schema: TableSchema,
    changes: Iterable[SchemaChange],
    *,
    has_snapshots: bool,
    time_millis: int,
) -> TableSchema:
    """Return the next version of a schema, with all changes applied in order."""
    # highestFieldId of pypaimon before 2 leaves out the fields of nested rows
    ids = (field.id for field in iterate_fields(schema.fields))
    highest = max(schema.highest_field_id, max(ids, default=0))
    changed = replace(schema, highest_field_id=highest)
    for change in changes:
        changed = _apply_change(changed, change, has_snapshots=has_snapshots)
    validate_schema(changed)
    _check_can_use(schema, changed)
    for field in changed.fields:
        if field.default_value is not None and field not in schema.fields:
            parse_default(field)
    return replace(changed, id=schema.id + 1, time_millis=time_millis)


def _check_can_use(schema: TableSchema, changed: TableSchema) -> None:
    """Refuse changes after which rows cannot be merged, as with 'sum' of text, or written.

    Java Paimon makes some of them, and then refuses to read or write the table. A schema that is
    invalid already, or has functions of a newer release, can still be changed.
    """
    from paimon_orch.files.file_format import check_file_formats
    from paimon_orch.merge.engine.merge_engine import check_merge_engine

    for check in (check_merge_engine, check_file_formats):
        try:
            check(schema)
        except PaimonError:
            continue
        check(changed)


def _apply_change(schema: TableSchema, change: SchemaChange, *, has_snapshots: bool) -> TableSchema:
    match change:
        case SetOption(key, value):
            check_storable((key,))
            if has_snapshots:
                check_option_change(schema.options, key, value)
            return replace(schema, options={**schema.options, key: value})
        case ResetOption(key):
            if has_snapshots:
                check_option_change(schema.options, key, None)
            options = {name: text for name, text in schema.options.items() if name != key}
            return replace(schema, options=options)
        case UpdateComment(comment):
            return replace(schema, comment=comment)
        case AddColumn():
            return _add_column(schema, change)
        case DropColumn(column):
            return _drop_column(schema, column)
        case RenameColumn(column, to):
            return _rename_column(schema, column, to)
        case MoveColumn():
            return _move_column(schema, change)
    return _edit_field(schema, change.column, lambda field: _update_field(schema, field, change))


def _parse_column_path(column: ColumnPath) -> tuple[str, ...]:
    path = (column,) if isinstance(column, str) else tuple(column)
    if not path or not all(path):
        raise InputError("a column name must not be empty")
    return path


def _format_path(path: Sequence[str]) -> str:
    return ".".join(path)


SiblingFields = tuple[Field, ...]


def _edit_siblings(
    schema: TableSchema, path: Sequence[str], edit: Callable[[SiblingFields], SiblingFields]
) -> TableSchema:
    """Return the schema with the field at a path and its siblings replaced by ``edit``."""

    def edit_type(data_type: DataType, depth: int) -> DataType:
        match data_type:
            case RowType(fields=fields):
                return replace(data_type, fields=edit_fields(fields, depth))
            case ArrayType(element=inner) if path[depth] == "element":
                return replace(data_type, element=edit_item(inner, depth))
            case MapType(value=inner) if path[depth] == "value":
                return replace(data_type, value=edit_item(inner, depth))
        raise NotFoundError(
            f"there is no field {_format_path(path)!r}: {_format_path(path[:depth])!r} is "
            f"{type_to_sql(data_type)}; the parts of a path are {_PATH_PARTS}"
        )

    def edit_item(inner: DataType, depth: int) -> DataType:
        if depth < len(path) - 1:
            return edit_type(inner, depth + 1)
        (edited,) = edit((Field(id=-1, name=path[depth], type=inner),))
        if edited.name != path[depth]:
            raise InputError(
                f"{_format_path(path)!r} is not a field of a row and cannot be renamed"
            )
        return edited.type

    def edit_fields(fields: SiblingFields, depth: int) -> SiblingFields:
        if depth == len(path) - 1:
            return edit(fields)
        parent = _find_field(fields, path[: depth + 1])
        inner = replace(parent, type=edit_type(parent.type, depth + 1))
        return tuple(inner if field is parent else field for field in fields)

    return replace(schema, fields=edit_fields(schema.fields, 0))


def _find_field(fields: SiblingFields, path: Sequence[str]) -> Field:
    for field in fields:
        if field.name == path[-1]:
            return field
    existing = ", ".join(field.name for field in fields)
    raise NotFoundError(
        f"there is no column {_format_path(path)!r}; the existing columns are {existing}"
    )


def _edit_field(
    schema: TableSchema, column: ColumnPath, edit: Callable[[Field], Field]
) -> TableSchema:
    path = _parse_column_path(column)

    def edit_siblings(fields: SiblingFields) -> SiblingFields:
        target = _find_field(fields, path)
        return tuple(edit(field) if field is target else field for field in fields)

    return _edit_siblings(schema, path, edit_siblings)


def _add_column(schema: TableSchema, change: AddColumn) -> TableSchema:
    path = _parse_column_path(change.column)
    data_type = parse_type(change.type) if isinstance(change.type, str) else change.type
    if not data_type.nullable:
        raise InputError(
            f"column {_format_path(path)!r} is added as NOT NULL, but existing rows have no value "
            "for it; add it without NOT NULL"
        )
    if change.first and change.after:
        raise InputError(
            f"column {_format_path(path)!r} cannot be added both first and after {change.after!r}"
        )
    field = Field(
        id=-1,
        name=path[-1],
        type=data_type,
        description=change.comment,
        default_value=change.default,
    )
    (numbered,), highest = assign_field_ids([field], schema.highest_field_id)

    def find_end(fields: SiblingFields) -> int:
        before_partition = schema.typed_options.get(ADD_COLUMN_BEFORE_PARTITION)
        if not before_partition or len(path) > 1:
            return len(fields)
        positions = (i for i, f in enumerate(fields) if f.name in schema.partition_keys)
        return next(positions, len(fields))

    def insert(fields: SiblingFields) -> SiblingFields:
        _check_name_is_free(fields, path)
        position = 0 if change.first else find_end(fields)
        if change.after is not None:
            position = fields.index(_find_field(fields, (*path[:-1], change.after))) + 1
        return (*fields[:position], numbered, *fields[position:])

    return replace(_edit_siblings(schema, path, insert), highest_field_id=highest)


def _check_name_is_free(fields: SiblingFields, path: Sequence[str]) -> None:
    if any(field.name == path[-1] for field in fields):
        raise InputError(f"column {_format_path(path)!r} already exists")


def _drop_column(schema: TableSchema, column: ColumnPath) -> TableSchema:
    path = _parse_column_path(column)
    if len(path) == 1:
        _check_not_key(schema, path[0], "be dropped", partition_only=False)
        _check_not_indexed(schema, path[0], "be dropped")
        schema = replace(schema, options=drop_option_column(schema.options, path[0]))

    def drop(fields: SiblingFields) -> SiblingFields:
        dropped = _find_field(fields, path)
        if len(fields) == 1:
            raise InputError(
                f"column {_format_path(path)!r} is the only one left and cannot be dropped"
            )
        return tuple(field for field in fields if field is not dropped)

    return _edit_siblings(schema, path, drop)


def _check_not_key(schema: TableSchema, name: str, change: str, *, partition_only: bool) -> None:
    if name in schema.partition_keys:
        raise InputError(f"partition column {name!r} cannot {change}")
    if not partition_only and name in schema.primary_keys:
        raise InputError(f"column {name!r} belongs to the primary key and cannot {change}")


def _check_not_indexed(schema: TableSchema, name: str, change: str) -> None:
    """Refuse changes of columns of indexes: index files have values of the old type."""
    for key, value in schema.options.items():
        is_index = key.startswith("pk-") and key.endswith(".index.columns")
        if is_index and name in parse_option_columns(key, value):
            raise InputError(
                f"column {name!r} has an index and cannot {change}; remove it from option {key!r} "
                "first"
            )


def _rename_column(schema: TableSchema, column: ColumnPath, to: str) -> TableSchema:
    path = _parse_column_path(column)
    new_path = (*path[:-1], *_parse_column_path(to))

    def rename(fields: SiblingFields) -> SiblingFields:
        target = _find_field(fields, path)
        _check_name_is_free(fields, new_path)
        if is_blob(target.type):
            raise InputError(f"BLOB column {_format_path(path)!r} cannot be renamed")
        return tuple(replace(field, name=to) if field is target else field for field in fields)

    changed = _edit_siblings(schema, path, rename)
    if len(path) > 1:
        return changed
    _check_not_key(schema, path[0], "be renamed", partition_only=True)
    _check_not_indexed(schema, path[0], "be renamed")
    return replace(
        changed,
        primary_keys=tuple(to if name == path[0] else name for name in schema.primary_keys),
        options=rename_option_columns(schema.options, path[0], to),
    )


def _move_column(schema: TableSchema, change: MoveColumn) -> TableSchema:
    moved = schema.field(change.column)
    other_fields = [field for field in schema.fields if field is not moved]
    if change.where in ("first", "last"):
        position = 0 if change.where == "first" else len(other_fields)
    elif change.to is None or change.to == change.column:
        raise InputError(
            f"column {change.column!r} cannot be moved {change.where} {change.to!r}; "
            "name another column"
        )
    else:
        position = other_fields.index(schema.field(change.to)) + (change.where == "after")
    return replace(schema, fields=(*other_fields[:position], moved, *other_fields[position:]))


def _update_field(
    schema: TableSchema,
    field: Field,
    change: UpdateType | UpdateNullability | UpdateColumnComment | UpdateDefault,
) -> Field:
    match change:
        case UpdateColumnComment(_, comment):
            return replace(field, description=comment)
        case UpdateDefault(_, default):
            return replace(field, default_value=default)
        case UpdateNullability(_, nullable):
            return replace(
                field, type=_change_nullability(schema, change.column, field.type, nullable)
            )
        case UpdateType(_, new):
            return replace(field, type=_change_type(schema, change.column, field.type, new))


def _change_nullability(
    schema: TableSchema,
    column: ColumnPath,
    old: DataType,
    nullable: bool,  # noqa: FBT001 - it is the subject
) -> DataType:
    path = _parse_column_path(column)
    if len(path) == 1 and path[0] in schema.primary_keys and nullable and not old.nullable:
        raise InputError(f"column {path[0]!r} belongs to the primary key and must be NOT NULL")
    forbidden = schema.typed_options.get(ALTER_COLUMN_NULL_TO_NOT_NULL_DISABLED)
    if old.nullable and not nullable and forbidden:
        raise InputError(
            f"column {_format_path(path)!r} may hold null values and cannot become NOT NULL while "
            "the option 'alter-column-null-to-not-null.disabled' is true, its default"
        )
    return old.with_nullable(nullable)


def _change_type(
    schema: TableSchema, column: ColumnPath, old: DataType, new: str | DataType
) -> DataType:
    path = _parse_column_path(column)
    if len(path) == 1:
        _check_not_key(schema, path[0], "change its type", partition_only=False)
        _check_not_indexed(schema, path[0], "change its type")
    target = (parse_type(new) if isinstance(new, str) else new).with_nullable(old.nullable)
    explicit = not schema.typed_options.get(DISABLE_EXPLICIT_TYPE_CASTING)
    if not can_cast(old, target, explicit=explicit):
        hint = ""
        if isinstance(old, AtomicType) and can_cast(old, target):
            hint = " while the option 'disable-explicit-type-casting' is true"
        raise InputError(
            f"column {_format_path(path)!r} cannot change from {type_to_sql(old)} to "
            f"{type_to_sql(target)}{hint}"
        )
    if len(path) == 1:
        _check_bucket_hash_unchanged(schema, path[0], target)
    return target


def _check_bucket_hash_unchanged(schema: TableSchema, name: str, target: DataType) -> None:
    """Refuse a type that changes the hash of a bucket key: old rows would be in wrong buckets."""
    function = schema.typed_options.get(BUCKET_FUNCTION_TYPE)
    if not schema.typed_options.get(BUCKET_KEY) or function == "mod":
        return
    for field in schema.bucket_key_fields:
        changed = replace(field, type=target)
        if field.name == name and build_bucket_key_signature([field]) != build_bucket_key_signature(
            [changed]
        ):
            raise InputError(
                f"column {name!r} belongs to the bucket key and cannot change from "
                f"{type_to_sql(field.type)} to {type_to_sql(target)}: its values would belong to "
                "other buckets"
            )
