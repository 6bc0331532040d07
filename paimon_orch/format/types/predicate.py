"""Predicates on columns: a tree that is evaluated on Arrow data and on statistics.

Comparisons follow SQL: comparing null gives unknown. Floating-point numbers compare as in IEEE 754:
a test of NaN is false except ``<>`` and ``IS_NAN``, and ``-0.0`` equals ``0.0``.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.decode_limits import MAX_NESTING
from paimon_orch.errors import InputError
from paimon_orch.format.types.literals import (
    cast_exactly,
    describe_literal,
    find_neighbor,
    to_decimal,
)


class Operator(StrEnum):
    """Tests of a column. A :class:`Leaf` has one of those above ``NOT_IN``.

    The other three operators are used only for file indexes.
    """

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "in"
    LIKE = "like"
    IS_NULL = "is null"
    IS_NAN = "isnan"
    NOT_IN = "not in"
    IS_NOT_NULL = "is not null"
    BETWEEN = "between"


_LEAF_OPERATORS = frozenset(Operator) - {
    Operator.NOT_IN,
    Operator.IS_NOT_NULL,
    Operator.BETWEEN,
}


_WITHOUT_VALUES = frozenset((Operator.IS_NULL, Operator.IS_NAN))


class _PredicateOperators:
    """The operators ``&``, ``|`` and ``~`` of predicates."""

    __slots__ = ()

    def __and__(self: "Predicate", other: "Predicate") -> "Predicate":  # type: ignore[misc]
        return conjoin((self, _check_predicate(other)))

    def __or__(self: "Predicate", other: "Predicate") -> "Predicate":  # type: ignore[misc]
        return disjoin((self, _check_predicate(other)))

    def __invert__(self: "Predicate") -> "Predicate":  # type: ignore[misc]
        return Not(self)

    def __rand__(self, other: object) -> "Predicate":
        return _check_predicate(other)

    __ror__ = __rand__

    def __bool__(self) -> bool:
        raise InputError(
            "a filter has no truth value: combine tests with & | ~, not with 'and', 'or', 'not', "
            "and write (a < c) & (c < b) for a < c < b"
        )


def _check_predicate(value: object) -> "Predicate":
    if not isinstance(value, Leaf | And | Or | Not):
        raise InputError(
            f"{value!r} is not a test of a column; put each test in parentheses: (col('a') == 1) & "
            "(col('b') == 2)"
        )
    return value


@dataclass(frozen=True, slots=True)
class VariantValue:
    """A value inside of a VARIANT column: its path, and the SQL type it is read as."""

    path: str
    type: str


@dataclass(frozen=True, slots=True)
class Leaf(_PredicateOperators):
    """One test of one column: a comparison, ``in``, ``like``, ``is null`` or ``isnan``.

    Rows whose map has no value for ``key``, or whose variant has no value at its path, count as
    null.
    """

    column: str
    op: Operator
    values: tuple["pa.Scalar[pa.DataType]", ...] = ()
    """Constants, which :func:`bind_predicate` casts to the column's type; for ``LIKE`` a string."""
    key: str | None = None
    """The key of a map column whose value is tested, or None to test the column itself."""

    variant: VariantValue | None = None
    """The value of a VARIANT column that is tested, or None to test the column itself."""

    @property
    def name(self) -> str:
        """Return ``column``, ``column[key]`` or ``variant_get(column, 'path', 'type')``."""
        if self.variant is not None:
            return f"variant_get({self.column}, {self.variant.path!r}, {self.variant.type!r})"
        return self.column if self.key is None else f"{self.column}[{self.key}]"

    @property
    def field(self) -> pc.Expression:
        """Return the tested value as an Arrow expression; duplicate map keys use the last value.

        The value of a variant is a column with the name of the test, which
        :class:`~paimon_orch.table.filter.row_filter.RowFilter` adds.
        """
        if self.variant is not None:
            return pc.field(self.name)
        column = pc.field(self.column)
        if self.key is None:
            return column
        return pc.map_lookup(column, pa.scalar(self.key), "last")


