"""Credentials of the store that a server lends, and when they are renewed."""

import pickle
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.catalogs.rest_server import JAVA_2_0, RestServer

from paimon_orch import AccessDeniedError, Catalog
from paimon_orch.catalog.rest.data_token import DataTokenCredentials
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.storage import FsspecFileIO, resolve_warehouse

HOUR = 3600.0
NOW = time.time()


def millis(seconds: float) -> int:
    return int((NOW + seconds) * 1000)


@pytest.fixture
def server(start_rest_server: Callable[..., RestServer]) -> RestServer:
    server = start_rest_server(JAVA_2_0, overrides={"data-token.enabled": "true"})
    Catalog(**server.options).create_table("db.t", "k INT")
    return server


@pytest.fixture
def credentials(server: RestServer) -> DataTokenCredentials:
    client = RestClient.connect(server.options)
    return DataTokenCredentials(
        client=client, database="db", object_name="t", location="s3://b/t", clock=lambda: NOW
    )


def lend(server: RestServer, key: str, seconds: float) -> None:
    """Make the server lend a key that expires after a time."""
    token = {"s3.access-key": key, "s3.secret-key": f"secret of {key}"}
    server.set_data_token("db", "t", token, millis(seconds))


def load_key(credentials: DataTokenCredentials, at: float) -> str:
    """Return the key that is used at a time."""
    return str(replace(credentials, clock=lambda: NOW + at).load()["key"])


def test_a_token_is_renewed_an_hour_before_it_expires(
    server: RestServer, credentials: DataTokenCredentials
) -> None:
    lend(server, "first", 10 * HOUR)
    assert load_key(credentials, 0) == "first"
    lend(server, "second", 20 * HOUR)
    assert load_key(credentials, 9 * HOUR - 1) == "first"
    assert load_key(credentials, 9 * HOUR) == "second"


def test_a_short_token_is_renewed_after_half_of_its_time(
    server: RestServer, credentials: DataTokenCredentials
) -> None:
    lend(server, "first", HOUR)
    assert load_key(credentials, 0) == "first"
    lend(server, "second", 3 * HOUR)
    assert load_key(credentials, HOUR / 2 - 1) == "first"
    assert load_key(credentials, HOUR / 2) == "second"


def test_a_store_uses_the_renewed_token_also_after_pickling(
    server: RestServer, credentials: DataTokenCredentials
) -> None:
    lend(server, "first", 2 * HOUR)
    io, _ = resolve_warehouse("s3://b/t", {"anon": False}, credentials=credentials)
    assert isinstance(io, FsspecFileIO)
    assert io.options.resolve() == {"anon": False, "key": "first", "secret": "secret of first"}
    later = replace(credentials, clock=time.time)
    task_io = resolve_warehouse("s3://b/t", credentials=later)[0]
    sent = pickle.loads(pickle.dumps(task_io))  # noqa: S301 - our own bytes
    assert sent.options.resolve()["key"] == "first"


def test_a_lent_secret_is_redacted(server: RestServer, credentials: DataTokenCredentials) -> None:
    lend(server, "first", 2 * HOUR)
    io, _ = resolve_warehouse("s3://b/t", credentials=credentials)
    assert isinstance(io, FsspecFileIO)
    assert io.options.redact("denied for secret of first") == "denied for ***"
    assert "secret of first" not in f"{io!r}{credentials!r}"


def test_a_table_without_credentials_is_not_taken_for_a_missing_file(
    server: RestServer, credentials: DataTokenCredentials
) -> None:
    Catalog(**server.options).drop_table("db.t")
    with pytest.raises(AccessDeniedError, match=r"lends no credentials for the files of db\.t"):
        credentials.load()


def test_tables_in_local_files_need_no_token(server: RestServer) -> None:
    table = Catalog(**server.options).table("db.t")
    assert table.io.capabilities.is_local


def test_options_of_the_store_may_be_objects(server: RestServer) -> None:
    options = {**server.options, "storage.client_kwargs": {"region_name": "eu"}}
    client = RestClient.connect(options)
    lend(server, "first", 2 * HOUR)
    credentials = DataTokenCredentials(
        client=client, database="db", object_name="t", location="s3://b/t"
    )
    assert credentials.load()["key"] == "first"
