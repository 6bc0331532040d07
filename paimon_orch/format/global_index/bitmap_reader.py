"""Finds rows in bitmap index files.

See docs/format/global-index-files.md#bitmap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import unpack

import numpy as np
import pyarrow as pa

from paimon_orch.decode_limits import DecodeBudget
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import Positions
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.global_index.bitmap_file import BITMAP_MAGIC, BITMAP_VERSION
from paimon_orch.format.global_index.index_blocks import decode_bitmap64, read_block, read_varint
from paimon_orch.format.global_index.key_ranges import KeyRange, decode_key
from paimon_orch.format.global_index.sorted_column import SortedColumn
from paimon_orch.format.types.data_types import AtomicType

_FOOTER = ">qiqiqiiii"
_FOOTER_BYTES = 48
_MAX_BLOCKS = (
    64  # a test of more keys costs more than it saves, because keys are decoded one by one
)
_MAX_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class _Entries:
    """The keys of a block, and the offset and length that the block has for each."""

    keys: list[bytes]
    places: list[tuple[int, int]]

    @classmethod
    def decode(cls, block: bytes) -> "_Entries":
        count, position = read_varint(block, 0)
        keys, places = list[bytes](), list[tuple[int, int]]()
        for _ in range(count):
            length, position = read_varint(block, position)
            if position + length > len(block):
                raise ValueError("a key ends after its block")
            keys.append(block[position : position + length])
            offset, position = read_varint(block, position + length)
            size, position = read_varint(block, position)
            places.append((offset, size))
        return cls(keys, places)


class BitmapReader:
    """Reads the index of a column with ``row_count`` positions."""

    def __init__(self, source: ByteSource, data_type: AtomicType, row_count: int) -> None:
        self._source, self._type, self._row_count = source, data_type, row_count
        self._budget = DecodeBudget(source.stored_bytes)
        footer = source.bytes(source.length - _FOOTER_BYTES, _FOOTER_BYTES)
        (*places, _, version, magic) = unpack(_FOOTER, footer)
        if magic != BITMAP_MAGIC:
            raise ValueError("the file does not end with the magic number of a bitmap file")
        if version != BITMAP_VERSION:
            raise UnsupportedError(f"bitmap files of version {version} are not supported")
        self._nulls, self._values, self._index = zip(places[::2], places[1::2], strict=True)

    def find_null_rows(self) -> Positions:
        """Return the ascending positions of rows without a value."""
        return decode_bitmap64(self._source.bytes(*self._nulls), self._row_count, self._budget)

    def find_rows(self, ranges: Sequence[KeyRange]) -> Positions | None:
        """Return the ascending positions of rows with these keys; None if these are many keys."""
        if KeyRange() in ranges:
            return None
        blocks = [self._find_blocks(keys) for keys in ranges]
        if sum(map(len, blocks)) > _MAX_BLOCKS:
            return None
        places = list[list[tuple[int, int]]]()
        for keys, numbers in zip(ranges, blocks, strict=True):
            places += self._find_bitmaps(keys, numbers)
        if sum(map(len, places)) > _MAX_KEYS:
            return None
        parts = [rows for of_block in places for rows in self._read_bitmaps(of_block)]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def read_column(self) -> SortedColumn:
        """Return the whole content. Raises ``ValueError`` if its parts contradict each other."""
        parts = []
        for number in range(len(self._directory.keys)):
            entries = self._read_entries(number)
            rows = list(self._read_bitmaps(entries.places)) if entries.places else []
            counts = np.array([len(of_key) for of_key in rows], np.int64)
            positions = np.concatenate([np.empty(0, np.int64), *rows])
            parts.append((pa.array(entries.keys, pa.large_binary()), counts, positions))
        column = SortedColumn.join(parts, self.find_null_rows())
        values = decode_bitmap64(self._source.bytes(*self._values), self._row_count, self._budget)
        if not np.array_equal(np.sort(column.positions), values):
            raise ValueError("the bitmap of rows with a value differs from the bitmaps of the keys")
        return column

    def _find_blocks(self, keys: KeyRange) -> range:
        """Return the numbers of the dictionary blocks that may have the keys."""
        start, end = self._find_entries(keys, self._directory)
        return range(max(start - 1, 0), end)

    def _find_bitmaps(self, keys: KeyRange, numbers: range) -> Iterator[list[tuple[int, int]]]:
        """Yield the places of the bitmaps of each dictionary block."""
        for number in numbers:
            entries = self._read_entries(number)
            start, end = self._find_entries(keys, entries)
            if start < end:
                yield entries.places[start:end]

    def _find_entries(self, keys: KeyRange, entries: _Entries) -> tuple[int, int]:
        return keys.find(len(entries.keys), lambda n: decode_key(entries.keys[n], self._type))

    def _read_entries(self, number: int) -> _Entries:
        return _Entries.decode(
            read_block(self._source, *self._directory.places[number], self._budget)
        )

    def _read_bitmaps(self, places: Sequence[tuple[int, int]]) -> Iterator[Positions]:
        """Yield the rows of each bitmap; they follow each other in the file."""
        begin = min(offset for offset, _ in places)
        end = max(offset + size for offset, size in places)
        if sum(size for _, size in places) > end - begin:
            raise ValueError("the bitmaps of two keys overlap")
        data = self._source.bytes(begin, end - begin)
        for offset, size in places:
            start = offset - begin
            yield decode_bitmap64(data[start : start + size], self._row_count, self._budget)

    @cached_property
    def _directory(self) -> _Entries:
        return _Entries.decode(read_block(self._source, *self._index, self._budget))
