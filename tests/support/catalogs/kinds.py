"""Catalogs of each kind under one configured name, so that tests of steps can run through all.

Helpers that take the folder of a warehouse also take the name of a catalog: ``ROOT``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.catalogs.fixtures import prepare_rest_server
from support.catalogs.hive_metastore import HiveMetastore, StartHiveMetastore
from support.catalogs.jdbc_databases import (
    PostgresServer,
    create_postgres_database,
    create_sqlite_database,
)
from support.catalogs.rest_server import JAVA_2_0, PYPAIMON_1_4, RestServer, run_rest_server

from paimon_orch import Catalog
from paimon_orch.catalog.named_catalogs import CONFIG_FILE, HOME_VARIABLE

SQLITE, POSTGRESQL, HIVE = "sqlite", "postgresql", "hive-3.1"
KINDS = (SQLITE, POSTGRESQL, HIVE, JAVA_2_0, PYPAIMON_1_4)
NAME = "under-test"
ROOT = Path(NAME)
LOCK_SECONDS = 2
"""How long the Hive metastore keeps the lock of a process that died."""

_LOCKS = {
    "lock.enabled": "true",
    "lock-acquire-timeout": f"{4 * LOCK_SECONDS} s",
    "lock-check-max-sleep": "100 ms",
}
GetService = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class CatalogUnderTest:
    """An empty catalog that is configured as ``NAME``."""

    kind: str
    options: Mapping[str, str]

    @property
    def is_rest(self) -> bool:
        """Return whether a server makes the commits."""
        return self.options["metastore"] == "rest"

    def open(self) -> Catalog:
        """Open the catalog by its name."""
        return Catalog(NAME)

    def clear(self) -> None:
        """Drop all databases and tables, and their files, which the server of pypaimon keeps."""
        catalog = self.open()
        for database in catalog.databases():
            if database != "default":  # each metastore has it
                roots = [
                    catalog.table(f"{database}.{t}").paths.root for t in catalog.tables(database)
                ]
                catalog.drop_database(database, cascade=True)
                for root in roots:
                    shutil.rmtree(root, ignore_errors=True)


@contextmanager
def open_kind(
    kind: str, folder: Path, get_service: GetService, patch: pytest.MonkeyPatch
) -> Iterator[CatalogUnderTest]:
    """Configure an empty catalog of a kind; its server is shared with other tests.

    ``get_service`` returns the value of a fixture of the session.
    """
    with ExitStack() as services:
        options = _open_service(kind, folder, get_service, services)
        content = json.dumps({"catalog": {NAME: options}})
        (folder / CONFIG_FILE).write_text(content, encoding="utf-8")  # JSON is YAML
        patch.setenv(HOME_VARIABLE, str(folder))
        catalog = CatalogUnderTest(kind, options)
        services.callback(catalog.clear)
        yield catalog


def _open_service(
    kind: str, folder: Path, get_service: GetService, services: ExitStack
) -> dict[str, str]:
    warehouse = folder / "warehouse"
    if kind == SQLITE:
        return create_sqlite_database(folder / "catalog.db").options(warehouse) | _LOCKS
    if kind == POSTGRESQL:
        server = get_service("postgres")
        assert isinstance(server, PostgresServer)
        database = services.enter_context(create_postgres_database(server))
        return database.options(warehouse) | _LOCKS
    if kind == HIVE:
        metastore = get_service("short_lock_metastore")
        assert isinstance(metastore, HiveMetastore)
        return metastore.options(warehouse) | _LOCKS
    server_of = get_service("rest_servers")
    assert callable(server_of)
    server = server_of(kind)
    assert isinstance(server, RestServer)
    return {name: str(value) for name, value in server.options.items()}


@pytest.fixture(scope="session")
def short_lock_metastore(start_hive_metastore: StartHiveMetastore) -> HiveMetastore:
    """A metastore that soon removes the locks of processes that died."""
    return start_hive_metastore("3.1", hive__txn__timeout=f"{LOCK_SECONDS}s")


@pytest.fixture(scope="session")
def rest_servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], RestServer]]:
    """Return a function from names to REST servers; each is started once."""
    running: dict[str, RestServer] = {}
    with ExitStack() as servers:

        def get(name: str) -> RestServer:
            if name not in running:
                prepare_rest_server(name)
                folder = tmp_path_factory.mktemp(name) / "served"
                running[name] = servers.enter_context(run_rest_server(name, folder))
            return running[name]

        yield get


@pytest.fixture(params=KINDS)
def catalog_under_test(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CatalogUnderTest]:
    """An empty catalog of each kind, configured as ``NAME``."""
    with open_kind(request.param, tmp_path, request.getfixturevalue, monkeypatch) as catalog:
        yield catalog
