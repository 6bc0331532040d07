"""Translates the filters that DuckDB passes to Arrow data sets into predicates.

Python sees the text of an Arrow expression only. The text is parsed, both a predicate and an
expression are built from it, and the predicate counts only if that expression equals the filter.
"""

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.types.predicate import Leaf, Not, Operator, Predicate, conjoin, disjoin

_COMPARISONS: Mapping[str, tuple[Operator, Callable[[pc.Expression, pc.Expression], pc.Expression]]]
_COMPARISONS = {
    " == ": (Operator.EQUAL, lambda column, value: column == value),
    " != ": (Operator.NOT_EQUAL, lambda column, value: column != value),
    " <= ": (Operator.LESS_OR_EQUAL, lambda column, value: column <= value),
    " < ": (Operator.LESS, lambda column, value: column < value),
    " >= ": (Operator.GREATER_OR_EQUAL, lambda column, value: column >= value),
    " > ": (Operator.GREATER, lambda column, value: column > value),
}
_NO_NAN, _MATCH_NULL = ", {nan_is_null=false})", "], null_matching_behavior=MATCH})"


def translate_arrow_filter(filter: pc.Expression, schema: pa.Schema) -> Predicate | None:
    """Return the predicate with the same meaning, or None if there is none or it is not known."""
    parser = _ExpressionParser(str(filter), {field.name: field.type for field in schema})
    try:
        predicate, rebuilt = parser.parse_whole()
    except (_UnknownTextError, RecursionError, pa.ArrowException, ValueError):
        return None
    return predicate if rebuilt.equals(filter) else None


class _UnknownTextError(Exception):
    """A text that the parser does not know."""


_Parsed = tuple[Predicate, pc.Expression]


class _ExpressionParser:
    """Parses the text of an expression; the names of columns in it are not quoted."""

    def __init__(self, text: str, columns: Mapping[str, pa.DataType]) -> None:
        self._text = text
        self._columns = columns
        self._position = 0

    def parse_whole(self) -> _Parsed:
        parsed = self._parse()
        if self._position != len(self._text):
            raise _UnknownTextError
        return parsed

    def _parse(self) -> _Parsed:
        if self._skip("if_else(is_valid("):
            return self._parse_in()
        if self._skip("is_valid("):
            name = self._parse_column((")",))[0]
            return Not(Leaf(name, Operator.IS_NULL)), pc.field(name).is_valid()
        if self._skip("is_null("):
            name = self._parse_column((_NO_NAN,))[0]
            return Leaf(name, Operator.IS_NULL), pc.field(name).is_null()
        self._require("(")
        if self._text.startswith(("(", "is_", "if_else("), self._position):
            return self._parse_combination()
        name, symbol = self._parse_column(tuple(_COMPARISONS))
        value = self._parse_literal(self._columns[name], ")")
        op, compare = _COMPARISONS[symbol]
        return Leaf(name, op, (value,)), compare(pc.field(name), pc.scalar(value))

    def _parse_combination(self) -> _Parsed:
        left, left_expression = self._parse()
        is_conjunction = self._skip(" and ")
        if not is_conjunction:
            self._require(" or ")
        right, right_expression = self._parse()
        self._require(")")
        if is_conjunction:
            return conjoin((left, right)), left_expression & right_expression
        return disjoin((left, right)), left_expression | right_expression

    def _parse_in(self) -> _Parsed:
        name = self._parse_column(("), is_in(",))[0]
        self._require(f"{name}, {{value_set={self._columns[name]}:[")
        values = list["pa.Scalar[pa.DataType]"]()
        while not self._skip(_MATCH_NULL):
            while self._skip(" ") or self._skip("\n"):
                pass
            values.append(self._parse_literal(self._columns[name], "\n"))
        self._require(", null[bool])")
        column = pc.field(name)
        is_in = column.isin(pa.array(values, self._columns[name]))
        unknown = pc.scalar(pa.scalar(None, pa.bool_()))
        expression = pc.if_else(column.is_valid(), is_in, unknown)
        return Leaf(name, Operator.IN, tuple(values)), expression

    def _parse_column(self, ends: tuple[str, ...]) -> tuple[str, str]:
        """Return the column at this position, and which of the texts follows it."""
        for end in ends:
            for name in self._columns:
                if self._skip(name + end):
                    return name, end
        raise _UnknownTextError

    def _parse_literal(self, kind: pa.DataType, end: str) -> "pa.Scalar[pa.DataType]":
        if self._text.startswith('"', self._position):
            text, self._position = json.JSONDecoder().raw_decode(self._text, self._position)
            self._skip(",")
            self._require(end)
        else:
            stop = self._text.index(end, self._position)
            text = self._text[self._position : stop].removesuffix(",")
            self._position = stop + len(end)
        return pa.scalar(text).cast(kind)

    def _skip(self, text: str) -> bool:
        if not self._text.startswith(text, self._position):
            return False
        self._position += len(text)
        return True

    def _require(self, text: str) -> None:
        if not self._skip(text):
            raise _UnknownTextError
