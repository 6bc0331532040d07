"""Columns that travel from us to a peer, and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golden import assert_rows_equal, rows_of
from peers import ours
from peers.columns import COLUMNS
from peers.kinds import Kind, Record, write
from peers.peers import Peer


def of_columns(kind: str, names: Sequence[str], **options: str) -> Kind:
    """Return a table of some columns, with enough equal values that the writer chooses dictionaries."""
    columns = ", ".join(f"{name} {COLUMNS[name][0]}" for name in names)
    records = [{"id": n} | {name: COLUMNS[name][1][n % 3] for name in names} for n in range(60)]
    every = {"bucket": "-1", "file.format": kind} | options
    return Kind(kind, (write(records),), columns=f"id INT NOT NULL, {columns}", options=every)


def assert_equal(kind: Kind, found: list[Record]) -> None:
    """Check that all rows were found."""
    names = list(kind.expected()[0])
    types = ["INT", *(COLUMNS[name][0] for name in names[1:])]
    assert_rows_equal(rows_of(kind.expected(), names), rows_of(found, names), types)


def reads(peer: Peer, tmp_path: Path, kind: str, names: Sequence[str]) -> None:
    """Check that a peer reads columns that we write."""
    table = of_columns(kind, names)
    ours.live(tmp_path, table)
    assert_equal(table, ours.read(tmp_path, table))
    assert_equal(table, peer.read(tmp_path))


def writes(peer: Peer, tmp_path: Path, kind: str, names: Sequence[str]) -> None:
    """Check that we read columns that a peer writes."""
    plain = peer.name == "pypaimon-rust" and kind == "orc"  # it writes no other
    table = of_columns(kind, names, **({"file.compression": "none"} if plain else {}))
    peer.run("create", tmp_path / "t", spec=ours.spec(tmp_path / "spec", table))
    for step in table.steps:
        peer.run(warehouse=tmp_path / "t", **step)
    assert_equal(table, ours.read(tmp_path / "t", table))
