"""Finds the rows of a data file that may match a predicate, using the indexes of the file.

The result includes every matching row; callers still filter the rows. An empty result means that
the file can be skipped; None stands for all rows.

See docs/format/file-index-evaluation.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from pyroaring import BitMap

from paimon_orch.format.arrays import Positions
from paimon_orch.format.bytes.roaring import build_full_bitmap
from paimon_orch.format.file_index.bitmap import BitmapIndex
from paimon_orch.format.file_index.bloom_filter import BloomFilterIndex
from paimon_orch.format.file_index.bsi import BitSliceIndex
from paimon_orch.format.file_index.container import ByteSource, FileIndexes
from paimon_orch.format.file_index.index_keys import BITMAP, BLOOM_FILTER, BSI, RANGE_BITMAP, Key
from paimon_orch.format.file_index.index_query import (
    MAX_INDEXED_ROWS,
    IndexEvaluator,
    IndexFilter,
    LeafQueries,
    StoredColumnLookup,
)
from paimon_orch.format.file_index.range_bitmap import RangeBitmapIndex
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.format.types.predicate import Operator

_NEVER_TRUE_FOR_NULL = {
    Operator.EQUAL,
    Operator.IN,
    Operator.LESS,
    Operator.LESS_OR_EQUAL,
    Operator.GREATER,
    Operator.GREATER_OR_EQUAL,
    Operator.IS_NOT_NULL,
}


class FileIndexReader(Protocol):
    """An index of one column of one data file."""

    def query(self, op: Operator, keys: Sequence[Key]) -> BitMap | None:
        """Return the rows that may pass a test, or None for all rows."""
        ...


class _EmptyIndexReader:
    """The index of a map key that no row of a file has."""

    def query(self, op: Operator, _keys: Sequence[Key]) -> BitMap | None:
        return BitMap() if op in _NEVER_TRUE_FOR_NULL else None


_INDEX_READERS: Mapping[str, Callable[[ByteSource, AtomicType], FileIndexReader]] = {
    BLOOM_FILTER: BloomFilterIndex,
    BITMAP: BitmapIndex,
    BSI: BitSliceIndex,
    RANGE_BITMAP: RangeBitmapIndex,
}


def open_index(kind: str, blob: ByteSource | None, data_type: AtomicType) -> FileIndexReader | None:
    """Return a stored index, or None if its type is unknown."""
    if blob is None:
        return _EmptyIndexReader()
    reader_class = _INDEX_READERS.get(kind)
    return None if reader_class is None else reader_class(blob, data_type)


@dataclass(frozen=True, slots=True)
class IndexEvaluation:
    """The result of an evaluation."""

    rows: BitMap | None
    """The rows that may match, or None for all rows."""

    used: tuple[str, ...] = ()
    """The indexes that selected the rows, as ``bitmap(status)``."""


def evaluate_rows(
    index_filter: IndexFilter, indexes: FileIndexes, column_of: StoredColumnLookup, row_count: int
) -> IndexEvaluation:
    """Return the rows of a file that may match.

    Raises decode errors, such as ``ValueError``, for a damaged index.
    """
    if row_count > MAX_INDEXED_ROWS:
        return IndexEvaluation(None)
    evaluator = _RowEvaluator(index_filter, indexes, column_of, row_count)
    rows = evaluator.evaluate(index_filter.predicate)
    return IndexEvaluation(rows, tuple(evaluator.used))


class _RowEvaluator(IndexEvaluator[ByteSource | None, BitMap | None]):
    """Evaluates a predicate on the indexes of one file; an answer of None stands for all rows."""

    def __init__(
        self,
        index_filter: IndexFilter,
        indexes: FileIndexes,
        column_of: StoredColumnLookup,
        row_count: int,
    ) -> None:
        super().__init__(index_filter, indexes, column_of)
        self._row_count = row_count
        self._readers: dict[tuple[str, str], FileIndexReader | None] = {}
        self.used: dict[str, None] = {}

    def all_rows(self) -> None:
        return None

    def intersect(self, answers: Iterable[BitMap | None]) -> BitMap | None:
        rows: BitMap | None = None
        for answer in answers:
            if answer is not None:
                rows = answer if rows is None else rows & answer
                if not rows:
                    break
        return rows

    def unite(self, answers: Iterable[BitMap | None]) -> BitMap | None:
        rows = BitMap()
        for answer in answers:
            if answer is None:
                return None
            rows |= answer
        return rows

    def query(self, kind: str, index: ByteSource | None, leaf: LeafQueries) -> BitMap | None:
        column = leaf.column
        key = column.name, kind
        if key not in self._readers:
            self._readers[key] = open_index(kind, index, column.type)
        reader = self._readers[key]
        if reader is None:
            return None
        rows = self.unite(reader.query(query.op, query.keys) for query in leaf.queries)
        if rows is None:
            return None
        row_count = getattr(reader, "row_count", self._row_count)
        if row_count != self._row_count:
            raise ValueError(
                f"the {kind} index of {column.name} has {row_count} rows, but the "
                f"file has {self._row_count}"
            )
        self.used[f"{kind}({leaf.name})"] = None
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TopN:
    """The first rows in an order by columns, selected by the first column."""

    column: str
    k: int
    descending: bool = False
    nulls_first: bool = False
    sort_keys: int = 1


def select_rows(
    selector: IndexFilter | TopN | int | None,
    indexes: FileIndexes | None,
    column_of: StoredColumnLookup,
    row_count: int,
    deleted: BitMap | None = None,
) -> BitMap | None:
    """Return the rows of a file to read for a filter, a top-n, or a limit.

    None stands for all rows that are not deleted.

    ``deleted`` are the rows of the deletion vector of the file.
    """
    if row_count > MAX_INDEXED_ROWS or selector is None:
        return None
    candidates = build_full_bitmap(row_count)
    if deleted is not None:
        candidates -= deleted
    if isinstance(selector, int):
        return BitMap(candidates[:selector])
    if indexes is None:
        return None
    if isinstance(selector, TopN):
        rows = _select_top_n(selector, indexes, column_of, candidates)
    else:
        rows = evaluate_rows(selector, indexes, column_of, row_count).rows
    if rows is None or (rows := rows & candidates) == candidates:
        return None
    return rows


def _select_top_n(
    selector: TopN, indexes: FileIndexes, column_of: StoredColumnLookup, candidates: BitMap
) -> BitMap | None:
    if len(candidates) <= selector.k:
        return None
    column = column_of(selector.column)
    blob = None if column is None else indexes.get(column.name, {}).get(RANGE_BITMAP)
    if column is None or blob is None:
        return None
    return RangeBitmapIndex(blob, column.type).top(
        selector.k,
        descending=selector.descending,
        nulls_first=selector.nulls_first,
        strict=selector.sort_keys == 1,
        selection=candidates,
    )


def to_positions(rows: BitMap) -> Positions:
    """Return row positions in ascending order."""
    return np.asarray(rows.to_array(), np.int64)
