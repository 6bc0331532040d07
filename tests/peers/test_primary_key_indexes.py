"""Java 2.0 filters by indexed columns of tables that both implementations write and compact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.golden import GOLDEN, copy_warehouse
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()


def records(lines: list[str]) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return sorted(({**row, "_kind": None} for row in rows), key=str)


def append(table: Table, rows: list[dict[str, Any]]) -> None:
    kinds = {"k": pa.int32(), "name": pa.string(), "v": pa.int64(), "c": pa.int32()}
    table.append(pa.Table.from_pylist(rows, pa.schema(list(kinds.items()))))


def index_types(table: Table) -> set[str]:
    latest = table.stores.snapshots.latest()
    entries = table.stores.manifests.read_index_entries(latest)
    return {entry.index_type for entry in entries if entry.source_meta is not None}


def assert_filters(java20: Peer, warehouse: Path, table: Table) -> None:
    rows = records(java20._oracle("dump", warehouse, "db.t"))
    assert len(rows) == table.scan().to_arrow().num_rows
    values = [("name", "new"), ("name", "newer"), *(("c", row["c"]) for row in rows[:3])]
    for column, value in values:
        found = java20._oracle("rows-where", warehouse, "db.t", column, "=", json.dumps(value))
        assert records(found) == [row for row in rows if row[column] == value]


def test_filters_by_indexed_columns_find_all_rows(java20: Peer, tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "pk_indexes", tmp_path / "w")
    table = Catalog(str(warehouse)).table("db.t")
    keys = table.scan().to_arrow()["k"].to_pylist()
    rows = [{"k": k, "name": "new", "v": k, "c": k % 3} for k in [*keys[:20], *range(4711, 4741)]]
    append(table, rows)
    compact(table, EXECUTOR, strategy="full")
    assert index_types(table) == set()
    assert_filters(java20, warehouse, table)

    file = tmp_path / "rows.jsonl"
    newer = [{**row, "name": "newer"} for row in rows[:20]]
    file.write_text("\n".join(json.dumps(row) for row in newer), encoding="utf-8")
    java20._oracle("write", warehouse, "db.t", str(file))
    java20._oracle("compact", warehouse, "db.t")
    assert index_types(table) == {"btree", "bitmap"}
    assert_filters(java20, warehouse, table)

    append(table, [{**row, "name": "newer", "c": 7} for row in rows[20:30]])
    assert index_types(table) == {"btree", "bitmap"}
    compact(table, EXECUTOR, strategy="minor")
    compact(table, EXECUTOR, strategy="full")
    assert_filters(java20, warehouse, table)
    assert java20.check(warehouse, "db.t") == []
    assert check(table, deep=True).findings == ()
