"""Java continues a snapshot that hides later ones, and reads all rows after our repair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from support.peers.peers import Peer
from support.tables import new_table, table_of

from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.repairs.repair import repair


def test_java_reads_the_rows_that_a_late_snapshot_hid_after_our_repair(
    java20: Peer, tmp_path: Path
) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING")
    for key in range(6):
        table.upsert(table_of("k v", [(key, "x")]))
    expire_snapshots(table, retain_max=2, retain_min=1, older_than=0)
    snapshots = table.stores.snapshots
    late = replace(snapshots.get(5), id=2)
    Path(snapshots.path(2)).write_bytes(late.to_json())
    snapshots.write_hint("LATEST", 2)

    def read_keys() -> list[int]:
        rows = map(json.loads, java20._oracle("dump", tmp_path, "db.t"))
        return sorted(row["k"] for row in rows)

    hidden = read_keys()
    java20._oracle("compact", tmp_path, "db.t")
    ids = snapshots.ids()
    repair(table)

    assert hidden == [0, 1, 2, 3, 4]
    assert ids == [2, 3, 5, 6], "Java takes the free id, and does not notice the later snapshots"
    assert read_keys() == [0, 1, 2, 3, 4, 5]
