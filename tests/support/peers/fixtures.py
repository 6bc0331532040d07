"""Peers that all tests of a process share: each is started once, and ends with the process."""

from __future__ import annotations

import atexit

import pytest
from support.peers.peers import Peer, PeerUnavailableError

_running: dict[str, Peer] = {}
_missing: dict[str, str] = {}


def open_shared_peer(name: str) -> Peer:
    """Return a peer, or skip the test if it cannot run here."""
    if name not in _running and name not in _missing:
        try:
            _running[name] = Peer(name)
        except PeerUnavailableError as error:
            _missing[name] = str(error)
    if name in _missing:
        pytest.skip(_missing[name])
    return _running[name]


@atexit.register
def _close() -> None:
    for peer in _running.values():
        peer.close()
