"""Hive's hash function over Arrow columns, for ``bucket-function.type`` = hive.

See docs/format/buckets.md#bucket-functions.
"""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import AnyArray, Int64Array, UInt32Array, to_numpy
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

_PRIME = 31
_MASK = 0xFFFFFFFF
_NAN_BITS = {TypeRoot.FLOAT: 0x7FC00000, TypeRoot.DOUBLE: 0x7FF8000000000000}
_LONG_DIGITS = 18


def hash_rows_hive(columns: Sequence[pa.Array], types: Sequence[DataType]) -> UInt32Array:
    """Return each row's hash. Raises :class:`InputError` for timestamps and nested types."""
    result = np.zeros(len(columns[0]), np.uint32)
    for column, data_type in zip(columns, types, strict=True):
        valid = to_numpy(column.is_valid())
        result = result * np.uint32(_PRIME)
        if valid.any():
            result += np.where(valid, _hash_column(column, data_type), np.uint32(0))
    return result


def check_hive_key(name: str, data_type: DataType) -> None:
    """Raise :class:`InputError` for a bucket key type that Hive's function does not support."""
    if not isinstance(data_type, AtomicType) or data_type.name.startswith(TypeRoot.TIMESTAMP):
        raise InputError(
            "'bucket-function.type' = 'hive' does not support timestamps or nested types as bucket "
            f"key: {name}"
        )


def _hash_column(column: pa.Array, data_type: DataType) -> UInt32Array:
    check_hive_key(str(data_type), data_type)
    assert isinstance(data_type, AtomicType)
    match data_type.name:
        case TypeRoot.CHAR | TypeRoot.VARCHAR | TypeRoot.BINARY | TypeRoot.VARBINARY:
            return _hash_bytes(column)
        case TypeRoot.DECIMAL:
            return _hash_decimals(column, data_type)
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return _hash_floats(column, data_type.name)
        case TypeRoot.DATE | TypeRoot.TIME:
            column = column.view(pa.int32())
    values = to_numpy(column.cast(pa.int64()))
    return _hash_int64(values) if data_type.name == TypeRoot.BIGINT else values.astype(np.uint32)


def _hash_int64(values: Int64Array) -> UInt32Array:
    """Return the exclusive or of the upper and lower 32 bits."""
    bits = values.view(np.uint64)
    return (bits ^ bits >> np.uint64(32)).astype(np.uint32)


def _hash_floats(column: pa.Array, name: TypeRoot) -> UInt32Array:
    values = to_numpy(column)
    values = np.where(values == 0, values.dtype.type(0), values)  # -0.0 and 0.0 have the same hash
    bits: AnyArray = values.view(np.uint32 if name == TypeRoot.FLOAT else np.int64)
    bits[np.isnan(values)] = _NAN_BITS[name]
    return bits if name == TypeRoot.FLOAT else _hash_int64(bits)


def _hash_bytes(column: pa.Array) -> UInt32Array:
    binary = column.fill_null("" if pa.types.is_string(column.type) else b"")
    # concat_arrays copies the values, because a slice shares the buffer of its parent
    binary = pa.concat_arrays([binary.cast(pa.large_binary())])
    _, offset_buffer, data_buffer = binary.buffers()
    ends = np.frombuffer(offset_buffer, np.int64)[binary.offset : binary.offset + len(binary) + 1]
    result = np.zeros(len(binary), np.uint32)
    lengths = np.diff(ends)
    filled = lengths > 0
    if not filled.any():
        return result
    data = np.frombuffer(data_buffer, np.int8)[ends[0] : ends[-1]].astype(np.uint32)
    powers = np.ones(int(lengths.max()), np.uint32)
    powers[1:] = _PRIME
    powers = np.cumprod(powers, dtype=np.uint32)
    distance = np.repeat(ends[1:], lengths) - 1 - np.arange(ends[0], ends[-1])
    starts = (ends[:-1] - ends[0])[filled]
    result[filled] = np.add.reduceat(data * powers[distance], starts, dtype=np.uint32)
    return result


def _hash_decimals(column: pa.Array, data_type: AtomicType) -> UInt32Array:
    precision, scale = data_type.params
    if precision > _LONG_DIGITS:
        distinct = column.dictionary_encode()
        codes = [_hash_decimal(value) for value in distinct.dictionary.to_pylist()]
        result: UInt32Array = np.array([*codes, 0], np.uint32)[
            to_numpy(distinct.indices, null=len(codes))
        ]
        return result
    wide = column.cast(pa.decimal128(38, scale))
    words = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)
    numbers = np.where(
        to_numpy(column.is_valid()),
        words[wide.offset : wide.offset + len(wide), 0],
        0,
    )
    scales = np.full(len(numbers), scale)
    while (droppable := (numbers % 10 == 0) & (scales > 0)).any():
        numbers = np.where(droppable, numbers // 10, numbers)
        scales -= droppable
    magnitude = np.abs(numbers).view(np.uint64)
    high, low = (magnitude >> np.uint64(32)).astype(np.uint32), magnitude.astype(np.uint32)
    code = high * np.uint32(_PRIME) + low
    code = np.where(numbers < 0, np.uint32(0) - code, code)
    return np.where(numbers == 0, np.uint32(0), code * np.uint32(_PRIME) + scales.astype(np.uint32))


def _hash_decimal(value: Decimal | None) -> int:
    if not value:
        return 0
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number, scale = int("".join(map(str, digits))), -exponent
    while scale > 0 and number % 10 == 0:
        number, scale = number // 10, scale - 1
    code = 0
    for shift in range((number.bit_length() - 1) // 32 * 32, -1, -32):
        code = code * _PRIME + (number >> shift & _MASK) & _MASK
    return ((-code if sign else code) * _PRIME + scale) & _MASK
