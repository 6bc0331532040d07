"""Spark resources for runs without Spark."""

from collections.abc import Callable
from typing import Any

from paimon_orch.dagster import SparkSessionResource
from paimon_orch.steps.common.executor import Executor, InProcessExecutor


class UnavailableSparkResource(SparkSessionResource):
    """The executor of the library, with a session that fails to start."""

    def session(self) -> Any:
        raise AssertionError("this run must not start Spark")


class InProcessSparkResource(UnavailableSparkResource):
    """Runs work units in this process; a session fails to start."""

    def build_executor(self, choice: object = None) -> Executor:  # noqa: ARG002
        return InProcessExecutor()


class NoSessionSparkResource(InProcessSparkResource):
    """Runs work units in this process; the session is None, for loads that do not use it."""

    def session(self) -> Any:
        return None


class RecordedExecutor(InProcessExecutor):
    """Runs work units in this process, and adds the labels of jobs to a list."""

    def __init__(self, labels: list[str]) -> None:
        self._labels = labels

    def map(self, run: Callable[[Any], bytes], units: Any, **options: Any) -> list[bytes]:
        self._labels.append(options["label"])
        return super().map(run, units, **options)

    def shuffle(self, split: Any, units: Any, join: Any, **options: Any) -> list[bytes]:
        self._labels.append(options["label"])
        return super().shuffle(split, units, join, **options)


def build_recorded_resource(labels: list[str], **attributes: Any) -> SparkSessionResource:
    """Return a resource that adds to a list what the library would run on Spark.

    The work runs in this process.
    """

    class RecordedSparkResource(UnavailableSparkResource):  # Dagster copies its objects
        def _make_spark_executor(self) -> Executor:
            return RecordedExecutor(labels)

    return RecordedSparkResource(**attributes)
