"""Converts filters that Spark pushes down to predicates of a scan.

Spark applies each filter again, so a predicate may keep more rows than its filter, but not fewer.
Filters on floating-point columns are not converted, because in Spark, NaN is greater than all
values and equals NaN. Filters on columns that Spark does not represent exactly are not converted
either.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Predicate, bind_predicate
from paimon_orch.spark.column_types import is_exact

if TYPE_CHECKING:  # Spark 4.0 does not have this class
    from pyspark.sql.datasource import Filter

_COMPARISONS = {
    "EqualTo": Operator.EQUAL,
    "EqualNullSafe": Operator.EQUAL,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
}
_PATTERNS = {"StringStartsWith": "{}%", "StringEndsWith": "%{}", "StringContains": "%{}%"}
_WILDCARDS = set("%_\\")


def to_predicate(filters: Iterable["Filter"], schema: pa.Schema) -> Predicate | None:
    """Return the conjunction of the filters that can be converted, or None if there are none."""
    parts = tuple(_translate_filters(filters, schema))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(parts)


def _translate_filters(filters: Iterable["Filter"], schema: pa.Schema) -> Iterator[Predicate]:
    for item in filters:
        predicate = _translate_filter(item, schema)
        if predicate is not None:
            try:
                yield bind_predicate(predicate, lambda leaf: schema.field(leaf.column).type)
            except InputError:
                # The column cannot hold the value, for example a timestamp with more digits. Spark
                # applies such a filter itself.
                continue


def _translate_filter(item: Any, schema: pa.Schema) -> Predicate | None:
    # names are compared, because not all versions of Spark have all classes
    kind = type(item).__name__
    if kind == "Not":
        # For NULL, <=> is false, so its negation is true. In a predicate, both would be unknown.
        is_null_safe = type(item.child).__name__ == "EqualNullSafe"
        child = None if is_null_safe else _translate_filter(item.child, schema)
        return None if child is None else Not(child)
    if len(item.attribute) != 1 or not _can_push_down(item.attribute[0], schema):
        return None
    (name,) = item.attribute
    if kind in ("IsNull", "IsNotNull"):
        test = Leaf(name, Operator.IS_NULL)
        return test if kind == "IsNull" else Not(test)
    return _translate_comparison(kind, name, item.value)


def _can_push_down(name: str, schema: pa.Schema) -> bool:
    if name not in schema.names:  # Spark's name differs in case
        return False
    arrow_type = schema.field(name).type
    return is_exact(arrow_type) and not pa.types.is_floating(arrow_type)


def _translate_comparison(kind: str, name: str, value: Any) -> Predicate | None:
    if kind == "In":
        values = tuple(pa.scalar(each) for each in value if each is not None)
        return Leaf(name, Operator.IN, values) if values else None
    if value is None:
        return None
    if kind in _COMPARISONS:
        return Leaf(name, _COMPARISONS[kind], (pa.scalar(value),))
    if kind in _PATTERNS and not _WILDCARDS & set(value):
        return Leaf(name, Operator.LIKE, (pa.scalar(_PATTERNS[kind].format(value)),))
    return None
