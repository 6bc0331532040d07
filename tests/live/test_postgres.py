"""A Dagster instance in PostgreSQL, with the configuration in docs/production.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import pytest
from support.dagster.deployment import LIVE_LOCATION, Commit, Deployment, wait_for_result
from support.postgres import find_postgres_home, run_postgres_server

from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

HOME = find_postgres_home()
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(HOME is None, reason="PostgreSQL is not installed"),
    pytest.mark.skipif(
        find_spec("dagster_postgres") is None, reason="dagster-postgres is not installed"
    ),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server, with environment variables for its address."""
    assert HOME
    with run_postgres_server(HOME) as port:
        for name, value in {
            "HOST": "127.0.0.1",
            "USER": "postgres",
            "PASSWORD": "trusted",
            "DB": "postgres",
            "PORT": str(port),
        }.items():
            monkeypatch.setenv(f"DAGSTER_PG_{name}", value)
        yield


@pytest.fixture
def documented_config(repository: Path) -> str:
    text = (repository / "docs" / "production.md").read_text()
    [config] = re.findall(r"```yaml\n(storage:\n  postgres:.*?)```", text, re.DOTALL)
    return str(config)


@pytest.fixture
def deployment(
    tmp_path: Path,
    repository: Path,
    environment: dict[str, str],
    server: None,
    documented_config: str,
) -> Iterator[Deployment]:
    deployment = Deployment(
        tmp_path / "home",
        repository,
        location=LIVE_LOCATION,
        environment=environment,
        more_config=documented_config,
    )
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.close()


def test_the_sensor_cursor_the_partitions_and_the_runs_are_stored_in_postgresql(
    deployment: Deployment,
    commit: Commit,
    table: Callable[[str], Table],
) -> None:
    commit("lake.orders", "2026-01-01")
    deployment.start_daemon()

    with deployment.instance() as instance:
        successful = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS])
        wait_for_result(lambda: instance.get_runs(successful), deployment.logs)

        assert instance.get_dynamic_partitions("paimon/lake.orders") == ["2026-01-01"]
        [state] = [s for s in instance.all_instigator_state() if "orders" in s.instigator_name]
        assert getattr(state.instigator_data, "cursor", None)
    assert inspect(table("lake.orders")).level0_files == 0
    assert not list(deployment.home.rglob("*.db"))
