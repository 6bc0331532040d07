"""Fixtures that make the other implementations ready, or skip and say what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from peers import environments

T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder with `peers`."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.peers)


@pytest.fixture(scope="session")
def pypaimon() -> Path:
    """The interpreter of pypaimon's environment."""
    return _or_skip(lambda: environments.peer_python("pypaimon"))


@pytest.fixture(scope="session")
def pypaimon_rust() -> Path:
    """The interpreter of pypaimon-rust's environment."""
    return _or_skip(lambda: environments.peer_python("pypaimon-rust"))


@pytest.fixture(scope="session")
def java_oracle() -> environments.Oracle:
    """The Java oracle, compiled."""
    return _or_skip(environments.java_oracle)


def _or_skip(ready: Callable[[], T]) -> T:
    try:
        return ready()
    except environments.PeerUnavailableError as error:
        pytest.skip(str(error))
