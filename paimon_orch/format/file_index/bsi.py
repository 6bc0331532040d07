"""Bit-slice indexes of numbers, replaced by range bitmaps in newer versions.

See docs/format/bsi-index.md.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pyroaring import BitMap

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.arrays import Int64Array, Mask
from paimon_orch.format.bytes.roaring import (
    build_full_bitmap,
    deserialize_bitmap,
    read_serialized_size,
    serialize_mask,
)
from paimon_orch.format.file_index.bit_slices import BitSlices, serialize_bit_slices
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.file_index.index_keys import EncodedColumn, Key
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.format.types.predicate import Operator

_VERSION = 1
_HEAD = struct.Struct(">bi")
_SEGMENT = struct.Struct(">bqq")
_INT32 = struct.Struct(">i")
_MIN_INT64 = -(2**63)


def encode_bit_slice_index(column: EncodedColumn) -> bytes:
    """Return the index of a column. Raises :class:`InputError` for the number -2^63."""
    keys = np.append(np.asarray(column.keys, np.int64), 0)
    if keys.min() == _MIN_INT64:
        raise InputError(
            f"a bsi index cannot hold the number {_MIN_INT64}; use a range-bitmap index"
        )
    # the code of null is -1, which selects the last key; that key is 0
    values = keys[column.codes]
    positive = (column.codes >= 0) & (values >= 0)
    return (
        _HEAD.pack(_VERSION, column.row_count)
        + _encode_segment(positive, np.maximum(values, 0))
        + _encode_segment(values < 0, np.maximum(-values, 0))
    )


def _encode_segment(rows: Mask, values: Int64Array) -> bytes:
    if not rows.any():
        return b"\0"
    largest = int(values.max())
    slices = serialize_bit_slices(values, largest.bit_length())
    head = b"\x01" + _SEGMENT.pack(_VERSION, 0, largest)
    return b"".join([head, serialize_mask(rows), _INT32.pack(len(slices)), *slices])


@dataclass(frozen=True, slots=True)
class _Segment:
    """Non-negative numbers, stored as differences to the smallest one."""

    low: int
    high: int
    slices: BitSlices

    def find_equal(self, value: int) -> BitMap:
        return (
            self.slices.find_equal(value - self.low) if self.low <= value <= self.high else BitMap()
        )

    def find_above(self, value: int, *, equal: bool) -> BitMap:
        least = value if equal else value + 1
        if least > self.high:
            return BitMap()
        return self.slices.find_above(least - self.low - 1)


_EMPTY_SEGMENT = _Segment(0, -1, BitSlices(BitMap(), 0, lambda _: BitMap()))


@dataclass(frozen=True)
class BitSliceIndex:
    """A stored index."""

    source: ByteSource
    data_type: AtomicType

    @property
    def row_count(self) -> int:
        """Return the number of rows of the file, including nulls."""
        return self._parts[0]

    def query(self, op: Operator, keys: Sequence[Key]) -> BitMap | None:
        """Return the rows that pass a test, without nulls, or None for unsupported tests."""
        rows, positive, negative = self._parts
        existing = positive.slices.existing | negative.slices.existing
        numbers = [key for key in keys if isinstance(key, int)]
        match op:
            case Operator.IS_NULL:
                return build_full_bitmap(rows) - existing
            case Operator.IS_NOT_NULL:
                return existing
            case Operator.EQUAL | Operator.IN:
                return self._find_equal(numbers)
            case Operator.NOT_EQUAL | Operator.NOT_IN:
                return existing - self._find_equal(numbers)
            case Operator.GREATER | Operator.GREATER_OR_EQUAL:
                return self._find_above(numbers[0], equal=op == Operator.GREATER_OR_EQUAL)
            case Operator.LESS | Operator.LESS_OR_EQUAL:
                return existing - self._find_above(numbers[0], equal=op == Operator.LESS)
            case Operator.BETWEEN:
                return self._find_above(numbers[0], equal=True) - self._find_above(
                    numbers[1], equal=False
                )
        return None

    def _find_equal(self, numbers: Sequence[int]) -> BitMap:
        _, positive, negative = self._parts
        rows = BitMap()
        for number in numbers:
            rows |= positive.find_equal(number) if number >= 0 else negative.find_equal(-number)
        return rows

    def _find_above(self, number: int, *, equal: bool) -> BitMap:
        _, positive, negative = self._parts
        if number >= 0:
            return positive.find_above(number, equal=equal)
        magnitude = -number
        larger = negative.slices.existing - negative.find_above(magnitude, equal=not equal)
        return positive.slices.existing | larger

    @cached_property
    def _parts(self) -> tuple[int, _Segment, _Segment]:
        data = self.source.bytes()
        version, rows = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise UnsupportedError(f"bsi indexes of version {version} are not supported")
        if rows < 0:
            raise ValueError(f"a bsi index cannot have {rows} rows")
        positive, position = _decode_segment(data, _HEAD.size, rows)
        negative, _ = _decode_segment(data, position, rows)
        return rows, positive, negative


def _decode_segment(data: bytes, position: int, rows: int) -> tuple[_Segment, int]:
    if not data[position]:
        return _EMPTY_SEGMENT, position + 1
    version, low, high = _SEGMENT.unpack_from(data, position + 1)
    if version != _VERSION or not 0 <= low <= high:
        raise ValueError(f"a segment has version {version} and the range from {low} to {high}")
    existing, position = _read_bitmap(data, position + 1 + _SEGMENT.size, rows)
    (count,), position = _INT32.unpack_from(data, position), position + 4
    if not 0 <= count <= 64:
        raise ValueError(f"a segment cannot have {count} slices")
    slices = []
    for _ in range(count):
        part, position = _read_bitmap(data, position, rows)
        slices.append(part)
    return _Segment(low, high, BitSlices(existing, count, slices.__getitem__)), position


def _read_bitmap(data: bytes, position: int, rows: int) -> tuple[BitMap, int]:
    end = position + read_serialized_size(data, position)
    return deserialize_bitmap(data[position:end], rows), end
