"""Literals of SQL that no column holds, binary literals, and LIKE with ESCAPE."""

import functools
import operator
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from support.tables import new_table

from paimon_orch import col
from paimon_orch.errors import InputError
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table.table import Table

ROWS = pa.table(
    {
        "id": pa.array([-3, -2, 2, 3, None], pa.int64()),
        "p": pa.array([Decimal("-1.23"), Decimal("1.22"), Decimal("1.23"), None, None]).cast(
            pa.decimal128(10, 2)
        ),
        "s": ["a%b", "a!b", "a_b", "a\\b", None],
        "b": pa.array([b"\x80", b"\x81", b"a", b"", None]),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    root: Path = tmp_path_factory.mktemp("lake")
    columns = "id BIGINT, p DECIMAL(10, 2), s STRING, b BYTES"
    table = new_table(root, columns, key=(), bucket="-1")
    table.append(ROWS)
    return table


@pytest.mark.sampled(6)
@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "=", "<>"])
@pytest.mark.parametrize(
    ("column", "number"),
    [
        ("id", "2.5"),
        ("id", "-2.5"),
        ("id", "2.0"),
        ("p", "1.225"),
        ("p", "-1.225"),
        ("p", "1.2300"),
        ("id", "99999999999999999999"),
        ("id", "-99999999999999999999.5"),
        ("id", "-9223372036854775808"),
        ("p", "123456789012"),
        ("p", "-123456789012.345"),
    ],
)
def test_numbers_that_a_column_cannot_hold_are_compared_exactly(
    table: Table, column: str, operator: str, number: str
) -> None:
    for condition in (
        f"{column} {operator} {number}",
        f"{number} {operator} {column}",
        f"NOT ({column} {operator} {number})",
        f"{column} IN ({number}, 3)",
        f"{column} NOT IN ({number})",
        f"{column} BETWEEN -2.1 AND {number}",
    ):
        assert ids_of(table, condition) == ids_of_duckdb(condition), condition


COMPARISONS: dict[str, Callable[[Any, Any], Predicate]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}


@pytest.mark.parametrize("column", ["id", "p"])
@pytest.mark.parametrize(
    "number",
    [2.5, np.float32(-2.5), 2, 1.225, -(2**63), 2**63, Decimal("-1.225"), 1e20, 123456789012],
    ids=repr,
)
def test_numbers_of_python_that_a_column_cannot_hold_are_compared_exactly(
    table: Table, column: str, number: float | Decimal
) -> None:
    text = f"{Decimal(str(number)):f}"
    for symbol, compare in COMPARISONS.items():
        test = compare(col(column), number)
        condition = f"{column} {symbol} {text}"
        assert ids_of(table, test) == ids_of_duckdb(condition), condition
        assert ids_of(table, ~test) == ids_of_duckdb(f"not {condition}"), condition
    for values, listed in (([number], text), ([number, 3], f"{text}, 3"), ([0.5, number], text)):
        test = col(column).is_in(values)
        assert ids_of(table, test) == ids_of_duckdb(f"{column} in ({listed})"), listed
        assert ids_of(table, ~test) == ids_of_duckdb(f"{column} not in ({listed})"), listed


def ids_of(table: Table, condition: str | Predicate) -> list[str]:
    rows = table.scan(["id", "p"], condition).to_arrow()
    return sorted(map(str, rows.to_pylist()))


@functools.cache
def open_duckdb() -> duckdb.DuckDBPyConnection:
    """Return one connection, because opening one takes longer than a query."""
    return duckdb.connect()


def ids_of_duckdb(condition: str) -> list[str]:
    relation = open_duckdb().from_arrow(ROWS).filter(condition).project("id, p")
    return sorted(map(str, relation.to_arrow_table().to_pylist()))


def test_a_constant_of_many_digits_keeps_them(table: Table) -> None:
    digits = "2." + "0" * 40 + "1"

    assert table.scan(["id"], f"id < {digits} AND id > -{digits}").to_arrow()["id"].to_pylist() == [
        -2,
        2,
    ]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("b = X'80'", [b"\x80"]),
        ("b >= x'80'", [b"\x80", b"\x81"]),
        ("b IN (X'81', 'a')", [b"\x81", b"a"]),
        ("b = X''", [b""]),
    ],
)
def test_a_binary_literal_is_hexadecimal(
    table: Table, condition: str, expected: list[bytes]
) -> None:
    assert table.scan(["b"], condition).to_arrow()["b"].to_pylist() == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s LIKE 'a!%b' ESCAPE '!'", ["a%b"]),
        ("s LIKE 'a!_%' ESCAPE '!'", ["a_b"]),
        ("s LIKE 'a!!b' ESCAPE '!'", ["a!b"]),
        ("s LIKE 'a\\\\b' ESCAPE '!'", ["a\\b"]),
        ("s NOT LIKE 'a!%b' ESCAPE '!'", ["a!b", "a_b", "a\\b"]),
        ("NOT (s LIKE '%!_%' ESCAPE '!')", ["a%b", "a!b", "a\\b"]),
    ],
)
def test_like_has_an_escape_character(table: Table, condition: str, expected: list[str]) -> None:
    assert table.scan(["s"], condition).to_arrow()["s"].to_pylist() == expected


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("s LIKE 'a!b' ESCAPE '!'", "must precede %, _ or itself"),
        ("s LIKE 'a!' ESCAPE '!'", "must precede %, _ or itself"),
        ("s LIKE 'a' ESCAPE 'xy'", "ESCAPE needs one character"),
        ("b = X'8'", "is not a constant"),
        ("s = X'80'", "is not a constant"),
        ("id >", "not a valid SQL condition: a value or a condition is missing. Line 1, Col: 4"),
        ("id = 1 AND", "a value or a condition is missing"),
    ],
)
def test_errors_name_no_class_of_the_parser(table: Table, condition: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        table.scan(filter=condition)

    assert message in str(caught.value)
    assert "sqlglot" not in str(caught.value)
