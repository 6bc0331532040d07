"""Links a Dagster run with its work: executors, labels of Spark jobs, UI links, logged progress."""

import time

import dagster as dg

from paimon_orch.dagster.error_conversion import ExecutionContext, get_op_context
from paimon_orch.dagster.resources import ExecutorChoice, SparkSessionResource
from paimon_orch.dagster.run_metadata import Metadata
from paimon_orch.steps.common.executor import (
    Executor,
    ForwardingExecutor,
    Progress,
    ThresholdExecutor,
)

LOG_INTERVAL_SECONDS = 10.0


class RunLabelExecutor(ForwardingExecutor):
    """Adds the Dagster run to the description of each Spark job, or on Spark Connect to its tag."""

    def __init__(self, executor: Executor, run: str) -> None:
        self._executor, self._run = executor, run

    def choose_executor(self, unit_count: int, work_bytes: int | None) -> Executor:  # noqa: ARG002
        """Return the wrapped executor."""
        return self._executor

    def build_label(self, label: str) -> str:
        """Return the label followed by the run."""
        return f"{label} ({self._run})"


def build_executor(
    context: ExecutionContext, spark: SparkSessionResource, choice: ExecutorChoice
) -> Executor:
    """Return an executor that labels jobs with the run and the step."""
    op = get_op_context(context)
    return RunLabelExecutor(
        spark.build_executor(choice), f"Dagster run {op.run_id} step {op.op_handle}"
    )


def build_maintenance_executor(
    context: ExecutionContext, spark: SparkSessionResource, choice: ExecutorChoice
) -> Executor:
    """Return an executor for work that is small in most tables, such as deleting files.

    Unless ``choice`` is ``spark``, small work runs in this process, even if the attribute
    ``executor`` of the resource is ``spark`` or its master is a cluster.
    """
    executor = build_executor(context, spark, choice)
    return executor if choice is ExecutorChoice.spark else ThresholdExecutor(lambda: executor)


def build_spark_link_metadata(spark: SparkSessionResource) -> Metadata:
    """Return the links of the Spark session as metadata, or no metadata if there is no session."""
    links = spark.links()
    metadata: Metadata = {f"paimon/spark_{name}": text for name, text in links.items()}
    if "ui" in links:
        metadata["paimon/spark_ui"] = dg.MetadataValue.url(links["ui"])
    return metadata


def build_progress_logger(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    name: str,
    *,
    interval_seconds: float = LOG_INTERVAL_SECONDS,
) -> Progress:
    """Return a callback that logs the progress of work, at most once per interval."""
    last = time.monotonic()

    def progress(completed: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= interval_seconds:
            last = time.monotonic()
            context.log.info("%s: %d of %d work units done", name, completed, total)

    return progress
