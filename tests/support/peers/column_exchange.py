"""Checks that columns of all types can be exchanged with a peer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.golden import assert_rows_equal, records_to_rows
from support.peers import ours
from support.peers.columns import COLUMNS
from support.peers.kinds import Kind, Record, write
from support.peers.peers import Peer


def table_of_columns(kind: str, names: Sequence[str], **options: str) -> Kind:
    """Return a kind of table with columns whose values repeat, so that writers use dictionaries."""
    columns = ", ".join(f"{name} {COLUMNS[name][0]}" for name in names)
    records = [{"id": n} | {name: COLUMNS[name][1][n % 3] for name in names} for n in range(60)]
    every = {"bucket": "-1", "file.format": kind} | options
    return Kind(
        name=kind, steps=(write(records),), columns=f"id INT NOT NULL, {columns}", options=every
    )


def assert_rows_found(kind: Kind, rows: list[Record]) -> None:
    """Check that all rows were found."""
    names = list(kind.expected()[0])
    types = ["INT", *(COLUMNS[name][0] for name in names[1:])]
    assert_rows_equal(records_to_rows(kind.expected(), names), records_to_rows(rows, names), types)


def assert_peer_reads(peer: Peer, tmp_path: Path, kind: str, names: Sequence[str]) -> None:
    """Check that a peer reads columns that we write."""
    table = table_of_columns(kind, names)
    ours.create_and_run_steps(tmp_path, table)
    assert_rows_found(table, ours.read(tmp_path, table))
    assert_rows_found(table, peer.read(tmp_path))


def assert_peer_writes(peer: Peer, tmp_path: Path, kind: str, names: Sequence[str]) -> None:
    """Check that we read columns that a peer writes."""
    # pypaimon-rust writes ORC files only without compression.
    plain = peer.name == "pypaimon-rust" and kind == "orc"
    table = table_of_columns(kind, names, **({"file.compression": "none"} if plain else {}))
    peer.run("create", tmp_path / "t", spec=ours.table_spec(table))
    for step in table.steps:
        peer.run(warehouse=tmp_path / "t", **step)
    assert_rows_found(table, ours.read(tmp_path / "t", table))
