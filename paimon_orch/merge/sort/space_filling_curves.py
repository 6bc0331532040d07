"""Space-filling curves: one sort key for several columns that keeps similar rows close together.

See docs/format/sort-compaction.md#sort-compaction.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import UInt8Array, UInt64Array, to_numpy

_WORD_BYTES = 8  # width of values that are neither text nor binary
_SIGN_BIT = np.uint64(1 << 63)


def encode_order_bytes(column: pa.Array, name: str, width: int = _WORD_BYTES) -> UInt8Array:
    """Return fixed-width bytes for each value with the same order; nulls are zeros and sort first.

    Text and binary values are truncated to ``width`` bytes; other values have 8 bytes. Decimals are
    compared as 64-bit floating-point numbers. Raises :class:`InputError` for nested columns.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        encoded = _encode_prefixes(column, width)
    else:
        encoded = _encode_words(column, name).astype(">u8").view(np.uint8).reshape(-1, _WORD_BYTES)
    encoded[to_numpy(column.is_null())] = 0
    return encoded


def _encode_prefixes(column: pa.Array, width: int) -> UInt8Array:
    data = column.cast(pa.large_binary())
    _, offsets, values = data.buffers()
    ends = np.frombuffer(offsets, np.int64)[data.offset : data.offset + len(data) + 1]
    stored_bytes = np.frombuffer(values or b"", np.uint8)
    positions = ends[:-1, None] + np.arange(width)
    is_inside = positions < ends[1:, None]
    result = np.zeros((len(data), width), np.uint8)
    result[is_inside] = stored_bytes[positions[is_inside]]
    return result


def _encode_words(column: pa.Array, name: str) -> UInt64Array:
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _encode_floats(to_numpy(column.cast(pa.float64())))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        numbers = column.cast(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        numbers = column.view(pa.int32()).cast(pa.int64())
    elif pa.types.is_timestamp(kind):
        numbers = column.view(pa.int64())
    else:
        raise InputError(f"rows cannot be ordered by column {name!r}, which is {kind}")
    words: UInt64Array = to_numpy(numbers).view(np.uint64)
    return words ^ _SIGN_BIT


def _encode_floats(values: npt.NDArray[np.float64]) -> UInt64Array:
    """Return integers in the order of floating-point numbers: NaN last, -0.0 equal to 0.0."""
    values = np.where(np.isnan(values), np.float64("nan"), values + 0.0)
    bits = values.view(np.uint64)
    return np.where(bits & _SIGN_BIT, ~bits, bits | _SIGN_BIT)


def encode_curve_keys(
    rows: pa.Table, names: Sequence[str], curve: Literal["zorder", "hilbert"], width: int
) -> pa.Array:
    """Return the sort keys of rows along a curve; uses the first ``width`` bytes of strings."""
    columns = [
        encode_order_bytes(rows.column(name).combine_chunks(), name, width) for name in names
    ]
    if curve == "hilbert":
        codes = encode_hilbert([decode_leading_words(column) for column in columns])
    else:
        codes = encode_z_order(columns)
    buffer = pa.py_buffer(codes.tobytes())
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(codes.shape[1]), len(codes), [None, buffer]
    )
    return fixed.cast(pa.binary())


def encode_z_order(columns: Sequence[UInt8Array]) -> UInt8Array:
    """Interleave the bits of several columns, highest bits first; narrow columns end earlier."""
    unpacked = [np.unpackbits(column, axis=1) for column in columns]
    longest = max(bits.shape[1] for bits in unpacked)
    turns = [
        bits[:, position]
        for position in range(longest)
        for bits in unpacked
        if position < bits.shape[1]
    ]
    return np.packbits(np.stack(turns, axis=1), axis=1)


def encode_hilbert(columns: Sequence[UInt64Array], bits: int = 64) -> UInt8Array:
    """Return the positions of points on a Hilbert curve; coordinates have ``bits`` bits.

    All cells of the grid have different positions, and cells with consecutive positions are
    adjacent. The positions are bit strings, left-aligned in their bytes. After J. Skilling,
    "Programming the Hilbert curve" (2004).
    """
    axes = _transpose_coordinates([column.astype(np.uint64) for column in columns], bits)
    shifted = [axis << np.uint64(64 - bits) for axis in axes]
    unpacked = [
        np.unpackbits(axis.astype(">u8").view(np.uint8).reshape(-1, _WORD_BYTES), axis=1)[:, :bits]
        for axis in shifted
    ]
    stacked = np.stack(unpacked, axis=2)
    return np.packbits(stacked.reshape(len(stacked), -1), axis=1)


def _transpose_coordinates(axes: list[UInt64Array], bits: int) -> list[UInt64Array]:
    """Return the bits of the positions of coordinates, spread over the axes."""
    zero = np.uint64(0)
    for bit in range(bits - 1, 0, -1):
        high, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for index, axis in enumerate(axes):
            is_set = (axis & high) != zero
            exchanged = np.where(is_set, zero, (axes[0] ^ axis) & below)
            axes[0] = axes[0] ^ np.where(is_set, below, exchanged)
            if index:
                axes[index] = axis ^ exchanged
    for index in range(1, len(axes)):
        axes[index] = axes[index] ^ axes[index - 1]
    turn = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        is_set = (axes[-1] & np.uint64(1 << bit)) != zero
        turn ^= np.where(is_set, np.uint64((1 << bit) - 1), zero)
    return [axis ^ turn for axis in axes]


def decode_leading_words(column: UInt8Array) -> UInt64Array:
    """Return the first 8 bytes of each row as a number with the same order."""
    padded = np.zeros((len(column), _WORD_BYTES), np.uint8)
    padded[:, : min(_WORD_BYTES, column.shape[1])] = column[:, :_WORD_BYTES]
    return padded.view(">u8").astype(np.uint64).ravel()
