"""Converts a predicate into queries of file indexes, and combines their answers.

See docs/format/file-index-evaluation.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

from paimon_orch.format.file_index.index_keys import Key, encode_key, is_lossy
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, Field, TypeRoot
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Predicate

MAX_INDEXED_ROWS = 2**31 - 1  # indexes of larger files are ignored
_MAX_KEYS = 10_000  # each key is searched in each index; more keys cost more than they save
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
_NAN_KEYS = {TypeRoot.FLOAT: 0x7FC00000, TypeRoot.DOUBLE: 0x7FF8000000000000}


AnswerT = TypeVar("AnswerT")
IndexT = TypeVar("IndexT")


class StoredColumn(NamedTuple):
    """The name and type of a column in a data file, which identify and decode its index."""

    name: str
    type: AtomicType


StoredColumnLookup = Callable[[str], StoredColumn | None]
"""Returns the stored column of a column (or ``m[k]``) of the read schema.

None if its index must not be used.
"""


def find_stored_column(field_: Field, source: Field | None) -> StoredColumn | None:
    """Return the stored column of a read column if predicates have the same result on both."""
    if source is None or not isinstance(source.type, AtomicType):
        return None
    is_unchanged = is_same_type(source.type, field_.type)
    return (
        StoredColumn(source.name, source.type)
        if is_unchanged or _is_widened(source.type, field_.type)
        else None
    )


def is_same_type(stored_type: DataType, read_type: DataType) -> bool:
    """Return whether types are equal except for nullability, which may change later."""
    return stored_type.with_nullable(True) == read_type.with_nullable(True)


def _is_widened(stored_type: AtomicType, read_type: DataType) -> bool:
    return (
        isinstance(read_type, AtomicType)
        and stored_type.name in _INTEGERS
        and read_type.name in _INTEGERS
        and _INTEGERS.index(stored_type.name) < _INTEGERS.index(read_type.name)
    )


class IndexQuery(NamedTuple):
    """One test of the keys of an index."""

    op: Operator
    keys: tuple[Key, ...] = ()


class LeafQueries(NamedTuple):
    """The queries of one leaf of a predicate on each index of its column."""

    name: str
    """The tested column (or ``m[k]``) in the read schema."""

    column: StoredColumn
    queries: Sequence[IndexQuery]
    """Queries; the union of their answers has all rows of the leaf."""


@dataclass(frozen=True)
class IndexFilter:
    """A bound predicate, and its queries by stored type."""

    predicate: Predicate
    _queries: dict[tuple[int, bool, int], tuple[AtomicType, list[IndexQuery] | None]] = field(
        default_factory=dict, repr=False
    )

    def plan_queries(
        self, leaf: Leaf, data_type: AtomicType, *, negated: bool
    ) -> list[IndexQuery] | None:
        """Return queries; the union of their answers has all rows of a leaf.

        Returns None if no index can restrict the rows.
        """
        # The ids are unique: the predicate references the leaf, and the cached value references the
        # type, so neither object is deleted.
        key = id(leaf), negated, id(data_type)
        if key not in self._queries:
            self._queries[key] = data_type, _plan_queries(leaf, data_type, negated=negated)
        return self._queries[key][1]


class IndexEvaluator(ABC, Generic[IndexT, AnswerT]):
    """Evaluates a predicate on the indexes of a file, or of files with the same indexes."""

    def __init__(
        self,
        index_filter: IndexFilter,
        indexes: Mapping[str, Mapping[str, IndexT]],
        column_of: StoredColumnLookup,
    ) -> None:
        self._filter, self._indexes, self._column_of = index_filter, indexes, column_of

    def evaluate(self, predicate: Predicate, *, negated: bool = False) -> AnswerT:
        """Return the answer to a predicate, or to its negation."""
        match predicate:
            case Leaf():
                return self._evaluate_leaf(predicate, negated=negated)
            case Not(child=child):
                return self.evaluate(child, negated=not negated)
        answers = (self.evaluate(child, negated=negated) for child in predicate.children)
        is_conjunction = isinstance(predicate, And) != negated
        return self.intersect(answers) if is_conjunction else self.unite(answers)

    def _evaluate_leaf(self, leaf: Leaf, *, negated: bool) -> AnswerT:
        column = self._column_of(leaf.name)
        indexes = None if column is None else self._indexes.get(column.name)
        if column is None or not indexes:
            return self.all_rows()
        queries = self._filter.plan_queries(leaf, column.type, negated=negated)
        if queries is None:
            return self.all_rows()
        leaf_queries = LeafQueries(leaf.name, column, queries)
        return self.intersect(
            self.query(kind, index, leaf_queries) for kind, index in indexes.items()
        )

    @abstractmethod
    def all_rows(self) -> AnswerT:
        """Return the answer without a restriction: any row may match."""

    @abstractmethod
    def intersect(self, answers: Iterable[AnswerT]) -> AnswerT:
        """Return the answer for rows that match all of one or more tests."""

    @abstractmethod
    def unite(self, answers: Iterable[AnswerT]) -> AnswerT:
        """Return the answer for rows that match any of one or more tests."""

    @abstractmethod
    def query(self, kind: str, index: IndexT, leaf: LeafQueries) -> AnswerT:
        """Return the answer of one index for the rows of any of the queries."""


def _plan_queries(leaf: Leaf, data_type: AtomicType, *, negated: bool) -> list[IndexQuery] | None:
    op = leaf.op
    if op == Operator.IS_NULL:
        return [IndexQuery(Operator.IS_NOT_NULL if negated else Operator.IS_NULL)]
    if op == Operator.IS_NAN:
        nan = _NAN_KEYS.get(data_type.name)
        return None if nan is None or negated else [IndexQuery(Operator.EQUAL, (nan,))]
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
        # a smaller or larger value can have the same key, so rows with this key may match
        op = {
            Operator.LESS: Operator.LESS_OR_EQUAL,
            Operator.GREATER: Operator.GREATER_OR_EQUAL,
        }.get(op, op)
    return [IndexQuery(op, keys)]


def _encode_leaf_keys(leaf: Leaf, data_type: AtomicType) -> tuple[Key, ...] | None:
    """Return the values of a leaf as keys of the stored column.

    Returns None if its type cannot hold one of them, and for too many values.
    """
    if len(leaf.values) > _MAX_KEYS:
        return None
    target = to_arrow_type(data_type)
    try:
        values = [v if v.type == target else v.cast(target) for v in leaf.values]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return tuple(encode_key(value, data_type) for value in values)


def _plan_float_queries(
    op: Operator, keys: tuple[Key, ...], nan: int, *, negated: bool
) -> list[IndexQuery] | None:
    """Return queries for a comparison by IEEE 754.

    An index distinguishes zeros and sorts NaN as the largest number.
    """
    zeros = (-1, 0)  # the keys of -0.0 and 0.0
    has_zero = any(key in zeros for key in keys)
    query_op = _NEGATED_OPERATORS[op] if negated else op
    if query_op in (Operator.EQUAL, Operator.IN, Operator.NOT_EQUAL, Operator.NOT_IN):
        if has_zero:
            keys = tuple(dict.fromkeys([*keys, *zeros]))
            query_op = Operator.IN if query_op in (Operator.EQUAL, Operator.IN) else Operator.NOT_IN
        return [IndexQuery(query_op, keys)]
    if has_zero:
        keys = (-1,) if query_op in (Operator.LESS, Operator.GREATER_OR_EQUAL) else (0,)
    tests = [IndexQuery(query_op, keys)]
    # NaN fails the test, so it passes the negated test
    if negated and query_op in (Operator.LESS, Operator.LESS_OR_EQUAL):
        tests.append(IndexQuery(Operator.EQUAL, (nan,)))
    return tests
