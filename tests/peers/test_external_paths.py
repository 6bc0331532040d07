"""Java Paimon and we read, compact and extend tables with files in external paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.peers import ours
from support.peers.kinds import Kind, compact, rows, write
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check

OPTIONS = {
    "round-robin": {"changelog-producer": "lookup"},
    "entropy-inject": {"deletion-vectors.enabled": "true"},
}


@pytest.mark.parametrize("strategy", list(OPTIONS))
def test_java_and_we_compact_and_extend_one_table_alternately(
    java: Peer, tmp_path: Path, strategy: str
) -> None:
    options = OPTIONS[strategy] | {
        "bucket": "2",
        "data-file.external-paths": f"file://{tmp_path}/a/t,file://{tmp_path}/b/t",
        "data-file.external-paths.strategy": strategy,
        "index-file-in-data-file-dir": "true",
    }
    steps = [write(rows(range(turn, turn + 9), f"{turn}")) for turn in range(6)]
    kind = Kind(name="external", steps=steps, primary_key=["k"], options=options)
    warehouse = tmp_path / "w"
    java.run("create", warehouse, spec=ours.table_spec(kind))

    for turn, step in enumerate(steps):
        java.run(warehouse=warehouse, **step, options={"write-only": "true"})
        if turn % 2:
            java.run(warehouse=warehouse, **compact())
        else:
            ours.run_step(warehouse, compact(full=turn % 4 == 0))

    def in_order(records: list[dict[str, object]]) -> list[dict[str, object]]:
        return sorted(records, key=lambda row: str(row["k"]))

    expected = in_order(kind.expected())
    assert in_order(java.read(warehouse)) == expected == in_order(ours.read(warehouse, kind))
    table = Catalog(str(warehouse)).table("db.t")
    assert expire_snapshots(table, retain_max=1).refused == ()
    assert check(table, deep=True).findings == ()
    assert in_order(java.read(warehouse)) == expected
