"""Ticks, queues and pools of a running daemon, for tables that another engine writes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from support.dagster.deployment import LOCATION, Commit, Deployment, wait_for_result
from support.dagster.location import MONTHS, SENSOR_TABLES

from paimon_orch.dagster.names import compaction_asset_key
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

pytestmark = pytest.mark.timeout(400)

BACKFILL = """mutation ($backfill: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $backfill) {
    __typename ... on LaunchBackfillSuccess {backfillId} ... on PythonError {message}
  }
}"""
FAILURE = dg.DagsterRunStatus.FAILURE
TICKS = """query ($sensor: SensorSelector!) {
  sensorOrError(sensorSelector: $sensor) {
    ... on Sensor {sensorState {ticks(limit: 100) {
      status cursor runIds error {message} dynamicPartitionsRequestResults {type partitionKeys}
    }}}
  }
}"""


@pytest.fixture(scope="module")
def instance(deployment: Deployment) -> Iterator[dg.DagsterInstance]:
    with deployment.instance() as opened:
        yield opened


@pytest.fixture(scope="module")
def backfill(deployment: Deployment, commit: Commit) -> str:
    """A backfill launched before the daemon starts, which then processes it immediately."""
    commit("lake.months", *MONTHS)
    answer = deployment.graphql(
        BACKFILL,
        backfill={
            "assetSelection": [{"path": ["lake", "months", "months_compaction"]}],
            "partitionNames": MONTHS,
        },
    )
    return str(answer["launchPartitionBackfill"]["backfillId"])


@pytest.fixture(scope="module")
def daemon(deployment: Deployment, backfill: str) -> Deployment:
    deployment.start_daemon()
    return deployment


@pytest.fixture
def shut(gate: Path) -> Iterator[Path]:
    """Compactions wait until this file is removed."""
    for file in gate.iterdir():
        file.unlink()
    (gate / "shut").touch()
    yield gate / "shut"
    (gate / "shut").unlink(missing_ok=True)


def runs_of(instance: dg.DagsterInstance, table: str, **tags: str) -> Sequence[dg.DagsterRun]:
    """The runs that the sensor of a table requested, the newest first."""
    return instance.get_runs(dg.RunsFilter(tags={"paimon/table": table, **tags}))


def successful_runs(
    instance: dg.DagsterInstance, table: str, partition: str
) -> Sequence[dg.DagsterRun]:
    """The successful runs of a table that materialized a partition, the newest first."""
    key = compaction_asset_key(table)
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(key, asset_partitions=[partition]), limit=10
    ).records
    runs = [instance.get_run_by_id(record.run_id) for record in records]
    return [run for run in runs if run and run.status is dg.DagsterRunStatus.SUCCESS]


def status_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    current = instance.get_run_by_id(run.run_id)
    assert current
    return current.status


def ticks_with_requests(deployment: Deployment, table: str) -> list[dict[str, Any]]:
    sensor = {
        "repositoryLocationName": LOCATION,
        "repositoryName": "__repository__",
        "sensorName": f"latest_snapshot__{table.replace('.', '__')}",
    }
    state = deployment.graphql(TICKS, sensor=sensor)["sensorOrError"]["sensorState"]
    assert not [tick for tick in state["ticks"] if tick["error"]], state
    return [tick for tick in state["ticks"] if tick["runIds"]]


def compacting_processes(gate: Path, table: str) -> list[int]:
    """The ids of the processes that compact a table."""
    return [int(p.name.split()[0]) for p in gate.iterdir() if table in p.name]


def test_one_tick_adds_the_partition_of_a_commit_and_requests_its_compaction(
    daemon: Deployment,
    instance: dg.DagsterInstance,
    commit: Commit,
    table: Callable[[str], Table],
) -> None:
    commit("lake.orders", "2026-01-01")

    wait_for_result(lambda: successful_runs(instance, "lake.orders", "2026-01-01"), daemon.logs)

    assert inspect(table("lake.orders")).level0_files == 0
    [tick] = ticks_with_requests(daemon, "lake.orders")
    [added] = tick["dynamicPartitionsRequestResults"]
    assert added == {"type": "ADD_PARTITIONS", "partitionKeys": ["2026-01-01"]}
    assert len(tick["runIds"]) == 1
    assert instance.get_dynamic_partitions("paimon/lake.orders") == ["2026-01-01"]
    observed = instance.fetch_observations(dg.AssetKey(["lake", "orders"]), limit=1).records
    assert observed[0].asset_observation
    assert observed[0].asset_observation.tags["dagster/data_version"] == "1"


def test_tables_are_compacted_concurrently_and_further_runs_of_a_table_wait_without_a_process(
    daemon: Deployment, instance: dg.DagsterInstance, commit: Commit, gate: Path, shut: Path
) -> None:
    commit("lake.orders", "2026-02-01", "2026-02-02")
    # The pool of lake.events has no runs before. A run has at most two partitions.
    commit("lake.events", "2026-02-01", "2026-02-02", "2026-02-03")
    wait_for_result(
        lambda: (
            compacting_processes(gate, "lake.orders") and compacting_processes(gate, "lake.events")
        ),
        daemon.logs,
    )
    first, second = sorted(
        runs_of(instance, "lake.events"), key=lambda run: "dagster/partition" in run.tags
    )

    statuses = {status_of(instance, run) for run in (first, second)}
    assert statuses == {dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.QUEUED}
    assert len(compacting_processes(gate, "lake.events")) == 1
    assert first.tags["dagster/asset_partition_range_start"] == "2026-02-01"
    assert first.tags["dagster/asset_partition_range_end"] == "2026-02-02"
    assert second.tags["dagster/partition"] == "2026-02-03"
    shut.unlink()
    wait_for_result(
        lambda: all(successful_runs(instance, table, "2026-02-02") for table in SENSOR_TABLES),
        daemon.logs,
    )
    wait_for_result(lambda: successful_runs(instance, "lake.events", "2026-02-03"), daemon.logs)

    steps = [instance.get_run_step_stats(run.run_id)[0] for run in (first, second)]
    earlier, later = sorted(steps, key=lambda step: step.start_time or 0)
    assert earlier.end_time
    assert later.start_time
    assert earlier.end_time <= later.start_time


def test_a_killed_run_frees_its_pool_and_is_retried(
    daemon: Deployment,
    instance: dg.DagsterInstance,
    commit: Commit,
    table: Callable[[str], Table],
    gate: Path,
    shut: Path,
) -> None:
    commit("lake.orders", "2026-03-01")
    [worker] = wait_for_result(lambda: compacting_processes(gate, "lake.orders"), daemon.logs)
    partition = {"dagster/partition": "2026-03-01"}
    [killed] = runs_of(instance, "lake.orders", **partition)

    os.kill(worker, signal.SIGKILL)
    shut.unlink()

    wait_for_result(lambda: status_of(instance, killed) is FAILURE, daemon.logs)
    wait_for_result(lambda: len(runs_of(instance, "lake.orders", **partition)) == 2, daemon.logs)
    [retry] = wait_for_result(
        lambda: successful_runs(instance, "lake.orders", "2026-03-01"), daemon.logs
    )
    assert retry.parent_run_id == killed.run_id
    assert inspect(table("lake.orders")).level0_files == 0


def test_a_restarted_daemon_continues_from_the_last_cursor(
    daemon: Deployment, instance: dg.DagsterInstance, commit: Commit
) -> None:
    if not ticks_with_requests(daemon, "lake.events"):  # no other test runs at the same time
        commit("lake.events", "2026-02-01")
        wait_for_result(lambda: successful_runs(instance, "lake.events", "2026-02-01"), daemon.logs)
    daemon.stop("daemon")
    before = ticks_with_requests(daemon, "lake.events")
    commit("lake.events", "2026-04-02")

    daemon.start_daemon()

    wait_for_result(lambda: successful_runs(instance, "lake.events", "2026-04-02"), daemon.logs)
    newest, *older = ticks_with_requests(daemon, "lake.events")
    assert older == before
    assert len(newest["runIds"]) == 1
    handled = [json.loads(tick["cursor"])["handled"]["snapshot_id"] for tick in (older[0], newest)]
    assert handled[0] < handled[1]


def test_a_backfill_of_twelve_months_compacts_them_in_two_runs(
    daemon: Deployment,
    instance: dg.DagsterInstance,
    backfill: str,
    table: Callable[[str], Table],
) -> None:
    key = dg.AssetKey(["lake", "months", "months_compaction"])

    wait_for_result(lambda: len(instance.get_materialized_partitions(key)) == 12, daemon.logs)

    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
    ranges = sorted(
        (
            run.tags["dagster/asset_partition_range_start"],
            run.tags["dagster/asset_partition_range_end"],
        )
        for run in runs
    )
    assert ranges == [("2026-01", "2026-08"), ("2026-09", "2026-12")]
    assert inspect(table("lake.months")).level0_files == 0
