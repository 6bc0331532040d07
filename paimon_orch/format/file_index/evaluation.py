"""Asking the indexes of a data file which of its rows a predicate may hold for.

An answer is a set of row positions that holds every matching row, and perhaps others: the rows are filtered afterwards
as if there were no index. An empty set skips the file; None says nothing, and all rows remain.

See docs/format/file-index-evaluation.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from paimon_orch.format.bytes.roaring import build_full_bitmap
from paimon_orch.format.file_index.bitmap import BitmapIndex
from paimon_orch.format.file_index.bloom_filter import BloomFilterIndex
from paimon_orch.format.file_index.bsi import BitSliceIndex
from paimon_orch.format.file_index.container import ByteSource, FileIndexes
from paimon_orch.format.file_index.range_bitmap import RangeBitmapIndex
from paimon_orch.format.file_index.values import (
    BITMAP,
    BLOOM_FILTER,
    BSI,
    RANGE_BITMAP,
    Key,
    encode_key,
    is_lossy,
)
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, Field, TypeRoot
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Predicate

MAX_INDEXED_ROWS = 2**31 - 1  # of a file that indexes are asked for
_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_NEGATED_OPERATORS = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.LESS: Operator.GREATER_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.LESS,
    Operator.GREATER: Operator.LESS_OR_EQUAL,
    Operator.LESS_OR_EQUAL: Operator.GREATER,
    Operator.IN: Operator.NOT_IN,
    Operator.IS_NULL: Operator.IS_NOT_NULL,
}
_NEVER_TRUE_FOR_NULL = {
    Operator.EQUAL,
    Operator.IN,
    Operator.LESS,
    Operator.LESS_OR_EQUAL,
    Operator.GREATER,
    Operator.GREATER_OR_EQUAL,
    Operator.IS_NOT_NULL,
}
_NAN_KEYS = {TypeRoot.FLOAT: 0x7FC00000, TypeRoot.DOUBLE: 0x7FF8000000000000}


class FileIndexReader(Protocol):
    """What every type of index can do."""

    def query(self, op: Operator, keys: Sequence[Key]) -> BitMap | None:
        """Return the rows of a test, None if the index cannot tell."""
        ...


class _EmptyIndexReader:
    """The index of a key of a map in a file without rows."""

    def query(self, op: Operator, _keys: Sequence[Key]) -> BitMap | None:
        return BitMap() if op in _NEVER_TRUE_FOR_NULL else None


_INDEX_READERS: Mapping[str, Callable[[ByteSource, AtomicType], FileIndexReader]] = {
    BLOOM_FILTER: BloomFilterIndex,
    BITMAP: BitmapIndex,
    BSI: BitSliceIndex,
    RANGE_BITMAP: RangeBitmapIndex,
}


def open_index(kind: str, blob: ByteSource | None, data_type: AtomicType) -> FileIndexReader | None:
    """Return a stored index; None for a type that is not known."""
    if blob is None:
        return _EmptyIndexReader()
    opened = _INDEX_READERS.get(kind)
    return None if opened is None else opened(blob, data_type)


class StoredColumn(NamedTuple):
    """A column as its data file has it: the name and type by which its index is found and read."""

    name: str
    type: AtomicType


StoredColumnLookup = Callable[[str], StoredColumn | None]
"""Finds the stored column of a column (or ``m[k]``) of the read schema; None where an index must not be used."""


def find_stored_column(field_: Field, source: Field | None) -> StoredColumn | None:
    """Return the stored column behind a column of the read schema, if tests of the one are tests of the other (9.4)."""
    if source is None or not isinstance(source.type, AtomicType):
        return None
    same = is_same_type(source.type, field_.type)
    return (
        StoredColumn(source.name, source.type)
        if same or _is_widened(source.type, field_.type)
        else None
    )


def is_same_type(stored: DataType, read: DataType) -> bool:
    """Tell whether types are one but for null, which a column may take on later."""
    return stored.with_nullable(True) == read.with_nullable(True)


def _is_widened(stored: AtomicType, read: DataType) -> bool:
    return (
        isinstance(read, AtomicType)
        and stored.name in _INTEGERS
        and read.name in _INTEGERS
        and _INTEGERS.index(stored.name) < _INTEGERS.index(read.name)
    )


class IndexQuery(NamedTuple):
    """One question to an index."""

    op: Operator
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexEvaluation:
    """The rows that remain, and the indexes that said so (``bitmap(status)``)."""

    rows: BitMap | None
    used: tuple[str, ...] = ()


@dataclass(frozen=True)
class IndexFilter:
    """A bound predicate that is asked of the indexes of many files."""

    predicate: Predicate
    _queries: dict[tuple[int, bool, int], tuple[AtomicType, list[IndexQuery] | None]] = field(
        default_factory=dict, repr=False
    )

    def evaluate(
        self, indexes: FileIndexes, column_of: StoredColumnLookup, row_count: int
    ) -> IndexEvaluation:
        """Return the rows of one file that may match.

        Raises what decoding of a damaged index raises (``ValueError`` among others).
        """
        if row_count > MAX_INDEXED_ROWS:
            return IndexEvaluation(None)
        asked = _FileEvaluator(self, indexes, column_of, row_count)
        return IndexEvaluation(asked.rows(self.predicate, negated=False), tuple(asked.used))

    def plan_queries(
        self, leaf: Leaf, data_type: AtomicType, *, negated: bool
    ) -> list[IndexQuery] | None:
        """Return the questions whose answers together hold for all rows of a leaf; None if there are none to ask."""
        at = id(leaf), negated, id(data_type)  # both are held, and so remain what they are
        if at not in self._queries:
            self._queries[at] = data_type, _plan_queries(leaf, data_type, negated=negated)
        return self._queries[at][1]


class _FileEvaluator:
    """The indexes of one file while they are asked."""

    def __init__(
        self,
        asking: IndexFilter,
        indexes: FileIndexes,
        column_of: StoredColumnLookup,
        row_count: int,
    ) -> None:
        self._filter, self._indexes, self._column_of = asking, indexes, column_of
        self._row_count = row_count
        self._open: dict[tuple[str, str], FileIndexReader | None] = {}
        self.used: dict[str, None] = {}

    def rows(self, predicate: Predicate, *, negated: bool) -> BitMap | None:
        match predicate:
            case Leaf():
                return self._leaf(predicate, negated=negated)
            case Not(child=child):
                return self.rows(child, negated=not negated)
        if isinstance(predicate, And) != negated:
            found: BitMap | None = None
            for child in predicate.children:
                found = _intersect(found, self.rows(child, negated=negated))
                if found is not None and not found:
                    break
            return found
        united = BitMap()
        for child in predicate.children:
            part = self.rows(child, negated=negated)
            if part is None:
                return None
            united |= part
        return united

    def _leaf(self, leaf: Leaf, *, negated: bool) -> BitMap | None:
        stored = self._column_of(leaf.name)
        entries = None if stored is None else self._indexes.get(stored.name)
        if stored is None or not entries:
            return None
        tests = self._filter.plan_queries(leaf, stored.type, negated=negated)
        if tests is None:
            return None
        found: BitMap | None = None
        for kind in entries:
            answer = self._answer(kind, stored, tests)
            if answer is not None:
                self.used[f"{kind}({leaf.name})"] = None
                found = _intersect(found, answer)
                if not found:
                    break
        return found

    def _answer(
        self, kind: str, stored: StoredColumn, tests: Sequence[IndexQuery]
    ) -> BitMap | None:
        at = stored.name, kind
        if at not in self._open:
            self._open[at] = open_index(kind, self._indexes[stored.name][kind], stored.type)
        index = self._open[at]
        if index is None:
            return None
        found: BitMap | None = None
        for test in tests:
            answer = index.query(test.op, test.keys)
            if answer is None:
                return None
            found = answer if found is None else found | answer
        rows = getattr(index, "row_count", self._row_count)
        if rows != self._row_count:
            raise ValueError(f"the {kind} index of {stored.name} is of {rows} rows")
        return found


def _intersect(left: BitMap | None, right: BitMap | None) -> BitMap | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _plan_queries(leaf: Leaf, data_type: AtomicType, *, negated: bool) -> list[IndexQuery] | None:
    op = leaf.op
    if op == Operator.IS_NULL:
        return [IndexQuery(Operator.IS_NOT_NULL if negated else Operator.IS_NULL)]
    if op == Operator.LIKE:
        if any(char in leaf.values[0].as_py() for char in "%_\\"):
            return None
        op = Operator.EQUAL
    keys = _encode_leaf_keys(leaf, data_type) if op in _NEGATED_OPERATORS else None
    if keys is None:
        return None
    if data_type.name in _NAN_KEYS:
        return _plan_float_queries(op, keys, _NAN_KEYS[data_type.name], negated=negated)
    op = _NEGATED_OPERATORS[op] if negated else op
    if is_lossy(data_type):
        if op in (Operator.NOT_EQUAL, Operator.NOT_IN):
            return None
        op = {
            Operator.LESS: Operator.LESS_OR_EQUAL,
            Operator.GREATER: Operator.GREATER_OR_EQUAL,
        }.get(op, op)  # another value may share the key
    return [IndexQuery(op, keys)]


def _encode_leaf_keys(leaf: Leaf, data_type: AtomicType) -> tuple[Key, ...] | None:
    """Return the values of a leaf as the column is stored; None if one of them cannot be."""
    target = to_arrow_type(data_type)
    try:
        values = [v if v.type == target else v.cast(target) for v in leaf.values]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return tuple(encode_key(value, data_type) for value in values)


def _plan_float_queries(
    op: Operator, keys: tuple[Key, ...], nan: int, *, negated: bool
) -> list[IndexQuery] | None:
    """Ask an index, which tells zeros apart and takes NaN for the largest number, as IEEE 754 compares."""
    if nan in keys:
        return None
    zeros = (-1, 0)  # the keys of -0.0 and 0.0
    has_zero = any(key in zeros for key in keys)
    asked = _NEGATED_OPERATORS[op] if negated else op
    if asked in (Operator.EQUAL, Operator.IN, Operator.NOT_EQUAL, Operator.NOT_IN):
        if has_zero:
            keys = tuple(dict.fromkeys([*keys, *zeros]))
            asked = Operator.IN if asked in (Operator.EQUAL, Operator.IN) else Operator.NOT_IN
        return [IndexQuery(asked, keys)]
    if has_zero:
        keys = (-1,) if asked in (Operator.LESS, Operator.GREATER_OR_EQUAL) else (0,)
    tests = [IndexQuery(asked, keys)]
    # NaN fails the test that was negated
    if negated and asked in (Operator.LESS, Operator.LESS_OR_EQUAL):
        tests.append(IndexQuery(Operator.EQUAL, (nan,)))
    return tests


@dataclass(frozen=True, slots=True, kw_only=True)
class TopN:
    """The first rows in an order by columns, of which the first one alone is looked at."""

    column: str
    k: int
    descending: bool = False
    nulls_first: bool = False
    sort_keys: int = 1


def select_rows(
    asked: IndexFilter | TopN | int | None,
    indexes: FileIndexes | None,
    column_of: StoredColumnLookup,
    row_count: int,
    deleted: BitMap | None = None,
) -> BitMap | None:
    """Return which rows of a file to read for a filter, for a top-n, or for a limit; never for two of them (9.3).

    ``deleted`` are the rows that a deletion vector hides. None stands for all rows that are not deleted.
    """
    if row_count > MAX_INDEXED_ROWS or asked is None:
        return None
    base = build_full_bitmap(row_count)
    if deleted is not None:
        base -= deleted
    if isinstance(asked, int):
        return BitMap(base[:asked])
    if indexes is None:
        return None
    if isinstance(asked, TopN):
        found = _select_top_n(asked, indexes, column_of, base)
    else:
        found = asked.evaluate(indexes, column_of, row_count).rows
    if found is None or (found := found & base) == base:
        return None
    return found


def _select_top_n(
    asked: TopN, indexes: FileIndexes, column_of: StoredColumnLookup, base: BitMap
) -> BitMap | None:
    if len(base) <= asked.k:
        return None
    stored = column_of(asked.column)
    blob = None if stored is None else indexes.get(stored.name, {}).get(RANGE_BITMAP)
    if stored is None or blob is None:
        return None
    return RangeBitmapIndex(blob, stored.type).top(
        asked.k,
        descending=asked.descending,
        nulls_first=asked.nulls_first,
        strict=asked.sort_keys == 1,
        selection=base,
    )


def to_positions(rows: BitMap) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return row positions in ascending order."""
    return np.asarray(rows.to_array(), np.int64)