@dataclass(frozen=True, slots=True)
class And(_PredicateOperators):
    """A predicate that is true if all children are true."""

    children: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or(_PredicateOperators):
    """A predicate that is true if at least one child is true."""

    children: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Not(_PredicateOperators):
    """A predicate that is true if the child is false; unknown remains unknown, as in SQL."""

    child: "Predicate"


Predicate = Leaf | And | Or | Not


def conjoin(parts: Iterable[Predicate]) -> And:
    """Return a conjunction without conjunctions in it, so that a chain of tests is not deep."""
    return And(
        tuple(
            test for part in parts for test in (part.children if isinstance(part, And) else (part,))
        )
    )


def disjoin(parts: Iterable[Predicate]) -> Or:
    """Return a disjunction without disjunctions in it, so that a chain of tests is not deep."""
    return Or(
        tuple(
            test for part in parts for test in (part.children if isinstance(part, Or) else (part,))
        )
    )


def collect_columns(predicate: Predicate) -> set[str]:
    """Return the columns that a predicate uses."""
    return {leaf.column for leaf in iterate_leaves(predicate)}


def iterate_leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield all tests of a predicate."""
    match predicate:
        case Leaf():
            yield predicate
        case Not(child=child):
            yield from iterate_leaves(child)
        case _:
            for child in predicate.children:
                yield from iterate_leaves(child)


def to_arrow_expression(predicate: Predicate) -> pc.Expression:
    """Return an Arrow filter with SQL's three-valued logic."""
    match predicate:
        case Leaf():
            return _leaf_to_arrow_expression(predicate)
        case Not(child=child):
            return ~to_arrow_expression(child)
    parts = [to_arrow_expression(child) for child in predicate.children]
    is_conjunction = isinstance(predicate, And)
    while len(parts) > 1:  # a balanced tree, because Arrow evaluates a tree recursively
        pairs = zip(parts[::2], parts[1::2], strict=False)
        joined = [left & right if is_conjunction else left | right for left, right in pairs]
        parts = joined + parts[2 * len(joined) :]
    return parts[0]


def _leaf_to_arrow_expression(leaf: Leaf) -> pc.Expression:
    column = leaf.field
    match leaf.op:
        case Operator.IS_NULL:
            return column.is_null()
        case Operator.IS_NAN:
            return column.is_nan()
        case Operator.IN:
            constants = pa.array(leaf.values, leaf.values[0].type)
            if pa.types.is_floating(constants.type):
                # isin distinguishes -0.0 from 0.0, but = does not; only partitions have NaN here
                numbers = constants.to_pylist()
                zeros = [-0.0, 0.0] if 0.0 in numbers else []
                constants = pa.array([*zeros, *numbers], constants.type)
            is_in = column.isin(constants)
            # isin returns false for null; the result must be unknown, or NOT IN returns the row
            return pc.if_else(column.is_null(), pc.scalar(pa.scalar(None, pa.bool_())), is_in)
        case Operator.LIKE:
            return pc.match_like(column, leaf.values[0].as_py())
    value = pc.scalar(leaf.values[0])
    comparisons = {
        Operator.EQUAL: column == value,
        Operator.NOT_EQUAL: column != value,
        Operator.LESS: column < value,
        Operator.LESS_OR_EQUAL: column <= value,
        Operator.GREATER: column > value,
        Operator.GREATER_OR_EQUAL: column >= value,
    }
    return comparisons[leaf.op]


def split_conjuncts(predicate: Predicate) -> Iterable[Predicate]:
    """Yield the conjuncts of a predicate, all of which must be true."""
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from split_conjuncts(child)
    else:
        yield predicate


def restrict_to_columns(predicate: Predicate, columns: AbstractSet[str]) -> Predicate | None:
    """Return the conjuncts that use only these columns, or None if no conjunct qualifies.

    The result is weaker than the original predicate.
    """
    parts = tuple(part for part in split_conjuncts(predicate) if collect_columns(part) <= columns)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(parts)


def map_leaves(predicate: Predicate, change: Callable[[Leaf], Predicate]) -> Predicate:
    """Return the predicate with every leaf replaced."""
    match predicate:
        case Leaf():
            return change(predicate)
        case Not(child=child):
            return Not(map_leaves(child, change))
    return type(predicate)(tuple(map_leaves(child, change) for child in predicate.children))


