"""The conditions of a merge in this process: filters that can also compare two columns.

They are true for the rows for which Spark finds them true, because a merge can run in both. Unlike
in filters of scans, NaN therefore equals NaN and is larger than all numbers, ``isnan`` of null is
false, and a FLOAT is compared with 0.1 as a DOUBLE.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type, to_paimon_type
from paimon_orch.format.types.predicate import (
    Leaf,
    Not,
    Operator,
    Predicate,
    conjoin,
    disjoin,
    iterate_leaves,
    map_leaves,
    to_arrow_expression,
)
from paimon_orch.steps.row_level.assignments import RowColumns, is_number, parse_expression
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.filter.filter_fields import resolve_filter_field
from paimon_orch.table.filter.sql_parser import translate_filter

SPARK_HINT = (
    "Other conditions need Spark: use paimon_orch.spark.merge_into or "
    "'paimon-orch merge-into --executor spark'"
)

_COMPARISONS: Mapping[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def parse_condition(text: object, label: str, columns: RowColumns) -> pc.Expression:
    """Return a condition of joined rows.

    Raises :class:`InputError`, with ``label``, for text that only Spark evaluates.
    """
    if not isinstance(text, str):
        raise InputError(
            f'{label} must be an SQL condition, such as "source.deleted", or "true" for all rows, '
            f"not {text!r}"
        )
    try:
        return _translate(columns.resolve(parse_expression(text, label)), columns.schema)
    except (InputError, UnsupportedError) as error:
        raise InputError(f"{label}: {error}. {SPARK_HINT}") from error


def _translate(node: exp.Expr, schema: TableSchema) -> pc.Expression:
    match node:
        case exp.Paren():
            return _translate(node.this, schema)
        case exp.Not():
            return ~_translate(node.this, schema)
        case exp.And():
            return _translate(node.left, schema) & _translate(node.right, schema)
        case exp.Or():
            return _translate(node.left, schema) | _translate(node.right, schema)
        case exp.Boolean():
            return pc.scalar(bool(node.this))
    sides = [node.args.get("this"), node.args.get("expression")]
    if type(node) in _COMPARISONS and all(isinstance(side, exp.Column) for side in sides):
        left, right = (side.name for side in sides if side is not None)
        return _compare_columns(type(node), left, right, schema)
    predicate = bind_filter(translate_filter(node, _widen_floats(schema)), _widen_floats(schema))
    assert predicate is not None
    if any(leaf.variant is not None for leaf in iterate_leaves(predicate)):
        raise UnsupportedError("a value inside of a VARIANT column is not supported")
    return to_arrow_expression(map_leaves(predicate, lambda leaf: _adapt_floats(leaf, schema)))


def _compare_columns(
    comparison: type[exp.Expr], left_name: str, right_name: str, schema: TableSchema
) -> pc.Expression:
    types = [to_arrow_type(schema.field(name).type) for name in (left_name, right_name)]
    if pa.types.is_nested(types[0]) or not (types[0] == types[1] or all(map(is_number, types))):
        raise UnsupportedError(f"values of {types[0]} and {types[1]} cannot be compared")
    compare, left, right = _COMPARISONS[comparison], pc.field(left_name), pc.field(right_name)
    if not any(map(pa.types.is_floating, types)):
        result: pc.Expression = compare(left, right)
        return result
    if types[0] != types[1]:
        left, right = map(_cast_to_double, (left, right), types)
    equal = (left == right) | (left.is_nan() & right.is_nan())
    less = (left < right) | (~left.is_nan() & right.is_nan())
    results: Mapping[type[exp.Expr], pc.Expression] = {
        exp.EQ: equal,
        exp.NEQ: ~equal,
        exp.LT: less,
        exp.LTE: less | equal,
        exp.GT: ~(less | equal),
        exp.GTE: ~less,
    }
    return results[comparison]


def _cast_to_double(side: pc.Expression, kind: pa.DataType) -> pc.Expression:
    if pa.types.is_decimal(kind):
        side = side.cast(pa.string())  # Arrow's cast of decimals is not to the nearest number
    return side.cast(pa.float64(), safe=False)


def _widen_floats(schema: TableSchema) -> TableSchema:
    """Return a schema in which FLOAT is DOUBLE, also in maps, as is the type of 0.1 in Spark."""
    fields = []
    for field in schema.fields:
        kind = to_arrow_type(field.type)
        if pa.types.is_float32(kind):
            kind = pa.float64()
        elif pa.types.is_map(kind) and pa.types.is_float32(kind.item_type):
            kind = pa.map_(kind.key_type, pa.float64())
        else:
            fields.append(field)
            continue
        fields.append(replace(field, type=to_paimon_type(kind)))
    return replace(schema, fields=tuple(fields))


def _adapt_floats(leaf: Leaf, schema: TableSchema) -> Predicate:
    """Return a test for which NaN is larger than all numbers, and ``isnan`` of null is false."""
    if leaf.op == Operator.IS_NAN:
        return conjoin((leaf, Not(replace(leaf, op=Operator.IS_NULL))))
    kind = to_arrow_type(resolve_filter_field(schema, leaf.column, key=leaf.key, variant=None).type)
    if leaf.op == Operator.IN and pa.types.is_float32(kind):  # Arrow would round the values
        return disjoin(replace(leaf, op=Operator.EQUAL, values=(x,)) for x in leaf.values)
    if leaf.op in (Operator.GREATER, Operator.GREATER_OR_EQUAL) and pa.types.is_floating(kind):
        return disjoin((leaf, replace(leaf, op=Operator.IS_NAN, values=())))
    return leaf
