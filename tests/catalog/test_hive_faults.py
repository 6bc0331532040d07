"""A Hive metastore that is down, restarts, cuts connections, or refuses a user."""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support.catalogs.cutting_proxy import CuttingProxy, run_cutting_proxy
from support.catalogs.hive_metastore import HiveMetastore

from paimon_orch import Catalog
from paimon_orch.catalog.hive import hive_lock
from paimon_orch.catalog.hive.hive_settings import read_settings
from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    InputError,
    UnsupportedError,
)
from paimon_orch.metastore.hive_client import HiveClient
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("peers")]

ROWS = pa.table({"k": pa.array([1], pa.int32())})


def to_catalog(options: dict[str, str]) -> Catalog:
    opened: dict[str, Any] = {**options}
    return Catalog(**opened)


@pytest.fixture
def metastore(hive_metastores: Callable[[str], HiveMetastore]) -> Iterator[HiveMetastore]:
    """An empty metastore of one release; the client does not depend on the release."""
    metastore = hive_metastores("3.1")
    yield metastore
    metastore.clear()


@pytest.fixture
def proxy(metastore: HiveMetastore) -> Iterator[CuttingProxy]:
    with run_cutting_proxy(metastore.uri) as proxy:
        yield proxy


@pytest.fixture
def options(proxy: CuttingProxy, metastore: HiveMetastore) -> dict[str, str]:
    """The options of a catalog behind the proxy."""
    return {**metastore.options(lock__enabled="true"), "uri": proxy.uri}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def read_ids(table: Table) -> list[int]:
    ids: list[int] = table.scan().to_arrow()["k"].to_pylist()
    return ids


def list_in_child(options: dict[str, str], results: Any) -> None:
    results.put(to_catalog(options).databases())


def test_a_metastore_that_is_down_is_unavailable(tmp_path: Path) -> None:
    uri = f"thrift://127.0.0.1:{free_port()}"
    catalog = to_catalog({"metastore": "hive", "uri": uri, "warehouse": str(tmp_path)})
    with pytest.raises(CatalogUnavailableError, match=f"no connection to the Hive metastore {uri}"):
        catalog.databases()
    with pytest.raises(CatalogUnavailableError):
        catalog.create_table("db.t", "k INT")
    assert list(tmp_path.iterdir()) == []


def test_a_silent_metastore_is_unavailable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = {
            "metastore": "hive",
            "uri": f"thrift://127.0.0.1:{server.getsockname()[1]}",
            "warehouse": str(tmp_path),
            "hive.metastore.client.socket.timeout": "300 ms",
        }
        with pytest.raises(CatalogUnavailableError, match="cannot be used: read timeout"):
            to_catalog(options).databases()


def test_addresses_are_tried_in_turn(metastore: HiveMetastore) -> None:
    uris = f"thrift://127.0.0.1:{free_port()},{metastore.uri}"
    assert to_catalog({**metastore.options(), "uri": uris}).databases() == ["default"]


def test_threads_and_forked_processes_have_connections_of_their_own(
    metastore: HiveMetastore,
) -> None:
    options = metastore.options()
    catalog = to_catalog(options)
    names = [*(f"db{number}" for number in range(8)), "default"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(catalog.create_database, names[:-1]))
        lists = list(pool.map(lambda _: catalog.databases(), range(40)))
    assert lists == [names] * 40
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=list_in_child, args=(options, results)) for _ in range(4)]
    for child in children:
        child.start()
    assert [catalog.databases() for _ in range(20)] == [names] * 20
    assert [results.get(timeout=100) for _ in children] == [names] * 4
    for child in children:
        child.join()
    assert catalog.databases() == names


def test_a_read_is_repeated_once(proxy: CuttingProxy, options: dict[str, str]) -> None:
    catalog = to_catalog(options)
    proxy.cut("get_all_databases", after=True)
    assert catalog.databases() == ["default"]
    assert proxy.requests.count("get_all_databases") == 2
    proxy.cut("get_all_databases", after=False, times=2)
    with pytest.raises(CatalogUnavailableError, match="the connection was cut twice"):
        catalog.databases()
    assert catalog.databases() == ["default"]


@pytest.mark.parametrize("after", [False, True])
def test_a_database_is_not_created_twice(
    proxy: CuttingProxy, options: dict[str, str], after: bool
) -> None:
    catalog = to_catalog(options)
    proxy.cut("create_database", after=after)
    with pytest.raises(CommitOutcomeUnknownError, match=r"not known whether .* create_database"):
        catalog.create_database("db")
    assert proxy.requests.count("create_database") == int(after)
    assert ("db" in catalog.databases()) == after


def test_a_cut_creation_is_looked_up(proxy: CuttingProxy, options: dict[str, str]) -> None:
    catalog = to_catalog(options)
    proxy.cut("create_table", after=True)
    table = catalog.create_table("db.t", "k INT")
    assert proxy.requests.count("create_table") == 1
    table.append(ROWS)

    proxy.cut("create_table", after=False)
    with pytest.raises(CommitOutcomeUnknownError, match="create_table"):
        catalog.create_table("db.u", "k INT")
    assert catalog.tables("db") == ["t"]
    with pytest.raises(AlreadyExistsError, match="that the metastore does not have"):
        catalog.create_table("db.u", "k INT")


