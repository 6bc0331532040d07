"""Java 2.0 reads the same rows from our system tables."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.peers.peers import Peer, Record
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with deletion vectors, a branch, consumers and aggregate functions."""
    table = new_table(
        tmp_path,
        "p STRING, k INT COMMENT 'the key', v BIGINT, tags ARRAY<STRING>",
        key=("p", "k"),
        partition_by=("p",),
        deletion_vectors__enabled="true",
        merge_engine="aggregation",
        fields__v__aggregate_function="sum",
        fields__tags__aggregate_function="collect",
        fields__tags__distinct="true",
    )
    table.upsert(table_of("p k v tags", [("a", k, k, ["x"]) for k in range(6)] + [("b", 1, 1, [])]))
    step.compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("p k v tags", [("a", 1, 10, ["y"]), ("a", 4, None, None)]))
    step.compact(table, InProcessExecutor(), strategy="minor")
    table.tags.create("first", 1)
    table.branches.create("dev", tag="first")
    table.stores.open_consumers().record("reader", 2)
    return table


@pytest.mark.parametrize("name", ["tables", "partitions", "all_table_options"])
def test_java_reads_the_same_rows_of_a_catalog(
    table: Table, tmp_path: Path, java20: Peer, name: str
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("other.log", "k INT, d DATE", partition_by=["d"]).append(
        table_of("k d", [(1, date(2026, 1, 31)), (2, None)])
    )
    ours = normalize(catalog.system(name).scan().to_arrow().to_pylist())
    theirs = normalize(java20.read(tmp_path, f"sys.{name}"))
    assert theirs == ours
    assert len(ours) > 1


def normalize(rows: list[Record]) -> list[dict[str, Any]]:
    """Return the rows sorted, with the multimaps of options in one order."""
    for row in rows:
        for name in ("function", "function_options"):
            if name in row:
                row[name] = sorted(row[name].strip("[]").split(", "))
        row.pop("create_time", None)
    return sorted(rows, key=repr)


@pytest.mark.parametrize(
    "name",
    ["branches", "consumers", "aggregation_fields", "file_key_ranges", "table_indexes", "binlog"],
)
def test_java_reads_the_same_rows(table: Table, tmp_path: Path, java20: Peer, name: str) -> None:
    ours = normalize(table.system(name).scan().to_arrow().to_pylist())
    theirs = normalize(java20.read(tmp_path, f"db.t${name}"))
    assert theirs == ours
    assert ours
