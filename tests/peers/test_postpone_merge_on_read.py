"""Merge on read of postpone buckets gives the rows that Java Paimon 2.0 reads after compaction."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import (
    GOLDEN,
    assert_rows_equal,
    canonical_rows,
    copy_warehouse,
    records_to_rows,
)
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.table.schema_change.schema_changes import SetOption


@pytest.mark.parametrize("folder", ["postpone", "postpone_merge_on_read"])
def test_a_merge_on_read_of_postponed_rows_returns_the_rows_of_a_compaction_by_java(
    java20: Peer, folder: str, tmp_path: Path
) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / folder, tmp_path / "w")
    catalog = Catalog(str(warehouse))
    for name in catalog.tables("db"):
        table = f"db.{name}"
        catalog.alter_table(table, [SetOption("postpone.merge-on-read", "true")])
        ours = catalog.table(table).scan().to_arrow()
        for _ in range(2):  # the first compaction moves rows to level 0
            java20._oracle("compact", warehouse, table)
        lines = records_to_rows(java20.read(warehouse, table), ours.column_names)
        assert_rows_equal(lines, canonical_rows(ours), [str(f.type) for f in ours.schema])
