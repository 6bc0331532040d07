"""Parses filters in SQL: ``status = 'PENDING' and dt >= '2026-01-01'``."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.format.types.literals import cast_exactly, parse_literal, to_exact_scalar
from paimon_orch.format.types.predicate import (
    And,
    Leaf,
    Not,
    Operator,
    Predicate,
    VariantValue,
    compare_misfit,
    conjoin,
    disjoin,
)
from paimon_orch.table.filter.filter_fields import resolve_filter_field
from paimon_orch.table.filter.long_lists import LongList, check_length, extract_long_lists, shorten

_COMPARISONS: Mapping[type[exp.Expr], Operator] = {
    exp.EQ: Operator.EQUAL,
    exp.NEQ: Operator.NOT_EQUAL,
    exp.LT: Operator.LESS,
    exp.LTE: Operator.LESS_OR_EQUAL,
    exp.GT: Operator.GREATER,
    exp.GTE: Operator.GREATER_OR_EQUAL,
}
_COLUMNS = (exp.Column, exp.Bracket, exp.Anonymous)  # also keys of maps and variant_get
_FLIPPED_OPERATORS = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}
# Supported conditions have only these arguments; others, such as SYMMETRIC, are refused.
_KNOWN_ARGS = {"this", "expression", "expressions", "low", "high", "negate"}
_TIMESTAMP_TYPES = (
    exp.DType.TIMESTAMP,
    exp.DType.TIMESTAMPLTZ,
    exp.DType.TIMESTAMPNTZ,
    exp.DType.TIMESTAMPTZ,
)
_MISSING_PART = re.compile(r"Required keyword: '\w+' missing for <class '[^']*'>")
VARIANT_GET = "variant_get"
_VARIANT_GET_FORM = f"{VARIANT_GET}(column, 'path', 'type')"
_SUPPORTED_SYNTAX = (
    f"=, <>, <, <=, >, >=, IN, BETWEEN, LIKE, IS NULL, isnan(column), AND, OR, NOT and "
    f"{_VARIANT_GET_FORM}"
)
_VARIANT_GET_ARGUMENTS = 3


def parse_filter(text: str, schema: TableSchema) -> Predicate:
    """Parse a filter on the columns of a table; literals are converted to the column's type."""
    shortened, lists = extract_long_lists(text)
    check_length(shortened)
    try:
        tree = sqlglot.parse_one(shortened, dialect="spark")
        return _FilterTranslator(shortened, schema, lists).translate(tree)
    except SqlglotError as error:
        first = _MISSING_PART.sub("a value or a condition is missing", str(error).splitlines()[0])
        raise InputError(
            f"filter {shorten(shortened)!r} is not a valid SQL condition: {first}"
        ) from error
    except RecursionError as error:
        raise InputError(
            f"filter {shorten(shortened)!r} has too many parentheses or conditions inside of each "
            "other"
        ) from error


def translate_filter(tree: exp.Expr, schema: TableSchema) -> Predicate:
    """Translate a parsed condition, as :func:`parse_filter` does with text."""
    return _FilterTranslator(tree.sql(dialect="spark"), schema, {}).translate(tree)


def parse_variant_column(text: str) -> tuple[str, VariantValue, str | None]:
    """Parse ``variant_get(v, '$.age', 'int') as age``: the column, its value, and the alias."""
    check_length(text)
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError) as error:
        raise InputError(
            f"column {shorten(text)!r} is not of the form {_VARIANT_GET_FORM}"
        ) from error
    alias = tree.alias if isinstance(tree, exp.Alias) else None
    call = tree.this if isinstance(tree, exp.Alias) else tree
    value = _read_variant_value(call) if isinstance(call, exp.Anonymous) else None
    if value is None or not isinstance(call.expressions[0], exp.Column):
        raise InputError(f"column {text!r} is not of the form {_VARIANT_GET_FORM}")
    return call.expressions[0].name, value, alias


