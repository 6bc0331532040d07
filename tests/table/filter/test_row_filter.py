"""Filters test values inside of VARIANT columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch import col
from paimon_orch.errors import InputError
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.table import Table

VALUES = [
    {"age": 3, "name": {"first": "Ada"}, "tags": ["x", 1.5]},
    {"age": "7"},
    {"age": None, "name": "Bob"},
    [1, 2],
    None,
    {"age": 12, "name": {"first": "Ada"}},
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with two versions of each row."""
    created = new_table(tmp_path, "k INT, v VARIANT")
    texts = [json.dumps(value) for value in VALUES]
    created.upsert(table_of("k v", [(k, '{"age": 100}') for k in range(len(VALUES))]))
    created.upsert(table_of("k v", list(enumerate(texts))))
    return created


@pytest.mark.parametrize(
    ("text", "expression", "keys"),
    [
        ("variant_get(v, '$.age', 'int') > 3", col("v").variant_get("$.age", "int") > 3, [1, 5]),
        (
            "4 > VARIANT_GET(v, '$.age', 'BIGINT')",
            col("v").variant_get("$.age", "bigint") < 4,
            [0],
        ),
        (
            "variant_get(v, '$.name.first', 'string') is not null",
            col("v").variant_get("$.name.first", "string").is_not_null(),
            [0, 5],
        ),
        (
            "variant_get(v, '$.tags[1]', 'decimal(4, 2)') in (1.5, 2)",
            col("v").variant_get("$['tags'][1]", "decimal(4, 2)").is_in([1.5, 2]),
            [0],
        ),
        (
            "not variant_get(v, '$.age', 'string') like '1%' or k = 3",
            ~col("v").variant_get("$.age", "string").like("1%") | (col("k") == 3),
            [0, 1, 3],
        ),
        (
            "variant_get(v, '$[0]', 'int') between 1 and 2",
            col("v").variant_get("$[0]", "int").between(1, 2),
            [3],
        ),
    ],
)
def test_values_are_tested_at_their_path(
    table: Table, text: str, expression: Predicate, keys: list[int]
) -> None:
    assert [key for (key,) in rows_of(table, columns=["k"], filter=text)] == keys
    assert [key for key, _ in rows_of(table, filter=expression)] == keys


def test_rows_are_deleted_by_a_value_in_a_variant(table: Table) -> None:
    delete(table, InProcessExecutor(), "variant_get(v, '$.age', 'int') < 10")
    assert [key for (key,) in rows_of(table, columns=["k"])] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("variant_get(v, '$.age') = 1", "form variant_get"),
        ("variant_get(v, k, 'int') = 1", "form variant_get"),
        ("variant_get(k, '$.age', 'int') = 1", "column 'k' is not a VARIANT"),
        ("variant_get(v, 'age', 'int') = 1", "path 'age' is not of the form"),
        ("variant_get(v, '$.age', 'array<int>') = 1", "filters do not support this type"),
        ("variant_get(v, '$.age', 'variant') is null", "filters do not support this type"),
        ("variant_get(v, '$.age', 'int') = 'x'", 'is not a value of column "variant_get'),
        ("variant_get(v, '$.name', 'int') = 1", "cannot be read as INT"),
        ("unknown(v) = 1", "is not a column"),
    ],
)
def test_errors_contain_the_call(table: Table, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        table.scan(filter=text).to_arrow()


def test_a_value_has_one_path() -> None:
    with pytest.raises(InputError, match="use one path"):
        col("v").variant_get("$.a", "int").variant_get("$.b", "int")
