"""What ties a run of Dagster to its jobs on Spark: each names the other."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import dagster as dg

from paimon_orch.dagster.metadata import Metadata
from paimon_orch.dagster.resources import SparkSessionResource
from paimon_orch.dagster.retries import ExecutionContext, get_op_context
from paimon_orch.steps.common.executor import Executor, Join, Progress, Undo

U = TypeVar("U")


class RunLabelExecutor:
    """An executor whose jobs say which run they belong to: in the description of the job, on Connect in its tag."""

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
        named = self._add_run_label(label)
        return self._executor.map(run, units, label=named, progress=progress, undo=undo)

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
        """Bring together what units found; see :class:`paimon_orch.steps.common.executor.Executor`."""
        named = self._add_run_label(label)
        return self._executor.shuffle(
            split, units, join, parts=parts, label=named, progress=progress
        )

    def _add_run_label(self, label: str) -> str:
        return f"{label} ({self._run})"


def build_executor(context: ExecutionContext, spark: SparkSessionResource) -> Executor:
    """Return the executor of a step, whose jobs name run and step."""
    op = get_op_context(context)
    return RunLabelExecutor(spark.executor(), f"Dagster run {op.run_id} step {op.op_handle}")


def build_spark_link_metadata(spark: SparkSessionResource) -> Metadata:
    """Return where the jobs of a run can be looked at; nothing without a session."""
    found = spark.links()
    metadata: Metadata = {f"paimon/spark_{name}": text for name, text in found.items()}
    if "ui" in found:
        metadata["paimon/spark_ui"] = dg.MetadataValue.url(found["ui"])
    return metadata
