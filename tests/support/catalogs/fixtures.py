"""Fixtures that start catalog servers, or skip tests if a server cannot run here.

A conftest imports the fixtures: `from support.catalogs.fixtures import start_rest_server`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.catalogs.rest_server import RestServer, rest_server_command, run_rest_server
from support.peers.environments import PeerUnavailableError

StartRestServer = Callable[..., RestServer]


@pytest.fixture
def start_rest_server(tmp_path: Path) -> Iterator[StartRestServer]:
    """Return `run_rest_server` as a function; its servers end with the test."""
    with ExitStack() as servers:

        def start(name: str, folder: Path | None = None, **arguments: Any) -> RestServer:
            prepare_rest_server(name)
            folder = folder or tmp_path / "served"
            return servers.enter_context(run_rest_server(name, folder, **arguments))

        yield start


def prepare_rest_server(name: str) -> None:
    """Build the environment of a server, or skip the test."""
    try:
        rest_server_command(name)
    except PeerUnavailableError as error:
        pytest.skip(str(error))
