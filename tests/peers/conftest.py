"""Fixtures that start other implementations, or skip tests if something is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.catalogs.fixtures import start_rest_server  # noqa: F401 - a fixture
from support.catalogs.jdbc_databases import JDBC_DRIVERS
from support.peers.environments import maven_jar
from support.peers.peers import OpenPeer, Peer, PeerUnavailableError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as `peers`; one worker runs them and starts each peer once."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.peers)
            item.add_marker(pytest.mark.xdist_group("peers"))


@pytest.fixture(scope="session")
def open_peer() -> Iterator[OpenPeer]:
    """Return a function from names to peers; each peer is started once.

    Maven artifacts, each one jar, are added to the class path of a Java peer.
    """
    running: dict[tuple[str, ...], Peer] = {}
    missing: dict[tuple[str, ...], str] = {}

    def named(name: str, *artifacts: str) -> Peer:
        key = (name, *artifacts)
        if key not in running and key not in missing:
            try:
                running[key] = Peer(name, [maven_jar(artifact) for artifact in artifacts])
            except PeerUnavailableError as error:
                missing[key] = str(error)
        if key in missing:
            pytest.skip(missing[key])
        return running[key]

    yield named
    for peer in running.values():
        peer.close()


@pytest.fixture
def peer(request: pytest.FixtureRequest, open_peer: OpenPeer) -> Peer:
    """The peer whose name is the parameter of the test."""
    return open_peer(request.param)


@pytest.fixture
def jdbc_peer(request: pytest.FixtureRequest, open_peer: OpenPeer) -> Peer:
    """The Java peer whose name is the parameter of the test, with drivers of SQL databases."""
    return open_peer(request.param, *JDBC_DRIVERS)


@pytest.fixture
def referee(open_peer: OpenPeer) -> Peer:
    """Java 0.9, which checks tables."""
    return open_peer("java-0.9")


@pytest.fixture
def java(open_peer: OpenPeer) -> Peer:
    """The newest Java of the package repositories."""
    return open_peer("java-1.4")


@pytest.fixture
def java20(open_peer: OpenPeer) -> Peer:
    """Java 2.0, which checks tables, too."""
    return open_peer("java-2.0")
