"""The REST catalog servers with which other tests run, and other implementations as clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from support.catalogs.fixtures import StartRestServer, prepare_rest_server
from support.catalogs.rest_server import (
    JAVA_1_4,
    JAVA_2_0,
    PYPAIMON_1_4,
    REST_SERVERS,
    DlfKeys,
    RestServer,
)
from support.peers.peers import OpenPeer, Peer, PeerError

SECONDS = 100
# The server of pypaimon 1.3 cannot load the newest snapshot, which all clients need.
SERVERS_WITH_SNAPSHOTS = (JAVA_1_4, JAVA_2_0, PYPAIMON_1_4)
SPEC: dict[str, Any] = {
    "fields": [
        {"id": 0, "name": "day", "type": "STRING NOT NULL"},
        {"id": 1, "name": "k", "type": "INT NOT NULL"},
    ],
    "partition_keys": ["day"],
    "primary_keys": ["day", "k"],
    "options": {"bucket": "1"},
}
SNAPSHOT: dict[str, Any] = {
    "version": 3,
    "id": 1,
    "schemaId": 0,
    "baseManifestList": "manifest-list-0",
    "deltaManifestList": "manifest-list-1",
    "indexManifest": "index-manifest-0",
    "commitUser": "user",
    "commitIdentifier": 7,
    "commitKind": "APPEND",
    "timeMillis": 1000,
    "totalRecordCount": 1,
    "deltaRecordCount": 1,
}
# Runs a server until the process is killed.
HOLD = """
import sys, time
from pathlib import Path
from support.catalogs.rest_server import run_rest_server

with run_rest_server(sys.argv[1], Path(sys.argv[2])) as server:
    print(server.uri, flush=True)
    time.sleep(600)
