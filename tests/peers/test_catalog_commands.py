"""The commands of the Java peers for catalogs, which other tests of catalogs use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.peers.environments import JAVA
from support.peers.peers import Peer, PeerError

SPEC: dict[str, Any] = {
    "fields": [
        {"id": 0, "name": "day", "type": "STRING NOT NULL"},
        {"id": 1, "name": "k", "type": "INT NOT NULL"},
    ],
    "partition_keys": ["day"],
    "primary_keys": ["day", "k"],
    "options": {"bucket": "1"},
}


@pytest.mark.parametrize("peer", JAVA, indirect=True)
def test_java_opens_a_catalog_by_its_options(tmp_path: Path, peer: Peer) -> None:
    catalog = {"metastore": "filesystem", "warehouse": str(tmp_path)}

    peer.ask("create_database", catalog, database="db", options={})
    peer.run("create", catalog, spec=SPEC)
    peer.run("write", catalog, rows=[{"day": "a", "k": 1}])
    peer.run("alter", catalog, changes=[["set", "num-sorted-run.stop-trigger", "9"]])
    peer.run("rename", catalog, to="db.u")

    assert peer.ask("list_databases", catalog) == ["db"]
    assert peer.ask("list_tables", catalog, database="db") == ["u"]
    assert peer.read(catalog, "db.u") == [{"day": "a", "k": 1}]
    assert peer.read(tmp_path, "db.u") == [{"day": "a", "k": 1}]
    table = peer.ask("get_table", catalog, table="db.u")
    assert table["location"] == str(tmp_path / "db.db" / "u")
    assert table["options"]["num-sorted-run.stop-trigger"] == "9"
    assert (table["partition_keys"], table["primary_keys"]) == (["day"], ["day", "k"])

    if peer.name == "java-0.9":
        with pytest.raises(PeerError, match="cannot list partitions"):
            peer.ask("list_partitions", catalog, table="db.u")
    else:
        [partition] = peer.ask("list_partitions", catalog, table="db.u")
        assert (partition["spec"], partition["recordCount"]) == ({"day": "a"}, 1)

    peer.run("drop", catalog, "db.u")
    assert peer.ask("list_tables", catalog, database="db") == []
    peer.ask("drop_database", catalog, database="db", cascade=False)
    assert peer.ask("list_databases", catalog) == []
