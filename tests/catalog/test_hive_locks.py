"""The locks of a Hive metastore exclude our commits and those of Java Paimon from each other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.catalogs.hive_metastore import METASTORES, HiveMetastore
from support.clocks import replace_time
from support.commit_race import start_race
from support.peers.peers import Peer, PeerError

from paimon_orch import Catalog
from paimon_orch.catalog.hive.hive_lock import HiveLock
from paimon_orch.errors import CatalogUnavailableError, LockTimeoutError
from paimon_orch.metastore.hive_client import HiveClient, import_thrift_types
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("peers")]
# Answers of the metastore differ between releases; the client is tested with one of them.
EACH_RELEASE = pytest.mark.parametrize("hive_metastore", METASTORES, indirect=True)

SPEC = {
    "fields": [
        {"id": 0, "name": "process", "type": "BIGINT"},
        {"id": 1, "name": "number", "type": "BIGINT"},
    ],
    "primary_keys": [],
    "partition_keys": [],
    "options": {"bucket": "-1"},
}
COLUMNS = "process BIGINT, number BIGINT"
SECONDS = 100  # until a test fails that would hang


def to_catalog(options: dict[str, str]) -> Catalog:
    opened: dict[str, Any] = {**options}
    return Catalog(**opened)


def locked(metastore: HiveMetastore, **more: Any) -> dict[str, str]:
    return metastore.options(lock__enabled="true", lock_check_max_sleep="100 ms", **more)


def append(table: Table, process: int, number: int) -> None:
    table.append(pa.table({"process": [process], "number": [number]}))


def count_rows(table: Table) -> int:
    return int(table.scan().to_arrow().num_rows)


@contextmanager
def held_by_java(peer: Peer, options: dict[str, str], file: Path) -> Iterator[Future[None]]:
    """Hold the lock of the table in a peer, which answers no other command meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(peer.run, "hold_lock", options, path=str(file))
        try:
            while not file.exists():
                assert not holding.done(), holding.result()
                time.sleep(0.02)
            yield holding
        finally:
            file.unlink(missing_ok=True)


def wait_for_second_lock(metastore: HiveMetastore, waiting: Future[Any]) -> None:
    """Wait until a commit waits for the acquired lock; earlier requests must be withdrawn."""
    while len(states := [each["state"] for each in metastore.stored()["locks"]]) == 1:
        assert not waiting.done(), waiting.result()
        time.sleep(0.02)
    assert states == [1, 2], "acquired and waiting"


def hold_until(options: dict[str, str], file: str) -> None:
    """Hold the lock in a process of its own, until a file is deleted."""
    lock = to_catalog(options).table("db.t").environment.lock
    assert lock is not None
    with lock.hold():
        Path(file).touch()
        while Path(file).exists():
            time.sleep(0.02)


def append_all(process: int, options: dict[str, str], count: int, barrier: Any) -> None:
    table = to_catalog(options).table("db.t")
    barrier.wait(SECONDS)
    for number in range(count):
        append(table, process, number)


def test_locks_are_taken_by_default_in_object_stores(hive_metastore: HiveMetastore) -> None:
    catalog = to_catalog(hive_metastore.options())
    assert catalog.create_table("db.t", COLUMNS).environment.lock is None
    options = {**hive_metastore.options(), "warehouse": "s3://bucket/lake"}
    assert to_catalog(options).table("db.t").environment.lock is not None
    off = {**options, "lock.enabled": "false"}
    assert to_catalog(off).table("db.t").environment.lock is None


@EACH_RELEASE
def test_a_commit_waits_for_the_lock_of_java(
    hive_metastore: HiveMetastore, hive_java: Peer, tmp_path: Path
) -> None:
    options = locked(hive_metastore)
    hive_java.run("create", options, spec=SPEC)
    table = to_catalog(options).table("db.t")
    impatient = to_catalog({**options, "lock-acquire-timeout": "1 s"})

    with held_by_java(hive_java, options, tmp_path / "held") as holding:
        with pytest.raises(LockTimeoutError, match=r"held by lock \d+ of .* \(Unknown\)") as raised:
            append(impatient.table("db.t"), 1, 1)
        assert "nothing was changed" in str(raised.value)
        with pytest.raises(LockTimeoutError):
            impatient.alter_table("db.t", [AddColumn(column="w", type="INT")])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(append, table, 1, 1)
            wait_for_second_lock(hive_metastore, waiting)
            (tmp_path / "held").unlink()
            waiting.result(SECONDS)
        holding.result(SECONDS)

    assert hive_metastore.stored()["locks"] == []
    assert table.stores.schemas.ids() == [0]
    assert hive_java.read(options) == [{"process": 1, "number": 1}]
    folder = Path(table.paths.root)
    assert len(list(folder.glob("snapshot/snapshot-*"))) == 1
    kept = [len(list(folder.glob(pattern))) for pattern in ("manifest/*", "bucket-0/*")]
    assert kept == [3, 1], "the files of refused commits were deleted"


