"""Java 2.0 filters by global indexes that we built and by its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.golden import GOLDEN, copy_warehouse
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.maintenance.create_global_index import create_global_index
from paimon_orch.table.schema_change.schema_changes import SetOption

# With this mode Java Paimon does not read rows without an index.
FAST = [
    SetOption("global-index.search-mode", "fast"),
    SetOption("scalar-index.search-mode", "fast"),
]


@pytest.mark.parametrize("index_type", ["btree", "bitmap"])
def test_java_finds_rows_by_our_indexes(java20: Peer, tmp_path: Path, index_type: str) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "global_index", tmp_path / "w")
    catalog = Catalog(str(warehouse))
    catalog.alter_table("db.t", FAST)
    table = catalog.table("db.t")
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    create_global_index(table, "id", index_type="btree")
    create_global_index(table, "v", index_type=index_type)

    for column, value in (("id", 70), ("v", rows[70]["v"]), ("v", rows[3]["v"])):
        found = java20._oracle("rows-where", warehouse, "db.t", column, "=", json.dumps(value))
        ids = [json.loads(line)["id"] for line in found if line.startswith("{")]
        assert ids == [n for n, row in rows.items() if row[column] == value]
