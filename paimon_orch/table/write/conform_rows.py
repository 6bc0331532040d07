"""Converts input rows to the table's types, and adds row kinds and buckets.

All writers use this module: :class:`Table`, the command line, Spark and its data source.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.decode_limits import check_nulls
from paimon_orch.errors import DecodeLimitError, InputError
from paimon_orch.files.arrow_conversion import build_constant_column, convert_to_arrow_type
from paimon_orch.files.default_values import fill_default
from paimon_orch.files.nested_arrays import find_nested_null
from paimon_orch.format.arrays import Mask, build_nulls, measure_value, to_arrow_array
from paimon_orch.format.options.core_options import SEQUENCE_FIELD
from paimon_orch.format.row.row_kind import RowKind, is_retract, parse_row_kinds
from paimon_orch.format.schema import VALUE_KIND, TableSchema
from paimon_orch.format.text import encode_text
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.safe_text import clean_line
from paimon_orch.table.write.bucket_routing import add_bucket_column

_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)
_MAX_SHOWN_LETTERS = 100
_MAX_DEFAULT_BYTES = 1 << 30


def convert_rows(
    rows: pa.Table,
    schema: TableSchema,
    *,
    row_kind: str | None = None,
    kind: RowKind = RowKind.INSERT,
    are_new: bool = True,
) -> pa.Table:
    """Return rows in the table's types with ``_VALUE_KIND`` and the bucket, then other columns.

    ``row_kind`` names a text column of ``+I``, ``-U``, ``+U``, ``-D``, which is dropped; without
    it, all rows have ``kind``. Tables without a primary key have no row kinds. Rows that are not
    new keep their nulls in columns with a default. Raises :class:`InputError` for values that
    cannot be cast, for nulls in a NOT NULL column, and for keys to delete that would be rounded.
    """
    if are_new:
        _check_defaults(rows, schema)
    columns = {field.name: _convert_column(rows, field, are_new=are_new) for field in schema.fields}
    kinds = None if row_kind is None else parse_row_kinds(rows.column(row_kind).combine_chunks())
    if VALUE_KIND in schema.system_fields:
        if kinds is None:
            kinds = to_arrow_array(np.full(rows.num_rows, int(kind), np.int8))
        _check_exact_keys(rows, columns, schema, is_retract(kinds))
        columns = {VALUE_KIND.name: kinds, **columns}
    elif kinds is not None and is_retract(kinds).any():
        raise InputError(
            f"column {row_kind!r} has rows of kind -U or -D, which a table without a primary key "
            "does not accept; write only +I and +U, and delete rows by a condition"
        )
    for name in rows.column_names:
        if name not in columns and name != row_kind:
            columns[name] = rows.column(name)
    return add_bucket_column(pa.table(columns), schema)


def _list_optional_columns(schema: TableSchema) -> list[str]:
    """Return the columns that rows need not have: nullable or with a default, not part of keys."""
    required = schema.identifying_names | {field.name for field in schema.bucket_key_fields}
    required |= set(schema.typed_options.get(SEQUENCE_FIELD))
    return [
        field.name
        for field in schema.fields
        if (field.type.nullable or field.default_value is not None) and field.name not in required
    ]


def add_missing_columns(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Add the optional columns that rows do not have: null, which becomes the column's default."""
    names = [name for name in _list_optional_columns(schema) if name not in rows.column_names]
    types = {name: to_arrow_type(schema.field(name).type) for name in names}
    try:
        check_nulls(rows.num_rows, sum(map(measure_value, types.values())))
    except DecodeLimitError as error:
        raise InputError(f"{error}; write fewer rows at once, or more columns") from error
    for name, target in types.items():
        rows = rows.append_column(name, build_nulls(rows.num_rows, target))
    return rows


def check_columns(names: Iterable[str], schema: TableSchema, *, row_kind: str | None) -> None:
    """Raise :class:`InputError` if the columns differ from the table's; lists all differences.

    Nullable columns and columns with a default may be missing, except those of keys and
    ``sequence.field``. If there are other differences, they are listed too, because the name of a
    column may be misspelled.
    """
    given = list(names)
    differences = _find_column_differences(given, schema, row_kind)
    optional = _list_optional_columns(schema)
    completed = [*given, *(name for name in optional if name not in given)]
    if differences and _find_column_differences(completed, schema, row_kind):
        raise InputError(
            f"the rows do not have the table's columns: {'; '.join(differences)}. The table has "
            f"{', '.join(schema.names)}; nothing was written."
        )


def _find_column_differences(
    names: Sequence[str], schema: TableSchema, row_kind: str | None
) -> list[str]:
    distinct = set(names)
    missing = [name for name in schema.names if name not in distinct]
    unknown = sorted(distinct - set(schema.names) - {row_kind})
    if row_kind is not None and row_kind not in distinct:
        missing.append(row_kind)
    repeated = sorted(name for name in distinct if names.count(name) > 1)
    differences = []
    if missing:
        keys = [name for name in missing if name in schema.primary_keys]
        note = f" (of the primary key: {', '.join(keys)})" if keys else ""
        differences.append(f"missing {', '.join(missing)}{note}")
    if unknown:
        differences.append(f"unknown {', '.join(name or repr(name) for name in unknown)}")
    if repeated:
        differences.append(f"repeated {', '.join(repeated)}")
    return differences


def _convert_column(rows: pa.Table, field: Field, *, are_new: bool) -> pa.Array:
    array, target = rows.column(field.name).combine_chunks(), to_arrow_type(field.type)
    try:
        array = convert_to_arrow_type(array, target)
    except _REFUSED as error:
        raise InputError(
            f"column {field.name!r} is {array.type} and cannot be stored as "
            f"{type_to_sql(field.type.with_nullable(True))}: {error}"
            f"{_explain_refusal(array, target, str(error))}"
        ) from error
    if are_new:
        array = fill_default(array, field)
        _check_utf8(array, field)
    _check_not_null(array, field)
    return array


