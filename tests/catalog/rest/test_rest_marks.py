"""Partitions are marked as done on the REST server of Java Paimon."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from support.catalogs.rest_server import JAVA_2_0, RestServer

from paimon_orch import Catalog, Table
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps import mark_done

StartRestServer = Callable[..., RestServer]


def create_table(start: StartRestServer, action: str) -> Table:
    table = Catalog(**start(JAVA_2_0).options).create_table(
        "db.t",
        "p STRING, v INT",
        partition_by=["p"],
        options={"metastore.partitioned-table": "true", "partition.mark-done-action": action},
    )
    rows = {"p": pa.array(["a"], pa.string()), "v": pa.array([1], pa.int32())}
    table.append(pa.table(rows))
    return table


def test_the_server_accepts_marks(
    start_rest_server: StartRestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(start_rest_server, "mark-event")
    assert table.environment.marks is not None
    sent = []
    client = type(table.environment.marks.client)  # type: ignore[attr-defined]
    post = client.post

    def record(self: object, path: str, body: object) -> object:
        sent.append((path, body))
        return post(self, path, body)

    monkeypatch.setattr(client, "post", record)
    assert mark_done(table, ["p=a"]).plan.names == ["p=a"]
    assert sent == [("databases/db/tables/t/partitions/mark", {"specs": [{"p": "a"}]})]


def test_a_server_has_no_done_partitions(start_rest_server: StartRestServer) -> None:
    table = create_table(start_rest_server, "done-partition")
    with pytest.raises(UnsupportedError, match="through a catalog with partitions"):
        mark_done(table, ["p=a"])
