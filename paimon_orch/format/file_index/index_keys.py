"""Keys of file indexes for column values: integers in the order of the format, or bytes.

A *key* represents a value in this package. Floating-point numbers become integers in total order:
``-0.0`` is below ``0.0``, NaN is the maximum. Timestamps become milliseconds or microseconds,
depending on their precision.

See docs/format/file-index-values.md.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import (
    Int32Array,
    Int64Array,
    SignedIntArray,
    to_arrow_array,
    to_numpy,
)
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot, type_to_sql

Key: TypeAlias = int | bytes
Keys: TypeAlias = SignedIntArray | pa.BinaryArray

BLOOM_FILTER, BITMAP, RANGE_BITMAP, BSI = "bloom-filter", "bitmap", "range-bitmap", "bsi"
# the index container stores the indexes of a column in this order
INDEX_TYPES = (
    BLOOM_FILTER,
    BITMAP,
    BSI,
    RANGE_BITMAP,
)

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BINARIES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_WIDTH = {
    TypeRoot.BOOLEAN: 1,
    TypeRoot.TINYINT: 1,
    TypeRoot.SMALLINT: 2,
    TypeRoot.INT: 4,
    TypeRoot.BIGINT: 8,
    TypeRoot.FLOAT: 4,
    TypeRoot.DOUBLE: 8,
    TypeRoot.DECIMAL: 8,
    TypeRoot.DATE: 4,
    TypeRoot.TIME: 4,
    TypeRoot.TIMESTAMP: 8,
    TypeRoot.TIMESTAMP_LTZ: 8,
}
_NUMBERS = {
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.BIGINT,
    TypeRoot.DATE,
    TypeRoot.TIME,
    *_TIMESTAMPS,
}
_SUPPORTED_TYPES = {
    BLOOM_FILTER: {*_NUMBERS, TypeRoot.FLOAT, TypeRoot.DOUBLE, *_TEXTS, *_BINARIES},
    BITMAP: {*_NUMBERS, TypeRoot.BOOLEAN, TypeRoot.FLOAT, TypeRoot.DOUBLE, *_TEXTS},
    RANGE_BITMAP: {
        *_NUMBERS,
        TypeRoot.BOOLEAN,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
        *_TEXTS,
    },
    BSI: {*_NUMBERS, TypeRoot.DECIMAL},
}
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_SAMPLE_ROWS = 1 << 14  # rows sampled to estimate whether the keys of a column repeat
_MIN_SAMPLE_STEP = 2  # minimum distance between sampled rows
_CANONICAL_NAN = {TypeRoot.FLOAT: 0x7FC00000, TypeRoot.DOUBLE: 0x7FF8000000000000}


def check_indexable_type(index: str, data_type: DataType) -> AtomicType:
    """Check that a column type can be indexed, and return it. Raises :class:`InputError`."""
    if index not in _SUPPORTED_TYPES:
        raise InputError(
            f"{index!r} is not a type of file index; known types are {', '.join(_SUPPORTED_TYPES)}"
        )
    if not isinstance(data_type, AtomicType) or data_type.name not in _SUPPORTED_TYPES[index]:
        raise InputError(f"a column of type {type_to_sql(data_type)} cannot have a {index} index")
    limit = {TypeRoot.DECIMAL: 18, TypeRoot.TIMESTAMP: 6, TypeRoot.TIMESTAMP_LTZ: 6}.get(
        data_type.name
    )
    if index == RANGE_BITMAP and limit is not None and data_type.params[0] > limit:
        raise InputError(
            f"a range-bitmap index supports {data_type.name} with a precision of up to {limit}, "
            f"not {type_to_sql(data_type)}"
        )
    return data_type


def is_lossy(data_type: AtomicType) -> bool:
    """Return whether values can share a key; nanoseconds, for example, are truncated."""
    return data_type.name in _TIMESTAMPS and data_type.params[0] > 6


@dataclass(frozen=True, slots=True)
class KeyCodec:
    """Encodes keys of one column type; ``dtype`` is None for text."""

    dtype: np.dtype[Any] | None
    is_float: bool = False

    @property
    def width(self) -> int:
        """Return the size of a number in bytes."""
        assert self.dtype is not None
        return self.dtype.itemsize

    def encode(self, keys: SignedIntArray) -> bytes:
        """Return stored numbers."""
        return (
            to_float_bits(keys).astype(self.dtype).tobytes()
            if self.is_float
            else keys.astype(self.dtype).tobytes()
        )

    def encode_one(self, key: Key) -> bytes:
        """Return one stored value; text has a length prefix."""
        if isinstance(key, bytes):
            return len(key).to_bytes(4) + key
        top = 8 * self.width - 1
        bits = key ^ (key >> top & (1 << top) - 1) if self.is_float else key
        return bits.to_bytes(self.width, signed=True)

    def decode(self, data: bytes) -> SignedIntArray:
        """Return the keys of stored numbers."""
        assert self.dtype is not None
        values = np.frombuffer(data, self.dtype).astype(self.dtype.newbyteorder("="))
        return to_sortable(values) if self.is_float else values


_CODECS = {
    **{name: KeyCodec(np.dtype(f">i{width}"), name in _FLOATS) for name, width in _WIDTH.items()},
    **dict.fromkeys(_TEXTS, KeyCodec(None)),
}


def get_key_codec(data_type: AtomicType) -> KeyCodec:
    """Return the codec of a column's keys in bitmap and range-bitmap indexes."""
    return _CODECS[data_type.name]


