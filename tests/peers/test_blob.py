"""BLOB columns are exchanged with Java 2.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.golden import GOLDEN, canonical_rows, copy_warehouse
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table

EVOLUTION = {"bucket": "-1", "row-tracking.enabled": "true", "data-evolution.enabled": "true"}


def rows_of_java(java20: Peer, root: Path, name: str = "db.t") -> list[list[Any]]:
    lines = java20._oracle("dump", root, name)
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return sorted([v for k, v in record.items() if k != "_kind"] for record in records)


def our_rows(table: Table) -> list[list[Any]]:
    return sorted(canonical_rows(table.scan().to_arrow()))


def test_java_reads_the_blobs_that_we_write_and_keep(java20: Peer, tmp_path: Path) -> None:
    options = {**EVOLUTION, "target-file-row-num": "6", "blob.target-file-size": "500 b"}
    table = Catalog(str(tmp_path)).create_table("db.t", "k INT, a BLOB, b BLOB", options=options)
    for start in (0, 10):
        keys = range(start, start + 10)
        a = [None if k % 3 == 0 else bytes([k]) * 10 * k for k in keys]
        b = [b"" if k == 7 else b"b%d" % k for k in keys]
        columns = {"k": pa.array(keys, pa.int32()), "a": pa.array(a, pa.binary()), "b": b}
        table.append(pa.table(columns))
    assert len(our_rows(table)) == 20

    assert rows_of_java(java20, tmp_path) == our_rows(table)
    compact(table, InProcessExecutor(), strategy="full")
    assert rows_of_java(java20, tmp_path) == our_rows(table)
    assert java20.check(tmp_path, "db.t") == []


def test_java_reads_compacted_tables_of_java(java20: Peer, tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "blob", tmp_path / "w")
    for name in ("db.t", "db.t_two"):
        table = Catalog(str(warehouse)).table(name)
        before = our_rows(table)
        compact(table, InProcessExecutor(), strategy="full")
        assert rows_of_java(java20, warehouse, name) == before == our_rows(table)
        assert java20.check(warehouse, name) == []
