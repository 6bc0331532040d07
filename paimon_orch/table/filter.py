"""Filters as SQL text: ``status = 'PENDING' and dt >= '2026-01-01'``."""

from collections.abc import Mapping

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from paimon_orch.errors import InputError
from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.predicate import And, Leaf, Not, Or, Predicate, bind, typed_text
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types import AtomicType, Field

_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
# The parts of a condition that are understood; a dialect may know more (NOT LIKE, BETWEEN SYMMETRIC).
_PARTS = {"this", "expression", "expressions", "low", "high", "negate"}
_SUPPORTED = "=, <>, <, <=, >, >=, IN, BETWEEN, LIKE, IS NULL, AND, OR and NOT"


def parse_filter(text: str, schema: TableSchema) -> Predicate:
    """Parse a filter over the columns of a table; literals take the column's type."""
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise InputError(f"filter {text!r} cannot be understood: {first}") from error
    return _Translator(text, schema).translate(tree)


def bound_filter(condition: str | Predicate | None, schema: TableSchema) -> Predicate | None:
    """Return a filter, given as text or as a predicate, with its values as the types of their columns."""
    if condition is None:
        return None
    if not isinstance(condition, str | Leaf | And | Or | Not):
        raise InputError(f"a filter is text or made by col(...), not {condition!r}")
    predicate = parse_filter(condition, schema) if isinstance(condition, str) else condition

    def type_of(name: str) -> pa.DataType:
        field = schema.field(name)
        if not isinstance(field.type, AtomicType):
            raise InputError(
                f"filter on column {name!r}: it is nested; filters take simple columns"
            )
        return arrow_type(field.type)

    return bind(predicate, type_of)


class _Translator:
    def __init__(self, text: str, schema: TableSchema) -> None:
        self._text, self._schema = text, schema

    def _error(self, reason: str) -> InputError:
        return InputError(f"filter {self._text!r}: {reason}; filters take {_SUPPORTED}")

    def translate(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Paren():
                return self.translate(node.this)
            case exp.And():
                return And(tuple(self.translate(part) for part in node.flatten()))
            case exp.Or():
                return Or(tuple(self.translate(part) for part in node.flatten()))
            case exp.Not():
                return Not(self.translate(node.this))
        if any(value for name, value in node.args.items() if name not in _PARTS):
            raise self._error(f"{node.sql()!r} is not supported")
        condition = self._condition(node)
        return Not(condition) if node.args.get("negate") else condition

    def _condition(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                low = self._leaf(node.this, ">=", node.args["low"])
                return And((low, self._leaf(node.this, "<=", node.args["high"])))
            case exp.Like():
                return self._like(node)
            case exp.Column():
                return self._leaf(node, "=", exp.true())
        if type(node) in _COMPARISONS:
            op = _COMPARISONS[type(node)]
            left, right = node.args["this"], node.args["expression"]
            if isinstance(left, exp.Column):
                return self._leaf(left, op, right)
            return self._leaf(right, _FLIPPED.get(op, op), left)
        raise self._error(f"{node.sql()!r} is not supported")

    def _is(self, node: exp.Is) -> Predicate:
        if isinstance(node.expression, exp.Null):
            return Leaf(self._column(node.this).name, "is null")
        raise self._error(f"{node.sql()!r} is not supported")

    def _like(self, node: exp.Like) -> Predicate:
        field = self._column(node.this)
        if not pa.types.is_string(arrow_type(field.type)):
            raise self._error(f"LIKE needs text, and column {field.name!r} is none")
        return Leaf(field.name, "like", (pa.scalar(self._literal_text(node.expression)),))

    def _in(self, node: exp.In) -> Predicate:
        field, items = self._column(node.this), node.expressions
        if not items:
            raise self._error("IN needs a list of values")
        with_null = any(isinstance(item, exp.Null) for item in items)
        if with_null:
            raise self._error("IN must not list NULL, which equals nothing; use IS NULL")
        return Leaf(field.name, "in", tuple(self._literal(item, field) for item in items))

    def _leaf(self, column: exp.Expr, op: str, value: exp.Expr) -> Predicate:
        field = self._column(column)
        if isinstance(value, exp.Null):
            raise self._error("nothing equals NULL; use IS NULL")
        return Leaf(field.name, op, (self._literal(value, field),))

    def _column(self, node: exp.Expr) -> Field:
        if not isinstance(node, exp.Column) or node.args.get("table"):
            raise self._error(f"{node.sql()!r} is not a column")
        field = self._schema.field(node.name)
        if not isinstance(field.type, AtomicType):
            raise self._error(f"column {field.name!r} is nested")
        return field

    def _literal_text(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
            return f"-{node.this.name}"
        if isinstance(node, exp.Literal):
            return node.name
        if isinstance(node, exp.Boolean):
            return "true" if node.this else "false"
        if isinstance(node, exp.Cast):  # DATE '2026-01-01', TIMESTAMP '...'
            return self._literal_text(node.this)
        raise self._error(f"{node.sql()!r} is not a constant")

    def _literal(self, node: exp.Expr, field: Field) -> "pa.Scalar[pa.DataType]":
        text, target = self._literal_text(node), arrow_type(field.type)
        try:
            return typed_text(text, target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise self._error(
                f"{text!r} is no value of column {field.name!r} ({target})"
            ) from error
