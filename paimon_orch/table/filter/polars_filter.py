"""Translates filters of Polars into predicates, as far as both mean the same.

A filter of Polars is read in its JSON form. What is not known here is not translated, as the form
may differ between releases.
"""

import json
from collections.abc import Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_orch.format.types.predicate import And, Leaf, Not, Operator, Predicate, conjoin, disjoin

if TYPE_CHECKING:
    import polars as pl

_COMPARISONS = {
    "Eq": Operator.EQUAL,
    "NotEq": Operator.NOT_EQUAL,
    "Lt": Operator.LESS,
    "LtEq": Operator.LESS_OR_EQUAL,
    "Gt": Operator.GREATER,
    "GtEq": Operator.GREATER_OR_EQUAL,
}
_FLIPPED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}


class _UnknownExpressionError(Exception):
    """An expression that has no predicate with the same meaning."""


def translate_conjuncts(expression: "pl.Expr") -> list[Predicate]:
    """Return the conjuncts that have a predicate with the same meaning."""
    conjuncts, pending = list[Predicate](), [json.loads(expression.meta.serialize(format="json"))]
    while pending:
        node = pending.pop()
        match node:
            case {"BinaryExpr": {"op": "And" | "LogicalAnd", "left": left, "right": right}}:
                pending += [right, left]
                continue
        try:
            conjuncts.append(_translate(node))
        except _UnknownExpressionError:
            continue
    return conjuncts


def _translate(node: Any) -> Predicate:
    match node:
        case {"Column": str(name)}:
            return Leaf(name, Operator.EQUAL, (pa.scalar(True),))
        case {"BinaryExpr": {"op": "And" | "LogicalAnd", "left": left, "right": right}}:
            return conjoin((_translate(left), _translate(right)))
        case {"BinaryExpr": {"op": "Or" | "LogicalOr", "left": left, "right": right}}:
            return disjoin((_translate(left), _translate(right)))
        case {"BinaryExpr": {"op": str(op), "left": left, "right": {"Column": str(name)}}}:
            return _compare(name, _FLIPPED.get(op, op), left)
        case {"BinaryExpr": {"op": str(op), "left": {"Column": str(name)}, "right": right}}:
            return _compare(name, op, right)
        case {"Function": {"function": {"Boolean": function}, "input": [*arguments]}}:
            return _translate_function(function, arguments)
    raise _UnknownExpressionError


def _translate_function(function: Any, arguments: list[Any]) -> Predicate:
    match function, arguments:
        case "Not", [tested]:
            return Not(_translate(tested))
        case "IsNull", [{"Column": str(name)}]:
            return Leaf(name, Operator.IS_NULL)
        case "IsNotNull", [{"Column": str(name)}]:
            return Not(Leaf(name, Operator.IS_NULL))
        case {"IsBetween": {"closed": "Both"}}, [{"Column": str(name)}, low, high]:
            return And((_compare(name, "GtEq", low), _compare(name, "LtEq", high)))
        case {"IsIn": _}, [{"Column": str(name)}, values]:
            [listed] = _evaluate(values)
            items = (
                tuple(listed.values)
                if isinstance(listed, pa.ListScalar | pa.LargeListScalar)
                else ()
            )
            return Leaf(name, Operator.IN, _check_not_null(items))
    raise _UnknownExpressionError


def _compare(column: str, op: str, constant: Any) -> Predicate:
    if op not in _COMPARISONS:
        raise _UnknownExpressionError
    return Leaf(column, _COMPARISONS[op], _check_not_null(tuple(_evaluate(constant))))


def _check_not_null(
    values: tuple["pa.Scalar[pa.DataType]", ...],
) -> tuple["pa.Scalar[pa.DataType]", ...]:
    """Return the values; null and an empty list differ from SQL in Polars."""
    if not values or not all(value.is_valid for value in values):
        raise _UnknownExpressionError
    return values


def _evaluate(node: Mapping[str, Any]) -> pa.Array:
    """Return the one value of a literal."""
    import polars as pl

    if "Literal" not in node:
        raise _UnknownExpressionError
    try:
        literal = pl.Expr.deserialize(StringIO(json.dumps(node)), format="json")
    except pl.exceptions.ComputeError:  # NaN and the infinities are null in the JSON form
        raise _UnknownExpressionError from None
    values: pa.Array = pl.select(literal).to_series().to_arrow()
    if len(values) != 1:
        raise _UnknownExpressionError
    return values
