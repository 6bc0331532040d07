"""Arrow forms of Paimon types, with the field ids that data files carry.

``TIME`` is ``time32[ms]``; ``TIMESTAMP(p)`` is ``timestamp[ms]``, ``[us]`` or ``[ns]`` for p up to
3, 6 and 9; ``TIMESTAMP_LTZ`` is the same in UTC; ``MULTISET<T>`` is ``map<T, int32>``;
``VECTOR<T, n>`` is a list of fixed size; ``VARIANT`` is a struct of two binaries.

See docs/format/data-files.md#parquet.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from paimon_orch.decode_limits import check_batch_bytes
from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Positions
from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    VariantType,
    VectorType,
)

NumberedBatch = tuple[Positions, pa.RecordBatch]
"""The positions of a batch's rows in their file, and the batch."""

FIELD_ID = b"PARQUET:field_id"
_NESTED_ID_BASE = 536870911
_NESTED_ID_STEP = 1024

VARIANT_TYPE = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # Spark identifies VARIANT columns in Arrow data by this metadata
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
"""The Arrow type of VARIANT; in Parquet files the ids of the fields are 0 and 1."""
_ARROW_TYPES_BY_NAME: dict[str, pa.DataType] = {
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.BLOB: pa.binary(),
    TypeRoot.TIME: pa.time32("ms"),
}
_VARIANT_TYPE_WITH_IDS = pa.struct(
    [
        field.with_metadata({**(field.metadata or {}), FIELD_ID: str(index).encode()})
        for index, field in enumerate(VARIANT_TYPE)
    ]
)
_ATOMIC_OF_ARROW: dict[pa.DataType, AtomicType] = {
    pa.bool_(): AtomicType(name=TypeRoot.BOOLEAN),
    pa.int8(): AtomicType(name=TypeRoot.TINYINT),
    pa.int16(): AtomicType(name=TypeRoot.SMALLINT),
    pa.int32(): AtomicType(name=TypeRoot.INT),
    pa.int64(): AtomicType(name=TypeRoot.BIGINT),
    pa.float32(): AtomicType(name=TypeRoot.FLOAT),
    pa.float64(): AtomicType(name=TypeRoot.DOUBLE),
    pa.date32(): AtomicType(name=TypeRoot.DATE),
    pa.time32("ms"): AtomicType(name=TypeRoot.TIME, params=(3,)),
}
_PRECISION_OF_UNIT = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def is_variant(arrow: pa.DataType) -> bool:
    """Return whether an Arrow type is that of VARIANT, not of a ROW with the same fields."""
    if not isinstance(arrow, pa.StructType) or arrow.get_field_index("metadata") < 0:
        return False
    return (arrow.field("metadata").metadata or {}).get(b"variant") == b"true"


