"""Tables whose rows are ordered by snapshot: Java 2.0 and we write and compact one table in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from peers import ours
from peers.kinds import Kind, compact, rows, write
from peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.check import check

VARIANTS: dict[str, dict[str, str]] = {
    "merge-on-read": {},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "changelog": {"changelog-producer": "lookup"},
    "avro": {"file.format": "avro"},
}


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_java_and_we_write_and_compact_one_table_in_turn(
    java20: Peer, tmp_path: Path, variant: str
) -> None:
    ordering = {"bucket": "1", "write-only": "true", "sequence.snapshot-ordering": "true"}
    steps = [write(rows(range(3 * turn, 3 * turn + 9), f"{turn}")) for turn in range(8)]
    kind = Kind("ordered", steps, primary_key=["k"], options=ordering | VARIANTS[variant])
    warehouse = tmp_path / "w"
    java20.run("create", warehouse, spec=ours.spec(tmp_path / "spec", kind))

    def in_order(found: list[dict[str, object]]) -> list[dict[str, object]]:
        return sorted(found, key=lambda row: str(row["k"]))

    for turn, step in enumerate(steps):
        if turn % 2:
            java20.run(warehouse=warehouse, **step)
        else:
            ours.run(warehouse, step)
        if turn % 3 == 1:
            ours.run(warehouse, compact(full=turn == 4))
        elif turn % 3 == 2:
            java20.run(warehouse=warehouse, **compact(full=turn == 5))
        assert in_order(java20.read(warehouse)) == in_order(ours.read(warehouse, kind))

    ours.run(warehouse, compact(full=True))
    expected = in_order(kind.expected())
    assert in_order(java20.read(warehouse)) == expected == in_order(ours.read(warehouse, kind))
    assert check(Catalog(str(warehouse)).table("db.t"), deep=True).findings == ()
    assert java20.check(warehouse) == []