def bind_predicate(predicate: Predicate, type_of: Callable[[Leaf], pa.DataType]) -> Predicate:
    """Check a predicate, and cast its values to the types of their columns.

    Raises :class:`InputError` for an unknown operator and for a value that the type of its column
    cannot hold.
    """
    _check_depth(predicate)

    def bind_leaf(leaf: Leaf) -> Predicate:
        target = type_of(leaf)
        count = len(leaf.values)
        if leaf.op not in _LEAF_OPERATORS:
            raise InputError(f"{str(leaf.op)!r} is not an operator of a column test")
        if count != (0 if leaf.op in _WITHOUT_VALUES else 1) and (
            leaf.op != Operator.IN or not count
        ):
            raise InputError(
                f"the test {str(leaf.op)!r} of column {leaf.name!r} cannot have {count} values"
            )
        if leaf.op == Operator.LIKE and not pa.types.is_string(target):
            raise InputError(f"LIKE needs a text column; {leaf.name!r} is {target}")
        if leaf.op == Operator.IS_NAN and not pa.types.is_floating(target):
            raise InputError(f"isnan needs a FLOAT or DOUBLE column; {leaf.name!r} is {target}")
        misfits = {
            index: tests
            for index, value in enumerate(leaf.values)
            if value.type != target
            and (number := to_decimal(value)) is not None
            and (tests := compare_misfit(leaf, number, target)) is not None
        }
        if misfits and len(misfits) == count:
            return misfits[0]
        values = tuple(
            value if value.type == target and value.is_valid else _cast_literal(value, target, leaf)
            for index, value in enumerate(leaf.values)
            if index not in misfits
        )
        if pa.types.is_floating(target) and any(math.isnan(value.as_py()) for value in values):
            raise InputError(
                f"no value equals NaN, is below it or above it; test column {leaf.name!r} with "
                f"isnan({leaf.name}), or col({leaf.name!r}).is_nan()"
            )
        return replace(leaf, values=values)

    return map_leaves(predicate, bind_leaf)


def compare_misfit(leaf: Leaf, number: Decimal, target: pa.DataType) -> Predicate | None:
    """Return the tests of the neighbors of a number that the type of a column cannot hold.

    They are those of the operator of ``leaf`` with this number; IN is like ``=``. Returns None if
    the type has the number, and if it is neither an integer nor a decimal type.
    """
    neighbor = find_neighbor(number, target)
    if neighbor is None:
        return None
    value, is_floor = neighbor
    ops = (Operator.LESS_OR_EQUAL, Operator.GREATER)
    if not is_floor:
        ops = (Operator.LESS, Operator.GREATER_OR_EQUAL)
    below, above = (replace(leaf, op=op, values=(value,)) for op in ops)
    match leaf.op:
        case Operator.LESS | Operator.LESS_OR_EQUAL:
            return below
        case Operator.GREATER | Operator.GREATER_OR_EQUAL:
            return above
    # no number equals the constant, and a comparison with null stays unknown
    return disjoin((below, above)) if leaf.op == Operator.NOT_EQUAL else conjoin((below, above))


def _check_depth(predicate: Predicate) -> None:
    """Raise :class:`InputError` for a tree that recursive functions cannot walk."""
    level, depth = [predicate], 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            raise InputError(
                f"a filter has more than {MAX_NESTING} conditions inside of each other; combine all "
                "values of a column in one test with IN"
            )
        level = [
            child
            for part in level
            if not isinstance(part, Leaf)
            for child in ((part.child,) if isinstance(part, Not) else part.children)
        ]


def _cast_literal(
    value: "pa.Scalar[pa.DataType]", target: pa.DataType, leaf: Leaf
) -> "pa.Scalar[pa.DataType]":
    if not value.is_valid:
        raise InputError(f"comparison with null is never true; use IS NULL on column {leaf.name!r}")
    try:
        return cast_exactly(value, target)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(
            f"{describe_literal(value)} is not a value of column {leaf.name!r} ({target}): {error}"
        ) from error
