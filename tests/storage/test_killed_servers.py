"""A server that is killed during a commit: the outcome is right, or reported as unknown.

Azurite keeps what it acknowledged during the last five seconds in memory only. So a proxy holds its
answers back for six seconds before it is killed, which only an answer that arrived acknowledges.
SeaweedFS and HDFS need some seconds to start, and are killed once.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Protocol
from uuid import uuid4

import pytest
from storage.conftest import Bucket
from support.commit_race import append_while
from support.hdfs.cluster import HdfsCluster
from support.stalling_proxy import run_stalling_proxy
from support.tables import rows_of, table_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import CommitOutcomeUnknownError, StorageError
from paimon_orch.retry_policy import STORE_CALL
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import FileIO, exclusive_create, hdfs, resolve_warehouse, store_operation
from paimon_orch.storage.hdfs import HdfsFileIO
from paimon_orch.storage.object_store import FsspecFileIO
from paimon_orch.table.table import Table

# While the server is not running.
_IMPATIENT = replace(STORE_CALL, timeout=0.3)
_OUTCOMES = ("committed", "unknown", "failed")


class Server(Protocol):
    def start(self) -> None: ...
    def kill(self) -> None: ...


Put = Callable[[], bool]
Kill = Callable[[], None]
Moment = Callable[[Kill, Put], bool]


def kill_before(kill: Kill, put: Put) -> bool:
    kill()
    return put()


def kill_during(kill: Kill, put: Put) -> bool:
    killer = threading.Timer(0.002, kill)
    killer.start()
    try:
        return put()
    finally:
        killer.join()


def kill_after(kill: Kill, put: Put) -> bool:
    is_created = put()
    kill()
    return is_created


class Victim:
    """A server that is killed at the next creation of a snapshot, and a table in it."""

    def __init__(
        self, server: Server, root: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._server, self._root, self._options = server, root, options
        self._moments = list[Moment]()
        """How the server is killed at the next creation of a snapshot."""
        for cls in (FsspecFileIO, HdfsFileIO):
            self._watch(cls, monkeypatch)
        table = Catalog(root, **options).create_table(
            "db.t", "k INT", primary_key=["k"], options={"bucket": "1"}
        )
        table.upsert(table_of("k", [(0,)]))

    def open_table(self) -> Table:
        return Catalog(self._root, **self._options).table("db.t")

    def find_keys(self) -> set[int]:
        return {row[0] for row in rows_of(self.open_table())}

    def kill_while(self, moment: Moment, write: Callable[[], object]) -> str:
        """Return what the writer is told: `committed`, `unknown` or `failed`; start the server."""
        self._moments.append(moment)
        with pytest.MonkeyPatch.context() as patch:
            for module in (exclusive_create, hdfs, store_operation):
                patch.setattr(module, "STORE_CALL", _IMPATIENT)
            try:
                write()
            except CommitOutcomeUnknownError:
                outcome = "unknown"
            except StorageError:
                outcome = "failed"
            else:
                outcome = "committed"
        self._server.kill()
        self._server.start()
        self._wait_until_ready()
        assert not self._moments, "the server was killed before"
        return outcome

    def _wait_until_ready(self) -> None:
        """Wait until the server can read and write; SeaweedFS listens before it has its volumes."""
        io, deadline = resolve_warehouse(self._root, self._options)[0], time.monotonic() + 60
        while True:
            try:
                io.write(f"{self._root}/ready", b"")
                self.find_keys()
            except StorageError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def _watch(self, cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        original = cls.create

        def create(io: FileIO, path: str, data: bytes) -> bool:
            def put() -> bool:
                is_created: bool = original(io, path, data)
                return is_created

            if self._moments and "/snapshot/snapshot-" in path:
                return self._moments.pop()(self._server.kill, put)
            return put()

        monkeypatch.setattr(cls, "create", create)


def assert_outcomes_are_right(victim: Victim, *moments: Moment) -> None:
    keys = {0}
    for key, moment in enumerate(moments, 1):
        table = victim.open_table()

        outcome = victim.kill_while(moment, partial(table.upsert, table_of("k", [(key,)])))

        found = victim.find_keys()
        possible = {"committed": [keys | {key}], "failed": [keys]}
        assert found in possible.get(outcome, [keys, keys | {key}]), outcome
        victim.open_table().upsert(table_of("k", [(-key,)]))
        keys = found | {-key}
    assert victim.find_keys() == keys
    assert check(victim.open_table(), deep=True).findings == ()


def assert_compaction_keeps_rows(victim: Victim) -> None:
    keys = victim.find_keys()

    victim.kill_while(kill_during, partial(compact, victim.open_table(), strategy="full"))

    assert victim.find_keys() == keys
    compact(victim.open_table(), strategy="full")
    assert victim.find_keys() == keys
    assert check(victim.open_table(), deep=True).findings == ()


@pytest.mark.slow
def test_the_outcome_of_a_commit_in_gcs_is_right_or_unknown(
    gcs: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gcs.server is not None
    victim = Victim(gcs.server, gcs.root, gcs.options, monkeypatch)
    assert_outcomes_are_right(victim, kill_before, kill_during, kill_after)
    assert_compaction_keeps_rows(victim)


@pytest.mark.slow
def test_the_outcome_of_a_commit_in_s3_is_right_or_unknown(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3.server is not None
    victim = Victim(s3.server, s3.root, s3.options, monkeypatch)
    assert_outcomes_are_right(victim, kill_during)


@pytest.mark.timeout(300)
def test_the_outcome_of_a_compaction_in_hdfs_is_right_or_unknown(
    hdfs_cluster: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = Victim(hdfs_cluster, f"{hdfs_cluster.uri}/tests/{uuid4()}", {}, monkeypatch)
    victim.open_table().upsert(table_of("k", [(0,), (1,)]))
    assert_compaction_keeps_rows(victim)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_commits_of_eight_processes_to_azure_are_kept_or_not_acknowledged(azure: Bucket) -> None:
    server, address = azure.server, re.search(r"127\.0\.0\.1:(\d+)", str(azure.options))
    assert server is not None
    assert address is not None
    table = Catalog(azure.root, **azure.options).create_table(
        "db.t", "process INT, number INT", options={"commit.max-retries": "50"}
    )
    with run_stalling_proxy(int(address[1])) as proxy:
        connection = azure.options["connection_string"].replace(address[0], proxy.address)

        def kill_twice() -> None:
            for answer_bytes in (0, 2_000):
                time.sleep(3)
                proxy.stall_after(answer_bytes)
                time.sleep(6)
                server.kill()
                server.start()
                proxy.stall_after(inf)
                proxy.cut()
            time.sleep(3)

        outcomes = append_while(kill_twice, azure.root, {"connection_string": connection})

    rows = {(process, number) for process, number in rows_of(table)}
    told = {kind: {row for row, other in outcomes if other == kind} for kind in _OUTCOMES}
    assert told["committed"] - rows == set(), "acknowledged, and lost"
    assert told["failed"] & rows == set()
    assert rows <= told["committed"] | told["unknown"]
    assert len(told["committed"]) > 8
    assert len(rows_of(table)) == len(rows) == len(table.stores.snapshots.ids())
    assert check(table, deep=True).findings == ()