def timestamp_unit(precision: int) -> str:
    """Return the Arrow unit that holds a TIMESTAMP of this precision."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def to_arrow_type(data_type: DataType, field_id: int | None = None, depth: int = 0) -> pa.DataType:
    """Return the Arrow type; with ``field_id`` its nested children carry ids.

    See docs/format/data-files.md#parquet.
    """
    match data_type:
        case AtomicType():
            return _to_arrow_atom(data_type)
        case VariantType():
            return VARIANT_TYPE if field_id is None else _VARIANT_TYPE_WITH_IDS
        case ArrayType(element=element) | VectorType(element=element):
            child = _to_arrow_child("element", element, field_id=field_id, depth=depth + 1, sign=1)
            return pa.list_(child, data_type.length if isinstance(data_type, VectorType) else -1)
        case MultisetType(element=element):
            return _to_arrow_map(element, AtomicType(False, TypeRoot.INT), field_id, depth)
        case MapType(key=key, value=value):
            return _to_arrow_map(key, value, field_id, depth)
        case RowType(fields=fields):
            return pa.struct(
                [to_arrow_field(field, with_ids=field_id is not None) for field in fields]
            )
    raise TypeError(data_type)


def _to_arrow_atom(data_type: AtomicType) -> pa.DataType:
    match data_type.name, data_type.params:
        case TypeRoot.DECIMAL, (precision, scale):
            return pa.decimal128(precision, scale)
        case TypeRoot.TIMESTAMP, (precision,):
            return pa.timestamp(timestamp_unit(precision))
        case TypeRoot.TIMESTAMP_LTZ, (precision,):
            return pa.timestamp(timestamp_unit(precision), tz="UTC")
    return _ARROW_TYPES_BY_NAME[data_type.name]


def _to_arrow_map(key: DataType, value: DataType, field_id: int | None, depth: int) -> pa.DataType:
    return pa.map_(
        _to_arrow_child(
            "key", key.with_nullable(False), field_id=field_id, depth=depth + 1, sign=-1
        ),
        _to_arrow_child("value", value, field_id=field_id, depth=depth + 1, sign=1),
    )


def _to_arrow_child(
    name: str, data_type: DataType, field_id: int | None, depth: int, sign: int
) -> "pa.Field[pa.DataType]":
    arrow = to_arrow_type(data_type, field_id, depth)
    field = pa.field(name, arrow, data_type.nullable)
    if field_id is None:
        return field
    child_id = compute_nested_field_id(field_id, depth, sign)
    return field.with_metadata({FIELD_ID: str(child_id).encode()})


def compute_nested_field_id(field_id: int, depth: int, sign: int) -> int:
    """Return the id of a list element or a map value (``sign`` 1), or of a map key (-1).

    ``depth`` counts the lists and maps below the column or ROW field with the id ``field_id``.
    """
    return _NESTED_ID_BASE + sign * (_NESTED_ID_STEP * field_id + depth)


def to_arrow_field(field: Field, *, with_ids: bool = False) -> "pa.Field[pa.DataType]":
    """Return one column; ``with_ids`` adds metadata, from which Parquet writes field ids."""
    if not with_ids:
        return pa.field(field.name, to_arrow_type(field.type), field.type.nullable)
    arrow = to_arrow_type(field.type, field.id)
    return pa.field(field.name, arrow, field.type.nullable, {FIELD_ID: str(field.id).encode()})


def to_arrow_schema(fields: Iterable[Field], *, with_ids: bool = False) -> pa.Schema:
    """Return the Arrow schema of a list of columns, in their order."""
    return pa.schema([to_arrow_field(field, with_ids=with_ids) for field in fields])


def to_paimon_type(arrow: pa.DataType, *, nullable: bool = True) -> DataType:
    """Return the Paimon type that holds an Arrow type, for tables created from Arrow schemas."""
    if isinstance(arrow, pa.DictionaryType):
        return to_paimon_type(arrow.value_type, nullable=nullable)
    if (atom := _to_paimon_atom(arrow)) is not None:
        return atom.with_nullable(nullable)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_list_view(arrow):
        element = arrow.value_field
        return ArrayType(nullable, to_paimon_type(element.type, nullable=element.nullable))
    if isinstance(arrow, pa.FixedSizeListType):
        element = arrow.value_field
        kind = to_paimon_type(element.type, nullable=element.nullable)
        return VectorType(nullable, kind, arrow.list_size)
    if isinstance(arrow, pa.MapType):
        item = arrow.item_field
        return MapType(
            nullable,
            to_paimon_type(arrow.key_type, nullable=False),
            to_paimon_type(arrow.item_type, nullable=item.nullable),
        )
    if is_variant(arrow):
        return VariantType(nullable)
    if isinstance(arrow, pa.StructType):
        return RowType(nullable, tuple(to_paimon_fields(pa.schema(list(arrow)))))
    raise InputError(f"Arrow type {arrow} has no Paimon type; cast the column first")


_TEXT_KINDS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY_KINDS = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


def _to_paimon_atom(arrow: pa.DataType) -> AtomicType | None:
    """Return the Paimon type of an Arrow type that is not nested, or None."""
    if any(is_kind(arrow) for is_kind in _TEXT_KINDS):
        return AtomicType(name=TypeRoot.VARCHAR, params=(MAX_LENGTH,))
    if any(is_kind(arrow) for is_kind in _BINARY_KINDS):
        return AtomicType(name=TypeRoot.VARBINARY, params=(MAX_LENGTH,))
    if isinstance(arrow, pa.Decimal128Type):
        return AtomicType(name=TypeRoot.DECIMAL, params=(arrow.precision, arrow.scale))
    if isinstance(arrow, pa.TimestampType):
        name = TypeRoot.TIMESTAMP if arrow.tz is None else TypeRoot.TIMESTAMP_LTZ
        return AtomicType(name=name, params=(_PRECISION_OF_UNIT[arrow.unit],))
    return _ATOMIC_OF_ARROW.get(arrow)


def to_paimon_fields(schema: pa.Schema) -> list[Field]:
    """Return columns for an Arrow schema; the ids are provisional."""
    return [
        Field(id=number, name=field.name, type=to_paimon_type(field.type, nullable=field.nullable))
        for number, field in enumerate(schema)
    ]


def limit_batches(
    batches: Iterable[pa.RecordBatch], batch_rows: int, file_size: int
) -> Iterator[pa.RecordBatch]:
    """Yield small batches; raise ``ValueError`` if ``batch_rows`` rows need too much memory."""
    rows = size = 0
    for batch in batches:
        if rows + batch.num_rows > batch_rows:
            rows = size = 0
        rows, size = rows + batch.num_rows, size + batch.nbytes
        check_batch_bytes(size, file_size, f"{rows} rows have {size} bytes")
        yield batch


def number_batches(first_row: int, batches: Iterable[pa.RecordBatch]) -> Iterator[NumberedBatch]:
    """Yield consecutive batches with the positions of their rows; empty batches are skipped."""
    for batch in batches:
        if batch.num_rows:
            yield np.arange(first_row, first_row + batch.num_rows), batch
        first_row += batch.num_rows


def build_record_batch(
    arrays: Sequence[pa.Array], names: Sequence[str], rows: int
) -> pa.RecordBatch:
    """Return columns as a batch of ``rows`` rows, even without columns."""
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), list(names))
    empty_rows = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(empty_rows)
