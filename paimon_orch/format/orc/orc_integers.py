"""Bounds of the integers in run-length encoded streams of ORC files, without decoding them.

The ORC library does not check lengths and scales: some values end the process or take hours.

See docs/format/data-files.md#orc-and-avro.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from math import gcd
from typing import NamedTuple

import numpy as np

from paimon_orch.format.arrays import AnyArray, Int64Array, Mask
from paimon_orch.format.bytes.varint import decode_varint

_WIDTHS = np.array([*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64])
"""The numbers of bits by code."""
_SHORT_REPEAT, _DIRECT, _PATCHED_BASE = range(3)
_ONE_VALUE = 0xC0  # a run of differences without bits, but for the count
_BLOCK_BYTES = 1 << 15
_DOUBLINGS = 4  # of the number of runs that are skipped at once
_MAX_WIDTH = 24  # in bits, of the values of packed runs that are bounded together


class IntegerBounds(NamedTuple):
    """Bounds of integers: none is lower or higher; the sum of unsigned ones is at most the total."""

    low: int = 0
    high: int = 0
    total: int = 0


def find_integer_bounds(
    data: bytes, *, version: int, is_signed: bool, rough_total: int = 0
) -> IntegerBounds:
    """Return bounds of all values of a stream in version 1 or 2 of the run-length encoding.

    The total is the sum of unsigned values; if it is at most ``rough_total``, it may be hundreds of
    times too large. A stream may end within a run. Raises ``ValueError`` or ``IndexError`` for a
    damaged one.
    """
    if version == 1:
        return _combine(_iterate_runs_of_version_1(data, is_signed=is_signed))
    blocks, parts, position = list[_RunBlock](), list[IntegerBounds](), 0
    while position < len(data):
        block = _RunBlock(data[position : position + _BLOCK_BYTES])
        offset, steps = 0, list[int]()
        while offset < block.size:
            if end := block.skip(offset):
                steps.append(offset)
                offset = end
            else:
                bounds, end = _read_run(data, position + offset, is_signed=is_signed)
                parts.append(bounds)
                offset = end - position
        block.select_runs(steps)
        parts.append(block.find_bounds(is_signed=is_signed))
        blocks.append(block)
        position += offset
    bounds = _combine(parts)
    if is_signed or bounds.total <= rough_total:
        return bounds
    return bounds._replace(total=bounds.total - sum(block.find_excess() for block in blocks))


def find_highest(data: bytes, *, version: int) -> int:
    """Return the highest value of an unsigned stream; unlike its bound, it is exact if packed."""
    if version == 1:
        return find_integer_bounds(data, version=1, is_signed=False).high
    high, position = 0, 0
    while position < len(data):
        bounds, end = _read_run(data, position, is_signed=False)
        width = int(_WIDTHS[data[position] >> 1 & 31])
        if data[position] >> 6 == _DIRECT and width < 64:
            count = ((data[position] & 1) << 8 | data[position + 1]) + 1
            packed = np.frombuffer(data[position + 2 : end], np.uint8)
            bits = np.unpackbits(packed, count=width * count).reshape(count, width)
            values = bits.astype(np.int64) @ (1 << np.arange(width - 1, -1, -1, dtype=np.int64))
            high = max(high, int(values.max()))
        else:
            high = max(high, bounds.high)
        position = end
    return high


def decode_bits(data: bytes, count: int) -> AnyArray:
    """Return the first bits of a stream of bytes in run-length encoding, and their number at most."""
    parts, position, missing = list[bytes](), 0, count
    while position < len(data) and missing > 0:
        control, position = data[position], position + 1
        size, repeats = (1, control + 3) if control < 128 else (256 - control, 1)
        parts.append(data[position : position + size] * repeats)
        position, missing = position + size, missing - 8 * size * repeats
    return np.unpackbits(np.frombuffer(b"".join(parts), np.uint8))[:count]


def _combine(parts: Iterable[IntegerBounds]) -> IntegerBounds:
    low = high = total = 0
    for part in parts:
        low, high, total = min(low, part.low), max(high, part.high), total + part.total
    return IntegerBounds(low, high, total)


def _bound_steps(first: int, step: int, count: int) -> IntegerBounds:
    """Return the bounds of a run whose values have equal differences."""
    last = first + step * (count - 1)
    return IntegerBounds(min(first, last), max(first, last), (first + last) * count // 2)


def _decode_zigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)


class _RunBlock:
    """A part of a stream, whose runs are bounded together if they are short, packed or constant.

    The first bytes of these runs give their sizes and bounds. Sizes are computed for all bytes, as
    if a run started at each of them, because this takes less time than a loop over the runs.
    """

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = np.frombuffer(data + bytes(3), np.uint8)
        first, second, third, fourth = (self._data[place : place + len(data)] for place in range(4))
        sizes = _describe_heads().sizes.take(first.astype(np.uint16) << 8 | second)
        sizes[(first & 0xFE == _ONE_VALUE) & (third < 0x80) & (fourth == 0)] = 4
        starts = np.arange(len(data) + 1, dtype=np.int32)
        ends = starts[:-1] + sizes
        # other runs end where they start, and so do incomplete ones
        np.copyto(starts[:-1], ends, where=ends <= len(data))
        self._ends = [starts]
        """The ends of one run, of two, of four and so on."""
        for _ in range(_DOUBLINGS):
            self._ends.append(self._ends[-1].take(self._ends[-1]))

    def skip(self, position: int) -> int:
        """Return the end of some runs from a position, or 0 if none of the three kinds is there."""
        end = self._ends[-1].item(position)
        return end if end > position else 0

    def select_runs(self, steps: list[int]) -> None:
        """Keep only the runs that were skipped from some positions."""
        starts = np.array(steps, np.int32)
        for ends in self._ends[-2::-1]:
            starts = np.concatenate([starts, ends.take(starts)])
        self._starts = starts[self._ends[0].take(starts) > starts]
        self._ends.clear()  # they are much larger
        heads, first = _describe_heads(), self._data.take(self._starts)
        codes = first.astype(np.uint16) << 8 | self._data.take(self._starts + 1)
        self._highs, self._counts = heads.highs.take(codes), heads.counts.take(codes)
        has_third = (first >= _ONE_VALUE) | (first >> 3 == 1)
        self._highs[has_third] += self._data[self._starts[has_third] + 2]

    def find_bounds(self, *, is_signed: bool) -> IntegerBounds:
        """Return the bounds of the kept runs."""
        if not len(self._starts):
            return IntegerBounds()
        low, high = 0, int(self._highs.max())
        total = int(np.dot(self._highs, self._counts.astype(np.int64)))
        if not is_signed:
            return IntegerBounds(low, high, total)
        if self._has_odd_values():
            low = -(high + 1 >> 1)
        return IntegerBounds(low, high + 1 >> 1, total)

    def _has_odd_values(self) -> bool:
        """Return whether an encoded value is odd, which means that it is negative."""
        starts, widths, is_packed = self._find_packed_runs()
        counts = self._counts[is_packed].astype(np.int64)
        numbers = 1 + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        bits = np.repeat(starts * 8 - 1, counts) + np.repeat(widths, counts) * numbers
        is_odd = (self._data[bits >> 3] >> (7 - (bits & 7)) & 1).any()
        return bool(is_odd or (self._highs[~is_packed] & 1).any())

    def find_excess(self) -> int:
        """Return by how much the total of packed runs is larger than the sum of their values."""
        starts, widths, is_packed = self._find_packed_runs()
        counts = self._counts[is_packed].astype(np.int64)
        excess = int(np.dot(self._highs[is_packed], counts))
        for width in np.unique(widths).tolist():
            is_selected = widths == width
            sizes = width * counts[is_selected] + 7 >> 3
            places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            values = _build_byte_values(width)
            data = self._data[places + np.repeat(starts[is_selected], sizes)]
            excess -= int(values[places % len(values), data].sum())
        return excess

    def _find_packed_runs(self) -> tuple[Int64Array, Int64Array, Mask]:
        """Return where the values of packed runs start, their widths, and which runs these are."""
        first = self._data[self._starts].astype(np.int64)
        is_packed = first >> 6 == _DIRECT
        return self._starts[is_packed] + np.int64(2), _WIDTHS[first[is_packed] >> 1 & 31], is_packed


class _Heads(NamedTuple):
    """What the first two bytes of a run say; sizes of other runs are 0."""

    sizes: AnyArray
    """In bytes."""
    highs: AnyArray
    """The values of short and constant runs, without a third byte, and the bounds of packed runs."""
    counts: AnyArray


@cache
def _describe_heads() -> _Heads:
    first, second = np.divmod(np.arange(1 << 16), 256)
    counts, width = ((first & 1) << 8 | second) + 1, _WIDTHS[first >> 1 & 31]
    is_short, is_packed = first < 16, (first >> 6 == _DIRECT) & (width <= _MAX_WIDTH)
    packed_size, high = 2 + (width * counts + 7 >> 3), (1 << width % 64) - 1
    return _Heads(
        np.select([is_short, is_packed], [2 + (first >> 3), packed_size]).astype(np.uint16),
        np.select([is_short, is_packed], [second << (first & 8), high]).astype(np.int32),
        np.where(is_short, (first & 7) + 3, counts).astype(np.uint16),
    )


@cache
def _build_byte_values(width: int) -> Int64Array:
    """Return what a byte adds to the sum of packed values, by its place and its value.

    Places repeat after as many bytes as rows are returned.
    """
    places = width // gcd(width, 8)
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1).astype(np.int64)
    weights = 1 << (width - 1 - np.arange(8 * places) % width)
    values: Int64Array = weights.reshape(places, 8) @ bits.T
    return values


def _read_run(data: bytes, position: int, *, is_signed: bool) -> tuple[IntegerBounds, int]:
    """Return the bounds of a run of version 2, and its end."""
    first = data[position]
    if first >> 6 == _SHORT_REPEAT:
        end = position + 2 + (first >> 3 & 7)
        value = int.from_bytes(data[position + 1 : end])
        value = _decode_zigzag(value) if is_signed else value
        return _bound_steps(value, 0, (first & 7) + 3), end
    count = ((first & 1) << 8 | data[position + 1]) + 1
    code, position = first >> 1 & 31, position + 2
    width = int(_WIDTHS[code])
    if first >> 6 == _DIRECT:
        high, end = 1 << width - is_signed, position + _pack(width, count)
        if is_signed:
            return IntegerBounds(-high, high, high * count), end
        return IntegerBounds(0, high, _sum(_unpack(data[position:end], width, count))), end
    if first >> 6 == _PATCHED_BASE:
        return _read_patched_run(data, position, width, count)
    base, position = decode_varint(data, position)
    base = _decode_zigzag(base) if is_signed else base
    delta, position = decode_varint(data, position)
    delta = _decode_zigzag(delta)
    if not code:
        return _bound_steps(base, delta, count), position
    changes = max(count - 2, 0)
    end = position + _pack(width, changes)
    bits, sign = _unpack(data[position:end], width, changes), -1 if delta < 0 else 1
    # exact, because a bound of falling lengths would be negative
    last = base + delta + sign * _sum(bits)
    weighted = sign * _sum(bits * np.arange(changes, 0, -1)[:, np.newaxis])
    total = base * count + delta * (count - 1) + weighted
    return IntegerBounds(min(base, last), max(base, last), total), end


def _unpack(data: bytes, width: int, count: int) -> AnyArray:
    """Return the bits of packed values, a row for each of them."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=width * count)
    return bits.reshape(count, width)


def _sum(bits: AnyArray) -> int:
    ones: list[int] = bits.sum(axis=0, dtype=np.int64).tolist()
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
    values = _unpack(
        data[start + base_bytes : start + base_bytes + _pack(width, count)], width, count
    )
    listed = _unpack(data[end - _pack(stored_width, patches) : end], stored_width, patches)
    total = base * count + _sum(values) + (_sum(listed[:, stored_width - patch_width :]) << width)
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
            yield _bound_steps(base, delta, control + 3)
            continue
        position += 1
        for _ in range(256 - control):
            value, position = decode(position)
            yield _bound_steps(value, 0, 1)
