"""Java 2.0 and we write and compact tables whose files are sorted by other columns than the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.peers.alternating_writers import sort_by_key, write_and_compact_in_turn
from support.peers.kinds import Kind, rows, write
from support.peers.peers import Peer
from support.tables import levels_of

from paimon_orch import Catalog
from paimon_orch.steps.inspection.check_table import check

VARIANTS: dict[str, dict[str, str]] = {
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "64-bit vectors": {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    "first row": {"merge-engine": "first-row"},
}


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("write_only", ["true", "false"])
def test_java_and_we_write_and_compact_one_table_alternately(
    java20: Peer, tmp_path: Path, variant: str, write_only: str
) -> None:
    clustering = {"bucket": "1", "pk-clustering-override": "true", "clustering.columns": "s"}
    steps = [write(rows(range(3 * turn, 3 * turn + 9), f"{turn % 3}")) for turn in range(9)]
    kind = Kind(
        name="clustered", steps=steps, primary_key=["k"], options=clustering | VARIANTS[variant]
    )
    warehouse = tmp_path / "w"
    write_and_compact_in_turn(java20, warehouse, kind, {"write-only": write_only})

    if variant != "first row":
        assert sort_by_key(java20.read(warehouse)) == sort_by_key(kind.expected())
    assert check(Catalog(str(warehouse)).table("db.t"), deep=True).findings == ()


APPEND_VARIANTS: dict[str, dict[str, str]] = {
    "without buckets": {"bucket": "-1", "clustering.columns": "s,k"},
    "with buckets": {"bucket": "2", "bucket-key": "k", "bucket-append-ordered": "false"},
}


@pytest.mark.parametrize("variant", list(APPEND_VARIANTS))
def test_java_and_we_write_and_sort_one_append_table_alternately(
    java20: Peer, tmp_path: Path, variant: str
) -> None:
    clustering = {
        "clustering.incremental": "true",
        "clustering.columns": "n",
        "num-sorted-run.compaction-trigger": "2",
    }
    steps = [write(rows(range(9 * turn, 9 * turn + 9), f"{turn % 3}")) for turn in range(9)]
    kind = Kind(name="clustered", steps=steps, options=clustering | APPEND_VARIANTS[variant])
    warehouse = tmp_path / "w"
    write_and_compact_in_turn(java20, warehouse, kind, {"write-only": "true"})

    assert sort_by_key(java20.read(warehouse)) == sort_by_key(kind.expected())
    table = Catalog(str(warehouse)).table("db.t")
    assert set(levels_of(table)) == {2}
    assert check(table, deep=True).findings == ()
