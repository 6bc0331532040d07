"""Every peer reads every kind of table that we write, and vice versa; exceptions: `limits`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.docs.compatibility import page
from support.golden import assert_rows_equal
from support.peers import ours
from support.peers.kinds import KINDS, Kind, Record
from support.peers.limits import LIMITS, PeerAction
from support.peers.peers import PEERS, Peer, PeerError
from support.peers.traces import find_traces

from paimon_orch.errors import PaimonError

Written = Callable[[Kind], Path]


@pytest.fixture(scope="session")
def create_once(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Create a table of a kind, once for all tests."""
    warehouses: dict[str, Path] = {}

    def by_us(kind: Kind) -> Path:
        if kind.name not in warehouses:
            warehouses[kind.name] = tmp_path_factory.mktemp("ours")
            ours.create_and_run_steps(warehouses[kind.name], kind)
        return warehouses[kind.name]

    return by_us


def assert_as_asked(kind: Kind, warehouse: Path) -> None:
    """Check the traces in the files, and the rows of our full scans and of our filters on keys."""
    assert set(kind.traces) <= find_traces(warehouse / "db.db" / "t")
    assert_found(kind, ours.read(warehouse, kind))
    expected = kind.expected()
    sought = len(expected) // (9 if "buckets" in kind.traces else 2)
    for key in {row["k"] for row in expected[:: max(sought, 1)] if "k" in row}:
        rows = ours.read(warehouse, kind, f"k = {key}")
        assert len(rows) == sum(r["k"] == key for r in expected), (
            "the row is in a different bucket from the one in its metadata"
        )


def assert_found(kind: Kind, records: list[Record]) -> None:
    """Compare rows by column name, because writers add new columns at different positions."""
    expected = kind.expected()
    names = list(expected[0])
    for record in records:
        assert sorted(record) == sorted(names)
    expected_rows, actual_rows = (
        [[record[name] for name in names] for record in part] for part in (expected, records)
    )
    assert_rows_equal(expected_rows, actual_rows)


@contextmanager
def check_listed_limit(who: str, does: PeerAction, kind: Kind) -> Iterator[None]:
    """Check that a listed limit still applies."""
    limit = LIMITS.get((who, does, kind.name))
    if limit is None:
        yield
        return
    with pytest.raises((PeerError, PaimonError, AssertionError), match=limit.words):
        yield


def cases(kinds: Iterable[str]) -> list[Any]:
    return [pytest.param(peer, kind, id=f"{peer}: {kind}") for kind in kinds for peer in PEERS]


@pytest.mark.parametrize("name", KINDS)
def test_we_read_our_own_tables(name: str, create_once: Written) -> None:
    assert_as_asked(KINDS[name], create_once(KINDS[name]))


@pytest.mark.parametrize(("peer", "name"), cases(KINDS), indirect=["peer"])
def test_a_peer_reads_our_tables(peer: Peer, name: str, create_once: Written) -> None:
    kind = KINDS[name]
    with check_listed_limit(peer.name, "reads", kind):
        assert_found(kind, peer.read(create_once(kind), kind.table, **kind.read))


@pytest.mark.parametrize("name", KINDS)
def test_the_java_checker_finds_no_error_in_our_tables(
    referee: Peer, name: str, create_once: Written
) -> None:
    kind = KINDS[name]
    with check_listed_limit(referee.name, "checks", kind):
        assert referee.check(create_once(kind), kind.table) == []


@pytest.mark.parametrize(("peer", "name"), cases(KINDS), indirect=["peer"])
def test_we_read_tables_of_a_peer(peer: Peer, name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    with check_listed_limit(peer.name, "writes", kind):
        peer.run("create", tmp_path / "t", spec=ours.table_spec(kind))
        for step in kind.steps:
            if step["do"] == "compact" and not peer.name.startswith("java"):
                ours.run_step(tmp_path / "t", step)
            else:
                peer.run(warehouse=tmp_path / "t", **step)
        assert_as_asked(kind, tmp_path / "t")


def test_the_compatibility_page_is_current(repository: Path) -> None:
    text = (repository / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert text == page(), "generate it again: see tests/support/docs/compatibility.py"
