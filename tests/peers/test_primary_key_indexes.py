"""Java 2.0 filters by indexed columns of tables that both implementations write and compact."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.golden import GOLDEN, copy_warehouse
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
COLUMNS = {
    "s": "STRING",
    "i": "INT",
    "l": "BIGINT",
    "t": "TINYINT",
    "h": "SMALLINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "o": "BOOLEAN",
    "m": "DECIMAL(10, 2)",
    "a": "DATE",
    "u": "TIME",
    "x": "TIMESTAMP(3)",
    "y": "TIMESTAMP(6)",
    "z": "TIMESTAMP(0)",
    "w": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "c": "CHAR(3)",
}


def records(lines: list[str]) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return sorted(({**row, "_kind": None} for row in rows), key=str)


def index_files(table: Table) -> dict[str, str]:
    latest = table.stores.snapshots.latest()
    entries = table.stores.manifests.read_index_entries(latest)
    return {e.file_name: e.index_type for e in entries if e.source_meta is not None}


def assert_filters(java20: Peer, warehouse: Path, table: Table) -> None:
    rows = records(java20._oracle("dump", warehouse, "db.t"))
    assert len(rows) == table.scan().to_arrow().num_rows
    values = [("name", "new"), ("name", "newer"), *(("c", row["c"]) for row in rows[:3])]
    for column, value in values:
        found = java20._oracle("rows-where", warehouse, "db.t", column, "=", json.dumps(value))
        assert records(found) == [row for row in rows if row[column] == value]


def append(table: Table, rows: list[dict[str, Any]]) -> None:
    kinds = {"k": pa.int32(), "name": pa.string(), "v": pa.int64(), "c": pa.int32()}
    table.append(pa.Table.from_pylist(rows, pa.schema(list(kinds.items()))))


def write_by_java(java20: Peer, warehouse: Path, rows: list[dict[str, Any]], file: Path) -> None:
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    java20._oracle("write", warehouse, "db.t", str(file))


def test_both_build_indexes_in_turn(java20: Peer, tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "pk_indexes", tmp_path / "w")
    table = Catalog(str(warehouse)).table("db.t")
    keys = table.scan().to_arrow()["k"].to_pylist()

    rows = [{"k": k, "name": "new", "v": k, "c": k % 3} for k in [*keys[:20], *range(4711, 4741)]]
    append(table, rows)
    compact(table, EXECUTOR, strategy="full")
    ours = index_files(table)
    assert set(ours.values()) == {"btree", "bitmap"}
    assert_filters(java20, warehouse, table)

    newer = [{**row, "name": "newer"} for row in rows[:20]]
    write_by_java(java20, warehouse, newer, tmp_path / "rows.jsonl")
    assert index_files(table) == ours  # Java accepts the index files of the level
    java20._oracle("compact", warehouse, "db.t")
    theirs = index_files(table)
    assert set(theirs.values()) == {"btree", "bitmap"}
    assert not set(ours) & set(theirs)
    assert_filters(java20, warehouse, table)

    compact(table, EXECUTOR, strategy="minor")
    assert index_files(table) == theirs
    append(table, [{**row, "name": "newer", "c": 7} for row in rows[20:30]])
    compact(table, EXECUTOR, strategy="full")
    assert not set(theirs) & set(index_files(table))
    assert_filters(java20, warehouse, table)
    assert java20.check(warehouse, "db.t") == []
    assert check(table, deep=True).findings == ()


def make_rows(table: Table, count: int) -> pa.Table:
    random, start = np.random.default_rng(7), datetime(1965, 1, 1, 3, 4, 5)
    floats = [0.0, -0.0, float("inf"), -float("inf"), 1.5, -2.25]

    def row(key: int) -> dict[str, Any]:
        n = int(random.integers(0, count // 3))
        seconds = timedelta(seconds=n * 86_399)
        values: dict[str, Any] = {
            "s": f"text {n} é" if n % 7 else "",
            "i": n * 7919 - 2**31,
            "l": n * 10**15 - 2**62,
            "t": n % 256 - 128,
            "h": n % 65536 - 32768,
            "f": floats[n % 6] if n % 3 else n / 8,
            "d": floats[n % 6] if n % 3 else -n / 16,
            "o": n % 2 == 0,
            "m": Decimal(n - 200) / 100,
            "a": date(1960, 1, 1) + timedelta(days=n),
            "u": time(n % 24, n % 60, 1),
            "x": start + seconds + timedelta(milliseconds=n),
            "y": start + seconds + timedelta(microseconds=n),
            "z": start + seconds,
            "w": (start + seconds + timedelta(microseconds=n)).replace(tzinfo=UTC),
            "c": f"{n % 1000:03}",
        }
        nulls = {name for name in values if random.random() < 0.1}
        return {"k": key} | {name: None if name in nulls else v for name, v in values.items()}

    schema = table.scan().to_arrow().schema
    return pa.Table.from_pylist([row(key) for key in range(count)], schema)


@pytest.mark.parametrize("kind", ["btree", "bitmap"])
def test_java_filters_columns_of_all_types_by_our_indexes(
    java20: Peer, tmp_path: Path, kind: str
) -> None:
    warehouse = tmp_path / "w"
    columns = ", ".join(["k INT", *(f"{name} {kind_}" for name, kind_ in COLUMNS.items())])
    options = {
        "bucket": "1",
        "deletion-vectors.enabled": "true",
        f"pk-{kind}.index.columns": ",".join(COLUMNS),
    }
    table = Catalog(str(warehouse)).create_table(
        "db.t", columns, primary_key=["k"], options=options
    )
    rows = make_rows(table, 1_200)
    table.append(rows)
    table.append(rows.slice(0, 400))  # the deletion vector of the first file deletes these rows
    compact(table, EXECUTOR, strategy="full")
    names = index_files(table)
    assert set(names.values()) == {kind}
    assert len(names) == len(COLUMNS)

    expected = records(java20._oracle("dump", warehouse, "db.t"))
    assert len(expected) == 1_200
    for column in COLUMNS:
        values = [row[column] for row in expected if row[column] is not None]
        value = values[len(values) // 2]

        def where(op: str, *argument: str, column: str = column) -> list[dict[str, Any]]:
            found = java20._oracle("rows-where", warehouse, "db.t", column, op, *argument)
            return records(found)

        equal = where("=", json.dumps(value))
        assert equal == [row for row in expected if row[column] == value]
        nulls = where("isnull")
        assert nulls == [row for row in expected if row[column] is None]
        less, more = where("<", json.dumps(value)), where(">", json.dumps(value))
        assert len(less) + len(more) + len(equal) + len(nulls) == len(expected)
        assert not [row for row in less if row in equal]