"""


def send(
    server: RestServer, path: str, body: Any = None, token: str | None = None
) -> requests.Response:
    """Send a GET, or a POST if there is a body."""
    return requests.request(
        "GET" if body is None else "POST",
        f"{server.uri}/v1/{path}",
        json=body,
        headers={"Authorization": f"Bearer {token or server.options['token']}"},
        timeout=SECONDS,
    )


def create_table(server: RestServer) -> str:
    """Create the table db.t by the HTTP interface, and return its id."""
    schema: dict[str, Any] = {
        "fields": [{"id": 0, "name": "k", "type": "INT"}],
        "partitionKeys": [],
        "primaryKeys": [],
        "options": {},
        "comment": None,
    }
    table = {"identifier": {"database": "db", "object": "t"}, "schema": schema}
    for path, body in [
        ("databases", {"name": "db", "options": {}}),
        ("databases/db/tables", table),
    ]:
        assert send(server, f"paimon/{path}", body).status_code == requests.codes.ok
    return str(send(server, "paimon/databases/db/tables/t").json()["id"])


def is_reachable(uri: str) -> bool:
    try:
        requests.get(uri, timeout=SECONDS)
    except requests.ConnectionError:
        return False
    return True


@pytest.mark.parametrize("name", REST_SERVERS)
def test_a_server_gives_its_configuration(name: str, start_rest_server: StartRestServer) -> None:
    server = start_rest_server(name, defaults={"table-default.bucket": "2"})
    path = f"config?warehouse={server.options['warehouse']}"

    assert send(server, path).json()["defaults"] == {
        "prefix": "paimon",
        "table-default.bucket": "2",
    }
    refused = send(server, path, token="another")  # noqa: S106 - one that the server refuses
    assert refused.status_code == requests.codes.unauthorized
    assert send(server, "paimon/databases").json()["databases"] == []


@pytest.mark.parametrize("name", REST_SERVERS)
def test_a_server_ends_with_the_process_of_the_test(name: str, tmp_path: Path) -> None:
    prepare_rest_server(name)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, name, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as test:
        assert test.stdout is not None
        uri = test.stdout.readline().strip()
        assert is_reachable(uri)
        test.kill()

    end = time.monotonic() + SECONDS
    while is_reachable(uri):
        assert time.monotonic() < end, "the server is still running"
        time.sleep(0.1)


@pytest.mark.parametrize("name", REST_SERVERS)
def test_a_server_refuses_a_commit_that_lost_a_race(
    name: str, start_rest_server: StartRestServer
) -> None:
    server = start_rest_server(name)
    table_id = create_table(server)
    commit: dict[str, Any] = {
        "tableId": table_id,
        "baseSnapshotUuid": None,
        "snapshot": SNAPSHOT,
        "statistics": [],
    }
    path = "paimon/databases/db/tables/t/commit"

    other = send(server, path, {**commit, "tableId": "another"})
    first, second = (send(server, path, commit) for _ in range(2))

    assert other.status_code == requests.codes.not_found
    assert (first.json(), second.json()) == ({"success": True}, {"success": False})
    [stored] = server.folder.rglob("snapshot-1")
    assert SNAPSHOT.items() <= json.loads(stored.read_bytes()).items()


@pytest.mark.parametrize("name", REST_SERVERS)
def test_a_server_forbids_a_table(name: str, start_rest_server: StartRestServer) -> None:
    server = start_rest_server(name)
    create_table(server)

    server.forbid_table("db", "t")

    refused = send(server, "paimon/databases/db/tables/t")
    assert (refused.status_code, refused.json()["code"]) == (403, 403)


@pytest.mark.parametrize("name", SERVERS_WITH_SNAPSHOTS)
def test_a_server_gives_data_tokens(name: str, start_rest_server: StartRestServer) -> None:
    server = start_rest_server(name)
    create_table(server)

    server.set_data_token("db", "t", {"fs.s3.accessKeyId": "key"}, expires_at_millis=5000)

    assert send(server, "paimon/databases/db/tables/t/token").json() == {
        "token": {"fs.s3.accessKeyId": "key"},
        "expiresAtMillis": 5000,
    }


@pytest.mark.parametrize("peer", ["java-1.4", "java-2.0"], indirect=True)
@pytest.mark.parametrize("name", SERVERS_WITH_SNAPSHOTS)
def test_java_writes_reads_and_renames_tables(
    name: str, peer: Peer, start_rest_server: StartRestServer
) -> None:
    catalog = start_rest_server(name).options

    peer.ask("create_database", catalog, database="db", options={})
    peer.run("create", catalog, spec=SPEC)
    for day in "ab":
        peer.run("write", catalog, rows=[{"day": day, "k": 1}])
    peer.run("alter", catalog, changes=[["add", "v", "STRING"]])
    peer.run("rename", catalog, to="db.u")

    assert peer.ask("list_tables", catalog, database="db") == ["u"]
    assert peer.read(catalog, "db.u") == [
        {"day": "a", "k": 1, "v": None},
        {"day": "b", "k": 1, "v": None},
    ]
    peer.run("drop", catalog, "db.u")
    peer.ask("drop_database", catalog, database="db", cascade=False)
    assert peer.ask("list_databases", catalog) == []


@pytest.mark.parametrize("name", SERVERS_WITH_SNAPSHOTS)
def test_pypaimon_writes_and_reads_tables(
    name: str, open_peer: OpenPeer, start_rest_server: StartRestServer
) -> None:
    catalog, peer = start_rest_server(name).options, open_peer("pypaimon")

    peer.run("create", catalog, spec=SPEC)
    peer.run("write", catalog, rows=[{"day": "a", "k": 1}])

    assert peer.read(catalog) == [{"day": "a", "k": 1}]


@pytest.mark.parametrize("name", [JAVA_1_4, JAVA_2_0])
def test_a_table_with_a_branch_is_listed_once_and_renamed_with_it(
    name: str, java: Peer, start_rest_server: StartRestServer
) -> None:
    catalog = start_rest_server(name).options
    java.ask("create_database", catalog, database="db", options={})
    java.run("create", catalog, spec=SPEC)
    java.run("write", catalog, rows=[{"day": "a", "k": 1}])
    java.run("tag", catalog, name="first")
    java.run("branch", catalog, name="b", at="first")
    java.run("write", catalog, "db.t$branch_b", rows=[{"day": "b", "k": 1}])

    assert java.ask("list_tables", catalog, database="db") == ["t"]
    java.run("rename", catalog, to="db.u")

    assert java.read(catalog, "db.u") == [{"day": "a", "k": 1}]
    assert java.read(catalog, "db.u$branch_b") == [{"day": "a", "k": 1}, {"day": "b", "k": 1}]


@pytest.mark.parametrize("security_token", [None, "a-security-token"])
@pytest.mark.parametrize("algorithm", ["default", "openapi"])
@pytest.mark.parametrize("name", [JAVA_1_4, JAVA_2_0])
def test_a_java_server_checks_signatures(
    *,
    name: str,
    algorithm: str,
    security_token: str | None,
    java: Peer,
    start_rest_server: StartRestServer,
) -> None:
    keys = DlfKeys(algorithm=algorithm, security_token=security_token)
    catalog = start_rest_server(name, keys=keys).options

    java.ask("create_database", catalog, database="a b$c", options={})

    assert java.ask("list_databases", catalog) == ["a b$c"]
    with pytest.raises(PeerError, match="Not authorized"):
        java.ask("list_databases", {**catalog, "dlf.access-key-secret": "another"})
