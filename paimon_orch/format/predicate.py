"""Predicates on columns: a small tree that is evaluated on Arrow and on statistics."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One test of one column: a comparison, ``in``, ``like`` or ``is null``.

    ``values`` are Arrow scalars of the column's type (text for ``like``).
    """

    column: str
    op: str
    values: tuple["pa.Scalar[pa.DataType]", ...] = ()


@dataclass(frozen=True, slots=True)
class And:
    """All children hold."""

    children: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one child holds."""

    children: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The child is false; unknown stays unknown, as in SQL."""

    child: "Predicate"


Predicate = Leaf | And | Or | Not


def columns_of(predicate: Predicate) -> set[str]:
    """Return the columns that a predicate looks at."""
    match predicate:
        case Leaf(column=column):
            return {column}
        case Not(child=child):
            return columns_of(child)
    return set().union(*(columns_of(child) for child in predicate.children))


def to_arrow(predicate: Predicate) -> pc.Expression:
    """Return an Arrow filter with SQL's three-valued logic."""
    match predicate:
        case Leaf():
            return _leaf_to_arrow(predicate)
        case Not(child=child):
            return ~to_arrow(child)
    parts = [to_arrow(child) for child in predicate.children]
    result = parts[0]
    for part in parts[1:]:
        result = result & part if isinstance(predicate, And) else result | part
    return result


def _leaf_to_arrow(leaf: Leaf) -> pc.Expression:
    column = pc.field(leaf.column)
    match leaf.op:
        case "is null":
            return column.is_null()
        case "in":
            found = column.isin(
                pa.array([value.as_py() for value in leaf.values], leaf.values[0].type)
            )
            # IN is unknown for a null column, not false: NOT IN must not return it
            return pc.if_else(column.is_null(), pc.scalar(pa.scalar(None, pa.bool_())), found)
        case "like":
            return pc.match_like(column, leaf.values[0].as_py())
    value = pc.scalar(leaf.values[0])
    comparisons = {
        "=": column == value,
        "<>": column != value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
    }
    return comparisons[leaf.op]


def conjuncts(predicate: Predicate) -> Iterable[Predicate]:
    """Yield the parts that must all hold."""
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from conjuncts(child)
    else:
        yield predicate


def restrict(predicate: Predicate, columns: set[str]) -> Predicate | None:
    """Return the conjuncts that look at these columns alone: a weaker predicate, or None."""
    parts = tuple(part for part in conjuncts(predicate) if columns_of(part) <= columns)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(parts)
