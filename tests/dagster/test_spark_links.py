"""Runs and their Spark jobs reference each other, and terminated runs cancel their jobs."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from support.dagster.interrupted import interrupt_compaction

from paimon_orch.dagster import PaimonCatalogResource, SparkSessionResource, build_compaction_asset
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.dagster.spark_links import build_spark_link_metadata
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Upsert = Callable[..., None]
DAY = "2026-01-01"


def test_a_run_and_its_spark_job_reference_each_other(
    spark: "SparkSession", orders: Table, upsert: Upsert, paimon: PaimonCatalogResource
) -> None:
    upsert(orders, DAY)
    resources = {"paimon": paimon, "spark": SparkSessionResource(executor=ExecutorChoice.spark)}

    result = dg.materialize([build_compaction_asset("lake.orders")], resources=resources)

    [event] = result.get_asset_materialization_events()
    application = event.materialization.metadata["paimon/spark_application_id"].value
    assert application == spark.sparkContext.applicationId
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    described = [jobs.apply(number).description().toString() for number in range(jobs.size())]
    name = f"compact lake.orders (Dagster run {result.run_id} step lake__orders__orders_compaction)"
    assert any(name in text for text in described)


def test_the_spark_ui_is_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"application_id": "local-1", "ui": "http://spark:4040"}
    monkeypatch.setattr(SparkSessionResource, "links", lambda _: links)

    assert build_spark_link_metadata(SparkSessionResource()) == {
        "paimon/spark_application_id": "local-1",
        "paimon/spark_ui": dg.MetadataValue.url("http://spark:4040"),
    }


@pytest.mark.slow
def test_links_are_omitted_without_a_session() -> None:
    code = (
        "from paimon_orch.dagster import SparkSessionResource as R; import sys;"
        "print(R().links(), 'pyspark' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert process.stdout.split() == ["{}", "False"]


def assert_untouched(table: Table, folder: Path) -> None:
    """Assert that the run committed and damaged nothing, and that a later run can compact."""
    assert table.stores.snapshots.latest_id() == 1
    assert check(table)
    assert not (folder / "ended").exists()
    assert compact(table, InProcessExecutor()).snapshot_id == 2


def test_an_interrupted_run_cancels_its_spark_job_and_commits_nothing(
    spark: "SparkSession", orders: Table, upsert: Upsert, tmp_path: Path
) -> None:
    upsert(orders, DAY)

    raised = interrupt_compaction(
        str(tmp_path / "warehouse"),
        tmp_path,
        signal=Signals.SIGINT,
        executor=ExecutorChoice.spark,
    )

    assert raised is dg.DagsterExecutionInterruptedError
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
    assert spark.range(3).count() == 3
    assert_untouched(orders, tmp_path)


@pytest.mark.slow
def test_an_interrupted_run_ends_its_worker_processes_and_commits_nothing(
    orders: Table, upsert: Upsert, tmp_path: Path
) -> None:
    upsert(orders, DAY)

    raised = interrupt_compaction(
        str(tmp_path / "warehouse"),
        tmp_path,
        signal=Signals.SIGINT,
        executor=ExecutorChoice.local,
    )

    assert raised is dg.DagsterExecutionInterruptedError
    assert_untouched(orders, tmp_path)


@pytest.mark.spark
@pytest.mark.xdist_group("connect")  # the server always listens on the same port
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_terminated_run_cancels_its_spark_connect_job_and_commits_nothing(
    repository: Path, orders: Table, upsert: Upsert, tmp_path: Path
) -> None:
    """The run uses a separate process, because a process can have only one kind of session."""
    upsert(orders, DAY)

    program = repository / "tests" / "support" / "dagster" / "interrupted.py"
    arguments = [str(tmp_path / "warehouse"), str(tmp_path)]
    process = subprocess.run(
        [sys.executable, program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert process.stdout.strip() == "DagsterExecutionInterruptedError", process.stderr
    assert_untouched(orders, tmp_path)
