"""Spark resources for runs without Spark."""

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