@pytest.mark.parametrize("after", [False, True])
def test_a_cut_change_keeps_its_schema_file(
    proxy: CuttingProxy, options: dict[str, str], after: bool
) -> None:
    catalog = to_catalog(options)
    table = catalog.create_table("db.t", "k INT")
    proxy.cut("alter_table_with_environment_context", after=after)
    with pytest.raises(CommitOutcomeUnknownError, match="alter_table"):
        catalog.alter_table("db.t", [AddColumn(column="v", type="INT")])
    assert proxy.requests.count("alter_table_with_environment_context") == int(after)
    assert table.stores.schemas.ids() == [0, 1]
    catalog.alter_table("db.t", [AddColumn(column="w", type="INT")])
    assert table.load().schema.names == ["k", "v", "w"]


def test_cut_renames_and_drops_are_looked_up(proxy: CuttingProxy, options: dict[str, str]) -> None:
    catalog = to_catalog(options)
    catalog.create_table("db.t", "k INT").append(ROWS)
    proxy.cut("alter_table", after=False)
    with pytest.raises(CommitOutcomeUnknownError):
        catalog.rename_table("db.t", "db.u")
    proxy.cut("alter_table", after=True)
    renamed = catalog.rename_table("db.t", "db.u")
    assert read_ids(renamed) == [1]
    proxy.cut("drop_table_with_environment_context", after=False)
    with pytest.raises(CommitOutcomeUnknownError):
        catalog.drop_table("db.u")
    assert read_ids(renamed) == [1]
    proxy.cut("drop_table_with_environment_context", after=True)
    catalog.drop_table("db.u")
    assert catalog.tables("db") == []
    assert not Path(renamed.paths.root).exists()


@pytest.mark.parametrize("after", [False, True])
def test_a_commit_without_an_answer_to_its_lock_changes_nothing(
    proxy: CuttingProxy, options: dict[str, str], metastore: HiveMetastore, after: bool
) -> None:
    table = to_catalog(options).create_table("db.t", "k INT")
    proxy.cut("lock", after=after)
    with pytest.raises(CatalogUnavailableError, match=r"lock of db\.t was not acquired .* nothing"):
        table.append(ROWS)
    root = Path(table.paths.root)
    assert table.snapshot() is None
    assert list(root.glob("manifest/*")) == []
    assert list(root.glob("bucket-*/*")) == []
    assert len(metastore.stored()["locks"]) == int(after)
    if not after:
        proxy.cut("unlock", after=True)
        table.append(ROWS)
        assert read_ids(table) == [1]
        assert metastore.stored()["locks"] == [], "the release was repeated"


def test_work_continues_after_a_restart(metastore: HiveMetastore) -> None:
    catalog = to_catalog(metastore.options(lock__enabled="true"))
    table = catalog.create_table("db.t", "k INT")
    table.append(ROWS)
    metastore.kill()
    try:
        assert read_ids(table) == [1], "reading needs no metastore"
        with pytest.raises(CatalogUnavailableError):
            catalog.table("db.t")
        with pytest.raises(CatalogUnavailableError):
            table.append(ROWS)
    finally:
        metastore.start()

    # The first request notices that its connection is gone before it is sent.
    table.append(ROWS)
    catalog.alter_table("db.t", [AddColumn(column="v", type="INT")])
    assert read_ids(catalog.table("db.t")) == [1, 1]


def test_a_wait_survives_a_restart(
    metastore: HiveMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping, restarted = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        sleeping.set()
        restarted.wait(100)

    waits = SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=sleep)
    monkeypatch.setattr(hive_lock, "time", waits)
    catalog = to_catalog(metastore.options(lock__enabled="true"))
    table = catalog.create_table("db.t", "k INT")
    lock = table.environment.lock
    assert lock is not None
    with ThreadPoolExecutor(1) as pool:
        with lock.hold():
            waiting = pool.submit(table.append, ROWS)
            assert sleeping.wait(100)  # the answer has arrived
            assert len(metastore.stored()["locks"]) == 2
            metastore.kill()
            metastore.start()
            assert not waiting.done()
            restarted.set()
        waiting.result(100)
    assert read_ids(table) == [1]
    assert metastore.stored()["locks"] == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("MetaException(message='Permission.NotAllow: user a')", AccessDeniedError),
        ("MetaException(message='AccessControlException Permission denied: x')", AccessDeniedError),
        ("MetaException(message='Unable to acquire a connection')", CatalogUnavailableError),
        ("InvalidOperationException(message='no')", InputError),
    ],
)
def test_answers_become_errors_by_their_type(
    metastore: HiveMetastore, monkeypatch: pytest.MonkeyPatch, error: str, expected: type[Exception]
) -> None:
    from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes

    name, _, message = error.removesuffix("')").partition("(message='")

    def fail(*_arguments: Any) -> None:
        raise getattr(ttypes, name)(message=message)

    monkeypatch.setattr(ThriftHiveMetastore.Client, "get_all_databases", fail)
    with pytest.raises(expected, match=message):
        to_catalog(metastore.options()).databases()


def test_a_method_that_the_metastore_lacks_is_unsupported(
    hive_metastores: Callable[[str], HiveMetastore],
) -> None:
    client = HiveClient(read_settings(hive_metastores("2.3").options()).address)
    with pytest.raises(UnsupportedError, match=r"get_catalogs.*; Hive 2\.3 or newer is needed"):
        client.read("get_catalogs")
    assert client.read("get_all_databases") == ["default"]
