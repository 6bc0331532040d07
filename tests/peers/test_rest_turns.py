"""Java Paimon, pypaimon and we change one table of a REST server in turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.catalogs.fixtures import prepare_rest_server
from support.catalogs.rest_server import JAVA_2_0, RestServer, run_rest_server
from support.peers.peers import OpenPeer, Peer, Record
from support.tables import table_of

from paimon_orch import Catalog
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.schema_change.schema_changes import AddColumn, RenameColumn
from paimon_orch.table.table import Table

# A server of Paimon 2 refuses commits of Java 1.4 after a commit of Java 2.0 or pypaimon 2.1.
CLIENTS = [["java-2.0", "pypaimon"], ["java-1.4"]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    prepare_rest_server(JAVA_2_0)
    with run_rest_server(JAVA_2_0, tmp_path / "served") as server:
        yield server


@pytest.fixture
def table(server: RestServer) -> Table:
    columns, options = "k INT NOT NULL, v STRING", {"bucket": "1"}
    catalog = Catalog(**server.options)
    return catalog.create_table("db.t", columns, primary_key=["k"], options=options)


class Turns:
    """The expected rows, and how each implementation reads them."""

    def __init__(self, server: RestServer, peers: list[Peer]) -> None:
        self.options: dict[str, Any] = dict(server.options)
        self.peers, self.rows = peers, dict[int, Record]()

    def write(self, peer: Peer | None, text: str, *keys: int, table: str = "db.t") -> None:
        """Write rows with a peer, or with this library."""
        fields = self.open(table).load().schema.fields
        rest = {field.name: None for field in fields if field.name != "k"}
        new = {key: {"k": key, **rest, fields[1].name: f"{text}{key}"} for key in keys}
        records: list[Record] = list(new.values())
        if peer is None:
            names = " ".join(records[0])
            self.open(table).upsert(table_of(names, [tuple(r.values()) for r in records]))
        else:
            peer.run("write", self.options, table, rows=records)
        self.rows.update(new)

    def rename(self, column: str, to: str, *, added: str) -> None:
        """Expect the rows after a schema change."""
        self.rows = {
            key: {to if name == column else name: value for name, value in row.items()}
            | {added: None}
            for key, row in self.rows.items()
        }

    def open(self, table: str = "db.t") -> Table:
        return Catalog(**self.options).table(table)

    def check(self, table: str = "db.t") -> None:
        """Check that all implementations read the expected rows."""
        expected = [self.rows[key] for key in sorted(self.rows)]
        assert sort(self.open(table).scan().to_arrow().to_pylist()) == expected
        for peer in self.peers:
            assert sort(peer.read(self.options, table)) == expected, peer.name
        assert check(self.open(table), deep=True).findings == ()


def sort(rows: list[Record]) -> list[Record]:
    return sorted(rows, key=lambda row: row["k"])


@pytest.mark.parametrize("names", CLIENTS)
def test_all_write_and_compact_in_turns(
    server: RestServer, table: Table, names: list[str], open_peer: OpenPeer
) -> None:
    turns = Turns(server, [open_peer(name) for name in names])
    for number in range(2):
        turns.write(None, f"ours{number}-", 1, 2, number + 3)
        for peer in turns.peers:
            turns.write(peer, f"{peer.name}{number}-", 2, 3, number + 4)
            turns.check()
        compact(table, strategy="full")
        turns.check()
        turns.peers[0].run("write", turns.options, rows=[{"k": 1, "v": "last"}])
        turns.rows[1] = {"k": 1, "v": "last"}
        turns.peers[0].run("compact", turns.options, full=True)
        turns.check()


@pytest.mark.parametrize("names", CLIENTS)
def test_schemas_branches_and_tags_are_changed_in_turns(
    server: RestServer, table: Table, names: list[str], open_peer: OpenPeer
) -> None:
    turns = Turns(server, [open_peer(name) for name in names])
    java, catalog = turns.peers[0], Catalog(**server.options)
    turns.write(None, "a", 1, 2)
    table.tags.create("ours")
    before = dict(turns.rows)
    catalog.alter_table("db.t", [AddColumn(column="w", type="INT"), RenameColumn("v", "text")])
    turns.rename("v", "text", added="w")
    turns.write(java, "b", 2, 3)
    turns.check()
    java.run("alter", turns.options, changes=[["add", "x", "STRING"], ["rename", "text", "v"]])
    turns.rename("text", "v", added="x")
    turns.write(None, "c", 3, 4)
    turns.check()
    java.run("tag", turns.options, name="theirs")
    after = dict(turns.rows)

    turns.write(java, "later", 9)
    assert java.read(turns.options, scan__tag_name="ours") == list(before.values())
    at_theirs = table.scan(tag="theirs").to_arrow().to_pylist()
    assert sort(at_theirs) == [after[key] for key in sorted(after)]

    # A new branch on this server has the newest snapshot of main, whatever the tag.
    table.tags.create("fork")
    after = dict(turns.rows)
    java.run("branch", turns.options, name="theirs", at="fork")
    table.branches.create("mine", tag="fork")
    for branch, writers in (("theirs", [None, java]), ("mine", [java, None])):
        turns.rows = dict(after)
        for number, writer in enumerate(writers):
            turns.write(writer, f"{branch}{number}", 1, 5, table=f"db.t$branch_{branch}")
            turns.check(f"db.t$branch_{branch}")
        compact(turns.open(f"db.t$branch_{branch}"), strategy="full")
        turns.check(f"db.t$branch_{branch}")
    table.branches.fast_forward("mine")
    turns.check()
    turns.write(java, "at last", 1)
    turns.check()
