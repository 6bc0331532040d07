"""Finds rows in btree index files.

See docs/format/global-index-files.md#btree.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from struct import unpack
from zlib import crc32

import numpy as np

from paimon_orch.decode_limits import DecodeBudget
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import Positions
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.global_index.btree_file import BTREE_MAGIC, BTREE_VERSION
from paimon_orch.format.global_index.index_blocks import decode_bitmap64, read_block, read_varint
from paimon_orch.format.global_index.key_ranges import KeyRange, decode_key
from paimon_orch.format.global_index.sorted_block import SortedBlock
from paimon_orch.format.global_index.sorted_column import SortedColumn
from paimon_orch.format.types.data_types import AtomicType

_FOOTER = "<qiqqiqiii"
_FOOTER_BYTES = 52
_CRC_BYTES = 4
_MAX_SHARE = 1 / 16  # a test that selects more of the keys costs more than it saves
_FEW_BLOCKS = 16


class BTreeReader:
    """Reads the index of a column with ``row_count`` positions."""

    def __init__(self, source: ByteSource, data_type: AtomicType, row_count: int) -> None:
        self._source, self._type, self._row_count = source, data_type, row_count
        self._budget = DecodeBudget(source.stored_bytes)
        footer = source.bytes(source.length - _FOOTER_BYTES, _FOOTER_BYTES)
        *_, index_offset, index_size, null_offset, null_size, version, magic = unpack(
            _FOOTER, footer
        )
        if magic != BTREE_MAGIC:
            raise ValueError("the file does not end with the magic number of a btree file")
        if version != BTREE_VERSION:
            raise UnsupportedError(f"btree files of version {version} are not supported")
        self._index = index_offset, index_size
        self._nulls = null_offset, null_size

    def find_null_rows(self) -> Positions:
        """Return the ascending positions of rows without a value."""
        offset, size = self._nulls
        if not size:
            return np.empty(0, np.int64)
        data = self._source.bytes(offset, size + _CRC_BYTES)
        if unpack("<I", data[size:]) != (crc32(data[:size]),):
            raise ValueError("the bitmap of nulls does not match its checksum")
        return decode_bitmap64(data[:size], self._row_count, self._budget)

    def find_rows(self, ranges: Sequence[KeyRange]) -> Positions | None:
        """Return the ascending positions of rows with these keys; None if these are most rows."""
        if KeyRange() in ranges:
            return None
        blocks = [self._find_blocks(keys) for keys in ranges]
        total = sum(len(numbers) for numbers in blocks)
        if total > max(_FEW_BLOCKS, _MAX_SHARE * len(self._index_block)):
            return None
        parts = [
            part
            for keys, numbers in zip(ranges, blocks, strict=True)
            for part in self._read_rows(keys, numbers)
        ]
        rows = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        if len(rows) and rows[-1] >= self._row_count:
            raise ValueError(f"the index has position {rows[-1]} for {self._row_count} rows")
        return rows

    def read_column(self) -> SortedColumn:
        """Return the whole content."""
        parts = []
        for number in range(len(self._index_block)):
            block = self._read_block(number)
            parts.append((block.read_keys(), *block.read_counted_positions(0, len(block))))
        return SortedColumn.join(parts, self.find_null_rows())

    def _find_blocks(self, keys: KeyRange) -> range:
        """Return the numbers of the blocks that may have the keys."""
        last_keys = self._index_block
        first, end = self._find_entries(keys, last_keys)
        return range(first, min(end + 1, len(last_keys)))

    def _read_rows(self, keys: KeyRange, numbers: range) -> Iterator[Positions]:
        for number in numbers:
            block = self._read_block(number)
            start, end = self._find_entries(keys, block)
            if start < end:
                yield block.read_counted_positions(start, end)[1]

    def _read_block(self, number: int) -> SortedBlock:
        offset, place = read_varint(value := self._index_block.value(number), 0)
        length, _ = read_varint(value, place)
        return SortedBlock.decode(read_block(self._source, offset, length, self._budget))

    def _find_entries(self, keys: KeyRange, block: SortedBlock) -> tuple[int, int]:
        return keys.find(len(block), lambda n: decode_key(block.key(n), self._type))

    @cached_property
    def _index_block(self) -> SortedBlock:
        return SortedBlock.decode(read_block(self._source, *self._index, self._budget))
