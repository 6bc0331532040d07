"""The choice between worker processes of this machine and Spark."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from paimon_orch.errors import InputError
from paimon_orch.optional_packages import is_installed
from paimon_orch.steps.common.executor import (
    Executor,
    ForwardingExecutor,
    FrameExecutor,
    InProcessExecutor,
)

DEFAULT_MASTER = "local[*]"
"""The Spark master of a command that names none."""
MAX_LOCAL_BYTES = 256 << 20
"""With ``auto``, larger work runs on Spark, whose start takes several seconds."""
_SUBMIT_VARIABLE = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it


class ExecutorKind(StrEnum):
    """Where work units run."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


_starts_spark = threading.Lock()
"""Held while Spark may be started, because several tables can need it at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoosingExecutor(ForwardingExecutor):
    """Runs each job on the executor that its size and the user's choice require.

    ``auto`` chooses Spark if a Spark master is given, in programs that ``spark-submit`` started, and
    for work of more than 256 MB if PySpark is installed, and not only its client of Spark Connect.
    """

    make_spark: Callable[[], Executor]
    """Returns an executor on Spark; called only if Spark is needed."""
    kind: ExecutorKind = ExecutorKind.AUTO
    has_master: bool = False
    """Whether the user has chosen a Spark master or a Spark Connect server."""

    def __post_init__(self) -> None:
        if self.kind is ExecutorKind.LOCAL and self.has_master:
            raise InputError(
                "the executor 'local' runs without Spark and cannot be combined with a Spark "
                "master; remove one of them"
            )

    def is_local(self, work_bytes: int | None) -> bool:
        """Return whether work of this size runs without Spark."""
        if self.kind is not ExecutorKind.AUTO:
            return self.kind is ExecutorKind.LOCAL
        is_submitted = _SUBMIT_VARIABLE in os.environ
        if self.has_master or is_submitted:
            return False
        return (work_bytes or 0) <= MAX_LOCAL_BYTES or not is_installed("pyspark.core")

    def choose_executor(self, unit_count: int, work_bytes: int | None) -> Executor:
        """Return the executor for a job; Spark is not started for a job without units."""
        if not unit_count:
            return InProcessExecutor()
        if not self.is_local(work_bytes):
            with _starts_spark:
                return self.make_spark()
        from paimon_orch.steps.common.local_executor import LocalExecutor

        return LocalExecutor()


_LARGE = 1 << 62  # bytes: work that runs on Spark if there is Spark


def is_local(executor: Executor, work_bytes: int) -> bool:
    """Return whether it is known that work of this size runs without Spark."""
    return not isinstance(executor, ChoosingExecutor) or executor.is_local(work_bytes)


def may_have_frames(executor: Executor) -> bool:
    """Return whether :func:`find_frames` may find an executor; starts no Spark."""
    if isinstance(executor, ChoosingExecutor):
        return not executor.is_local(_LARGE)
    return isinstance(executor, FrameExecutor | ForwardingExecutor)


def find_frames(executor: Executor, work_bytes: int = _LARGE) -> FrameExecutor | None:
    """Return the executor with data frames for work of this size, or None if this process does it.

    Without a size, the work is one that only data frames do.
    """
    while isinstance(executor, ForwardingExecutor):
        executor = executor.choose_executor(1, work_bytes)
    return executor if isinstance(executor, FrameExecutor) else None
