"""Byte strings in one buffer, so that one numpy call reads the same field of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import (
    AnyArray,
    Indices,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt64Array,
)

_PADDING = 8  # bytes after the last value, so that a word can be read from its last byte
_CHUNK = 32_768  # values per step; intermediate results fit the processor cache


@dataclass(frozen=True)
class BinaryBatch:
    """Byte strings in one buffer."""

    data: UInt8Array
    """The bytes of all values, and 8 bytes of padding."""
    starts: Indices
    lengths: Indices

    @classmethod
    def of(cls, values: Sequence[bytes]) -> "BinaryBatch":
        """Join byte strings."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        data = np.frombuffer(b"".join([*values, bytes(_PADDING)]), np.uint8)
        return cls(data, np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def from_arrow(cls, values: pa.BinaryArray) -> "BinaryBatch":
        """Return the values of an array without nulls."""
        _, offset_buffer, data = values.buffers()
        offsets = np.frombuffer(offset_buffer, np.int32)
        starts = offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
        first, last = (int(starts[0]), int(starts[-1])) if len(starts) else (0, 0)
        padded = np.zeros(last - first + _PADDING, np.uint8)
        if data is not None:
            padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        starts -= first
        return cls(padded, starts[:-1], np.diff(starts))

    @cached_property
    def _big_endian_ints(self) -> Int32Array:
        return np.ndarray((len(self.data) - 3,), ">i4", self.data, strides=(1,))

    @cached_property
    def _little_endian_longs(self) -> Int64Array:
        return np.ndarray((len(self.data) - 7,), "<i8", self.data, strides=(1,))

    @cached_property
    def words64(self) -> UInt64Array:
        """The little-endian 64-bit number that starts at each byte."""
        return np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))

    def read_ints(self, positions: Indices) -> Indices:
        """Return 32-bit big-endian numbers; they are arbitrary outside the buffer."""
        ints: Int32Array = self._big_endian_ints[positions.clip(0, len(self.data) - 4)]
        return ints.astype(np.int64)

    def read_longs(self, positions: Indices) -> Indices:
        """Return 64-bit little-endian numbers; they are arbitrary outside the buffer."""
        longs: Indices = self._little_endian_longs[positions.clip(0, len(self.data) - 8)]
        return longs

    def read_bytes_at(self, positions: Indices, size: int) -> UInt8Array:
        """Return ``size`` bytes from each position as a matrix; all must be inside the buffer."""
        rows: UInt8Array = self.data[positions[:, None] + np.arange(size)]
        return rows

    def slices(self, starts: Indices, ends: Indices) -> list[bytes]:
        """Return the bytes between positions."""
        data = self.data.tobytes()
        return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def chunk_longest_first(lengths: Int64Array) -> "list[Int64Array] | list[slice]":
    """Return the indices of values in chunks of 32,768, longest value first.

    The values of a chunk that have a byte at a given offset are then its first values.
    """
    starts = range(0, len(lengths), _CHUNK)
    if not len(lengths) or lengths.min() == lengths.max():
        return [slice(start, start + _CHUNK) for start in starts]
    order = np.argsort(-lengths, kind="stable")
    return [order[start : start + _CHUNK] for start in starts]


def to_object_array(values: Sequence[object]) -> AnyArray:
    """Return values as an object array; numpy's text type would drop trailing NULs."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def join_around_values(
    before: UInt8Array, values: BinaryBatch, after: UInt8Array
) -> tuple[bytes, Int64Array]:
    """Concatenate ``before``, value and ``after`` of each row; return the bytes and row ends."""
    lengths = before.shape[1] + values.lengths + after.shape[1]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for byte in range(before.shape[1]):
        out[starts + byte] = before[:, byte]
    for byte in range(after.shape[1]):
        out[ends - after.shape[1] + byte] = after[:, byte]
    total = int(values.lengths.sum())
    value_offsets = np.arange(total) - np.repeat(
        np.cumsum(values.lengths) - values.lengths, values.lengths
    )
    source = np.repeat(values.starts, values.lengths) + value_offsets
    out[np.repeat(starts + before.shape[1], values.lengths) + value_offsets] = values.data[source]
    return out.tobytes(), ends


def encode_big_endian(numbers: Int64Array, *further_numbers: Int64Array) -> UInt8Array:
    """Return a matrix of bytes with the 32-bit big-endian numbers of each row."""
    columns = np.stack([numbers, *further_numbers], axis=1).astype(">i4")
    return columns.view(np.uint8).reshape(len(numbers), 4 * (1 + len(further_numbers)))
