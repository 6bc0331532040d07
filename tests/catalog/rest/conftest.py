"""Fixtures of the tests of the REST client."""

import shutil
from collections.abc import Iterator

import pytest
from support.catalogs.fixtures import prepare_rest_server
from support.catalogs.rest_proxy import RestProxy, run_rest_proxy
from support.catalogs.rest_server import JAVA_2_0, RestServer, run_rest_server
from support.faulty_server import FaultyServer, run_faulty_server

from paimon_orch import Catalog
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


@pytest.fixture(scope="module", params=[JAVA_2_0])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestServer]:
    """A real server, which the tests of a module share."""
    prepare_rest_server(request.param)
    with run_rest_server(request.param, tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def proxy(served: RestServer) -> Iterator[RestProxy]:
    """A proxy in front of the shared server; the database of the test is dropped at its end."""
    with run_rest_proxy(served) as proxy:
        yield proxy
        left = proxy.remove_faults()
        Catalog(**proxy.options).drop_database("db", cascade=True, if_exists=True)
        shutil.rmtree(served.folder / "warehouse" / "db", ignore_errors=True)  # pypaimon keeps it
        assert not left, f"faults that did not happen: {left}"
