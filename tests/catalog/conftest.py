"""Fixtures of the catalogs' tests."""

from __future__ import annotations

import pytest
from support.catalogs.fixtures import start_rest_server
from support.catalogs.kinds import catalog_under_test, rest_servers, short_lock_metastore
from support.peers.fixtures import open_shared_peer
from support.peers.peers import Peer

__all__ = ["catalog_under_test", "rest_servers", "short_lock_metastore", "start_rest_server"]


@pytest.fixture(autouse=True)
def _allowed_places(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allow servers to name local directories in those of the tests."""
    monkeypatch.setenv("PAIMON_ALLOWED_EXTERNAL_PATHS", f"{tmp_path_factory.getbasetemp()}/*")


@pytest.fixture
def hive_java() -> Peer:
    """Java 2.0, which has a client of Hive; its tests belong to the worker of the peers."""
    return open_shared_peer("java-2.0")
