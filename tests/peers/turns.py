"""One table that Java and we write and compact in turn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peers import ours
from peers.kinds import Kind, Record, compact
from peers.peers import Peer


def in_key_order(rows: list[Record]) -> list[Record]:
    """Return rows sorted by the text of column `k`."""
    return sorted(rows, key=lambda row: str(row["k"]))


def write_and_compact_in_turn(
    java: Peer, warehouse: Path, kind: Kind, java_options: Mapping[str, str] | None = None
) -> None:
    """Create a table and run the steps of its kind, each second one by Java; both must read the same rows after each.

    `java_options` are dynamic options of Java's writes. The last compaction is ours and full.
    """
    java.run("create", warehouse, spec=ours.spec(warehouse.parent / "spec", kind))
    dynamic: dict[str, Any] = {} if java_options is None else {"options": dict(java_options)}
    for turn, step in enumerate(kind.steps):
        if turn % 2:
            java.run(warehouse=warehouse, **step, **dynamic)
        else:
            ours.run(warehouse, step)
        if turn % 3 == 1:
            ours.run(warehouse, compact(full=turn == 4))
        elif turn % 3 == 2:
            java.run(warehouse=warehouse, **compact(full=turn == 5))
        assert in_key_order(java.read(warehouse)) == in_key_order(ours.read(warehouse, kind))
    ours.run(warehouse, compact(full=True))
    assert in_key_order(java.read(warehouse)) == in_key_order(ours.read(warehouse, kind))
