"""Asking the indexes of many files at once whether any of their rows can match.

Containers of one table are alike but for the places of their indexes: those with equal heads are looked at together, a
test a step for all of them. What is not of the usual form, and what takes the rows themselves to tell, is left to
:mod:`paimon_orch.format.file_index.evaluation`.

See docs/format/file-index-evaluation.md#use-in-planning.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.bytes.binary_batch import BinaryBatch
from paimon_orch.format.file_index.container import ByteSource, HeadLayout, read_head_layout
from paimon_orch.format.file_index.evaluation import (
    MAX_INDEXED_ROWS,
    IndexFilter,
    IndexQuery,
    StoredColumn,
    StoredColumnLookup,
)
from paimon_orch.format.file_index.multi_file_indexes import (
    BATCH_INDEX_READERS,
    BatchAnswer,
    IndexRanges,
    combine_and,
    combine_or,
)
from paimon_orch.format.types.predicate import And, Leaf, Not, Predicate

_MAX_LAYOUTS = 16
_ENTRY_BYTES = 8


class BatchEvaluation(NamedTuple):
    """Of each file: whether no row of it can match, and whether that is not sure before its index is asked in full."""

    none: Mask
    unsure: Mask


def evaluate_batch(
    asked: IndexFilter,
    containers: Sequence[bytes],
    column_of: StoredColumnLookup,
    row_counts: Indices,
) -> BatchEvaluation:
    """Judge files of one schema by their containers; a damaged one is never sure, and no error."""
    none, unsure = np.zeros(len(containers), bool), np.ones(len(containers), bool)
    for lanes, indexes in _group_by_layout(BinaryBatch.of(containers)):
        group = _BatchEvaluator(asked, indexes, column_of, row_counts[lanes])
        found = group.answer(asked.predicate, negated=False)
        none[lanes], unsure[lanes] = found.none, found.unsure
    believed = row_counts <= MAX_INDEXED_ROWS
    return BatchEvaluation(none & believed, unsure | ~believed)


_IndexRangesByColumn = Mapping[str, Mapping[str, IndexRanges]]


def _group_by_layout(joined: BinaryBatch) -> Iterator[tuple[Indices, _IndexRangesByColumn]]:
    """Yield files with equal heads and their indexes; rare heads are left out."""
    left = np.arange(len(joined.starts))
    for _ in range(_MAX_LAYOUTS):
        if not len(left):
            return
        layout = _read_layout(joined, int(left[0]))
        if layout is None:
            left = left[1:]
            continue
        alike = _has_same_head(joined, left, layout)
        yield left[alike], _locate_indexes(joined, left[alike], layout)
        left = left[~alike]


def _read_layout(joined: BinaryBatch, lane: int) -> HeadLayout | None:
    start, length = int(joined.starts[lane]), int(joined.lengths[lane])
    try:
        return read_head_layout(ByteSource.of(joined.data[start : start + length].tobytes()))
    except (UnsupportedError, ValueError, IndexError, struct.error):
        return None


def _has_same_head(joined: BinaryBatch, lanes: Indices, layout: HeadLayout) -> Mask:
    """Tell which files have the head of the first one, but for the places of their indexes."""
    size = layout.form.size
    alike: Mask = joined.lengths[lanes] >= size
    begin = 0
    for end in [*layout.entries, size]:  # of a text: numbers follow
        texts = joined.read_bytes_at(np.where(alike, joined.starts[lanes] + begin, 0), end - begin)
        alike &= (texts == texts[0]).all(axis=1)
        begin = end + _ENTRY_BYTES
    return alike


def _locate_indexes(
    joined: BinaryBatch, lanes: Indices, layout: HeadLayout
) -> _IndexRangesByColumn:
    found: dict[str, dict[str, IndexRanges]] = {}
    entries = iter(layout.entries)
    for name, kinds in layout.columns:
        indexes = found.setdefault(name, {})
        for kind, at in zip(kinds, entries, strict=False):
            indexes[kind] = IndexRanges.at(joined, lanes, at)
    return found


class _BatchEvaluator:
    """The indexes of a group of files while they are asked."""

    def __init__(
        self,
        asking: IndexFilter,
        indexes: _IndexRangesByColumn,
        column_of: StoredColumnLookup,
        row_counts: Indices,
    ) -> None:
        self._filter, self._indexes, self._column_of = asking, indexes, column_of
        self._row_counts = row_counts

    def answer(self, predicate: Predicate, *, negated: bool) -> BatchAnswer:
        match predicate:
            case Leaf():
                return self._leaf(predicate, negated=negated)
            case Not(child=child):
                return self.answer(child, negated=not negated)
        parts = [self.answer(child, negated=negated) for child in predicate.children]
        return combine_and(parts) if isinstance(predicate, And) != negated else combine_or(parts)

    def _leaf(self, leaf: Leaf, *, negated: bool) -> BatchAnswer:
        stored = self._column_of(leaf.name)
        entries = None if stored is None else self._indexes.get(stored.name)
        tests = None
        if stored is not None and entries:
            tests = self._filter.plan_queries(leaf, stored.type, negated=negated)
        if stored is None or not entries or tests is None:
            return BatchAnswer.all_rows_remain(len(self._row_counts))
        return combine_and(
            [self._query_index(kind, blobs, stored, tests) for kind, blobs in entries.items()]
        )

    def _query_index(
        self, kind: str, blobs: IndexRanges, stored: StoredColumn, tests: Sequence[IndexQuery]
    ) -> BatchAnswer:
        opened = BATCH_INDEX_READERS.get(kind)
        if opened is None:
            return BatchAnswer.open(len(self._row_counts))
        index = opened(blobs, stored.type, self._row_counts)
        return combine_or([index.query(test.op, test.keys) for test in tests])
