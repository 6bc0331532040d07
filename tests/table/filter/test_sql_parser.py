"""Text filters return the same rows as pandas, or explain what is not supported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.errors import InputError, PaimonError
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.format.types.predicate import (
    collect_columns,
    restrict_to_columns,
    to_arrow_expression,
)
from paimon_orch.table.filter.sql_parser import parse_filter

SCHEMA = build_table_schema(
    parse_columns(
        "i INT, l BIGINT, s STRING, d DOUBLE, b BOOLEAN, day DATE, at TIMESTAMP(3), "
        "moment TIMESTAMP(6) WITH LOCAL TIME ZONE, clock TIME(3), price DECIMAL(10, 2), raw BYTES, "
        "tags ARRAY<STRING>, `odd name` INT, info ROW<i INT>"
    )
)

Condition = tuple[str, Callable[[pd.DataFrame], Any]]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda left, right: left == right,
    "==": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
integers = st.integers(-3, 3)
texts = st.sampled_from(["", "a", "ab", "b", "B", "it's", "ü"])
rows = st.lists(
    st.fixed_dictionaries(
        {"i": integers | st.none(), "s": texts | st.none(), "b": st.booleans() | st.none()}
    ),
    max_size=12,
)


def quote(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


@st.composite
def leaves(draw: st.DrawFn) -> Condition:
    form = draw(
        st.sampled_from(["number", "flipped", "text", "null", "in", "between", "like", "flag"])
    )
    name, number = draw(st.sampled_from(list(OPERATORS))), draw(integers)
    apply = OPERATORS[name]
    match form:
        case "number":
            return f"i {name} {number}", lambda frame: apply(frame.i, number)
        case "flipped":
            return f"{number} {name} i", lambda frame: apply(number, frame.i)
        case "text":
            text = draw(texts)
            return f"s {name} {quote(text)}", lambda frame: apply(frame.s, text)
        case "null":
            column, negated = draw(st.sampled_from(["i", "s", "b"])), draw(st.booleans())
            sql = f"{column} IS {'NOT ' if negated else ''}NULL"
            return sql, lambda frame: (frame[column].isna() ^ negated).astype("boolean")
        case "in":
            items, negated = draw(st.lists(integers, min_size=1, max_size=3)), draw(st.booleans())

            def among(frame: pd.DataFrame) -> Any:
                matches = frame.i.isin(items).astype("boolean").mask(frame.i.isna(), pd.NA)
                return ~matches if negated else matches

            listed = ", ".join(map(str, items))
            return f"i {'NOT ' if negated else ''}IN ({listed})", among
        case "between":
            high = draw(integers)
            return f"i BETWEEN {number} AND {high}", lambda f: (f.i >= number) & (f.i <= high)
        case "like":
            start, no = draw(st.sampled_from(["a", "b", ""])), draw(st.booleans())

            def starts(frame: pd.DataFrame) -> Any:
                matches = frame.s.str.startswith(start)
                return ~matches if no else matches

            return f"s {'NOT ' if no else ''}LIKE '{start}%'", starts
    return "b", lambda frame: frame.b


def combine(children: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    both = st.tuples(children, children)
    return st.one_of(
        children.map(lambda c: (f"NOT ({c[0]})", lambda frame: ~c[1](frame))),
        both.map(lambda p: (f"({p[0][0]}) AND ({p[1][0]})", lambda f: p[0][1](f) & p[1][1](f))),
        both.map(lambda p: (f"({p[0][0]}) OR ({p[1][0]})", lambda f: p[0][1](f) | p[1][1](f))),
    )


conditions = st.recursive(leaves(), combine, max_leaves=5)


@given(rows, conditions)
def test_filters_return_the_same_rows_as_pandas(
    data: list[dict[str, Any]], condition: Condition
) -> None:
    text, keep = condition
    frame = pd.DataFrame(data, columns=["i", "s", "b"]).astype(
        {"i": "Int64", "s": "string", "b": "boolean"}
    )
    table = pa.Table.from_pylist(data, to_arrow_schema(SCHEMA.select(["i", "s", "b"])))
    expected = [row for row, kept in zip(data, keep(frame).fillna(False), strict=True) if kept]

    assert table.filter(to_arrow_expression(parse_filter(text, SCHEMA))).to_pylist() == expected


def kept(text: str, column: str, values: list[Any]) -> list[Any]:
    table = pa.Table.from_pylist(
        [{column: value} for value in values], to_arrow_schema(SCHEMA.select([column]))
    )
    rows: list[Any] = table.filter(to_arrow_expression(parse_filter(text, SCHEMA)))[
        column
    ].to_pylist()
    return rows


@pytest.mark.parametrize(
    ("text", "column", "values", "expected"),
    [
        ("day >= '2026-01-02'", "day", [date(2026, 1, 1), date(2026, 1, 2)], [date(2026, 1, 2)]),
        ("day = DATE '2026-01-02'", "day", [date(2026, 1, 2), None], [date(2026, 1, 2)]),
        (
            "at < TIMESTAMP '2026-01-01 12:00:00'",
            "at",
            [datetime(2026, 1, 1, 11, 59, 59, 999000), datetime(2026, 1, 1, 12)],
            [datetime(2026, 1, 1, 11, 59, 59, 999000)],
        ),
        ("clock = '12:30:00'", "clock", [datetime(1, 1, 1, 12, 30).time(), None], [datetime(1, 1, 1, 12, 30).time()]),
        ("price > 1.50", "price", [Decimal("1.50"), Decimal("1.51")], [Decimal("1.51")]),
        ("price in (1.5, -2)", "price", [Decimal("1.50"), Decimal(-2)], [Decimal("1.50"), Decimal(-2)]),
        ("raw = 'ab'", "raw", [b"ab", b"abc"], [b"ab"]),
        ("d < -1.5e3", "d", [-1501.0, -1500.0, None], [-1501.0]),
        ("l = 9223372036854775807", "l", [2**63 - 1, 2**63 - 2], [2**63 - 1]),
        ("l > -9223372036854775808", "l", [-(2**63), 0], [0]),
        ("i = '1'", "i", [1, 2], [1]),
        ("i = 1.0", "i", [1, 2], [1]),
        ("i > -2L", "i", [-2, -1], [-1]),
        ("isnan(d) or d = 0.1", "d", [0.1, 0.5, None], [0.1]),
        ("not isnan(d)", "d", [0.1, float("nan"), None], [0.1]),
        ("d < 1e-300", "d", [0.0, 1.0], [0.0]),
        ("at = CAST('2026-01-02' AS DATE)", "at", [datetime(2026, 1, 2), datetime(2026, 1, 2, 1)], [datetime(2026, 1, 2)]),
        ("clock = TIME '12:30:00'", "clock", [datetime(1, 1, 1, 12, 30).time(), None], [datetime(1, 1, 1, 12, 30).time()]),
        ("b = 1", "b", [True, False, None], [True]),
        ("`odd name` = 1", "odd name", [1, 2], [1]),
        ("b = false", "b", [True, False, None], [False]),
        ("not b", "b", [True, False, None], [False]),
        ("s like '_b%'", "s", ["ab", "b", "xbz", "a\nb", None], ["ab", "xbz"]),
        ("s not like 'a%'", "s", ["ab", "b", None], ["b"]),
    ],
)  # fmt: skip
def test_literals_are_converted_to_the_column_type(
    text: str, column: str, values: list[Any], expected: list[Any]
) -> None:
    assert kept(text, column, values) == expected


@pytest.mark.parametrize(
    "text", ["moment = '2026-01-01 02:00:00'", "moment = '2026-01-01T03:00:00+01:00'"]
)
def test_timestamps_without_a_time_zone_are_utc(text: str) -> None:
    moments = [pd.Timestamp(f"2026-01-01 0{hour}:00", tz="UTC") for hour in (1, 2, 3)]
    assert kept(text, "moment", moments) == [moments[1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a valid SQL condition"),
        ("i =", "not a valid SQL condition"),
        ("i = 1 AND", "not a valid SQL condition"),
        ("i = 'unfinished", "not a valid SQL condition"),
        ("i = 1; i = 2", "is not supported"),
        ("nope = 1", "no column 'nope'"),
        ("i = 'one'", "'one' is not a value of column 'i'"),
        ("i = '1.5'", "is not a value of column 'i'"),
        ("day = 'yesterday'", "is not a value of column 'day'"),
        ("b = 7", "is not a value of column 'b'"),
        ("s = 7", "'7' is not a value of column 's'"),
        ("s < 10", "'10' is not a value of column 's'"),
        ("s = true", "'true' is not a value of column 's'"),
        ("clock = 10", "'10' is not a value of column 'clock'"),
        ("at = CAST('2026-01-01 12:00:00' AS DATE)", "is not a value of column 'at'"),
        ("price = CAST('1.9' AS INT)", "'1.9' is not a value of column 'price'"),
        ("day = TIMESTAMP '2026-01-02 01:00:00'", "is not a value of column 'day'"),
        ("d = 9007199254740993", "the nearest is 9.007199254740992e"),
        ("d = 1e400", "'1e400' is not a value of column 'd'"),
        ("i = INTERVAL '1' DAY", "is not a constant"),
        ("i = NULL", "use IS NULL"),
        ("i IN (1, NULL)", "use IS NULL"),
        ("i IN ()", "IN needs a list of values"),
        ("i IN (SELECT 1)", "is not supported"),
        ("i BETWEEN SYMMETRIC 2 AND 1", "is not supported"),
        ("s ILIKE 'a'", "is not supported"),
        ("i = l", "is not a constant"),
        ("i + 1 = 2", "is not a column"),
        ("upper(s) = 'A'", r"'UPPER\(s\)' is not a column"),
        ("1 = 1", "is not a column"),
        ("\"s\" = 'A'", "is not a column; quotation marks are for text, so write `s`"),
        ("s = 'it''s'", r"a quotation mark in a text is written \\'"),
        ("tags = 'a'", "column 'tags' is nested"),
        ("info.i = 1", "info.i"),
        ("i LIKE '1%'", "LIKE"),
        ("s ILIKE 'a%'", "is not supported"),
        ("s RLIKE 'a'", "is not supported"),
        ("i", "'true' is not a value of column 'i'"),
        ("SELECT 1", "is not supported"),
        ("DROP TABLE t", "is not supported"),
    ],
)
def test_unsupported_filters_are_refused_with_a_message(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_filter(text, SCHEMA)


@pytest.mark.slow
def test_a_long_filter_is_parsed_or_refused() -> None:
    """Users build filters from long key lists; a RecursionError would not explain the limit."""
    text = " OR ".join(f"i = {number}" for number in range(3000))
    try:
        predicate = parse_filter(text, SCHEMA)
    except PaimonError:
        return
    table = pa.table({"i": pa.array([5, 4000], pa.int32())})
    assert table.filter(to_arrow_expression(predicate))["i"].to_pylist() == [5]


def test_a_filter_can_be_restricted_to_some_columns() -> None:
    predicate = parse_filter("i = 1 AND (s = 'a' OR l = 2) AND NOT b", SCHEMA)

    assert collect_columns(predicate) == {"i", "s", "l", "b"}
    restricted = restrict_to_columns(predicate, {"i", "s"})
    assert restricted is not None
    assert collect_columns(restricted) == {"i"}
    assert restrict_to_columns(predicate, {"day"}) is None
