"""Defines the schema of a new table, and checks the rules that all schemas follow.

See docs/format/schema.md#validation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.bucket.hive_hash import check_hive_key
from paimon_orch.format.file_index.index_options import parse_index_specs
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    BLOB_FIELD,
    BUCKET_FUNCTION_TYPE,
    BUCKET_KEY,
    DATA_EVOLUTION_ENABLED,
    PRIMARY_KEY_NULLABLE,
    RECORD_LEVEL_TIME_FIELD,
    SEQUENCE_FIELD,
)
from paimon_orch.format.options.primary_key_validation import check_primary_key_options
from paimon_orch.format.options.validation import check_options, check_storable, split_names
from paimon_orch.format.schema import KEY_PREFIX, TableSchema
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    is_blob,
    list_child_types,
    type_to_sql,
)

_EXPIRATION_TIMES = (TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_RESERVED_NAMES = {"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_ROW_ID", "rowkind"}


def build_table_schema(
    fields: Sequence[Field],
    *,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    time_millis: int = 0,
) -> TableSchema:
    """Build and validate the first schema of a table; field ids are assigned.

    See docs/format/schema.md#field-ids.
    """
    values = dict(options or {})
    partition_by = list(partition_by) or split_names(values.pop("partition", ""))
    primary_key = list(primary_key) or split_names(values.pop("primary-key", ""))
    fields_with_ids, highest = assign_field_ids(fields)
    nullable = Options(values).get(PRIMARY_KEY_NULLABLE)
    fields = [
        replace(field, type=field.type.with_nullable(nullable))
        if field.name in primary_key
        else field
        for field in fields_with_ids
    ]
    check_storable(values)
    schema = TableSchema(
        id=0,
        fields=tuple(fields),
        highest_field_id=highest,
        partition_keys=tuple(partition_by),
        primary_keys=tuple(primary_key),
        options=values,
        comment=comment,
        time_millis=time_millis,
    )
    validate_schema(schema)
    return schema


def assign_field_ids(fields: Iterable[Field], highest: int = -1) -> tuple[list[Field], int]:
    """Assign ids to columns and nested fields; return the columns and the highest id."""
    counter = highest

    def assign_ids(data_type: DataType) -> DataType:
        nonlocal counter
        match data_type:
            case ArrayType(nullable, element):
                return ArrayType(nullable, assign_ids(element))
            case MultisetType(nullable, element):
                return MultisetType(nullable, assign_ids(element))
            case MapType(nullable, key, value):
                return MapType(nullable, assign_ids(key), assign_ids(value))
            case RowType(nullable, children):
                children_with_ids = []
                for child in children:  # children get their ids before their parent
                    child_type = assign_ids(child.type)
                    counter += 1
                    children_with_ids.append(replace(child, id=counter, type=child_type))
                return RowType(nullable, tuple(children_with_ids))
        return data_type

    result = []
    for field in fields:
        counter += 1
        column_id = counter
        result.append(replace(field, id=column_id, type=assign_ids(field.type)))
    return result, counter


def _check_column_names(names: Sequence[str]) -> None:
    if not names:
        raise InputError("a table needs at least one column")
    for position, name in enumerate(names, 1):
        if not name.strip():
            raise InputError(f"column {position} has no name: {name!r}")
        if names.count(name) > 1:
            raise InputError(f"column {name!r} is declared twice")
        if name in _RESERVED_NAMES or name.startswith(KEY_PREFIX):
            raise InputError(f"column name {name!r} is reserved by the format; choose another")


def _check_nested_names(column: str, data_type: DataType) -> None:
    """Refuse a ROW that names a field twice: its schema file could not be read again."""
    if isinstance(data_type, RowType):
        counts = Counter(field.name for field in data_type.fields)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise InputError(f"column {column!r} has a ROW that declares field {twice[0]!r} twice")
    for child in list_child_types(data_type):
        _check_nested_names(column, child)


def validate_schema(schema: TableSchema) -> None:
    """Raise :class:`InputError` for violations of docs/format/schema.md#validation."""
    names = schema.names
    _check_column_names(names)
    for field in schema.fields:
        _check_nested_names(field.name, field.type)
    for kind, keys in (("primary key", schema.primary_keys), ("partition", schema.partition_keys)):
        for name in keys:
            if name not in names:
                raise NotFoundError(
                    f"{kind} column {name!r} is not among the columns {', '.join(names)}"
                )
            if not isinstance(schema.field(name).type, AtomicType):
                raise InputError(f"{kind} column {name!r} must have a simple type")
        if len(set(keys)) < len(keys):
            raise InputError(f"the {kind} names a column twice")
    if schema.primary_keys and not schema.trimmed_primary_keys:
        raise InputError(
            "the primary key has only partition columns; add a column that distinguishes the rows "
            "of a partition"
        )
    check_options(schema.options, names, schema.primary_keys)
    _validate_blobs(schema)
    check_sequence_fields(schema)
    check_time_field(schema)
    for spec in parse_index_specs(schema.options):
        spec.value_type(schema.fields)
    _validate_bucket(schema)
    check_primary_key_options(
        schema.typed_options, schema.primary_keys, cross_partition=schema.cross_partition
    )


