"""Bounds of the integers in run-length encoded streams of ORC files, without decoding them.

The ORC library does not check lengths and scales: some values end the process or take hours.

See docs/format/data-files.md#orc-and-avro.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from paimon_orch.files.parquet.thrift_compact import decode_varint
from paimon_orch.format.arrays import AnyArray, Int64Array, UInt8Array

_WIDTHS = np.array([*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64])
"""The numbers of bits by code."""
_SHORT_REPEAT, _DIRECT, _PATCHED_BASE = range(3)
_ONE_VALUE = 0xC0  # a run of differences without bits, but for the count
_BLOCK_BYTES = 1 << 15
_MAX_PACKED_BITS, _PRECISE_PACKED_BITS = 24, 4  # of packed runs that are bounded together


class IntegerBounds(NamedTuple):
    """Bounds of integers: none is lower or higher, and their sum is not higher than the total."""

    low: int = 0
    high: int = 0
    total: int = 0


def find_integer_bounds(
    data: bytes, *, version: int, is_signed: bool, is_precise: bool = False
) -> IntegerBounds:
    """Return bounds of all values of a stream in version 1 or 2 of the run-length encoding.

    The total may be hundreds of times too large; ``is_precise`` takes longer and bounds it better.
    A stream may end within a run. Raises ``ValueError`` or ``IndexError`` for a damaged one.
    """
    if version == 1:
        return _combine(_iterate_runs_of_version_1(data, is_signed=is_signed))
    position, parts = 0, list[IntegerBounds]()
    max_bits = _PRECISE_PACKED_BITS if is_precise else _MAX_PACKED_BITS
    while position < len(data):
        block = _SimpleRuns(data[position : position + _BLOCK_BYTES], max_bits)
        offset, steps = 0, list[int]()
        while offset < block.size:
            if end := block.skip(offset):
                steps.append(offset)
                offset = end
            else:
                bounds, end = _read_run(data, position + offset, is_signed=is_signed)
                parts.append(bounds)
                offset = end - position
        parts.append(block.find_bounds(steps, is_signed=is_signed))
        position += offset
    return _combine(parts)


def _combine(parts: Iterable[IntegerBounds]) -> IntegerBounds:
    low = high = total = 0
    for part in parts:
        low, high, total = min(low, part.low), max(high, part.high), total + part.total
    return IntegerBounds(low, high, total)


def _bound_run(first: int, last: int, count: int) -> IntegerBounds:
    """Return the bounds of a run whose values are between two values."""
    high = max(first, last)
    return IntegerBounds(min(first, last), high, high * count)


def _decode_zigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)


class _SimpleRuns:
    """The runs of a block that are short, packed, or of one value.

    Their first bytes give their bounds.
    """

    def __init__(self, data: bytes, max_bits: int) -> None:
        self.size = len(data)
        self._data = np.frombuffer(data + bytes(3), np.uint8)
        first, second, third, fourth = (self._data[place : place + len(data)] for place in range(4))
        heads = first.astype(np.uint16) << 8 | second
        sizes = _build_run_sizes(max_bits).take(heads)
        sizes[(first & 0xFE == _ONE_VALUE) & (third < 0x80) & (fourth == 0)] = 4
        starts = np.arange(len(data) + 1)
        self._ends = starts.copy()  # other runs end where they start, and so do incomplete ones
        self._ends[:-1] += sizes
        np.copyto(self._ends, starts, where=self._ends > len(data))
        second_ends = self._ends.take(self._ends)
        self._fourth_ends = second_ends.take(second_ends)

    def skip(self, position: int) -> int:
        """Return the end of up to four runs from a position, or 0 if no simple run is there."""
        end = self._fourth_ends.item(position)
        return end if end > position else 0

    def find_bounds(self, steps: list[int], *, is_signed: bool) -> IntegerBounds:
        """Return the bounds of the runs that were skipped from some positions."""
        if not steps:
            return IntegerBounds()
        parts = [np.array(steps)]
        for _ in range(3):
            parts.append(self._ends.take(parts[-1]))
        starts = np.concatenate(parts)
        starts = starts[self._ends.take(starts) > starts]
        first, second, third = (self._data[starts + n].astype(np.int64) for n in range(3))
        is_packed, width = first >> 6 == _DIRECT, _WIDTHS[first >> 1 & 31]
        width = np.where(is_packed, width, 0)
        high = np.where(is_packed, (1 << width) - 1, np.where(first < 8, second, third))
        count = np.where(first < 8, first + 3, _count_values(first, second))
        low = 0
        if is_signed:
            has_negative = bool((high[~is_packed] & 1).any()) or _has_odd_values(
                self._data, (starts + 2)[is_packed], width[is_packed], count[is_packed]
            )
            high = high + 1 >> 1
            low = -int(high.max()) if has_negative else 0
        return IntegerBounds(low, int(high.max()), int((high * count).sum()))


@cache
def _build_run_sizes(max_bits: int) -> AnyArray:
    """Return the sizes in bytes of short or packed runs by their first two bytes, or 0."""
    first, second = np.divmod(np.arange(1 << 16), 256)
    width = _WIDTHS[first >> 1 & 31]
    packed = 2 + (width * _count_values(first, second) + 7 >> 3)
    is_packed = (first >> 6 == _DIRECT) & (width <= max_bits)
    return np.where(is_packed, packed, np.where(first < 8, 2, 0)).astype(np.uint16)


def _count_values(first: Int64Array, second: Int64Array) -> Int64Array:
    return ((first & 1) << 8 | second) + 1


def _has_odd_values(
    data: UInt8Array, starts: Int64Array, width: Int64Array, count: Int64Array
) -> bool:
    """Return whether a packed value is odd, which means that it is negative in signed streams."""
    numbers = 1 + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    bits = np.repeat(starts * 8 - 1, count) + np.repeat(width, count) * numbers
    return bool((data[bits >> 3] >> (7 - (bits & 7)) & 1).any())


def _read_run(data: bytes, position: int, *, is_signed: bool) -> tuple[IntegerBounds, int]:
    """Return the bounds of a run of version 2, and its end."""
    first = data[position]
    if first >> 6 == _SHORT_REPEAT:
        end = position + 2 + (first >> 3 & 7)
        value = int.from_bytes(data[position + 1 : end])
        value = _decode_zigzag(value) if is_signed else value
        return _bound_run(value, value, (first & 7) + 3), end
    count = ((first & 1) << 8 | data[position + 1]) + 1
    code, position = first >> 1 & 31, position + 2
    width = int(_WIDTHS[code])
    if first >> 6 == _DIRECT:
        high, end = 1 << width - is_signed, position + _pack(width, count)
        if is_signed:
            return IntegerBounds(-high, high, high * count), end
        return IntegerBounds(0, high, _sum_packed(data[position:end], width, count)), end
    if first >> 6 == _PATCHED_BASE:
        return _read_patched_run(data, position, width, count)
    base, position = decode_varint(data, position)
    base = _decode_zigzag(base) if is_signed else base
    delta, position = decode_varint(data, position)
    delta = _decode_zigzag(delta)
    if not code:
        return _bound_run(base, base + delta * (count - 1), count), position
    changes = max(count - 2, 0)
    end = position + _pack(width, changes)
    # exact, because a bound of falling lengths would be negative
    change = abs(delta) + _sum_packed(data[position:end], width, changes)
    return _bound_run(base, base + (-change if delta < 0 else change), count), end


def _sum_packed(data: bytes, width: int, count: int) -> int:
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=width * count)
    ones: list[int] = bits.reshape(count, width).sum(axis=0, dtype=np.int64).tolist()
    return sum(number << place for place, number in enumerate(reversed(ones)))


def _read_patched_run(
    data: bytes, position: int, width: int, count: int
) -> tuple[IntegerBounds, int]:
    base_bytes, patch_width = (data[position] >> 5) + 1, int(_WIDTHS[data[position] & 31])
    gap_width, patches = (data[position + 1] >> 5) + 1, data[position + 1] & 31
    start = position + 2
    base = int.from_bytes(data[start : start + base_bytes])
    sign = 1 << 8 * base_bytes - 1
    base = sign - base if base & sign else base
    stored_width = int(_WIDTHS[np.searchsorted(_WIDTHS, min(patch_width + gap_width, 64))])
    end = start + base_bytes + _pack(width, count) + _pack(stored_width, patches)
    high, patched = base + (1 << width), base + (1 << width + patch_width)
    total = max(high, 0) * count + max(patched, 0) * patches
    return IntegerBounds(base, max(high, patched), total), end


def _pack(width: int, count: int) -> int:
    """Return the number of bytes of packed values."""
    return width * count + 7 >> 3


def _iterate_runs_of_version_1(data: bytes, *, is_signed: bool) -> Iterator[IntegerBounds]:
    def decode(position: int) -> tuple[int, int]:
        value, end = decode_varint(data, position)
        return _decode_zigzag(value) if is_signed else value, end

    position = 0
    while position < len(data):
        control = data[position]
        if control < 128:
            delta = int.from_bytes(data[position + 1 : position + 2], signed=True)
            base, position = decode(position + 2)
            yield _bound_run(base, base + delta * (control + 2), control + 3)
            continue
        position += 1
        for _ in range(256 - control):
            value, position = decode(position)
            yield _bound_run(value, value, 1)
