"""Tables that Java Paimon and this library write and compact alternately."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.peers import ours
from support.peers.kinds import Kind, Record, compact
from support.peers.peers import Peer


def sort_by_key(rows: list[Record]) -> list[Record]:
    """Return rows sorted by the text of column `k`."""
    return sorted(rows, key=lambda row: str(row["k"]))


def write_and_compact_in_turn(
    java: Peer, warehouse: Path, kind: Kind, java_options: Mapping[str, str] | None = None
) -> None:
    """Run the steps of a kind, every second step by Java; both must read the same rows after each.

    `java_options` are dynamic options of Java's writes. We run the last compaction, a full one.
    """
    java.run("create", warehouse, spec=ours.table_spec(kind))
    dynamic: dict[str, Any] = {} if java_options is None else {"options": dict(java_options)}
    for turn, step in enumerate(kind.steps):
        if turn % 2:
            java.run(warehouse=warehouse, **step, **dynamic)
        else:
            ours.run_step(warehouse, step)
        if turn % 3 == 1:
            ours.run_step(warehouse, compact(full=turn == 4))
        elif turn % 3 == 2:
            java.run(warehouse=warehouse, **compact(full=turn == 5))
        assert sort_by_key(java.read(warehouse)) == sort_by_key(ours.read(warehouse, kind))
    ours.run_step(warehouse, compact(full=True))
    assert sort_by_key(java.read(warehouse)) == sort_by_key(ours.read(warehouse, kind))
