"""Java and we compact each other's tables, and both read the same rows afterwards."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.golden import assert_rows_equal, records_to_rows
from support.peers import ours
from support.peers.environments import JAVA
from support.peers.kinds import APPEND, ENGINES, KEYED, Kind, Record, compact
from support.peers.limits import LIMITS, PeerAction
from support.peers.peers import Peer

FULL = compact()


def cases(*needs: PeerAction) -> list[Any]:
    """Return kinds and versions of Java, without the limits that other tests verify."""
    return [
        pytest.param(java, kind, id=f"{java}: {kind.name}")
        for kind in (*APPEND, *KEYED, *ENGINES)
        for java in JAVA
        if not any((java, action, kind.name) in LIMITS for action in needs)
    ]


def assert_rows(kind: Kind, *readers: list[Record]) -> None:
    expected = kind.expected()
    names = list(expected[0])
    lines = [[[row[name] for name in names] for row in rows] for rows in (expected, *readers)]
    for row_lines in lines[1:]:
        assert_rows_equal(lines[0], row_lines)


@pytest.mark.parametrize(("peer", "kind"), cases("reads"), indirect=["peer"])
def test_java_compacts_our_tables(peer: Peer, kind: Kind, tmp_path: Path) -> None:
    ours.create_and_run_steps(tmp_path, kind)
    peer.run(warehouse=tmp_path, **FULL)
    assert_rows(kind, ours.read(tmp_path, kind), peer.read(tmp_path))


@pytest.mark.parametrize(("peer", "kind"), cases("writes", "reads"), indirect=["peer"])
def test_we_compact_tables_that_java_wrote(peer: Peer, kind: Kind, tmp_path: Path) -> None:
    peer.run("create", tmp_path / "t", spec=ours.table_spec(kind))
    for step in kind.steps:
        peer.run(warehouse=tmp_path / "t", **step)
    ours.run_step(tmp_path / "t", FULL)
    assert_rows(kind, ours.read(tmp_path / "t", kind), peer.read(tmp_path / "t"))


# --- Alternate compactions

COLUMNS = "k INT NOT NULL, a BIGINT, b STRING, s INT"
ENGINE_OPTIONS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "fields.b.aggregate-function": "max",
    },
    "first-row": {"merge-engine": "first-row"},
}


def of_engine(engine: str, **options: str) -> Kind:
    every = {"bucket": "2", **ENGINE_OPTIONS[engine], **options}
    return Kind(name=engine, steps=(), columns=COLUMNS, primary_key=["k"], options=every)


def batch(seed: int, *, deletes: bool) -> list[Record]:
    chance = random.Random(seed)  # noqa: S311 - data, not a secret
    rows = []
    for key in chance.sample(range(60), 25):
        kind = "-D" if deletes and chance.random() < 0.2 else "+I"
        value = None if chance.random() < 0.2 else chance.randrange(100)
        rows.append(
            {"_kind": kind, "k": key, "a": value, "b": f"b{seed}", "s": chance.randrange(9)}
        )
    return rows


def write_only(peer: Peer, warehouse: Path, turn: int, engine: str) -> None:
    rows = batch(turn, deletes=engine == "deduplicate")
    peer.run("write", warehouse, rows=rows, options={"write-only": "true"})


@pytest.mark.parametrize("peer", JAVA, indirect=True)
@pytest.mark.parametrize("engine", ENGINE_OPTIONS)
def test_alternate_compactions_keep_every_row(
    peer: Peer, referee: Peer, tmp_path: Path, engine: str
) -> None:
    vectors = {} if engine == "first-row" else {"deletion-vectors.enabled": "true"}
    kind = of_engine(engine, **vectors)
    peer.run("create", tmp_path / "t", spec=ours.table_spec(kind))
    for turn in range(10):
        write_only(peer, tmp_path / "t", turn, engine)
        step = compact(full=turn % 5 == 4)
        if turn % 2:
            peer.run(warehouse=tmp_path / "t", **step)
        else:
            ours.run_step(tmp_path / "t", step)

        our_rows = ours.read(tmp_path / "t", kind)
        names = list(our_rows[0])
        assert_rows_equal(
            records_to_rows(peer.read(tmp_path / "t"), names), records_to_rows(our_rows, names)
        )
        assert referee.check(tmp_path / "t") == []


LOOKUP = {"changelog-producer": "lookup"}
VECTORS = LOOKUP | {"deletion-vectors.enabled": "true"}
CHANGES = [
    ("deduplicate", LOOKUP | {"changelog-producer.row-deduplicate": "true"}),
    ("deduplicate", {"changelog-producer": "full-compaction"}),
    ("partial-update", VECTORS | {"changelog-producer.row-deduplicate": "true"}),
    ("first-row", LOOKUP),
]


@pytest.mark.parametrize("peer", JAVA, indirect=True)
@pytest.mark.parametrize(("engine", "options"), CHANGES)
def test_a_compaction_writes_the_same_changelog_as_java(
    peer: Peer, referee: Peer, tmp_path: Path, engine: str, options: dict[str, str]
) -> None:
    by_java, by_us = tmp_path / "java", tmp_path / "us"
    kind = of_engine(engine, **options)
    peer.run("create", by_java, spec=ours.table_spec(kind))
    full = options["changelog-producer"] == "full-compaction"
    for turn in range(3):
        write_only(peer, by_java, turn, engine)
        if turn == 0:  # both implementations continue with this table
            peer.run(warehouse=by_java, **FULL)
            shutil.copytree(by_java, by_us)
            continue
        write_only(peer, by_us, turn, engine)
        peer.run(warehouse=by_java, **compact(full=full))
        ours.run_step(by_us, compact(full=full))

    assert changes(referee, by_java) == changes(referee, by_us)
    assert referee.check(by_us) == []


def changes(referee: Peer, warehouse: Path) -> list[str]:
    """Return the rows of all changelog files as text, sorted."""
    rows = referee.changelog(warehouse)
    row_lines = (
        {
            name: value
            for name, value in row.items()
            if "file" not in name and "snapshot" not in name
        }
        for row in rows
    )
    return sorted(str(sorted(row.items())) for row in row_lines)
