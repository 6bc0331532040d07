"""BinaryRow: the row encoding of keys, partitions and statistics.

Values are *internal*, as Arrow stores them: DATE in days, TIME in milliseconds of the day,
TIMESTAMP in the Arrow unit of its precision (ms, us, ns), DECIMAL as ``decimal.Decimal``, BINARY as
``bytes``, ARRAY as a list, MAP and MULTISET as a list of pairs, ROW as a tuple.

See docs/format/binary-row.md.
"""

import struct
from collections.abc import Sequence
from decimal import Decimal, localcontext

from paimon_orch.format.text import decode_text, encode_text
from paimon_orch.format.types.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

_ARITY = struct.Struct(">i")
_I64 = struct.Struct("<q")
_I32 = struct.Struct("<i")
_FIXED_WIDTH_STRUCTS = {
    TypeRoot.BOOLEAN: struct.Struct("<?"),
    TypeRoot.TINYINT: struct.Struct("<b"),
    TypeRoot.SMALLINT: struct.Struct("<h"),
    TypeRoot.INT: _I32,
    TypeRoot.DATE: _I32,
    TypeRoot.TIME: _I32,
    TypeRoot.BIGINT: _I64,
    TypeRoot.FLOAT: struct.Struct("<f"),
    TypeRoot.DOUBLE: struct.Struct("<d"),
}
_MAX_INLINE_BYTES = 7
_MAX_DECIMAL_BYTES = 16
_MAX_COMPACT_DECIMAL_PRECISION = 18
_MAX_COMPACT_TIMESTAMP_PRECISION = 3
_MULTISET_COUNT_TYPE = AtomicType(False, TypeRoot.INT)


def null_bits_size(arity: int) -> int:
    """Return the size of the null-bit region in bytes; it includes the row kind."""
    return (arity + 63 + 8) // 64 * 8