def to_sortable(bits: SignedIntArray) -> SignedIntArray:
    """Map bits of floating-point numbers to integers in total order; all NaNs are equal."""
    top = 8 * bits.dtype.itemsize - 1
    infinity, nan = (0x7F800000, 0x7FC00000) if top == 31 else (0x7FF << 52, 0x7FF8 << 48)
    magnitude = bits & bits.dtype.type((1 << top) - 1)
    return np.where(magnitude > infinity, bits.dtype.type(nan), to_float_bits(bits))


def to_float_bits(keys: SignedIntArray) -> SignedIntArray:
    """Return floating-point bits: the inverse of :func:`to_sortable`."""
    top = 8 * keys.dtype.itemsize - 1
    return keys ^ (keys >> top & keys.dtype.type((1 << top) - 1))


def encode_number_keys(array: pa.Array, data_type: AtomicType) -> SignedIntArray:
    """Return the keys of a column that is not text; keys of nulls are arbitrary."""
    name, start, end = data_type.name, array.offset, array.offset + len(array)
    if name == TypeRoot.BOOLEAN:
        return np.asarray(array.cast(pa.int8()).fill_null(0), np.int8)
    if name == TypeRoot.DECIMAL:
        return _unscale_decimals(array)
    data = array.buffers()[1]
    bits = np.frombuffer(data, f"<i{_WIDTH[name]}")[start:end] if data is not None else None
    if bits is None:
        return np.zeros(len(array), f"<i{_WIDTH[name]}")
    if name in _FLOATS:
        return to_sortable(bits)
    return bits // 1000 if is_lossy(data_type) else bits


def _unscale_decimals(array: pa.Array) -> Int64Array:
    """Return unscaled decimals. Raises :class:`InputError` for more than 64 bits."""
    data = array.buffers()[1]
    words = np.frombuffer(data, "<i8").reshape(-1, 2)[array.offset : array.offset + len(array)]
    fits = words[:, 0] >> 63 == words[:, 1]
    if array.null_count:
        fits |= to_numpy(array.is_null())
    if not fits.all():
        raise InputError("a decimal of more than 64 bits cannot be stored in a bsi index")
    return words[:, 0]


def has_byte_keys(data_type: AtomicType) -> bool:
    """Return whether the keys of a type are bytes."""
    return data_type.name in _TEXTS or data_type.name in _BINARIES


def encode_non_null_keys(array: pa.Array, data_type: AtomicType) -> Keys:
    """Return the keys of the values that are not null, in row order."""
    if has_byte_keys(data_type):
        return array.drop_null().cast(pa.binary())
    numbers = encode_number_keys(array, data_type)
    return numbers[to_numpy(array.is_valid())] if array.null_count else numbers


def encode_key(value: "pa.Scalar[pa.DataType]", data_type: AtomicType) -> Key:
    """Return the key of one value of a column."""
    keys = encode_non_null_keys(pa.array([value], to_arrow_type(data_type)), data_type)
    return bytes(keys[0].as_py()) if isinstance(keys, pa.BinaryArray) else int(keys[0])


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """A column as distinct keys and, for each row, the index of its key, or -1 for null.

    Keys are sorted, or in the order of their first rows. ``first_nan`` holds the bits of the first
    NaN.
    """

    codes: Int32Array
    keys: Keys
    first_nan: int | None = None

    @property
    def row_count(self) -> int:
        """Return the number of rows, including nulls."""
        return len(self.codes)


