"""Fixtures that start other implementations, or skip tests if something is missing."""

from __future__ import annotations

import pytest
from support.catalogs.fixtures import start_rest_server  # noqa: F401 - a fixture
from support.peers.environments import PeerUnavailableError, jdbc_drivers
from support.peers.fixtures import open_shared_peer
from support.peers.peers import OpenPeer, Peer


@pytest.fixture(autouse=True)
def _allowed_places(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allow the servers of this machine, and external paths in the directories of the tests."""
    monkeypatch.setenv("PAIMON_ALLOWED_HOSTS", "127.0.0.1,localhost")
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"{tmp_path_factory.getbasetemp()}/*")


@pytest.fixture(scope="session")
def open_peer() -> OpenPeer:
    """Return a function from names to peers; each is started once."""
    return open_shared_peer


@pytest.fixture
def peer(request: pytest.FixtureRequest, open_peer: OpenPeer) -> Peer:
    """The peer whose name is the parameter of the test."""
    return open_peer(request.param)


@pytest.fixture
def jdbc_peer(request: pytest.FixtureRequest, open_peer: OpenPeer) -> Peer:
    """The Java peer whose name is the parameter of the test, with drivers of SQL databases."""
    try:
        jdbc_drivers()
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    return open_peer(request.param)


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
