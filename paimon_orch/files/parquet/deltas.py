"""Decodes lengths that are stored as differences (DELTA_BINARY_PACKED)."""

from collections.abc import Sequence

import numpy as np

from paimon_orch.files.parquet.thrift_compact import decode_integer
from paimon_orch.format.arrays import Int64Array, UInt8Array
from paimon_orch.format.bytes.varint import decode_varint

_MAX_BITS = 1 << 22  # that are unpacked at once


def decode_deltas(data: bytes, position: int, max_count: int) -> tuple[Int64Array, int]:
    """Return the 32-bit numbers that begin at ``position``, and their end.

    Raises ``ValueError`` if there are more than ``max_count``, and ``ValueError`` or ``IndexError``
    for damaged bytes.
    """
    block, parts, count, position = check_delta_count(data, position, max_count)
    first = decode_integer(data, position)
    _, position = decode_varint(data, position)
    if not 0 < parts <= block or block % parts or block // parts % 32:
        raise ValueError(f"a block of {block} differences cannot have {parts} parts")
    size = block // parts
    lows, widths, starts = list[int](), list[int](), list[int]()
    remaining = count - 1
    while remaining > 0:
        low = decode_integer(data, position)
        _, position = decode_varint(data, position)
        end = position + parts
        for index in range(position, min(end, position + -(-remaining // size))):
            lows.append(low)
            widths.append(data[index])
            starts.append(end)
            end += data[index] * size // 8
        remaining -= block
        position = end
    if position > len(data):
        raise ValueError("differences are longer than their page")
    deltas = _unpack(np.frombuffer(data, np.uint8), starts, widths, size)[: max(0, count - 1)]
    deltas += np.repeat(np.array(lows, np.int64), size)[: len(deltas)]
    numbers = np.cumsum(np.append(first, deltas))[:count]
    return numbers.astype(np.int32).astype(np.int64), position


def check_delta_count(data: bytes, position: int, max_count: int) -> tuple[int, int, int, int]:
    """Return the sizes of blocks, their number of parts, the count of numbers, and their end.

    Raises ``ValueError`` if there are more numbers than ``max_count``.
    """
    block, position = decode_varint(data, position)
    parts, position = decode_varint(data, position)
    count, position = decode_varint(data, position)
    if count > max_count:
        raise ValueError(f"a page of {max_count} values has {count} lengths")
    return block, parts, count, position


def _unpack(
    data: UInt8Array, starts: Sequence[int], widths: Sequence[int], size: int
) -> Int64Array:
    """Return the packed numbers of parts of ``size`` numbers each."""
    numbers = np.zeros(len(starts) * size, np.int64).reshape(len(starts), size)
    for width in set(widths) - {0}:
        if width > 32:
            raise ValueError(f"a length has {width} bits")
        places = np.flatnonzero(np.array(widths) == width)
        weights = np.int64(1) << np.arange(width, dtype=np.int64)
        step = max(1, _MAX_BITS // (width * size))
        for begin in range(0, len(places), step):
            some = places[begin : begin + step]
            first = np.array(starts, np.int64)[some]
            packed = data[first[:, None] + np.arange(width * size // 8)]
            bits = np.unpackbits(packed, axis=1, bitorder="little")
            numbers[some] = bits.reshape(len(some), size, width) @ weights
    return numbers.ravel()