def _check_defaults(rows: pa.Table, schema: TableSchema) -> None:
    """Refuse defaults that rows cannot store: a schema has a long text once, but each row a copy."""
    sizes = {
        field.name: rows.column(field.name).null_count * len(encode_text(field.default_value))
        for field in schema.fields
        if field.default_value is not None
    }
    if sum(sizes.values()) > _MAX_DEFAULT_BYTES:
        name = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"the defaults of the columns need {sum(sizes.values())} bytes in {rows.num_rows} rows, "
            f"most of them that of column {name!r}, but at most {_MAX_DEFAULT_BYTES} bytes are "
            "stored at once; write fewer rows at once, or change the default. Nothing was written"
        )


def _explain_refusal(array: pa.Array, target: pa.DataType, reason: str) -> str:
    """Return the first value that does not fit, if the type holds others, and what to do then."""
    if not _fits(array.slice(0, 0), target):
        return ". Nothing was written"
    while len(array) > 1:
        first = array.slice(0, len(array) // 2)
        array = array.slice(len(first)) if _fits(first, target) else first
    if _fits(array, target):  # only many values together do not fit
        return ". Nothing was written"
    value = clean_line(str(array[0]))[:_MAX_SHOWN_LETTERS]
    shown = "" if value in reason else f" (the value is {value!r})"
    return f"{shown}. Nothing was written; to store rounded values, round or cast the column first"


def _fits(array: pa.Array, target: pa.DataType) -> bool:
    try:
        convert_to_arrow_type(array, target)
    except _REFUSED:
        return False
    return True


def _check_not_null(array: pa.Array, field: Field) -> None:
    if array.null_count and not field.type.nullable:
        raise InputError(
            f"column {field.name!r} has {array.null_count} null values, but it is NOT NULL (as "
            "every column of a primary key is); nothing was written"
        )
    if (path := find_nested_null(array, field.type)) is not None:
        raise InputError(
            f"column {field.name!r} has null at {path!r}, which is NOT NULL; nothing was written"
        )


def _check_utf8(array: pa.Array, field: Field) -> None:
    """Raise :class:`InputError` for text that is not UTF-8, which Arrow does not validate."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {field.name!r} has text that is not UTF-8 ({error}); decode it first, or "
            "store it as BYTES. Nothing was written"
        ) from error


def complete_rows_to_delete(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Add the columns that a delete by key does not need, with placeholder values.

    Raises :class:`InputError` if a column of the primary key, of the partition or of the option
    ``sequence.field`` is missing.
    """
    sequence_fields = schema.typed_options.get(SEQUENCE_FIELD)
    needed = dict.fromkeys((*schema.identifying_names, *sequence_fields))
    missing = [name for name in needed if name not in rows.column_names]
    if missing:
        raise InputError(
            f"the rows to delete do not have the columns {', '.join(missing)}. A delete requires "
            f"the primary key, the partition columns and the 'sequence.field': "
            f"{', '.join(needed)}. Nothing was deleted."
        )
    for field in schema.fields:
        if field.name not in rows.column_names:
            rows = rows.append_column(field.name, build_placeholder_values(field, rows.num_rows))
    return rows


def _check_exact_keys(
    rows: pa.Table, stored: Mapping[str, pa.Array], schema: TableSchema, retracts: Mask
) -> None:
    """Raise :class:`InputError` if a column would round a key to delete: another row has that key."""
    if not retracts.any():
        return
    for name in schema.primary_keys:
        keys = rows.column(name).combine_chunks()
        is_number = pa.types.is_floating(keys.type) or pa.types.is_decimal(keys.type)
        if not pa.types.is_floating(stored[name].type) or not is_number:
            continue  # all other types have refused values that they would change
        is_deleted = pa.array(retracts)
        keys, kept = keys.filter(is_deleted), stored[name].filter(is_deleted)
        is_changed = _find_changed(keys, kept)
        if pc.any(is_changed).as_py():
            value = keys.filter(is_changed)[0].as_py()
            raise InputError(
                f"column {name!r} of the rows to delete is {keys.type} and has the value {value}, "
                f"which its type in the table, {type_to_sql(schema.field(name).type)}, cannot hold "
                "exactly; nothing was written. Cast the column to the type of the table first, or "
                "remove this row"
            )


def _find_changed(keys: pa.Array, stored: pa.Array) -> pa.Array:
    """Return a mask of the values that a conversion has changed; types that differ more have none."""
    try:
        if stored.type == pa.float32() and keys.type == pa.float64():
            # 0.1 stands for the FLOAT that is printed with its digits, as in filters
            printed = pc.equal(stored.cast(pa.string()).cast(keys.type), keys)
            stored = pc.if_else(printed, keys, stored.cast(keys.type))
        changed = pc.not_equal(stored.cast(keys.type, safe=False), keys)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([], pa.bool_())
    return pc.and_not(changed, pc.is_nan(keys)) if pa.types.is_floating(keys.type) else changed


def build_placeholder_values(field: Field, length: int) -> pa.Array:
    """Return placeholders for a column that -D rows do not need: null, or empty if NOT NULL."""
    target = to_arrow_type(field.type)
    if field.type.nullable:
        return pa.nulls(length, target)
    is_text = pa.types.is_string(target) or pa.types.is_binary(target)
    empty = b"" if is_text else False if pa.types.is_boolean(target) else 0
    try:
        return build_constant_column(empty, field.type, length)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"the rows to delete must have a column {field.name!r}, because it is NOT NULL"
        ) from error
