"""An instance in PostgreSQL, by the configuration that docs/operations.md shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import pytest
from support.dagster.deployment import FAST_INSTANCE_CONFIG, Commit, Deployment, wait_for_result
from support.dagster.postgres import find_postgres_home, run_postgres_server

from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

HOME = find_postgres_home()
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(HOME is None, reason="there are no binaries of a PostgreSQL server"),
    pytest.mark.skipif(find_spec("dagster_postgres") is None, reason="no dagster-postgres"),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server, and the variables that lead there."""
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
def documented(repository: Path) -> str:
    text = (repository / "docs" / "operations.md").read_text()
    [found] = re.findall(r"```yaml\n(storage:\n  postgres:.*?)```", text, re.DOTALL)
    return str(found)


@pytest.fixture
def deployment(
    tmp_path: Path,
    repository: Path,
    environment: dict[str, str],
    server: None,
    documented: str,
) -> Iterator[Deployment]:
    location = ["-f", str(Path(__file__).parents[1] / "support" / "dagster" / "location.py")]
    made = Deployment(
        tmp_path / "home",
        repository,
        location=location,
        environment=environment,
        config=FAST_INSTANCE_CONFIG,
        more_config=documented,
    )
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_sensor_cursor_partitions_and_runs_are_stored_in_postgresql(
    deployment: Deployment,
    commit: Commit,
    table: Callable[[str], Table],
) -> None:
    commit("lake.orders", "2026-01-01")
    deployment.start_daemon()

    with deployment.instance() as instance:
        done = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS])
        wait_for_result(lambda: instance.get_runs(done), deployment.logs)

        assert instance.get_dynamic_partitions("paimon/lake.orders") == ["2026-01-01"]
        [state] = [s for s in instance.all_instigator_state() if "orders" in s.instigator_name]
        assert getattr(state.instigator_data, "cursor", None)
    assert inspect(table("lake.orders")).level0_files == 0
    assert not list(deployment.home.rglob("*.db"))
