"""One deployment for all tests of the daemon, with SQLite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.dagster.deployment import LIVE_LOCATION, Commit, Deployment
from support.dagster.location import SENSOR_TABLES

from paimon_orch import Catalog
from paimon_orch.table.table import Table


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the sensors and lake.months, with one bucket each."""
    path = tmp_path_factory.mktemp("warehouse")
    for name in (*SENSOR_TABLES, "lake.months"):
        Catalog(str(path)).create_table(
            name,
            "dt STRING, id BIGINT, amount INT",
            primary_key=["dt", "id"],
            partition_by=["dt"],
            options={"bucket": "1", "deletion-vectors.enabled": "true"},
        )
    return path


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a file ``shut`` makes compactions wait.

    Each compaction creates a file with the id of its process in it.
    """
    return tmp_path_factory.mktemp("gate")


@pytest.fixture(scope="module")
def environment(warehouse: Path, gate: Path) -> dict[str, str]:
    return {"PAIMON_WAREHOUSE": str(warehouse), "LIVE_GATE": str(gate)}


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, repository: Path, environment: dict[str, str]
) -> Iterator[Deployment]:
    deployment = Deployment(
        tmp_path_factory.mktemp("live") / "home",
        repository,
        location=LIVE_LOCATION,
        environment=environment,
        config={
            "run_retries": {"enabled": True, "max_retries": 1},
            "run_monitoring": {"enabled": True, "poll_interval_seconds": 1},
        },
    )
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.close()


@pytest.fixture(scope="module")
def table(warehouse: Path) -> Callable[[str], Table]:
    """Opens a table of the warehouse."""
    return Catalog(str(warehouse)).table


@pytest.fixture(scope="module")
def commit(table: Callable[[str], Table]) -> Commit:
    """Commits one snapshot with rows of the given partitions."""

    def upsert(name: str, *partitions: str) -> None:
        rows = [{"dt": value, "id": n, "amount": n} for value in partitions for n in range(3)]
        table(name).upsert(pa.Table.from_pylist(rows))

    return upsert
