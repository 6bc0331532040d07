"""A step in a process that a client of Dagster Pipes starts."""

import json
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from support.tables import new_table, table_of

from paimon_orch.table.table import Table

pytestmark = [  # Dagster's own client calls these
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.run_id is deprecated"),
    pytest.mark.filterwarnings("ignore:Function `PipesMessageReader.expected_writer_count`"),
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path, "k INT, v STRING", key=("k",))
    for value in "xy":
        created.upsert(table_of("k v", [(1, value)]))
    return created


def build_command(root: Path, step: str, **values: Any) -> list[str]:
    document = {"step": step, "catalog": str(root), "table": "db.t", **values}
    return [sys.executable, "-m", "paimon_orch.run_step", json.dumps(document)]


def test_an_asset_gets_the_figures_of_a_compaction_in_another_process(
    tmp_path: Path, table: Table
) -> None:
    command = build_command(tmp_path, "compact", arguments={"strategy": "full"})

    @dg.asset
    def orders(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        client = dg.PipesSubprocessClient()
        return client.run(context=context, command=command).get_materialize_result()

    result = dg.materialize([orders])

    [materialization] = result.asset_materializations_for_node("orders")
    metadata = {name: each.value for name, each in materialization.metadata.items()}
    assert metadata["paimon/compact_files_before"] == 2
    assert metadata["paimon/compact_files_after"] == 1
    assert metadata["paimon/dry_run"] is False
    assert metadata["paimon/compact_snapshot_id"] == "3"
    report: Any = metadata["paimon/report"]
    assert report["outcome"]["snapshot_id"] == table.stores.snapshots.latest_id() == 3


@pytest.mark.slow
def test_an_op_gets_the_report_of_a_failed_step_and_fails(tmp_path: Path, table: Table) -> None:
    @dg.op
    def expire(context: dg.OpExecutionContext) -> None:
        client = dg.PipesSubprocessClient()
        command = build_command(tmp_path, "expire-snapshots", arguments={"retain_max": 1})
        client.run(context=context, command=command)

    @dg.job
    def expire_job() -> None:
        expire()

    result = expire_job.execute_in_process(raise_on_error=False)

    assert not result.success
    failure = result.failure_data_for_node("expire")
    assert failure is not None
    assert "External execution process failed" in str(failure.error)
    assert table.stores.snapshots.ids() == [1, 2]


@pytest.mark.slow
def test_a_dry_run_in_an_op_returns_the_plan_as_a_message(tmp_path: Path, table: Table) -> None:
    messages: list[Any] = []

    @dg.op
    def expire(context: dg.OpExecutionContext) -> None:
        client = dg.PipesSubprocessClient()
        arguments = {"retain_max": 1, "retain_min": 1}
        command = build_command(tmp_path, "expire-snapshots", dry_run=True, arguments=arguments)
        messages.extend(client.run(context=context, command=command).get_custom_messages())

    @dg.job
    def expire_job() -> None:
        expire()

    assert expire_job.execute_in_process().success
    [report] = messages
    assert report["plan"]["snapshots"] == 1
    assert table.stores.snapshots.ids() == [1, 2]
