"""Fixtures of the tests of the REST client."""

from collections.abc import Iterator

import pytest
from support.faulty_server import FaultyServer, run_faulty_server

from paimon_orch.catalog.rest import rest_client
from paimon_orch.retry_policy import RetryPolicy


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with run_faulty_server() as server:
        yield server


@pytest.fixture(autouse=True)
def immediate_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "CATALOG_REQUEST", RetryPolicy(attempts=3))
    monkeypatch.setattr(rest_client, "_configs", {})