def encode_row(values: Sequence[object], types: Sequence[DataType], kind: int = 0) -> bytes:
    """Encode one row without its arity."""
    head = null_bits_size(len(types))
    row = bytearray(head + 8 * len(types))
    row[0] = kind
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        if value is None:
            row[(index + 8) // 8] |= 1 << ((index + 8) % 8)
        _write_value(row, head + 8 * index, value, data_type, reserve_nulls=True)
    return bytes(row)


def serialize_row(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """Encode one row with its arity as prefix, as stored in manifests.

    See docs/format/binary-row.md#serialized-form.
    """
    return _ARITY.pack(len(types)) + encode_row(values, types)


EMPTY_ROW = serialize_row((), ())


def _write_variable_part(row: bytearray, slot: int, data: bytes, length: int) -> None:
    """Append variable data, padded to eight bytes, and write its offset and length to the slot."""
    offset = len(row)
    row += data + bytes(-len(data) % 8)
    _I64.pack_into(row, slot, offset << 32 | length)


def _write_value(  # noqa: C901 - one case per type
    row: bytearray, slot: int, value: object, data_type: DataType, *, reserve_nulls: bool
) -> None:
    match data_type:
        case AtomicType(name=TypeRoot.DECIMAL, params=params) if (
            params[0] > _MAX_COMPACT_DECIMAL_PRECISION
        ):
            if value is not None:
                data = encode_minimal_int(to_unscaled_int(value, params[1]))
                _write_variable_part(row, slot, data.ljust(16, b"\0"), len(data))
            elif reserve_nulls:
                _write_variable_part(row, slot, bytes(16), 0)
        case AtomicType(name=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, params=params) if (
            params[0] > _MAX_COMPACT_TIMESTAMP_PRECISION
        ):
            if value is not None:
                per_milli = 1_000 if params[0] <= 6 else 1_000_000
                millis, sub_millis = divmod(_expect_int(value), per_milli)
                _write_variable_part(
                    row, slot, _I64.pack(millis), sub_millis * (1_000_000 // per_milli)
                )
            elif reserve_nulls:
                _write_variable_part(row, slot, bytes(8), 0)
        case _ if value is None:
            return
        case AtomicType(name=TypeRoot.DECIMAL, params=params):
            _I64.pack_into(row, slot, to_unscaled_int(value, params[1]))
        case AtomicType(name=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ):
            _I64.pack_into(row, slot, _expect_int(value))
        case AtomicType(name=name) if name in _FIXED_WIDTH_STRUCTS:
            _FIXED_WIDTH_STRUCTS[name].pack_into(row, slot, value)
        case AtomicType():
            value = encode_text(value) if isinstance(value, str) else value
            assert isinstance(value, bytes)
            _write_bytes(row, slot, value)
        case _:
            data = _encode_nested(value, data_type)
            _write_variable_part(row, slot, data, len(data))


def _write_bytes(row: bytearray, slot: int, data: bytes) -> None:
    if len(data) > _MAX_INLINE_BYTES:
        _write_variable_part(row, slot, data, len(data))
    else:
        row[slot : slot + len(data)] = data
        row[slot + 7] = 0x80 | len(data)


def _expect_int(value: object) -> int:
    assert isinstance(value, int)
    return value


def to_unscaled_int(value: object, scale: int) -> int:
    """Return a decimal without its point: 12.30 with scale 2 is 1230."""
    assert isinstance(value, Decimal)
    with localcontext(prec=76):
        return int(value.scaleb(scale).to_integral_exact())


def encode_minimal_int(value: int) -> bytes:
    """Return big-endian two's complement in the fewest bytes."""
    bits = value.bit_length() if value >= 0 else (value + 1).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def _encode_nested(value: object, data_type: DataType) -> bytes:
    match data_type:
        case ArrayType(element=element):
            assert isinstance(value, list | tuple)
            return _encode_array(value, element)
        case MapType(key=key, value=item):
            return _encode_map(value, key, item)
        case MultisetType(element=element):
            return _encode_map(value, element, _MULTISET_COUNT_TYPE)
        case RowType(fields=fields):
            assert isinstance(value, list | tuple | dict)
            values = list(value.values()) if isinstance(value, dict) else value
            return encode_row(values, [field.type for field in fields])
    raise TypeError(data_type)


def _encode_map(value: object, key: DataType, item: DataType) -> bytes:
    assert isinstance(value, list | tuple)
    keys = _encode_array([pair[0] for pair in value], key)
    return _I32.pack(len(keys)) + keys + _encode_array([pair[1] for pair in value], item)


def _element_size(data_type: DataType) -> int:
    if isinstance(data_type, AtomicType) and data_type.name in _FIXED_WIDTH_STRUCTS:
        return _FIXED_WIDTH_STRUCTS[data_type.name].size
    return 8


def _encode_array(values: Sequence[object], element: DataType) -> bytes:
    """Encode an array; null elements are zero and have no variable part.

    See docs/format/binary-row.md#nested-values.
    """
    head, size = 4 + (len(values) + 31) // 32 * 4, _element_size(element)
    array = bytearray(head + len(values) * size)
    array += bytes(-len(array) % 8)
    _I32.pack_into(array, 0, len(values))
    for index, value in enumerate(values):
        if value is None:
            array[4 + index // 8] |= 1 << index % 8
        _write_value(array, head + size * index, value, element, reserve_nulls=False)
    return bytes(array)


def deserialize_row(data: bytes, types: Sequence[DataType]) -> tuple[object, ...]:
    """Decode a row with arity prefix; missing columns are null.

    Only simple types are supported: keys, partitions and statistics have no others.
    """
    if not isinstance(data, bytes):  # the manifest has another type for this field
        raise ValueError(f"expected a row as bytes, got {data!r}")  # noqa: TRY004 - damage
    (arity,) = _ARITY.unpack_from(data)
    head = null_bits_size(arity)
    row = memoryview(data)[4:]
    if arity < 0 or len(row) < head + 8 * arity:
        raise ValueError(f"a row of {arity} fields does not fit into {len(row)} bytes")
    values = []
    for index, data_type in enumerate(types):
        is_null = index >= arity or row[(index + 8) // 8] >> ((index + 8) % 8) & 1
        values.append(None if is_null else _read_value(row, head + 8 * index, data_type))
    return tuple(values)


def read_field(data: bytes, index: int, data_type: DataType) -> object:
    """Decode one field of a row with arity prefix; a missing field is null."""
    (arity,) = _ARITY.unpack_from(data)
    row = memoryview(data)[4:]
    if index >= arity or row[(index + 8) // 8] >> ((index + 8) % 8) & 1:
        return None
    return _read_value(row, null_bits_size(arity) + 8 * index, data_type)


def read_row_arity(data: bytes) -> int:
    """Return the number of fields of a serialized row."""
    return int(_ARITY.unpack_from(data)[0])


def _read_value(row: memoryview, slot: int, data_type: DataType) -> object:
    if not isinstance(data_type, AtomicType):
        return None
    name, params = data_type.name, data_type.params
    if name in _FIXED_WIDTH_STRUCTS:
        return _FIXED_WIDTH_STRUCTS[name].unpack_from(row, slot)[0]
    (word,) = _I64.unpack_from(row, slot)
    if name == TypeRoot.DECIMAL:
        if params[0] > _MAX_COMPACT_DECIMAL_PRECISION:
            unscaled = _read_variable_part(row, word)
            if len(unscaled) > _MAX_DECIMAL_BYTES:  # a long one takes quadratic time
                raise ValueError(f"a decimal cannot have {len(unscaled)} bytes")
            word = int.from_bytes(unscaled, "big", signed=True)
        with localcontext(prec=76):
            return Decimal(word).scaleb(-params[1])
    if name in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        if params[0] <= _MAX_COMPACT_TIMESTAMP_PRECISION:
            return word
        (millis,) = _I64.unpack_from(row, word >> 32)
        nanos = word & 0xFFFFFFFF
        return millis * 1_000 + nanos // 1_000 if params[0] <= 6 else millis * 1_000_000 + nanos
    data = (
        bytes(row[slot : slot + (row[slot + 7] & 0x7F)])
        if word < 0
        else _read_variable_part(row, word)
    )
    return decode_text(data) if name in (TypeRoot.CHAR, TypeRoot.VARCHAR) else data


def _read_variable_part(row: memoryview, word: int) -> bytes:
    offset, length = word >> 32, word & 0xFFFFFFFF
    if offset < 0 or offset + length > len(row):
        raise ValueError(
            f"bytes {offset} to {offset + length} are outside a row of {len(row)} bytes"
        )
    return bytes(row[offset : offset + length])
