"""Tables whose files are sorted by other columns than the key: Java 2.0 and we write and compact one in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from peers import ours
from peers.kinds import Kind, compact, rows, write
from peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.check import check

VARIANTS: dict[str, dict[str, str]] = {
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "64-bit vectors": {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    "first row": {"merge-engine": "first-row"},
}


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("write_only", ["true", "false"])
def test_java_and_we_write_and_compact_one_table_in_turn(
    java20: Peer, tmp_path: Path, variant: str, write_only: str
) -> None:
    clustering = {"bucket": "1", "pk-clustering-override": "true", "clustering.columns": "s"}
    steps = [write(rows(range(3 * turn, 3 * turn + 9), f"{turn % 3}")) for turn in range(9)]
    kind = Kind("clustered", steps, primary_key=["k"], options=clustering | VARIANTS[variant])
    warehouse = tmp_path / "w"
    java20.run("create", warehouse, spec=ours.spec(tmp_path / "spec", kind))

    def in_order(found: list[dict[str, object]]) -> list[dict[str, object]]:
        return sorted(found, key=lambda row: str(row["k"]))

    for turn, step in enumerate(steps):
        if turn % 2:
            java20.run(warehouse=warehouse, **step, options={"write-only": write_only})
        else:
            ours.run(warehouse, step)
        if turn % 3 == 1:
            ours.run(warehouse, compact(full=turn == 4))
        elif turn % 3 == 2:
            java20.run(warehouse=warehouse, **compact(full=turn == 5))
        assert in_order(java20.read(warehouse)) == in_order(ours.read(warehouse, kind))

    ours.run(warehouse, compact(full=True))
    assert in_order(java20.read(warehouse)) == in_order(ours.read(warehouse, kind))
    if variant != "first row":
        assert in_order(java20.read(warehouse)) == in_order(kind.expected())
    assert check(Catalog(str(warehouse)).table("db.t"), deep=True).findings == ()
