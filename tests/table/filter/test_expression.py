"""Filters built with ``col`` select the same rows as text filters and as a full scan."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import new_table, rows_of, table_of

from paimon_orch import col
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.types.predicate import And, Leaf, Not, Or, Predicate
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.table import Table

Holds = Callable[[dict[str, Any]], bool | None]
Condition = tuple[str, Predicate, Holds]
NUMBERS, TEXTS = st.integers(-2, 4), st.sampled_from(["", "a", "ab", "b", "it's", "ü%"])
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda left_value, right_value: left_value == right_value,
    "<>": lambda left_value, right_value: left_value != right_value,
    "<": lambda left_value, right_value: left_value < right_value,
    "<=": lambda left_value, right_value: left_value <= right_value,
    ">": lambda left_value, right_value: left_value > right_value,
    ">=": lambda left_value, right_value: left_value >= right_value,
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Return a table with all combinations of values, in several files, buckets and partitions."""
    created = new_table(
        tmp_path_factory.mktemp("table"),
        "p INT, k INT, s STRING",
        key=("p", "k"),
        partition_by=["p"],
        bucket="2",
    )
    texts = [None, "", "a", "ab", "b", "it's", "ü%"]
    for p in (0, 1, 2):
        rows = [(p, k, texts[(k + p) % len(texts)]) for k in range(9)]
        created.upsert(table_of("p k s", rows))
        created.upsert(table_of("p k s", [(p, 3, "new"), (p, 20, None)]))
    return created


def literal(value: object) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "\\'") + "'"


def unknown_if_null(test: Callable[[Any], bool], name: str) -> Holds:
    return lambda row: None if row[name] is None else test(row[name])


@st.composite
def leaves(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from(["p", "k", "s"]))
    values = TEXTS if name == "s" else NUMBERS
    match draw(st.sampled_from(["compare", "in", "not in", "between", "like", "null", "not null"])):
        case "compare":
            op, value = draw(st.sampled_from(sorted(OPERATORS))), draw(values)
            test = OPERATORS[op]
            return (
                f"{name} {op} {literal(value)}",
                test(col(name), value),
                unknown_if_null(lambda stored_value: test(stored_value, value), name),
            )
        case "in" | "not in" as op:
            options = draw(st.lists(values, min_size=1, max_size=3))
            column = col(name)
            expression = column.is_in(options) if op == "in" else column.not_in(options)
            text = f"{name} {op.upper()} ({', '.join(map(literal, options))})"
            return (
                text,
                expression,
                unknown_if_null(
                    lambda stored_value: (stored_value in options) == (op == "in"), name
                ),
            )
        case "between":
            low, high = draw(values), draw(values)
            text = f"{name} BETWEEN {literal(low)} AND {literal(high)}"
            return (
                text,
                col(name).between(low, high),
                unknown_if_null(lambda v: low <= v <= high, name),
            )
        case "like":
            pattern = draw(st.sampled_from(["a%", "%b", "_", "%", "it's", "a_"]))
            parts = {"%": ".*", "_": "."}
            regex = "".join(parts.get(c) or re.escape(c) for c in pattern)
            text = f"s LIKE {literal(pattern)}"
            return (
                text,
                col("s").like(pattern),
                unknown_if_null(lambda v: bool(re.fullmatch(regex, v, re.DOTALL)), "s"),
            )
        case "null":
            return f"{name} IS NULL", col(name).is_null(), lambda row: row[name] is None
    return f"{name} IS NOT NULL", col(name).is_not_null(), lambda row: row[name] is not None


def conjunction(left: Condition, right: Condition) -> Condition:
    def holds(row: dict[str, Any]) -> bool | None:
        parts = left[2](row), right[2](row)
        return False if False in parts else None if None in parts else True

    return f"({left[0]}) AND ({right[0]})", left[1] & right[1], holds


def disjunction(left: Condition, right: Condition) -> Condition:
    def holds(row: dict[str, Any]) -> bool | None:
        parts = left[2](row), right[2](row)
        return True if True in parts else None if None in parts else False

    return f"({left[0]}) OR ({right[0]})", left[1] | right[1], holds


def negation(condition: Condition) -> Condition:
    def holds(row: dict[str, Any]) -> bool | None:
        result = condition[2](row)
        return None if result is None else not result

    return f"NOT ({condition[0]})", ~condition[1], holds


