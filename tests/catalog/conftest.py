"""Fixtures of the catalogs' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.catalogs.fixtures import start_rest_server
from support.catalogs.hive_metastore import hive_client_jars
from support.catalogs.kinds import catalog_under_test, rest_servers, short_lock_metastore
from support.peers.peers import Peer, PeerUnavailableError

__all__ = ["catalog_under_test", "rest_servers", "short_lock_metastore", "start_rest_server"]


@pytest.fixture(scope="session")
def hive_java() -> Iterator[Peer]:
    """Java 2.0 with a client of Hive; its tests belong to the worker of the peers."""
    try:
        peer = Peer("java-2.0", hive_client_jars())
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    yield peer
    peer.close()
