"""Java Paimon 0.9 still filters by bitmap indexes after our writes, rewrites and compactions."""

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
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact


@pytest.mark.parametrize("name", ["db.t_emb", "db.t_ext"])
def test_java_0_9_uses_the_bitmap_indexes_that_we_wrote(
    referee: Peer, tmp_path: Path, name: str
) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-0.9" / "fileindex_bitmap", tmp_path / "w")
    table = Catalog(str(warehouse)).table(name)
    table.append(table.scan(limit=9).to_arrow())
    compact(table, InProcessExecutor(), strategy="full")

    value = table.scan(filter="b IS NOT NULL", limit=1).to_arrow().column("b")[0].as_py()
    ours = table.scan(filter=f"b = {value}").to_arrow()
    rows = referee.find(warehouse, ["b", "=", value], name)
    matching = [row for row in rows if row["b"] == value]
    assert_rows_equal(
        records_to_rows(matching, ours.column_names),
        canonical_rows(ours),
        [str(column.type) for column in ours.schema],
    )
    absent = "cat1x"  # the bounds of the files include this value, so only indexes exclude it
    assert referee.find(warehouse, ["s", "=", absent], name) == []
    assert referee.check(warehouse, name) == []