@EACH_RELEASE
def test_java_waits_for_our_lock(
    hive_metastore: HiveMetastore, hive_java: Peer, tmp_path: Path
) -> None:
    options = locked(hive_metastore)
    table = to_catalog(options).create_table("db.t", COLUMNS, options={"bucket": "-1"})
    lock = table.environment.lock
    assert lock is not None

    with lock.hold():
        [stored] = hive_metastore.stored()["locks"]
        expected = {"dbname": "db", "tablename": "t", "type": 3, "state": 1}
        assert expected.items() <= stored.items()
        impatient = {**options, "lock-acquire-timeout": "1 s"}
        with pytest.raises(PeerError, match="Acquire lock failed"):
            hive_java.run("alter", impatient, changes=[["add", "w", "INT"]])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                hive_java.run, "write", options, rows=[{"process": 2, "number": 2}]
            )
            wait_for_second_lock(hive_metastore, waiting)
            assert table.snapshot() is None
            lock_id = stored["lockid"]
            HiveClient(table.environment.lock.client.address).read(  # type: ignore[union-attr]
                "unlock", import_thrift_types().UnlockRequest(lockid=lock_id)
            )
            waiting.result(SECONDS)

    assert count_rows(table) == 1
    assert hive_metastore.stored()["locks"] == []


def test_branches_have_locks_of_their_own(hive_metastore: HiveMetastore) -> None:
    options = locked(hive_metastore, lock_acquire_timeout="1 s")
    catalog = to_catalog(options)
    table = catalog.create_table("db.t", COLUMNS)
    append(table, 0, 0)
    table.tags.create("base")
    table.branches.create("Dev", tag="base")
    branch = catalog.table("db.t$branch_Dev")
    assert branch.environment.lock is not None
    with branch.environment.lock.hold():
        [stored] = hive_metastore.stored()["locks"]
        assert stored["tablename"].lower() == "t$branch_dev"
        append(table, 1, 1)
        with pytest.raises(LockTimeoutError):
            append(branch, 1, 1)
    append(branch, 2, 2)
    assert (count_rows(table), count_rows(branch)) == (2, 2)


@EACH_RELEASE
def test_names_of_locks_are_lower_case(hive_metastore: HiveMetastore) -> None:
    # Hive finds tables by names in any case, but release 2.3 compares the names of locks.
    options = locked(hive_metastore, lock_acquire_timeout="1 s")
    table = to_catalog(options).create_table("db.t", COLUMNS)
    lock = to_catalog(options).table("DB.T").environment.lock
    assert lock is not None
    with lock.hold(), pytest.raises(LockTimeoutError):
        append(table, 1, 1)


def test_all_commits_of_eight_processes_are_kept(hive_metastore: HiveMetastore) -> None:
    options = locked(hive_metastore)
    table = to_catalog(options).create_table("db.t", COLUMNS, options={"commit.max-retries": "200"})
    barrier = multiprocessing.get_context("spawn").Barrier(8)
    race = start_race(8, append_all, options, 4, barrier)
    race.join(SECONDS)
    assert race.exitcode == 0
    rows = table.scan().to_arrow().to_pylist()
    assert sorted((each["process"], each["number"]) for each in rows) == [
        (process, number) for process in range(8) for number in range(4)
    ]
    newest = table.snapshot()
    assert newest is not None
    assert newest.id == 32
    assert hive_metastore.stored()["locks"] == []


@EACH_RELEASE
def test_the_lock_of_a_killed_process_expires(
    hive_metastore: HiveMetastore, tmp_path: Path
) -> None:
    options = locked(hive_metastore)
    table = to_catalog(options).create_table("db.t", COLUMNS)
    impatient = to_catalog({**options, "lock-acquire-timeout": "200 ms"}).table("db.t")
    held = tmp_path / "held"
    holder = multiprocessing.get_context("spawn").Process(
        target=hold_until, args=(options, str(held))
    )
    holder.start()
    try:
        while not held.exists():
            assert holder.is_alive()
            time.sleep(0.02)
        assert holder.pid is not None
        os.kill(holder.pid, signal.SIGKILL)
        holder.join()
        named = rf"paimon-orch, process {holder.pid}\)"
        with pytest.raises(LockTimeoutError, match=named):
            append(impatient, 1, 1)
        hive_metastore.expire_locks()
        append(table, 2, 2)
    finally:
        holder.kill()
    assert count_rows(table) == 1
    assert hive_metastore.stored()["locks"] == []


def test_a_failed_release_is_a_warning(
    hive_metastore: HiveMetastore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = to_catalog(locked(hive_metastore)).create_table("db.t", COLUMNS)
    read = HiveClient.read

    def fail(client: HiveClient, method: str, *arguments: Any) -> Any:
        if method == "unlock":
            raise CatalogUnavailableError("the metastore is gone")
        return read(client, method, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(HiveClient, "read", fail)
        append(table, 1, 1)
    assert count_rows(table) == 1
    assert "of db.t is not released: the metastore is gone" in caplog.text
    [lock] = hive_metastore.stored()["locks"]
    types = import_thrift_types()
    client = HiveClient(table.environment.lock.client.address)  # type: ignore[union-attr]
    client.read("unlock", types.UnlockRequest(lockid=lock["lockid"]))


def test_an_interrupted_wait_withdraws_the_request(
    hive_metastore: HiveMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = to_catalog(locked(hive_metastore)).create_table("db.t", COLUMNS)
    lock = table.environment.lock
    assert lock is not None
    waited = threading.Event()

    def interrupt(_seconds: float) -> None:
        waited.set()
        raise KeyboardInterrupt

    with lock.hold():
        with monkeypatch.context() as patch:
            replace_time(patch, HiveLock.__module__, sleep=interrupt)
            with pytest.raises(KeyboardInterrupt):
                append(table, 1, 1)
        assert waited.is_set()
        assert len(hive_metastore.stored()["locks"]) == 1
    assert hive_metastore.stored()["locks"] == []
