"""Fixtures of all tests; Spark starts with the first test that uses it."""

import functools
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from support import run_times
from support.marks import COLLECTED_ITEMS, mark_items, start_longest_first
from support.spark.class_archive import JVM_OPTIONS
from support.start_conditions import (
    handle_ignored_signals,
    print_like_to_a_pipe,
    reach_this_machine_without_a_proxy,
    use_writable_cache,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from support.catalogs.hive_metastore import HiveMetastore, StartHiveMetastore
    from support.catalogs.jdbc_databases import JdbcDatabase, PostgresServer
    from support.hdfs.cluster import HdfsCluster

# Tests can be slow, so they have no deadline, and the time to generate examples has no limit. If CI
# is set, Hypothesis uses its profile "ci", which has neither.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if not settings.get_current_profile_name().startswith("ci"):
    settings.load_profile("local")

os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)

REPOSITORY = Path(__file__).resolve().parents[1]
WORKER_SITE = REPOSITORY / "tests" / "support" / "spark" / "worker_site"


def pytest_addoption(parser: pytest.Parser) -> None:
    run_times.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Prepare each process of pytest, before it imports test modules."""
    gc.disable()
    handle_ignored_signals()
    print_like_to_a_pipe()
    reach_this_machine_without_a_proxy()
    use_writable_cache(REPOSITORY)
    run_times.register_plugins(config)


# The hooks of xdist and of the option `-m` read the marks, so this hook must run before them.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_items(items)
    config.stash[COLLECTED_ITEMS] = tuple(items)
    start_longest_first(items)


def pytest_collection_finish() -> None:
    """Leave the modules and the tests, which live until the end, to no garbage collection.

    Without this, collections take half of the time in which the tests are found.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _without_fsync() -> Iterator[None]:
    """Disable fsync, which takes most of the time of small tables.

    Tests kill processes, but only a crash of the machine loses files that were not synced.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The session of all tests. Functions for its workers are defined inside the tests."""
    from paimon_orch.spark import spark_session, stop_session

    with pytest.MonkeyPatch.context() as patch:
        # The JVM passes the variable on to the daemons of the Python workers.
        patch.setenv("PYTHONPATH", str(WORKER_SITE), prepend=os.pathsep)
        session = spark_session("local[2]", config={"spark.sql.shuffle.partitions": "2"})
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def postgres() -> "Iterator[PostgresServer]":
    """A PostgreSQL server with a password, for all tests that need one."""
    from support.catalogs.jdbc_databases import run_postgres
    from support.postgres import find_postgres_home

    if find_postgres_home() is None:
        pytest.skip("PostgreSQL is not installed")
    with run_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def jdbc_database(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[JdbcDatabase]":
    """An empty database for a JDBC catalog, of each kind."""
    from support.catalogs.jdbc_databases import create_postgres_database, create_sqlite_database

    if request.param == "sqlite":
        yield create_sqlite_database(tmp_path / "catalog.db")
    else:
        with create_postgres_database(request.getfixturevalue("postgres")) as database:
            yield database


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[HdfsCluster]":
    """An HDFS for all tests that need one; each uses its own directory."""
    from support.hdfs.cluster import prepare_hdfs, run_hdfs
    from support.peers.environments import PeerUnavailableError

    pytest.importorskip("hdfs_native", reason="the tests of HDFS need hdfs-native")
    try:
        prepare_hdfs()
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    with run_hdfs(tmp_path_factory.mktemp("hdfs") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def start_hive_metastore(
    tmp_path_factory: pytest.TempPathFactory,
) -> "Iterator[StartHiveMetastore]":
    """Return `run_hive_metastore` as a function; its servers end with the session."""
    from support.catalogs.hive_metastore import prepare_hive_metastore, run_hive_metastore
    from support.peers.environments import PeerUnavailableError

    with ExitStack() as servers:

        def start(release: str, /, **settings: str) -> "HiveMetastore":
            try:
                prepare_hive_metastore(release)
            except PeerUnavailableError as error:
                pytest.skip(str(error))
            folder = tmp_path_factory.mktemp("hive") / release
            return servers.enter_context(run_hive_metastore(release, folder, **settings))

        yield start


@pytest.fixture(scope="session")
def hive_metastores(
    start_hive_metastore: "StartHiveMetastore",
) -> "Callable[[str], HiveMetastore]":
    """Return a function from releases to metastores; each is started once."""
    return functools.cache(start_hive_metastore)


@pytest.fixture(params=["3.1"])
def hive_metastore(
    request: pytest.FixtureRequest, hive_metastores: "Callable[[str], HiveMetastore]"
) -> "Iterator[HiveMetastore]":
    """An empty Hive metastore; tests that depend on its release set this parameter."""
    metastore = hive_metastores(request.param)
    yield metastore
    metastore.clear()
