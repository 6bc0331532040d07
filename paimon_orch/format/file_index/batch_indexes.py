"""The types of indexes, each read for many files together: which files have no row for a test.

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
from paimon_orch.format.file_index.values import (
    BITMAP,
    BLOOM_FILTER,
    RANGE_BITMAP,
    Key,
    get_key_codec,
)
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.format.types.predicate import Operator


class IndexRanges(NamedTuple):
    """One index of each file, in the joined bytes of their containers."""

    batch: BinaryBatch
    starts: Indices
    ends: Indices
    inside: Mask
    """Whether the index is inside its container; if not, the range is empty."""

    @classmethod
    def read(cls, batch: BinaryBatch, files: Indices, entry: int) -> "IndexRanges":
        """Return the indexes whose offset and length are at ``entry`` of the containers of files."""
        begin = batch.starts[files]
        start, length = batch.read_ints(begin + entry), batch.read_ints(begin + entry + 4)
        inside = (start >= 0) & (length >= 0) & (start + length <= batch.lengths[files])
        starts = np.where(inside, begin + start, 0)
        return cls(batch, starts, starts + np.where(inside, length, 0), inside)


class BatchAnswer(NamedTuple):
    """The answer of indexes for each file of a batch."""

    excluded: Mask
    """Whether no row of the file can match."""

    undecided: Mask
    """Whether only an evaluation of the file by itself can decide."""

    selects: bool
    """Whether an index selected some of the rows; the intersection of two selections may be empty."""

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
        """Return which files are excluded, of those that are decided."""
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
        """Return which files have no row for a test."""
        ...


class _BatchBloomFilterIndex:
    def __init__(self, blobs: IndexRanges, data_type: AtomicType, _row_counts: Indices) -> None:
        self._blobs, self._type = blobs, data_type
        self._functions = blobs.batch.read_ints(blobs.starts)
        self._bits = 8 * (blobs.ends - blobs.starts - 4)
        possible = (self._functions > 0) & (self._functions < 128) & (self._bits > 0)
        self._sure = blobs.inside & possible

    def query(self, op: Operator, keys: Sequence[Key]) -> BatchAnswer:
        if op not in (Operator.EQUAL, Operator.IN):
            return BatchAnswer.all_rows(len(self._bits))
        held = np.logical_or.reduce([self._may_contain(key) for key in keys])
        return BatchAnswer.of(~held, self._sure, selects=False)

    def _may_contain(self, key: Key) -> Mask:
        data, body = self._blobs.batch.data, self._blobs.starts + 4
        bits, functions = (
            np.where(self._sure, self._bits, 1),
            np.where(self._sure, self._functions, 0),
        )
        contains = np.ones(len(bits), bool)
        hashes = iterate_bit_hashes(hash_key(key, self._type), int(functions.max(initial=0)))
        for number, bit_hash in enumerate(hashes):
            bit = bit_hash % bits
            byte = data[np.minimum(body + (bit >> 3), len(data) - 1)]
            contains &= (byte >> (bit & 7) & 1 != 0) | (number >= functions)
        return contains


class _StoredKeys:
    """Stored keys behind one another, each in front of some bytes."""

    def __init__(self, blobs: IndexRanges, data_type: AtomicType) -> None:
        self._batch, self._ends, self._stored = blobs.batch, blobs.ends, get_key_codec(data_type)

    @property
    def is_fixed(self) -> bool:
        """Tell whether all keys are of one size."""
        return self._stored.dtype is not None

    def size(self, at: Indices) -> Indices:
        """Return the bytes of the keys at these places."""
        if self._stored.dtype is not None:
            return np.full(len(at), self._stored.width)
        return 4 + self._batch.read_ints(at)

    def is_inside_index(self, at: Indices, lanes: Indices | slice = slice(None)) -> Mask:
        """Tell which keys are inside their index."""
        size, ends = self.size(at), self._ends[lanes]
        fit: Mask = (at + 4 <= ends) & (size >= 0) & (at + size <= ends)
        return fit

    def equal(self, at: Indices, key: Key) -> Mask:
        """Tell which keys at these places, all of which fit, are this one."""
        needle = np.frombuffer(self._stored.encode_one(key), np.uint8)
        found: Mask = self.size(at) == len(needle)
        found[found] = (self._batch.read_bytes_at(at[found], len(needle)) == needle).all(axis=1)
        return found

    def ordered(self, at: Indices) -> npt.NDArray[np.generic]:
        """Return the keys at these places, which all fit, as values that can be compared."""
        if self._stored.dtype is not None:
            return self._stored.decode(self._batch.read_bytes_at(at, self._stored.width).tobytes())
        return to_object_array(self._batch.slices(at + 4, at + self.size(at)))

    def hold(self, at: Indices, counts: Indices, behind: Indices, key: Key) -> tuple[Mask, Mask]:
        """Tell in which files ``key`` is among so many keys from a place on, and of which that is sure.

        ``behind`` are the bytes between a key and the next one.
        """
        found, sure = np.zeros(len(at), bool), np.ones(len(at), bool)
        at, left, lanes = at.copy(), counts.copy(), np.flatnonzero(counts > 0)
        while len(lanes):
            fit = self.is_inside_index(at[lanes], lanes)
            sure[lanes[~fit]] = False
            lanes = lanes[fit]
            equal = self.equal(at[lanes], key)
            found[lanes[equal]] = True
            at[lanes] += self.size(at[lanes]) + behind[lanes]
            left[lanes] -= 1
            lanes = lanes[~equal & (left[lanes] > 0)]
        return found, sure


class _BatchBitmapIndex:
    """Bitmap indexes of version 1, and of version 2 with one block."""

    def __init__(self, blobs: IndexRanges, data_type: AtomicType, row_counts: Indices) -> None:
        self._keys = _StoredKeys(blobs, data_type)
        joined, at = blobs.batch, blobs.starts
        ends = blobs.ends
        version, rows = joined.data[at], joined.read_ints(at + 1)
        self._count, null = (
            joined.read_ints(at + 5),
            joined.data[np.minimum(at + 9, len(joined.data) - 1)],
        )
        self._has_null = null != 0
        second = version == 2
        sure = blobs.inside & (ends - at >= 10) & ((version == 1) | second) & (null <= 1)
        self._head_sure = sure & (rows == row_counts) & (self._count >= 0) & (self._count <= rows)
        first = at + 10 + np.where(second, 8, 4) * self._has_null
        blocks, key = joined.read_ints(first), np.minimum(first + 4, len(joined.data) - 4)
        usual = self._keys.is_inside_index(key) & (blocks == 1)
        block = (
            key + np.where(usual, self._keys.size(key), 0) + 8
        )  # behind its offset and all sizes
        usual &= (block + 4 <= ends) & (joined.read_ints(block - 8) == 0)
        usual &= joined.read_ints(block) == self._count
        self._first = np.where(second, block + 4, first)
        self._bytes_after_key = np.where(second, 8, 4)
        self._sure = self._head_sure & (~second | usual | (self._count == 0))

    def query(self, op: Operator, keys: Sequence[Key]) -> BatchAnswer:
        match op:
            case Operator.EQUAL | Operator.IN:
                return self._equal(keys)
            case Operator.NOT_EQUAL | Operator.NOT_IN:  # true for nulls too
                some = self._has_null | (self._count > len(keys))
                return BatchAnswer.of(~some, self._head_sure & some)
            case Operator.IS_NULL:
                return BatchAnswer.of(~self._has_null, self._head_sure)
            case Operator.IS_NOT_NULL:
                return BatchAnswer.of(self._count == 0, self._head_sure)
        return BatchAnswer.all_rows(len(self._count))

    def _equal(self, keys: Sequence[Key]) -> BatchAnswer:
        counts = np.where(self._sure, self._count, 0)
        held, sure = np.zeros(len(counts), bool), self._sure
        for key in keys:
            found, known = self._keys.hold(self._first, counts, self._bytes_after_key, key)
            held, sure = held | found, sure & known
        return BatchAnswer.of(~held, sure)


class _BatchRangeBitmapIndex:
    """Range bitmaps: their bounds, and their dictionaries of one chunk."""

    def __init__(self, blobs: IndexRanges, data_type: AtomicType, row_counts: Indices) -> None:
        self._keys, self._batch, self._ends = _StoredKeys(blobs, data_type), blobs.batch, blobs.ends
        joined, at = blobs.batch, blobs.starts
        length, version = (
            joined.read_ints(at),
            joined.data[np.minimum(at + 4, len(joined.data) - 1)],
        )
        rows, self._count = joined.read_ints(at + 5), joined.read_ints(at + 9)
        sure = blobs.inside & (blobs.ends - at >= 17) & (version == 1) & (rows == row_counts)
        sure &= (
            (self._count >= 0)
            & (self._count <= rows)
            & (length >= 13)
            & (at + 4 + length <= blobs.ends)
        )
        some = sure & (self._count > 0)
        self._low = np.where(some, at + 13, 0)
        some &= self._keys.is_inside_index(self._low)
        self._high = np.where(some, self._low + self._keys.size(self._low), 0)
        some &= self._keys.is_inside_index(self._high)
        behind = np.where(some, self._high + self._keys.size(self._high), 0)
        self._some = some & (behind == at + length)  # the length of the dictionary follows
        self._sure = sure & ((self._count == 0) | self._some)
        self._dictionary = at + 4 + length

    def query(self, op: Operator, keys: Sequence[Key]) -> BatchAnswer:
        match op:
            case Operator.IS_NOT_NULL:
                return BatchAnswer.of(self._count == 0, self._sure)
            case Operator.EQUAL | Operator.IN:
                return self._equal(keys)
            case Operator.NOT_EQUAL | Operator.NOT_IN:
                some = self._count > len(keys)
                return BatchAnswer.of(~some, self._sure & (some | (self._count == 0)))
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
    def _lanes(self) -> Indices:
        return np.flatnonzero(self._some)

    @cached_property
    def _lows(self) -> npt.NDArray[np.generic]:
        return self._keys.ordered(self._low[self._lanes])

    @cached_property
    def _highs(self) -> npt.NDArray[np.generic]:
        return self._keys.ordered(self._high[self._lanes])

    def _find_out_of_bounds(
        self, bounds: npt.NDArray[np.generic], key: Key, test: Callable[..., Mask], *, equal: bool
    ) -> BatchAnswer:
        """Return which files have all values beyond a key, or at it."""
        none, value = np.ones(len(self._count), bool), to_object_array([key])
        none[self._lanes] = (test(bounds, value) | (equal & (bounds == value))).astype(bool)
        return BatchAnswer.of(none, self._sure)

    def _equal(self, keys: Sequence[Key]) -> BatchAnswer:
        held, sure = np.zeros(len(self._count), bool), self._sure
        for key in keys:
            inside, value = np.zeros(len(held), bool), to_object_array([key])
            inside[self._lanes] = (self._lows < value) & (self._highs >= value)
            held[self._lanes] |= (self._lows == value).astype(bool)
            counts = np.where(inside & self._has_single_chunk, self._count - 1, 0)
            found, known = self._keys.hold(self._further, counts, np.zeros_like(counts), key)
            held, sure = held | found, sure & known & (~inside | self._has_single_chunk)
        return BatchAnswer.of(~held, sure)

    @cached_property
    def _has_single_chunk(self) -> Mask:
        """Tell which dictionaries have one chunk: its first key is the smallest one, the others follow its head."""
        ints, at = self._batch.read_ints, self._dictionary
        head = 1 + self._low_sizes + 20
        one: Mask = self._some & (ints(at) == 13) & (ints(at + 5) == 1) & (ints(at + 9) == 4)
        one &= (ints(at + 13) == head) & (ints(at + 21 + head - 12) == self._count - 1)
        return one

    @cached_property
    def _further(self) -> Indices:
        """Where the keys behind the first one begin; texts are behind their offsets."""
        offsets = 0 if self._keys.is_fixed else 4 * (self._count - 1)
        return self._dictionary + 21 + 1 + self._low_sizes + 20 + offsets

    @cached_property
    def _low_sizes(self) -> Indices:
        return np.where(self._some, self._keys.size(self._low), 0)


BATCH_INDEX_READERS: Mapping[
    str, Callable[[IndexRanges, AtomicType, Indices], BatchIndexReader]
] = {
    BLOOM_FILTER: _BatchBloomFilterIndex,
    BITMAP: _BatchBitmapIndex,
    RANGE_BITMAP: _BatchRangeBitmapIndex,
}
"""How an index of many files is opened, by its type, with the rows of each file."""
