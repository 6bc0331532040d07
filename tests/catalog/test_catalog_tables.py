"""System tables of a whole catalog."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import run_command
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    table = new_table(tmp_path, "p STRING, k INT", key=("p", "k"), partition_by=("p",), bucket="2")
    table.upsert(table_of("p k", [("a b", 1), ("b", 2), ("b", 3)]))
    catalog = Catalog(str(tmp_path))
    catalog.create_table("other.log", "k INT")
    return catalog


def test_tables_are_listed(catalog: Catalog) -> None:
    rows = catalog.system("tables").scan().to_arrow().to_pylist()
    names = [(row["database_name"], row["table_name"]) for row in rows]
    assert names == [("db", "t"), ("other", "log")]
    assert [(row["partitioned"], row["primary_key"]) for row in rows] == [
        (True, True),
        (False, False),
    ]
    assert {row["table_type"] for row in rows} == {"table"}


def test_partitions_of_all_tables_are_listed(catalog: Catalog) -> None:
    scan = catalog.system("partitions").scan(
        ["partition_name", "record_count"], "table_name = 't'", order_by="record_count desc"
    )
    assert scan.to_arrow().to_pylist() == [
        {"partition_name": "p=b", "record_count": 2},
        {"partition_name": "p=a b", "record_count": 1},
    ]


def test_options_of_all_tables_are_listed(catalog: Catalog, tmp_path: Path) -> None:
    scan = catalog.system("all_table_options").scan(["table_name", "key", "value"])
    assert scan.to_arrow().to_pylist() == [
        {"table_name": "t", "key": "bucket", "value": "2"},
        {"table_name": "t", "key": "path", "value": str(tmp_path / "db.db" / "t")},
        {"table_name": "log", "key": "path", "value": str(tmp_path / "other.db" / "log")},
    ]


def test_the_command_reads_them(catalog: Catalog, tmp_path: Path) -> None:
    arguments = ("--columns", "table_name", "--limit", "1", "--format", "jsonl")
    output = run_command("read", str(tmp_path), "sys.tables", *arguments)
    assert json.loads(output) == {"table_name": "t"}
    with pytest.raises(NotFoundError, match=r"no system table sys\.views; the system tables are"):
        run_command("read", str(tmp_path), "sys.views")
    with pytest.raises(InputError, match="no snapshots"):
        run_command("read", str(tmp_path), "sys.tables", "--snapshot", "1")
