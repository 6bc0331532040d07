"""Many byte strings behind one another, so that numpy reads the same place of each at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paimon_orch.format.arrays import AnyArray, Indices, Int32Array, Int64Array, UInt8Array

_PADDING = 8  # a number that is read at the last byte stays inside


@dataclass(frozen=True)
class BinaryBatch:
    """The bytes of all parts, where each starts, and its length."""

    data: UInt8Array
    starts: Indices
    lengths: Indices

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> "BinaryBatch":
        """Join parts."""
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        data = np.frombuffer(b"".join([*parts, bytes(_PADDING)]), np.uint8)
        return cls(data, np.cumsum(lengths) - lengths, lengths)

    @cached_property
    def _ints(self) -> Int32Array:
        return np.ndarray((len(self.data) - 3,), ">i4", self.data, strides=(1,))

    @cached_property
    def _longs(self) -> Int64Array:
        return np.ndarray((len(self.data) - 7,), "<i8", self.data, strides=(1,))

    def read_ints(self, at: Indices) -> Indices:
        """Return big-endian numbers of 32 bits; one that would lie outside is some other number."""
        found: Indices = self._ints[at.clip(0, len(self.data) - 4)].astype(np.int64)
        return found

    def read_longs(self, at: Indices) -> Indices:
        """Return little-endian numbers of 64 bits; one that would lie outside is some other number."""
        found: Indices = self._longs[at.clip(0, len(self.data) - 8)]
        return found

    def read_bytes_at(self, at: Indices, size: int) -> UInt8Array:
        """Return ``size`` bytes from each place, which must be there."""
        found: UInt8Array = self.data[at[:, None] + np.arange(size)]
        return found

    def slices(self, starts: Indices, ends: Indices) -> list[bytes]:
        """Return the bytes between places."""
        data = self.data.tobytes()
        return [data[one:two] for one, two in zip(starts.tolist(), ends.tolist(), strict=True)]


def to_object_array(values: Sequence[object]) -> AnyArray:
    """Return values as they are: numpy would cut the NULs at the end of a text that it takes for one of its own."""
    found = np.empty(len(values), object)
    found[:] = values
    return found
