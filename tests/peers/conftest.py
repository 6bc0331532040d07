"""Fixtures that start other implementations, or skip tests if something is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.peers.environments import ORACLES
from support.peers.peers import Peer, PeerUnavailableError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as `peers`; one worker runs them and starts each peer once."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.peers)
            item.add_marker(pytest.mark.xdist_group("peers"))


@pytest.fixture(scope="session")
def open_peer() -> Iterator[Callable[[str], Peer]]:
    """Return a function from names to peers; each peer is started once."""
    running: dict[str, Peer] = {}
    missing: dict[str, str] = {}

    def named(name: str) -> Peer:
        if name not in running and name not in missing:
            try:
                running[name] = Peer(name)
            except PeerUnavailableError as error:
                missing[name] = str(error)
        if name in missing:
            pytest.skip(missing[name])
        return running[name]

    yield named
    for peer in running.values():
        peer.close()


@pytest.fixture
def peer(request: pytest.FixtureRequest, open_peer: Callable[[str], Peer]) -> Peer:
    """The peer whose name is the parameter of the test."""
    return open_peer(request.param)


@pytest.fixture
def referee(open_peer: Callable[[str], Peer]) -> Peer:
    """Java 0.9 with the checks of ../shared/oracle, which is not part of the repository."""
    if not ORACLES["java-0.9"].exists():
        pytest.skip(
            "the Java 0.9 referee is missing: no ../shared/oracle/Oracle.java next to the checkout"
        )
    return open_peer("java-0.9")


@pytest.fixture
def java(open_peer: Callable[[str], Peer]) -> Peer:
    """The newest Java of the package repositories."""
    return open_peer("java-1.4")


@pytest.fixture
def java20(open_peer: Callable[[str], Peer]) -> Peer:
    """Java 2.0 with the checks of ../shared/oracle."""
    return open_peer("java-2.0")
