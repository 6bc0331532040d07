"""Our REST client and the servers of Java Paimon and pypaimon, which check credentials."""

from __future__ import annotations

from typing import Any

import pytest
from support.catalogs.fixtures import StartRestServer
from support.catalogs.rest_server import JAVA_1_4, JAVA_2_0, PYPAIMON_1_4, DlfKeys, RestServer

from paimon_orch.catalog.rest import resource_paths
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_errors import (
    RestAccessDeniedError,
    RestAlreadyExistsError,
    RestNotFoundError,
)

SERVERS: list[tuple[str, DlfKeys | None, str]] = [
    (JAVA_2_0, None, "d b~"),
    (JAVA_2_0, DlfKeys(), "d b~"),
    (JAVA_2_0, DlfKeys(algorithm="openapi", security_token="temporary"), "d b~"),  # noqa: S106
    (JAVA_1_4, None, "d b~"),
    (PYPAIMON_1_4, None, "db"),  # this server does not decode paths
]


def create_table(client: RestClient, database: str, name: str) -> None:
    schema: dict[str, Any] = {
        "fields": [{"id": 0, "name": "a", "type": "INT"}],
        "partitionKeys": [],
        "primaryKeys": [],
        "options": {},
        "comment": None,
    }
    identifier = {"database": database, "object": name}
    client.post(resource_paths.tables(database), {"identifier": identifier, "schema": schema})


def connect_with_wrong_credentials(server: RestServer) -> None:
    secret = "dlf.access-key-secret" if "dlf.region" in server.options else "token"
    RestClient.connect({**server.options, secret: "something-else"})


@pytest.mark.parametrize(("name", "keys", "database"), SERVERS)
def test_servers_accept_our_requests(
    start_rest_server: StartRestServer, name: str, keys: DlfKeys | None, database: str
) -> None:
    server = start_rest_server(name, keys=keys)
    client = RestClient.connect(server.options)
    body = {"name": database, "options": {"a": "\u00e4"}}
    client.post(resource_paths.DATABASES, body)
    for number in range(3):
        create_table(client, database, f"t{number}")

    assert client.get(resource_paths.database(database))["options"]["a"] == "\u00e4"
    tables = client.get_pages(resource_paths.tables(database), "tables", {"maxResults": 2})
    assert sorted(tables) == ["t0", "t1", "t2"]
    filtered = {"tableNamePattern": "t1%"}
    assert list(client.get_pages(resource_paths.tables(database), "tables", filtered)) == ["t1"]
    with pytest.raises(RestNotFoundError) as missing:
        client.get(resource_paths.table(database, "other"))
    assert (missing.value.resource_type, missing.value.resource_name) == ("TABLE", "other")
    with pytest.raises(RestNotFoundError) as empty:
        client.get(resource_paths.table(database, "t1", "snapshot"))
    assert empty.value.resource_type == "SNAPSHOT"
    with pytest.raises(RestAlreadyExistsError):
        client.post(resource_paths.DATABASES, body)
    client.delete(resource_paths.table(database, "t1"))
    with pytest.raises(RestNotFoundError):
        client.get(resource_paths.table(database, "t1"))


@pytest.mark.parametrize(("name", "keys", "database"), SERVERS)
def test_servers_refuse_wrong_credentials(
    start_rest_server: StartRestServer, name: str, keys: DlfKeys | None, database: str
) -> None:
    server = start_rest_server(name, keys=keys)

    with pytest.raises(RestAccessDeniedError) as refused:
        connect_with_wrong_credentials(server)

    assert refused.value.status == 401
