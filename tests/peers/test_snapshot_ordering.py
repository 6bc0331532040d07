"""Java 2.0 and we alternately write and compact tables whose rows are ordered by snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.peers import ours
from support.peers.alternating_writers import sort_by_key, write_and_compact_in_turn
from support.peers.kinds import Kind, rows, write
from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.steps.inspection.check_table import check

VARIANTS: dict[str, dict[str, str]] = {
    "merge-on-read": {},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "changelog": {"changelog-producer": "lookup"},
    "avro": {"file.format": "avro"},
}


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_java_and_we_write_and_compact_one_table_alternately(
    java20: Peer, tmp_path: Path, variant: str
) -> None:
    ordering = {"bucket": "1", "write-only": "true", "sequence.snapshot-ordering": "true"}
    steps = [write(rows(range(3 * turn, 3 * turn + 9), f"{turn}")) for turn in range(8)]
    kind = Kind(
        name="ordered", steps=steps, primary_key=["k"], options=ordering | VARIANTS[variant]
    )
    warehouse = tmp_path / "w"
    write_and_compact_in_turn(java20, warehouse, kind)

    assert sort_by_key(ours.read(warehouse, kind)) == sort_by_key(kind.expected())
    assert check(Catalog(str(warehouse)).table("db.t"), deep=True).findings == ()
    assert java20.check(warehouse) == []
