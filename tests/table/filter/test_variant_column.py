"""Scans return values inside of VARIANT columns as columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import run_command
from support.golden import GOLDEN
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog, variant_get
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path, "p STRING, k INT, v VARIANT", key=("p", "k"), partition_by=("p",))
    values = [{"a": 1, "b": {"c": "x, y"}}, {"a": "2"}, None, [1]]
    rows = [("p", k, json.dumps(value)) for k, value in enumerate(values)]
    created.upsert(table_of("p k v", [("p", 1, '{"a": 9}')]))
    created.upsert(table_of("p k v", rows))
    return created


@pytest.mark.parametrize(("path", "kind"), [("$.a", "INT"), ("$.c.d", "DOUBLE"), ("$", "STRING")])
def test_a_column_has_the_values_at_its_path(path: str, kind: str) -> None:
    golden = Catalog(str(GOLDEN / "java-2.0" / "variant" / "warehouse")).table("db.t_shredded")
    whole = golden.scan(["va"]).to_arrow()["va"]
    call = f"variant_get(va, '{path}', '{kind}')"

    scan = golden.scan(["id", f"{call} AS value", "s"])
    assert scan.to_arrow()["value"].equals(variant_get(whole, path, kind))
    assert scan.to_arrow().column_names == ["id", "value", "s"]
    with_whole = golden.scan([call, "va"]).to_arrow()
    assert with_whole["va"].equals(whole)
    assert with_whole[call].equals(variant_get(whole, path, kind))


def test_columns_can_be_combined_with_a_filter_an_order_and_a_limit(table: Table) -> None:
    scan = table.scan(
        ["variant_get(v, '$.a', 'BIGINT') as a"],
        "variant_get(v, '$.a', 'STRING') is not null",
        order_by="k desc",
        limit=2,
    )
    assert scan.to_arrow()["a"].to_pylist() == [2, 1]
    assert rows_of(table, columns=["k", "Variant_Get(v, '$[0]', 'int')"]) == [
        (0, None),
        (1, None),
        (2, None),
        (3, 1),
    ]


def test_the_command_reads_them(table: Table, tmp_path: Path) -> None:
    columns = "k, variant_get(v, '$.b.c', 'string') as c,variant_get(v, '$.a', 'decimal(4, 1)') a"
    output = run_command(
        "read", str(tmp_path), "db.t", "--columns", columns, "--limit", "1", "--format", "jsonl"
    )
    assert json.loads(output) == {"k": 0, "c": "x, y", "a": "1.0"}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (["variant_get(v, '$.a')"], "is not of the form"),
        (["variant_get(v, '$.a', 'int') + 1"], "is not of the form"),
        (["variant_get(v, '$.a'"], "is not of the form"),
        (["variant_get(k, '$.a', 'int')"], "'k' is not a VARIANT"),
        (["variant_get(v, '$.a', 'array<int>')"], "cannot be read as array<int>"),
        (["variant_get(v, 'a', 'int')"], "is not of the form"),
        (["variant_get(v, '$.a', 'int') as k"], "two columns have the name 'k'"),
        (["variant_get(v, '$.a', 'int') a", "variant_get(v, '$.b', 'int') a"], "the name 'a'"),
        (["variant_get(v, '$.b', 'int')"], "cannot be read as INT"),
    ],
)
def test_errors_contain_the_call(table: Table, columns: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        table.scan(columns).to_arrow()


def test_a_column_of_the_table_with_the_text_of_a_call_is_read(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, `variant_get(k)` INT")
    table.upsert(table_of("k variant_get(k)", [(1, 2)]))
    assert rows_of(table, columns=["variant_get(k)"]) == [(2,)]
    with pytest.raises(NotFoundError, match="there is no column 'x'"):
        table.scan(["variant_get(x, '$', 'int')"])
