"""Readers that query one index in each of many files: which files have no row that passes a test.

See docs/format/file-index-evaluation.md#use-in-planning.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.bytes.binary_batch import BinaryBatch, to_object_array
from paimon_orch.format.file_index.bloom_filter import hash_key, iterate_bit_hashes
from paimon_orch.format.file_index.index_keys import (
    BITMAP,
    BLOOM_FILTER,
    RANGE_BITMAP,
    Key,
    get_key_codec,
)
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.format.types.predicate import Operator


class IndexRanges(NamedTuple):
    """The byte ranges of one index of each file, in the concatenated containers."""

    batch: BinaryBatch
    starts: Indices
    ends: Indices
    inside: Mask
    """Whether the index is inside its container; if not, the range is empty."""

    @classmethod
    def read(cls, batch: BinaryBatch, files: Indices, entry: int) -> "IndexRanges":
        """Return the indexes whose offset and length are at ``entry`` in each container."""
        begin = batch.starts[files]
        start, length = batch.read_ints(begin + entry), batch.read_ints(begin + entry + 4)
        is_inside = (start >= 0) & (length >= 0) & (start + length <= batch.lengths[files])
        starts = np.where(is_inside, begin + start, 0)
        return cls(batch, starts, starts + np.where(is_inside, length, 0), is_inside)


class BatchAnswer(NamedTuple):
    """The answer of indexes for each file of a batch."""

    excluded: Mask
    """Whether no row of the file can match."""

    undecided: Mask
    """Whether the file must be evaluated individually."""

    selects: bool
    """Whether an index selected some of the rows.

    The intersection of two selections may be empty.
    """

    @classmethod
    def all_rows(cls, count: int) -> "BatchAnswer":
        """Return the answer that any row of the files may match."""
        return cls(np.zeros(count, bool), np.zeros(count, bool), False)

    @classmethod
    def unknown(cls, count: int) -> "BatchAnswer":
        """Return the answer that all files are undecided."""
        return cls(np.zeros(count, bool), np.ones(count, bool), True)

    @classmethod
    def of(cls, excluded: Mask, decided: Mask, *, selects: bool = True) -> "BatchAnswer":
        """Return an answer that excludes decided files; other files are undecided."""
        return cls(excluded & decided, ~decided, selects)


def intersect_answers(answers: Sequence[BatchAnswer]) -> BatchAnswer:
    """Return the answer for rows that match all of one or more tests."""
    if len(answers) == 1:
        return answers[0]
    excluded = np.logical_or.reduce([answer.excluded for answer in answers])
    has_several_selections = sum(answer.selects for answer in answers) > 1
    undecided = np.logical_or.reduce([answer.undecided for answer in answers])
    undecided = (undecided | has_several_selections) & ~excluded
    return BatchAnswer(excluded, undecided, any(answer.selects for answer in answers))


def unite_answers(answers: Sequence[BatchAnswer]) -> BatchAnswer:
    """Return the answer for rows that match any of one or more tests."""
    if len(answers) == 1:
        return answers[0]
    excluded = np.logical_and.reduce([answer.excluded for answer in answers])
    has_rows = np.logical_or.reduce([~answer.excluded & ~answer.undecided for answer in answers])
    undecided = ~excluded & ~has_rows
    return BatchAnswer(excluded, undecided, any(answer.selects for answer in answers))


class BatchIndexReader(Protocol):
    """One index of one column in each file of a batch."""

    def query(self, op: Operator, keys: Sequence[Key]) -> BatchAnswer:
        """Return which files have no row that passes a test."""
        ...


class _BatchBloomFilterIndex:
    def __init__(self, ranges: IndexRanges, data_type: AtomicType, _row_counts: Indices) -> None:
        self._blobs, self._type = ranges, data_type
        self._functions = ranges.batch.read_ints(ranges.starts)
        self._bits = 8 * (ranges.ends - ranges.starts - 4)
        is_valid = (self._functions > 0) & (self._functions < 128) & (self._bits > 0)
        self._decided = ranges.inside & is_valid

    def query(self, op: Operator, keys: Sequence[Key]) -> BatchAnswer:
        if op not in (Operator.EQUAL, Operator.IN):
            return BatchAnswer.all_rows(len(self._bits))
        contains = np.logical_or.reduce([self._may_contain(key) for key in keys])
        return BatchAnswer.of(~contains, self._decided, selects=False)

    def _may_contain(self, key: Key) -> Mask:
        data, body = self._blobs.batch.data, self._blobs.starts + 4
        bits, functions = (
            np.where(self._decided, self._bits, 1),
            np.where(self._decided, self._functions, 0),
        )
        contains = np.ones(len(bits), bool)
        hashes = iterate_bit_hashes(hash_key(key, self._type), int(functions.max(initial=0)))
        for number, bit_hash in enumerate(hashes):
            bit = bit_hash % bits
            byte = data[np.minimum(body + (bit >> 3), len(data) - 1)]
            contains &= (byte >> (bit & 7) & 1 != 0) | (number >= functions)
        return contains


class _StoredKeys:
    """The keys of an index in each file, each followed by a fixed number of bytes."""

    def __init__(self, ranges: IndexRanges, data_type: AtomicType) -> None:
        self._batch, self._ends, self._stored = ranges.batch, ranges.ends, get_key_codec(data_type)

    @property
    def is_fixed(self) -> bool:
        """Return whether all keys have the same size."""
        return self._stored.dtype is not None

    def size(self, offsets: Indices) -> Indices:
        """Return the sizes of the keys at offsets, in bytes."""
        if self._stored.dtype is not None:
            return np.full(len(offsets), self._stored.width)
        return 4 + self._batch.read_ints(offsets)

    def is_inside_index(self, offsets: Indices, files: Indices | slice = slice(None)) -> Mask:
        """Return which keys are inside the index of their file."""
        size, ends = self.size(offsets), self._ends[files]
        least = 1 if self.is_fixed else 4  # the length of a text
        is_inside: Mask = (offsets + 4 <= ends) & (size >= least) & (offsets + size <= ends)
        return is_inside

    def is_equal(self, offsets: Indices, key: Key) -> Mask:
        """Return which keys at offsets are equal to ``key``; all must be inside their index."""
        if self._stored.is_float:  # a stored NaN may have other bits
            is_number: Mask = self.decode_sortable(offsets) == key
            return is_number
        needle = np.frombuffer(self._stored.encode_one(key), np.uint8)
        is_equal: Mask = self.size(offsets) == len(needle)
        key_bytes = self._batch.read_bytes_at(offsets[is_equal], len(needle))
        is_equal[is_equal] = (key_bytes == needle).all(axis=1)
        return is_equal

    def decode_sortable(self, offsets: Indices) -> npt.NDArray[np.generic]:
        """Return the keys at offsets as comparable values; all must be inside their index."""
        if self._stored.dtype is not None:
            return self._stored.decode(
                self._batch.read_bytes_at(offsets, self._stored.width).tobytes()
            )
        return to_object_array(self._batch.slices(offsets + 4, offsets + self.size(offsets)))

    def find(self, offsets: Indices, counts: Indices, gaps: Indices, key: Key) -> tuple[Mask, Mask]:
        """Return which files have ``key`` among ``counts`` keys, and which files are decided.

        The keys of each file start at ``offsets``, with ``gaps`` bytes between two keys.
        """
        contains, decided = np.zeros(len(offsets), bool), np.ones(len(offsets), bool)
        offsets, remaining, files = offsets.copy(), counts.copy(), np.flatnonzero(counts > 0)
        while len(files):
            is_inside = self.is_inside_index(offsets[files], files)
            decided[files[~is_inside]] = False
            files = files[is_inside]
            is_equal = self.is_equal(offsets[files], key)
            contains[files[is_equal]] = True
            offsets[files] += self.size(offsets[files]) + gaps[files]
            remaining[files] -= 1
            files = files[~is_equal & (remaining[files] > 0)]
        return contains, decided


class _BatchBitmapIndex:
    """Bitmap indexes of version 1, and of version 2 with one block."""

    def __init__(self, ranges: IndexRanges, data_type: AtomicType, row_counts: Indices) -> None:
        self._keys = _StoredKeys(ranges, data_type)
        batch, starts = ranges.batch, ranges.starts
        ends = ranges.ends
        version, rows = batch.data[starts], batch.read_ints(starts + 1)
        self._count, null = (
            batch.read_ints(starts + 5),
            batch.data[np.minimum(starts + 9, len(batch.data) - 1)],
        )
        self._has_null = null != 0
        is_version_2 = version == 2
        decided = (
            ranges.inside & (ends - starts >= 10) & ((version == 1) | is_version_2) & (null <= 1)
        )
        self._is_head_decided = (
            decided & (rows == row_counts) & (self._count >= 0) & (self._count <= rows)
        )
        first = starts + 10 + np.where(is_version_2, 8, 4) * self._has_null
        blocks, key = batch.read_ints(first), np.minimum(first + 4, len(batch.data) - 4)
        has_one_block = self._keys.is_inside_index(key) & (blocks == 1)
        # two numbers precede the block: its offset and the size of all blocks
        block = key + np.where(has_one_block, self._keys.size(key), 0) + 8
        has_one_block &= (block + 4 <= ends) & (batch.read_ints(block - 8) == 0)
        has_one_block &= batch.read_ints(block) == self._count
        self._first = np.where(is_version_2, block + 4, first)
        self._bytes_after_key = np.where(is_version_2, 8, 4)
        self._decided = self._is_head_decided & (~is_version_2 | has_one_block | (self._count == 0))

    def query(self, op: Operator, keys: Sequence[Key]) -> BatchAnswer:
        match op:
            case Operator.EQUAL | Operator.IN:
                return self._find_equal(keys)
            case Operator.NOT_EQUAL | Operator.NOT_IN:  # these tests include null rows
                has_rows = self._has_null | (self._count > len(keys))
                return BatchAnswer.of(~has_rows, self._is_head_decided & has_rows)
            case Operator.IS_NULL:
                return BatchAnswer.of(~self._has_null, self._is_head_decided)
            case Operator.IS_NOT_NULL:
                return BatchAnswer.of(self._count == 0, self._is_head_decided)
        return BatchAnswer.all_rows(len(self._count))

    def _find_equal(self, keys: Sequence[Key]) -> BatchAnswer:
        counts = np.where(self._decided, self._count, 0)
        contains, decided = np.zeros(len(counts), bool), self._decided
        for key in keys:
            has_key, is_read = self._keys.find(self._first, counts, self._bytes_after_key, key)
            contains, decided = contains | has_key, decided & is_read
        return BatchAnswer.of(~contains, decided)


class _BatchRangeBitmapIndex:
    """Range bitmaps: their bounds, and their dictionaries of one chunk."""

    def __init__(self, ranges: IndexRanges, data_type: AtomicType, row_counts: Indices) -> None:
        self._keys, self._batch, self._ends = (
            _StoredKeys(ranges, data_type),
            ranges.batch,
            ranges.ends,
        )
        batch, starts = ranges.batch, ranges.starts
        length, version = (
            batch.read_ints(starts),
            batch.data[np.minimum(starts + 4, len(batch.data) - 1)],
        )
        rows, self._count = batch.read_ints(starts + 5), batch.read_ints(starts + 9)
        decided = (
            ranges.inside & (ranges.ends - starts >= 17) & (version == 1) & (rows == row_counts)
        )
        decided &= (
            (self._count >= 0)
            & (self._count <= rows)
            & (length >= 13)
            & (starts + 4 + length <= ranges.ends)
        )
        has_keys = decided & (self._count > 0)
        self._low = np.where(has_keys, starts + 13, 0)
        has_keys &= self._keys.is_inside_index(self._low)
        self._high = np.where(has_keys, self._low + self._keys.size(self._low), 0)
        has_keys &= self._keys.is_inside_index(self._high)
        end = np.where(has_keys, self._high + self._keys.size(self._high), 0)
        # the last four bytes of the header are the length of the dictionary
        self._has_keys = has_keys & (end == starts + length)
        self._decided = decided & ((self._count == 0) | self._has_keys)
        self._dictionary = starts + 4 + length

    def query(self, op: Operator, keys: Sequence[Key]) -> BatchAnswer:
        match op:
            case Operator.IS_NOT_NULL:
                return BatchAnswer.of(self._count == 0, self._decided)
            case Operator.EQUAL | Operator.IN:
                return self._find_equal(keys)
            case Operator.NOT_EQUAL | Operator.NOT_IN:
                has_rows = self._count > len(keys)
                decided = self._decided & (has_rows | (self._count == 0))
                return BatchAnswer.of(~has_rows, decided)
            case Operator.LESS | Operator.LESS_OR_EQUAL:
                return self._find_out_of_bounds(
                    self._lows, keys[0], np.greater, equal=op == Operator.LESS
                )
            case Operator.GREATER | Operator.GREATER_OR_EQUAL:
                return self._find_out_of_bounds(
                    self._highs, keys[0], np.less, equal=op == Operator.GREATER
                )
        return BatchAnswer.unknown(len(self._count))

    @cached_property
    def _files(self) -> Indices:
        return np.flatnonzero(self._has_keys)

    @cached_property
    def _lows(self) -> npt.NDArray[np.generic]:
        return self._keys.decode_sortable(self._low[self._files])

    @cached_property
    def _highs(self) -> npt.NDArray[np.generic]:
        return self._keys.decode_sortable(self._high[self._files])

    def _find_out_of_bounds(
        self, bounds: npt.NDArray[np.generic], key: Key, test: Callable[..., Mask], *, equal: bool
    ) -> BatchAnswer:
        """Exclude files by a test of their bounds.

        ``equal`` also excludes bounds equal to the key.
        """
        excluded, value = np.ones(len(self._count), bool), to_object_array([key])
        excluded[self._files] = (test(bounds, value) | (equal & (bounds == value))).astype(bool)
        return BatchAnswer.of(excluded, self._decided)

    def _find_equal(self, keys: Sequence[Key]) -> BatchAnswer:
        contains, decided = np.zeros(len(self._count), bool), self._decided
        for key in keys:
            is_within_bounds, value = np.zeros(len(contains), bool), to_object_array([key])
            is_within_bounds[self._files] = (self._lows < value) & (self._highs >= value)
            contains[self._files] |= (self._lows == value).astype(bool)
            counts = np.where(is_within_bounds & self._has_single_chunk, self._count - 1, 0)
            has_key, is_read = self._keys.find(
                self._second_key_offsets, counts, np.zeros_like(counts), key
            )
            contains = contains | has_key
            decided = decided & is_read & (~is_within_bounds | self._has_single_chunk)
        return BatchAnswer.of(~contains, decided)

    @cached_property
    def _has_single_chunk(self) -> Mask:
        """Return which dictionaries have one chunk.

        The head of the chunk has the lowest key; the other keys follow it.
        """
        ints, dictionary = self._batch.read_ints, self._dictionary
        head = 1 + self._low_sizes + 20
        is_single: Mask = (
            self._has_keys
            & (ints(dictionary) == 13)
            & (ints(dictionary + 5) == 1)
            & (ints(dictionary + 9) == 4)
        )
        is_single &= (ints(dictionary + 13) == head) & (
            ints(dictionary + 21 + head - 12) == self._count - 1
        )
        return is_single

    @cached_property
    def _second_key_offsets(self) -> Indices:
        """Return the position of each file's second key; a list of offsets precedes text keys."""
        offsets = 0 if self._keys.is_fixed else 4 * (self._count - 1)
        return self._dictionary + 21 + 1 + self._low_sizes + 20 + offsets

    @cached_property
    def _low_sizes(self) -> Indices:
        return np.where(self._has_keys, self._keys.size(self._low), 0)


BATCH_INDEX_READERS: Mapping[
    str, Callable[[IndexRanges, AtomicType, Indices], BatchIndexReader]
] = {
    BLOOM_FILTER: _BatchBloomFilterIndex,
    BITMAP: _BatchBitmapIndex,
    RANGE_BITMAP: _BatchRangeBitmapIndex,
}
"""The readers by index type; they take indexes, the column type and the files' row counts."""
