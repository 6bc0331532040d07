"""Evaluates a predicate on the embedded indexes of many data files together.

Index containers of one table usually have the same head except for the offsets of the indexes.
Files with equal heads are evaluated together. Files for which this gives no decision (indexes of an
unusual form, or predicates that need the rows of several indexes) are evaluated individually with
:mod:`paimon_orch.format.file_index.evaluation`.

See docs/format/file-index-evaluation.md#use-in-planning.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.bytes.binary_batch import BinaryBatch
from paimon_orch.format.file_index.batch_indexes import (
    BATCH_INDEX_READERS,
    BatchAnswer,
    IndexRanges,
    intersect_answers,
    unite_answers,
)
from paimon_orch.format.file_index.container import ByteSource, HeadLayout, read_head_layout
from paimon_orch.format.file_index.index_query import (
    MAX_INDEXED_ROWS,
    IndexEvaluator,
    IndexFilter,
    LeafQueries,
    StoredColumnLookup,
)

_MAX_LAYOUTS = 16
_ENTRY_BYTES = 8


class BatchEvaluation(NamedTuple):
    """The result for each file of a batch."""

    excluded: Mask
    """Whether no row of the file can match."""

    undecided: Mask
    """Whether the file must be evaluated individually."""


def evaluate_batch(
    index_filter: IndexFilter,
    containers: Sequence[bytes],
    column_of: StoredColumnLookup,
    row_counts: Indices,
) -> BatchEvaluation:
    """Evaluate files of one schema by their index containers.

    A file with a damaged container is undecided; it does not raise an error.
    """
    excluded, undecided = np.zeros(len(containers), bool), np.ones(len(containers), bool)
    for rows, indexes in _group_by_layout(BinaryBatch.of(containers)):
        evaluator = _BatchEvaluator(index_filter, indexes, column_of, row_counts[rows])
        answer = evaluator.evaluate(index_filter.predicate)
        excluded[rows], undecided[rows] = answer.excluded, answer.undecided
    is_indexed = row_counts <= MAX_INDEXED_ROWS
    return BatchEvaluation(excluded & is_indexed, undecided | ~is_indexed)


_IndexRangesByColumn = Mapping[str, Mapping[str, IndexRanges]]


def _group_by_layout(batch: BinaryBatch) -> Iterator[tuple[Indices, _IndexRangesByColumn]]:
    """Yield files with equal heads, and their indexes; files with rare heads are omitted."""
    remaining = np.arange(len(batch.starts))
    for _ in range(_MAX_LAYOUTS):
        if not len(remaining):
            return
        layout = _read_layout(batch, int(remaining[0]))
        if layout is None:
            remaining = remaining[1:]
            continue
        is_equal = _has_same_head(batch, remaining, layout)
        files = remaining[is_equal]
        yield files, _locate_indexes(batch, files, layout)
        remaining = remaining[~is_equal]


def _read_layout(batch: BinaryBatch, file: int) -> HeadLayout | None:
    start, length = int(batch.starts[file]), int(batch.lengths[file])
    try:
        return read_head_layout(ByteSource.of(batch.data[start : start + length].tobytes()))
    except (UnsupportedError, ValueError, IndexError, struct.error):
        return None


def _has_same_head(batch: BinaryBatch, files: Indices, layout: HeadLayout) -> Mask:
    """Return which files have the same head as the first file, except for index offsets."""
    size = layout.form.size
    is_equal: Mask = batch.lengths[files] >= size
    begin = 0
    # each constant part ends at the offset of an index, or at the end of the head
    for end in [*layout.entries, size]:
        parts = batch.read_bytes_at(np.where(is_equal, batch.starts[files] + begin, 0), end - begin)
        is_equal &= (parts == parts[0]).all(axis=1)
        begin = end + _ENTRY_BYTES
    return is_equal


def _locate_indexes(batch: BinaryBatch, files: Indices, layout: HeadLayout) -> _IndexRangesByColumn:
    ranges: dict[str, dict[str, IndexRanges]] = {}
    entries = iter(layout.entries)
    for name, kinds in layout.columns:
        column = ranges.setdefault(name, {})
        for kind, entry in zip(kinds, entries, strict=False):
            column[kind] = IndexRanges.read(batch, files, entry)
    return ranges


class _BatchEvaluator(IndexEvaluator[IndexRanges, BatchAnswer]):
    """Evaluates a predicate on the indexes of files with the same head."""

    def __init__(
        self,
        index_filter: IndexFilter,
        indexes: _IndexRangesByColumn,
        column_of: StoredColumnLookup,
        row_counts: Indices,
    ) -> None:
        super().__init__(index_filter, indexes, column_of)
        self._row_counts = row_counts

    def all_rows(self) -> BatchAnswer:
        return BatchAnswer.all_rows(len(self._row_counts))

    def intersect(self, answers: Iterable[BatchAnswer]) -> BatchAnswer:
        return intersect_answers(list(answers))

    def unite(self, answers: Iterable[BatchAnswer]) -> BatchAnswer:
        return unite_answers(list(answers))

    def query(self, kind: str, index: IndexRanges, leaf: LeafQueries) -> BatchAnswer:
        reader_class = BATCH_INDEX_READERS.get(kind)
        if reader_class is None:
            return BatchAnswer.unknown(len(self._row_counts))
        reader = reader_class(index, leaf.column.type, self._row_counts)
        return self.unite(reader.query(query.op, query.keys) for query in leaf.queries)