def _read_variant_value(node: exp.Anonymous) -> VariantValue | None:
    """Return the arguments of a call of ``variant_get``, or None if they are of another form."""
    literals = node.expressions[1:]
    if len(node.expressions) != _VARIANT_GET_ARGUMENTS or not all(
        isinstance(literal, exp.Literal) and literal.is_string for literal in literals
    ):
        return None
    return VariantValue(*(literal.name for literal in literals))


@dataclass(frozen=True, slots=True)
class _TestedColumn:
    """A column, a value of a map, or a value of a variant."""

    column: str
    key: str | None
    variant: VariantValue | None
    field: Field
    """The field with the type of the value."""

    def build_leaf(self, op: Operator, *values: "pa.Scalar[pa.DataType]") -> Leaf:
        return Leaf(self.column, op, values, self.key, self.variant)


class _FilterTranslator:
    def __init__(self, text: str, schema: TableSchema, lists: Mapping[str, LongList]) -> None:
        self._text, self._schema, self._lists = shorten(text), schema, lists

    def _build_error(self, reason: str) -> InputError:
        return InputError(f"filter {self._text!r}: {reason}; filters support {_SUPPORTED_SYNTAX}")

    def translate(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Paren():
                return self.translate(node.this)
            case exp.And():
                return conjoin(map(self.translate, node.flatten()))
            case exp.Or():
                return disjoin(map(self.translate, node.flatten()))
            case exp.Not():
                return Not(self.translate(node.this))
        if any(value for name, value in node.args.items() if name not in _KNOWN_ARGS):
            raise self._build_error(f"{node.sql('spark')!r} is not supported")
        condition = self._translate_condition(node)
        return Not(condition) if node.args.get("negate") else condition

    def _translate_condition(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Is() | exp.IsNan():
                return self._translate_is(node)
            case exp.In():
                return self._translate_in(node)
            case exp.Between():
                low = self._build_leaf(node.this, Operator.GREATER_OR_EQUAL, node.args["low"])
                return And(
                    (low, self._build_leaf(node.this, Operator.LESS_OR_EQUAL, node.args["high"]))
                )
            case exp.Like():
                return self._translate_like(node, self._parse_literal_text(node.expression))
            case exp.Escape(this=exp.Like() as like, expression=escape):
                pattern = self._parse_literal_text(like.expression)
                test = self._translate_like(like, self._convert_escapes(pattern, escape.name))
                return Not(test) if like.args.get("negate") else test
            case exp.Column() | exp.Bracket() | exp.Anonymous():
                return self._build_leaf(node, Operator.EQUAL, exp.true())
        if type(node) in _COMPARISONS:
            op = _COMPARISONS[type(node)]
            first, second = node.args["this"], node.args["expression"]
            if isinstance(second, _COLUMNS) and not isinstance(first, _COLUMNS):
                return self._build_leaf(second, _FLIPPED_OPERATORS.get(op, op), first)
            return self._build_leaf(first, op, second)
        raise self._build_error(f"{node.sql('spark')!r} is not supported")

    def _translate_is(self, node: exp.Is | exp.IsNan) -> Predicate:
        if isinstance(node, exp.IsNan):
            return self._resolve_column(node.this).build_leaf(Operator.IS_NAN)
        if isinstance(node.expression, exp.Null):
            return self._resolve_column(node.this).build_leaf(Operator.IS_NULL)
        raise self._build_error(f"{node.sql('spark')!r} is not supported")

    def _translate_like(self, node: exp.Like, pattern: str) -> Predicate:
        tested = self._resolve_column(node.this)
        field = tested.field
        if not pa.types.is_string(to_arrow_type(field.type)):
            raise self._build_error(f"LIKE needs text, but column {field.name!r} has another type")
        return tested.build_leaf(Operator.LIKE, pa.scalar(pattern))

    def _convert_escapes(self, pattern: str, escape: str) -> str:
        """Return a pattern whose escape character is the backslash, as in one without ESCAPE."""
        if len(escape) != 1:
            raise self._build_error(f"ESCAPE needs one character, not {escape!r}")
        converted, characters = "", iter(pattern)
        for character in characters:
            if character == escape:
                character = next(characters, "")  # noqa: PLW2901 - the escaped character
                if character not in ("%", "_", escape):
                    raise self._build_error(
                        f"in {pattern!r}, {escape!r} must precede %, _ or itself"
                    )
                converted += f"\\{character}" if character in "%_\\" else character
            else:
                converted += "\\\\" if character == "\\" else character
        return converted

    def _translate_in(self, node: exp.In) -> Predicate:
        tested, items = self._resolve_column(node.this), node.expressions
        if not items:
            raise self._build_error("IN needs a list of values")
        with_null = any(isinstance(item, exp.Null) for item in items)
        if with_null:
            raise self._build_error("IN must not list NULL, which equals no value; use IS NULL")
        first = items[0]
        if len(items) == 1 and isinstance(first, exp.Literal) and first.name in self._lists:
            return tested.build_leaf(
                Operator.IN, *self._parse_long_list(self._lists[first.name], tested.field)
            )
        exact = [x for x in items if self._compare_misfit(tested, Operator.IN, x) is None]
        if not exact:
            return self._build_leaf(node.this, Operator.EQUAL, first)
        values = (self._parse_literal(item, tested.field) for item in exact)
        return tested.build_leaf(Operator.IN, *values)

    def _build_leaf(self, tested: exp.Expr, op: Operator, value: exp.Expr) -> Predicate:
        resolved = self._resolve_column(tested)
        if isinstance(value, exp.Null):
            raise self._build_error("no value equals NULL; use IS NULL")
        misfit = self._compare_misfit(resolved, op, value)
        if misfit is not None:
            return misfit
        return resolved.build_leaf(op, self._parse_literal(value, resolved.field))

    def _compare_misfit(
        self, tested: _TestedColumn, op: Operator, node: exp.Expr
    ) -> Predicate | None:
        """Return the tests for a number that the column cannot hold, or None for other constants."""
        number = _read_number(node)
        if number is None:
            return None
        return compare_misfit(tested.build_leaf(op), number, to_arrow_type(tested.field.type))

    def _resolve_column(self, node: exp.Expr) -> _TestedColumn:
        key, column = None, node
        variant = self._parse_variant_value(node) if isinstance(node, exp.Anonymous) else None
        if variant is not None:
            column = node.expressions[0]
        if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
            [index], column = node.expressions, node.this
            if not isinstance(index, exp.Literal) or not index.is_string:
                raise self._build_error(
                    f"{node.sql('spark')!r} is not supported: the key of a map must be a text literal"
                )
            key = index.name
        if not isinstance(column, exp.Column) or column.args.get("table"):
            raise self._build_error(f"{node.sql('spark')!r} is not a column{_quote_column(column)}")
        field = resolve_filter_field(self._schema, column.name, key=key, variant=variant)
        return _TestedColumn(column.name, key, variant, field)

    def _parse_variant_value(self, node: exp.Anonymous) -> VariantValue | None:
        """Return the arguments of ``variant_get``, or None for another function."""
        if str(node.this).lower() != VARIANT_GET:
            return None
        value = _read_variant_value(node)
        if value is None:
            raise self._build_error(f"{node.sql('spark')!r} is not of the form {_VARIANT_GET_FORM}")
        return value

    def _parse_literal_text(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal | exp.Cast):
            return f"-{self._parse_literal_text(node.this)}"
        if isinstance(node, exp.Literal):
            return node.name
        if isinstance(node, exp.Boolean):
            return "true" if node.this else "false"
        if isinstance(node, exp.Cast):  # for example, DATE '2026-01-01'
            return self._parse_literal_text(node.this)
        if isinstance(node, exp.Concat):  # Spark joins adjacent texts
            raise self._build_error(
                "two texts follow each other; a quotation mark in a text is written \\'"
            )
        raise self._build_error(f"{node.sql('spark')!r} is not a constant")

    def _parse_literal(self, node: exp.Expr, field: Field) -> "pa.Scalar[pa.DataType]":
        target = to_arrow_type(field.type)
        if isinstance(node, exp.HexString) and pa.types.is_binary(target):
            with suppress(ValueError):
                return pa.scalar(bytes.fromhex(node.name), target)
        text = self._parse_literal_text(node)
        try:
            return cast_exactly(_build_scalar(node, text, target), target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError, ValueError) as error:
            raise self._build_error(
                f"{text!r} is not a value of column {field.name!r} ({target}): {error}"
            ) from error

    def _parse_long_list(self, constants: LongList, field: Field) -> "list[pa.Scalar[pa.DataType]]":
        target, texts = to_arrow_type(field.type), pa.array(constants.texts, pa.string())
        with suppress(pa.ArrowInvalid):  # the error of a single constant has a better message
            if pa.types.is_string(target) if constants.is_text else pa.types.is_integer(target):
                return list(texts.cast(target))
            if not constants.is_text and pa.types.is_floating(target):
                return list(texts.cast(pa.int64()).cast(target))  # refuses inexact numbers
        return [self._parse_literal(node, field) for node in constants.build_nodes()]


def _quote_column(node: exp.Expr) -> str:
    """Return how to write a text, as Spark reads double quotation marks, as a column."""
    is_text = isinstance(node, exp.Literal) and node.is_string
    return f"; quotation marks are for text, so write `{node.name}`" if is_text else ""


def _read_number(node: exp.Expr) -> Decimal | None:
    """Return the number of a numeric literal, and None for other nodes."""
    literal = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return None
    with suppress(ArithmeticError):
        number = Decimal(literal.name)
        return number if literal is node else number.copy_negate()
    return None


def build_literal(node: exp.Expr, target: pa.DataType) -> "pa.Scalar[pa.DataType]":
    """Return a constant of an expression in the type that SQL gives it, or null of a type.

    Raises :class:`UnsupportedError` for other expressions, and ``ValueError`` or an Arrow error for
    a time that does not exist.
    """
    if isinstance(node, exp.Null):
        return pa.scalar(None, target)
    if isinstance(node, exp.HexString):
        return pa.scalar(bytes.fromhex(node.name))
    if isinstance(node, exp.Boolean):
        return pa.scalar(bool(node.this))
    number = node.this if isinstance(node, exp.Neg) else node
    if isinstance(number, exp.Literal) and not number.is_string:
        text = number.name if number is node else f"-{number.name}"
        if "e" in text.lower():
            return pa.scalar(float(text))
        return to_exact_scalar(Decimal(text) if "." in text else int(text))
    literal = node.this if isinstance(node, exp.Cast) else node
    if not isinstance(literal, exp.Literal) or not literal.is_string:
        raise UnsupportedError(f"{node.sql('spark')!r} is not a constant")
    return _build_scalar(node, literal.name, target)


def _build_scalar(node: exp.Expr, text: str, target: pa.DataType) -> "pa.Scalar[pa.DataType]":
    """Return a literal in the type that SQL gives it; text takes the type of the column."""
    if isinstance(node, exp.Neg):
        node = node.this
    if isinstance(node, exp.Boolean):
        return pa.scalar(bool(node.this))
    if isinstance(node, exp.Cast) and node.to.is_type(*_TIMESTAMP_TYPES):
        # of the unit and the zone of the column
        return parse_literal(text, target if pa.types.is_timestamp(target) else pa.timestamp("us"))
    if isinstance(node, exp.Cast) and node.to.is_type(exp.DType.TIME):
        return parse_literal(text, pa.time64("ns"))
    if isinstance(node, exp.Cast):
        return parse_literal(text, to_arrow_type(parse_type(node.to.sql(dialect="spark"))))
    if isinstance(node, exp.Literal) and not node.is_string and not pa.types.is_floating(target):
        return to_exact_scalar(int(text) if text.isdigit() else Decimal(text))
    return pa.scalar(text)
