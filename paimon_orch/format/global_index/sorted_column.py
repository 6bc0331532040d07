"""The content of an index: the distinct values of a column, and the positions of their rows.

See docs/format/global-index-files.md#keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack, unpack_from

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Int64Array, Positions, SignedIntArray, UInt8Array
from paimon_orch.format.file_index.index_keys import (
    encode_column,
    get_key_codec,
    has_byte_keys,
    to_float_bits,
)
from paimon_orch.format.global_index.byte_strings import (
    build_binary_array,
    encode_varints,
    join_binary,
)
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

_MAX_PRECISION = {TypeRoot.DECIMAL: 18, TypeRoot.TIMESTAMP: 6, TypeRoot.TIMESTAMP_LTZ: 6}
_MILLIS_PRECISION = 3
_UNSUPPORTED = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_META_VERSION = 1
_KEYS_ARE_NULL = 0b11


def can_be_indexed(data_type: DataType) -> bool:
    """Return whether indexes of a column of this type can be built."""
    if not isinstance(data_type, AtomicType) or data_type.name in _UNSUPPORTED:
        return False
    limit = _MAX_PRECISION.get(data_type.name)
    if limit is not None:
        return data_type.params[0] <= limit
    return data_type.name in _INDEXABLE


_INDEXABLE = {
    TypeRoot.BOOLEAN,
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.BIGINT,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
    TypeRoot.DATE,
    TypeRoot.TIME,
    TypeRoot.CHAR,
    TypeRoot.VARCHAR,
}


def has_nanoseconds(data_type: AtomicType) -> bool:
    """Return whether keys have the milliseconds and the nanoseconds of a timestamp."""
    is_timestamp = data_type.name in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
    return is_timestamp and bool(data_type.params[0] > _MILLIS_PRECISION)


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The smallest and the greatest key of an index file, and whether there are nulls."""

    first: bytes | None
    last: bytes | None
    has_nulls: bool


def decode_key_bounds(meta: bytes) -> KeyBounds:
    """Return the content of ``_INDEX_META``. Raises ``ValueError`` or ``struct.error``."""
    keys, position = list[bytes](), 0
    for _ in range(2):
        (length,) = unpack_from("<i", meta, position)
        position += 4 + length
        if length < 0 or position > len(meta):
            raise ValueError("the length of a key in the metadata of an index is out of range")
        keys.append(meta[position - length : position])
    has_nulls = meta[position] == 1
    flags = meta[position + 2] if len(meta) > position + 2 else None
    if flags is None:  # written before there was a version
        flags = _KEYS_ARE_NULL if has_nulls and not any(keys) else 0
    first, last = keys
    return KeyBounds(None if flags & 1 else first, None if flags & 2 else last, has_nulls)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedColumn:
    """The rows of a column, grouped by value in ascending order."""

    keys: pa.LargeBinaryArray
    """The encoded distinct values, in the order of the values."""
    starts: Int64Array
    """The index in ``positions`` of the first row of each key."""
    positions: Int64Array
    """The positions of rows with a value, by key."""
    null_positions: Int64Array

    @classmethod
    def join(
        cls, parts: Sequence[tuple[pa.LargeBinaryArray, Int64Array, Positions]], nulls: Positions
    ) -> "SortedColumn":
        """Return parts of an index: keys, the number of rows of each, and their positions."""
        counts = np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)])
        return cls(
            keys=pa.concat_arrays(
                [pa.array([], pa.large_binary()), *(keys for keys, _, _ in parts)]
            ),
            starts=np.cumsum(counts) - counts,
            positions=np.concatenate([np.empty(0, np.int64), *(part[2] for part in parts)]),
            null_positions=nulls,
        )

    @property
    def row_count(self) -> int:
        """Return the number of rows, including nulls."""
        return len(self.positions) + len(self.null_positions)

    def encode_meta(self) -> bytes:
        """Return the smallest and greatest key and whether there are nulls, for the manifest."""
        has_keys = len(self.keys) > 0
        first, last = (self.keys[0].as_py(), self.keys[-1].as_py()) if has_keys else (b"", b"")
        return b"".join(
            (
                pack("<i", len(first)),
                first,
                pack("<i", len(last)),
                last,
                bytes((len(self.null_positions) > 0, _META_VERSION)),
                bytes((0 if has_keys else _KEYS_ARE_NULL,)),
            )
        )


def sort_column(chunks: Sequence[pa.Array], data_type: AtomicType) -> SortedColumn:
    """Sort the rows of a column by value; row positions begin with 0 in the first chunk."""
    column = encode_column(list(chunks), data_type)
    keys = column.keys
    if isinstance(keys, np.ndarray):
        order = np.argsort(keys)
        encoded = _encode_numbers(keys[order], data_type)
    else:
        order = np.asarray(pc.sort_indices(keys))
        encoded = keys.take(pa.array(order)).cast(pa.large_binary())
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    valid = column.codes >= 0
    row_ranks = ranks[column.codes[valid]]
    counts = np.bincount(row_ranks, minlength=len(order))
    return SortedColumn(
        keys=encoded,
        starts=np.cumsum(counts) - counts,
        positions=np.flatnonzero(valid)[np.argsort(row_ranks, kind="stable")],
        null_positions=np.flatnonzero(~valid),
    )


def _encode_numbers(keys: SignedIntArray, data_type: AtomicType) -> pa.LargeBinaryArray:
    """Return little-endian numbers; the keys are sortable integers."""
    assert not has_byte_keys(data_type)
    codec = get_key_codec(data_type)
    if has_nanoseconds(data_type):
        millis, micros = np.divmod(keys.astype(np.int64), 1000)
        numbers = build_binary_array(*_split_fixed(millis, 8))
        return join_binary(numbers, encode_varints(micros * 1000))
    numbers = to_float_bits(keys) if codec.is_float else keys
    return build_binary_array(*_split_fixed(numbers, codec.width))


def _split_fixed(numbers: SignedIntArray, width: int) -> tuple[UInt8Array, Int64Array]:
    data = numbers.astype(f"<i{width}").view(np.uint8)
    return data, np.full(len(numbers), width, np.int64)
