"""Blocks of btree files: sorted entries of a key and a value.

See docs/format/global-index-files.md#btree.
"""

from dataclasses import dataclass
from struct import unpack_from

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int64Array, Positions, UInt8Array
from paimon_orch.format.global_index.byte_strings import build_binary_array
from paimon_orch.format.global_index.index_blocks import read_varint

_ALIGNED, _UNALIGNED = 0, 1
_END_BYTES = 5
_MAX_VARINT_BYTES = 9


@dataclass(frozen=True, slots=True)
class SortedBlock:
    """The entries of a block."""

    data: bytes
    """The entries, without the end of the block."""
    offsets: Int64Array
    """The position of each entry, and the end of the last entry."""

    @classmethod
    def decode(cls, block: bytes) -> "SortedBlock":
        """Return the entries of a block. Raises ``ValueError`` or ``struct.error`` for damage."""
        number, layout = unpack_from("<iB", block, len(block) - _END_BYTES)
        if layout == _ALIGNED:
            size = len(block) - _END_BYTES
            if number <= 0 or size % number:
                raise ValueError(f"a block of {size} bytes cannot have entries of {number} bytes")
            return cls(block[:size], np.arange(0, size + 1, number))
        if layout != _UNALIGNED:
            raise ValueError(f"a block has the unknown layout {layout}")
        end = len(block) - _END_BYTES - 4 * number
        if number < 0 or end < 0:
            raise ValueError(f"a block of {len(block)} bytes cannot have {number} entries")
        offsets = np.append(np.frombuffer(block, "<i4", number, end), end).astype(np.int64)
        if (np.diff(offsets) <= 0).any() or offsets[0] != 0:
            raise ValueError("the entries of a block are not in order")
        return cls(block[:end], offsets)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.offsets) - 1

    def key(self, index: int) -> bytes:
        """Return the key of an entry."""
        return self._split(index)[0]

    def value(self, index: int) -> bytes:
        """Return the value of an entry."""
        return self._split(index)[1]

    def _split(self, index: int) -> tuple[bytes, bytes]:
        start, end = self.offsets[index : index + 2].tolist()
        length, start = read_varint(self.data, start)
        value_length, value_start = read_varint(self.data, start + length)
        if value_start + value_length != end:
            raise ValueError("the lengths of an entry do not match")
        return self.data[start : start + length], self.data[value_start:end]

    def read_keys(self) -> pa.LargeBinaryArray:
        """Return the keys of all entries."""
        data = np.frombuffer(self.data, np.uint8)
        lengths, places = _read_varints(data, self.offsets[:-1])
        if (lengths > len(data)).any() or (places + lengths > self.offsets[1:]).any():
            raise ValueError("a key ends after its entry")
        before = np.cumsum(lengths) - lengths
        chosen = data[np.repeat(places - before, lengths) + np.arange(int(lengths.sum()))]
        return build_binary_array(chosen.tobytes(), lengths)

    def read_counted_positions(self, start: int, end: int) -> tuple[Int64Array, Positions]:
        """Return the number of positions of each entry, and the positions."""
        data, ends = np.frombuffer(self.data, np.uint8), self.offsets[start + 1 : end + 1]
        lengths, places = _read_varints(data, self.offsets[start:end])
        value_lengths, places = _read_varints(data, places + lengths)
        if (places + value_lengths != ends).any():
            raise ValueError("the lengths of an entry do not match")
        counts, places = _read_varints(data, places)
        sizes = ends - places
        if (sizes < 0).any():
            raise ValueError("the lengths of an entry do not match")
        before = np.cumsum(sizes) - sizes
        chosen = data[np.repeat(places - before, sizes) + np.arange(int(sizes.sum()))]
        is_last = chosen < 0x80
        totals = np.add.reduceat(np.append(is_last, False), before).astype(np.int64)
        if (sizes == 0).any() or (totals != counts).any():
            raise ValueError("an entry has another number of rows than it states")
        return counts, _decode_varints(chosen, is_last)


def _read_varints(data: UInt8Array, places: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the number at each place, and the places after them. Raises ``IndexError``."""
    numbers, places = np.zeros(len(places), np.int64), places.copy()
    pending = np.arange(len(places))
    for index in range(_MAX_VARINT_BYTES):
        if len(places) and (places[pending] < 0).any():
            raise ValueError("a length in an entry is out of range")
        bytes_read = data[places[pending]]
        numbers[pending] |= (bytes_read & 0x7F).astype(np.int64) << 7 * index
        places[pending] += 1
        pending = pending[bytes_read >= 0x80]
        if not len(pending):
            return numbers, places
    raise ValueError("a number has more than 63 bits")


def _decode_varints(data: UInt8Array, is_last: np.typing.NDArray[np.bool_]) -> Positions:
    """Return numbers that follow each other; the last byte is the last of a number."""
    ends = np.flatnonzero(is_last) + 1
    lengths = np.diff(ends, prepend=0)
    if len(lengths) and lengths.max() > _MAX_VARINT_BYTES:
        raise ValueError("a number has more than 63 bits")
    numbers, starts = np.zeros(len(ends), np.int64), ends - lengths
    for index in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > index)
        numbers[longer] |= (data[starts[longer] + index] & 0x7F).astype(np.int64) << 7 * index
    return numbers
