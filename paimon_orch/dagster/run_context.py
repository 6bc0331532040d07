"""Links between a Dagster run and its Spark jobs: labels of jobs, and URLs of the Spark UI."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import dagster as dg

from paimon_orch.dagster.metadata import Metadata
from paimon_orch.dagster.resources import SparkSessionResource
from paimon_orch.dagster.retries import ExecutionContext, get_op_context
from paimon_orch.steps.common.executor import Executor, Join, Progress, Undo

U = TypeVar("U")


class RunLabelExecutor:
    """An executor that adds the Dagster run to the labels of its jobs."""

    def __init__(self, executor: Executor, run: str) -> None:
        self._executor, self._run = executor, run

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
    ) -> list[bytes]:
        """Run the units; see :class:`paimon_orch.steps.common.executor.Executor`."""
        run_label = self._add_run_label(label)
        return self._executor.map(run, units, label=run_label, progress=progress, undo=undo)

    def shuffle(
        self,
        split: Callable[[U], Iterable[tuple[int, bytes]]],
        units: Sequence[U],
        join: Join,
        *,
        parts: int,
        label: str,
        progress: Progress | None = None,
    ) -> list[bytes]:
        """Shuffle the results of units; see :class:`paimon_orch.steps.common.executor.Executor`."""
        run_label = self._add_run_label(label)
        return self._executor.shuffle(
            split, units, join, parts=parts, label=run_label, progress=progress
        )

    def _add_run_label(self, label: str) -> str:
        return f"{label} ({self._run})"


def build_executor(context: ExecutionContext, spark: SparkSessionResource) -> Executor:
    """Return an executor whose jobs are labelled with the run and the step."""
    op = get_op_context(context)
    return RunLabelExecutor(spark.executor(), f"Dagster run {op.run_id} step {op.op_handle}")


def build_spark_link_metadata(spark: SparkSessionResource) -> Metadata:
    """Return the links of the Spark session as metadata, nothing without a session."""
    links = spark.links()
    metadata: Metadata = {f"paimon/spark_{name}": text for name, text in links.items()}
    if "ui" in links:
        metadata["paimon/spark_ui"] = dg.MetadataValue.url(links["ui"])
    return metadata
