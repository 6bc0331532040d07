"""Java and we read the same rows of a table with a fallback branch."""

from __future__ import annotations

import time
from pathlib import Path

from support.peers.peers import Peer

from paimon_orch import Catalog
from paimon_orch.table.schema_change.schema_changes import SetOption


def test_java_and_we_read_the_rows_of_a_time_from_the_table_and_its_branch(
    java20: Peer, tmp_path: Path
) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t",
        "p STRING, k INT",
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "1"},
    )
    table.branches.create("fb")
    catalog.alter_table("db.t", [SetOption("scan.fallback-branch", "fb")])
    branch = "db.t$branch_fb"

    for name, partition in ((branch, "a"), ("db.t", "b"), (branch, "c"), (branch, "d")):
        java20.run("write", tmp_path, name, rows=[{"p": partition, "k": 1}])
        if partition != "a":  # the table has a snapshot
            now = int(time.time() * 1000)
            time.sleep(0.01)  # later snapshots have a later time
            by_java = java20.read(tmp_path, scan__timestamp_millis=str(now))
            ours = catalog.table("db.t").scan(timestamp=now).to_arrow().to_pylist()
            assert sorted(row["p"] for row in by_java) == sorted(row["p"] for row in ours)
            assert partition in {row["p"] for row in ours}
