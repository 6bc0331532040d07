"""Servers that do not know a path answer 404, as for a missing table, but name no resource."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.faulty_server import Answer, FaultyServer

from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.catalog.rest.rest_branches import RestBranches
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_snapshots import RestSnapshots, load_latest_snapshot
from paimon_orch.errors import AccessDeniedError, InputError, NotFoundError, UnsupportedError
from paimon_orch.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot

SNAPSHOT = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="base",
    delta_manifest_list="delta",
    commit_user="me",
    commit_identifier=BATCH_COMMIT_IDENTIFIER,
    commit_kind=CommitKind.APPEND,
    time_millis=0,
    total_record_count=0,
    delta_record_count=0,
)


def connect(server: FaultyServer) -> RestClient:
    options = {"metastore": "rest", "uri": server.uri, "token.provider": "bear", "token": "t" * 9}
    return RestClient.connect(options)


def open_branches(client: RestClient) -> RestBranches:
    return RestBranches(client=client, database="db", table="t")


def roll_back(client: RestClient) -> None:
    identifier = TableIdentifier.parse("db.t")
    snapshots = RestSnapshots(client=client, identifier=identifier, table_id="an-id")
    snapshots.rollback(SNAPSHOT, None)


def load_latest(client: RestClient) -> None:
    load_latest_snapshot(client, TableIdentifier.parse("db.t"))


def commit(client: RestClient) -> None:
    identifier = TableIdentifier.parse("db.t")
    RestSnapshots(client=client, identifier=identifier, table_id="an-id").commit(SNAPSHOT, None, ())


@pytest.mark.parametrize("act", [load_latest, commit, roll_back])
@pytest.mark.parametrize(
    ("status", "expected"), [(404, NotFoundError), (403, AccessDeniedError), (400, InputError)]
)
def test_a_refused_request_for_snapshots_is_an_error(
    server: FaultyServer,
    act: Callable[[RestClient], None],
    status: int,
    expected: type[Exception],
) -> None:
    body = {"message": "refused", "code": status, "resourceType": "TABLE", "resourceName": "t"}
    server.answers = [Answer(status=status, body=body)]
    with pytest.raises(expected, match="refused"):
        act(connect(server))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("act", "name"),
    [
        (lambda client: open_branches(client).create("b", None), "branches"),
        (lambda client: open_branches(client).delete("b"), "branches"),
        (lambda client: open_branches(client).fast_forward("b"), "branches"),
        (roll_back, "rollbacks"),
    ],
)
def test_an_unknown_path_is_not_a_missing_table(
    server: FaultyServer, act: Callable[[RestClient], None], name: str
) -> None:
    client = connect(server)
    server.answers = [Answer(status=404, body={"message": "Not Found", "code": 404})]
    with pytest.raises(UnsupportedError, match=f"the server does not serve {name}"):
        act(client)
    missing = {"message": "gone", "code": 404, "resourceType": "TABLE", "resourceName": "t"}
    server.answers = [Answer(status=404, body=missing)]
    with pytest.raises(NotFoundError, match="gone"):
        act(client)