conditions = st.recursive(
    leaves(),
    lambda inner: (
        st.builds(conjunction, inner, inner)
        | st.builds(disjunction, inner, inner)
        | st.builds(negation, inner)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(condition=conditions)
def test_text_and_expression_filters_return_the_rows_of_a_full_scan(
    table: Table, condition: Condition
) -> None:
    text, expression, holds = condition
    everything = table.scan().to_arrow().to_pylist()
    expected = sorted((row["p"], row["k"]) for row in everything if holds(row))

    assert [row[:2] for row in rows_of(table, filter=expression)] == expected
    assert [row[:2] for row in rows_of(table, filter=text)] == expected
    assert (
        bind_filter(expression, table.load().schema) == bind_filter(text, table.load().schema)
        or "AND" in text
    )


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("BIGINT", 5, "5"),
        ("DOUBLE", 2, "2"),
        ("DECIMAL(10, 2)", Decimal("1.5"), "1.5"),
        ("DECIMAL(10, 2)", 3, "3"),
        ("DECIMAL(10, 2)", 0.1, "0.1"),
        ("DATE", dt.date(2024, 5, 14), "'2024-05-14'"),
        ("DATE", "2024-05-14", "'2024-05-14'"),
        ("TIME(3)", dt.time(12, 30), "'12:30:00'"),
        ("TIMESTAMP(3)", dt.datetime(2024, 5, 14, 1, 2, 3), "'2024-05-14 01:02:03'"),
        ("TIMESTAMP_LTZ(3)", "2024-05-14 01:02:03", "'2024-05-14 01:02:03'"),
        ("TIMESTAMP_LTZ(3)", dt.datetime(2024, 5, 14, tzinfo=dt.UTC), "'2024-05-14 00:00:00'"),
        ("BYTES", b"abc", "'abc'"),
        ("BOOLEAN", True, "true"),
        ("STRING", pa.scalar("x"), "'x'"),
        ("INT", 3_000_000_000, "3000000000"),
        ("TINYINT", 1.5, "1.5"),
        ("BIGINT", -(2**70), f"-{2**70}"),
        ("SMALLINT", pa.scalar(40_000, pa.uint16()), "40000"),
        ("DECIMAL(9, 2)", 1.199, "1.199"),
        ("DECIMAL(2, 0)", np.float32(0.5), "0.5"),
    ],
)
def test_constants_are_converted_to_the_column_type(
    tmp_path: Path, column: str, value: object, text: str
) -> None:
    schema = new_table(tmp_path, f"k INT, c {column}").load().schema

    assert bind_filter(col("c") == value, schema) == bind_filter(f"c = {text}", schema)


@pytest.mark.parametrize("value", ["one", "3000000000", [1], object(), dt.date(2024, 1, 1), True])
def test_constants_that_the_column_cannot_store_are_refused(tmp_path: Path, value: object) -> None:
    table = new_table(tmp_path, "k INT, r ROW<x INT>")

    with pytest.raises(InputError):
        table.scan(filter=col("k") == value)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("DATE", dt.datetime(2024, 5, 14, 12)),
        ("BOOLEAN", 2),
        ("TIME(3)", dt.time(1, 2, 3, 500)),
        ("TIME(3)", "01:02:03.0005"),
    ],
)
def test_constants_are_not_rounded_to_the_column_type(
    tmp_path: Path, column: str, value: object
) -> None:
    """Rounded, ``c < noon`` would miss rows of the day."""
    with pytest.raises(InputError, match="is not a value of column 'c'"):
        new_table(tmp_path, f"k INT, c {column}").scan(filter=col("c") < value)


def test_columns_are_checked_as_in_text_filters(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, r ROW<x INT>")

    for condition in ("r IS NULL", col("r").is_null()):
        with pytest.raises(InputError, match="nested"):
            table.scan(filter=condition)
    for condition in ("zz = 1", col("zz") == 1):
        with pytest.raises(NotFoundError, match="zz"):
            table.scan(filter=condition)
    for condition in ("k LIKE 'a'", col("k").like("a")):
        with pytest.raises(InputError, match="LIKE needs"):
            table.scan(filter=condition)
    with pytest.raises(InputError, match="an expression of col"):
        table.scan(filter=col("k"))  # type: ignore[arg-type]


def test_expressions_that_python_would_misinterpret_are_refused() -> None:
    first, second = col("a") == 1, col("b") == 2
    with pytest.raises(InputError, match="combine tests with & "):
        bool(first and second)
    with pytest.raises(InputError, match="combine tests with & "):
        bool(1 < col("a") < 5)
    with pytest.raises(InputError, match="in parentheses"):
        _ = 1 & col("b").is_in([2])
    with pytest.raises(InputError, match="in parentheses"):
        _ = first & 1  # type: ignore[operator]
    with pytest.raises(InputError, match="is_null"):
        _ = col("a") == None  # noqa: E711
    with pytest.raises(InputError, match="not one value"):
        col("a").is_in("abc")


def test_expressions_are_predicates() -> None:
    first, second = col("a") == 1, col("b").is_null()

    assert isinstance(first, Leaf)
    assert (first & second, first | second, ~first) == (
        And((first, second)),
        Or((first, second)),
        Not(first),
    )
