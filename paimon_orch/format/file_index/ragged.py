"""Binary arrays as numpy sees them: one buffer of bytes, and where each value lies in it."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int64Array, UInt8Array, UInt64Array

_PADDING = 8  # a word that is read at the last byte stays inside


class BinaryArrayBatch(NamedTuple):
    """The bytes of all values, and the start and the length of each."""

    data: UInt8Array
    starts: Int64Array
    lengths: Int64Array

    @classmethod
    def of(cls, values: pa.BinaryArray) -> "BinaryArrayBatch":
        """Return the values of an array without nulls; nothing is copied but the bytes."""
        _, offsets, data = values.buffers()
        found = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        starts = found.astype(np.int64)
        first, last = (int(starts[0]), int(starts[-1])) if len(starts) else (0, 0)
        padded = np.zeros(last - first + _PADDING, np.uint8)
        if data is not None:
            padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        starts -= first
        return cls(padded, starts[:-1], np.diff(starts))

    def words(self) -> UInt64Array:
        """Return the little-endian number of 64 bits that starts at each byte."""
        return np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))


def join_around_values(
    before: UInt8Array, values: BinaryArrayBatch, after: UInt8Array
) -> tuple[bytes, Int64Array]:
    """Return each value behind and in front of a row of fixed bytes, and where each result ends."""
    lengths = before.shape[1] + values.lengths + after.shape[1]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for byte in range(before.shape[1]):
        out[starts + byte] = before[:, byte]
    for byte in range(after.shape[1]):
        out[ends - after.shape[1] + byte] = after[:, byte]
    total = int(values.lengths.sum())
    inside = np.arange(total) - np.repeat(
        np.cumsum(values.lengths) - values.lengths, values.lengths
    )
    source = np.repeat(values.starts, values.lengths) + inside
    out[np.repeat(starts + before.shape[1], values.lengths) + inside] = values.data[source]
    return out.tobytes(), ends


def encode_big_endian(numbers: Int64Array, *more: Int64Array) -> UInt8Array:
    """Return rows of 32-bit numbers, as bytes."""
    columns = np.stack([numbers, *more], axis=1).astype(">i4")
    return columns.view(np.uint8).reshape(len(numbers), 4 * (1 + len(more)))