def encode_column(
    chunks: list[pa.Array], data_type: AtomicType, *, may_sort: bool = False
) -> EncodedColumn:
    """Encode a column; with ``may_sort``, keys are sorted if that is faster."""
    if not any(len(chunk) for chunk in chunks):
        empty = pa.array([], pa.binary()) if has_byte_keys(data_type) else np.empty(0, np.int64)
        return EncodedColumn(np.empty(0, np.int32), empty)
    if may_sort and not has_byte_keys(data_type):
        numbers = np.concatenate([encode_number_keys(chunk, data_type) for chunk in chunks])
        if _is_mostly_distinct(numbers):
            return _encode_sorted_column(numbers, chunks, data_type)
    arrays = [_encode_key_array(chunk, data_type) for chunk in chunks]
    encoded = pa.chunked_array(arrays).dictionary_encode()
    codes = [to_numpy(chunk.indices, null=-1) for chunk in encoded.chunks]
    keys = encoded.chunks[-1].dictionary
    return EncodedColumn(
        codes[0] if len(codes) == 1 else np.concatenate(codes),
        keys if has_byte_keys(data_type) else keys.to_numpy(),
        _find_first_nan(chunks, data_type),
    )


def _is_mostly_distinct(numbers: SignedIntArray) -> bool:
    step = len(numbers) // _SAMPLE_ROWS
    if step < _MIN_SAMPLE_STEP:
        return False
    return len(np.unique(numbers[::step])) > 0.97 * _SAMPLE_ROWS


def _encode_sorted_column(
    numbers: SignedIntArray, chunks: list[pa.Array], data_type: AtomicType
) -> EncodedColumn:
    valid = None
    if any(chunk.null_count for chunk in chunks):
        valid = np.concatenate([to_numpy(c.is_valid()) for c in chunks])
        numbers = numbers[valid]
    order = argsort_stable(numbers)
    ordered = numbers[order]
    is_new = np.empty(len(ordered), bool)
    is_new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    codes = np.empty(len(order), np.int32)
    codes[order] = np.cumsum(is_new, dtype=np.int32) - 1
    if valid is not None:
        codes, valid_codes = np.full(len(valid), -1, np.int32), codes
        codes[valid] = valid_codes
    return EncodedColumn(codes, ordered[is_new], _find_first_nan(chunks, data_type))


def argsort_stable(numbers: SignedIntArray) -> Int64Array:
    """Return the indices that sort numbers, in a stable order.

    The index is packed into the low bits of each number and the numbers are sorted, which is faster
    than sorting indices. Bits that do not fit are cut off; a second, stable sort of the almost
    sorted numbers restores their order.
    """
    if len(numbers) < _SAMPLE_ROWS:
        return np.argsort(numbers, kind="stable")
    low, high = int(numbers.min()), int(numbers.max())
    place_bits = (len(numbers) - 1).bit_length()
    dropped_bits = max(0, (high - low).bit_length() + place_bits - 64)
    words = (numbers.astype(np.int64) - np.int64(low)).view(np.uint64)
    words = words >> np.uint64(dropped_bits) << np.uint64(place_bits) | np.arange(
        len(words), dtype=np.uint64
    )
    words.sort()
    order = (words & np.uint64((1 << place_bits) - 1)).view(np.int64)
    ordered = numbers[order]
    if dropped_bits and (ordered[1:] < ordered[:-1]).any():
        order = order[np.argsort(ordered, kind="stable")]
    return order


def _encode_key_array(array: pa.Array, data_type: AtomicType) -> pa.Array:
    if has_byte_keys(data_type):
        return array.cast(pa.binary())
    mask = to_numpy(array.is_null()) if array.null_count else None
    return to_arrow_array(encode_number_keys(array, data_type), mask=mask)


def _find_first_nan(chunks: list[pa.Array], data_type: AtomicType) -> int | None:
    if data_type.name not in _FLOATS:
        return None
    nan = _CANONICAL_NAN[data_type.name]
    for chunk in chunks:
        positions = np.flatnonzero(encode_number_keys(chunk.drop_null(), data_type) == nan)
        if len(positions):
            values = chunk.drop_null()
            bits = np.frombuffer(values.buffers()[1], f"<i{_WIDTH[data_type.name]}")
            return int(bits[values.offset + positions[0]])
    return None