def check_sequence_fields(schema: TableSchema) -> None:
    """Raise :class:`InputError` if ``sequence.field`` names what cannot order rows."""
    for name in schema.typed_options.get(SEQUENCE_FIELD):
        if name not in schema.names:
            raise InputError(f"'sequence.field' names {name!r}, which is not a column of the table")
        kind = schema.field(name).type
        if not isinstance(kind, AtomicType) or is_blob(kind):
            raise InputError(
                f"'sequence.field' names {name!r} of type {type_to_sql(kind)}, which has no order"
            )


def check_time_field(schema: TableSchema) -> None:
    """Raise :class:`InputError` if ``record-level.time-field`` names what cannot hold a time."""
    name = schema.typed_options.get(RECORD_LEVEL_TIME_FIELD)
    if name and not is_expiration_time(schema.field(name).type):
        raise InputError(
            f"'record-level.time-field' names {name!r} of type "
            f"{type_to_sql(schema.field(name).type)}, which must be INT, BIGINT or TIMESTAMP"
        )


def is_expiration_time(kind: DataType) -> bool:
    """Return whether rows can expire by a column of a type."""
    return isinstance(kind, AtomicType) and kind.name in _EXPIRATION_TIMES


def _validate_blobs(schema: TableSchema) -> None:
    names = [field.name for field in schema.fields if is_blob(field.type)]
    for name in schema.typed_options.get(BLOB_FIELD):
        if name not in names:
            raise InputError(f"'blob-field' names {name!r}, which is not a column of type BLOB")
    if not names:
        return
    for name in schema.identifying_names:
        if name in names:
            raise InputError(f"key column {name!r} must not be a BLOB")
    options = schema.typed_options
    if schema.primary_keys:
        if options.merge_engine != "deduplicate" or options.changelog_producer != "none":
            raise InputError(
                f"BLOB column {names[0]!r}: a primary-key table with BLOB columns needs "
                "'merge-engine' = deduplicate and 'changelog-producer' = none"
            )
    elif not options.get(DATA_EVOLUTION_ENABLED):
        raise InputError(
            f"BLOB column {names[0]!r} needs 'row-tracking.enabled' and 'data-evolution.enabled' = "
            "true, because its values are in separate files"
        )
    if len(names) == len(schema.fields):
        raise InputError("a table with BLOB columns needs another column")


def _validate_bucket(schema: TableSchema) -> None:
    bucket, bucket_key = schema.typed_options.bucket, schema.typed_options.get(BUCKET_KEY)
    if bucket < 1 and bucket not in (-1, -2):
        raise InputError(
            f"option 'bucket' = {bucket} must be positive, -1 (dynamic) or -2 (postpone)"
        )
    if bucket == -2 and not schema.primary_keys:
        raise InputError("option 'bucket' = -2 (postpone) needs a primary key")
    if bucket == -1 and bucket_key:
        raise InputError("option 'bucket-key' needs a fixed 'bucket' count")
    if bucket >= 1 and not schema.primary_keys and not bucket_key:
        raise InputError(
            "a table without primary key needs option 'bucket-key' for its fixed buckets"
        )
    _validate_bucket_function(schema)
    if bucket_key:
        _validate_bucket_key(schema)


def _validate_bucket_function(schema: TableSchema) -> None:
    function = schema.typed_options.get(BUCKET_FUNCTION_TYPE)
    for field in schema.bucket_key_fields if function == "hive" else ():
        check_hive_key(field.name, field.type)
    if function == "mod" and [
        field.type.with_nullable(True) for field in schema.bucket_key_fields
    ] not in ([AtomicType(name=TypeRoot.INT)], [AtomicType(name=TypeRoot.BIGINT)]):
        raise InputError(
            "'bucket-function.type' = 'mod' needs one bucket key of type INT or BIGINT"
        )


def _validate_bucket_key(schema: TableSchema) -> None:
    for field in schema.bucket_key_fields:
        if field.name in schema.partition_keys:
            raise InputError(f"bucket key column {field.name!r} must not be a partition column")
        if schema.primary_keys and field.name not in schema.primary_keys:
            raise InputError(f"bucket key column {field.name!r} must belong to the primary key")
        if not isinstance(field.type, AtomicType):
            raise InputError(f"bucket key column {field.name!r} must have a simple type")
