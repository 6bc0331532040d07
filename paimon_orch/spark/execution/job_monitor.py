"""Monitors and interrupts the jobs of one caller, on classic Spark and on Spark Connect.

Only :class:`ClassicJobMonitor` uses the Spark context. Progress is only informational.
"""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, cast
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:  # at run time, this import needs the Spark Connect client
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo


class JobMonitor(Protocol):
    """Monitors the jobs that one call of :meth:`collect` starts."""

    session: SparkSession
    """The session in which to build the frame."""

    def collect(self, frame: DataFrame) -> pa.Table:
        """Return the rows of ``frame``; blocks, so call it in a separate thread."""
        ...

    def count_finished_tasks(self) -> int:
        """Return the number of tasks that are known to be finished."""
        ...

    def interrupt(self) -> None:
        """Make :meth:`collect` fail; has no effect before its job has started."""
        ...


def build_job_monitor(session: SparkSession, label: str) -> JobMonitor:
    """Return a monitor for jobs of a session."""
    return ConnectJobMonitor(session, label) if is_remote() else ClassicJobMonitor(session, label)


class ClassicJobMonitor:
    """Monitors the jobs of a job group; classic Spark ignores ``interruptTag``."""

    def __init__(self, session: SparkSession, label: str) -> None:
        self.session = session.newSession()
        self._context = session.sparkContext
        self._group = str(uuid4())
        self._label = label

    def collect(self, frame: DataFrame) -> pa.Table:
        """Run the frame in a job group, which identifies its jobs."""
        self._context.setJobGroup(self._group, self._label)
        return frame.toArrow()

    def count_finished_tasks(self) -> int:
        """Return the number of finished tasks known to the status tracker.

        The tracker may not list the newest and oldest jobs.
        """
        try:
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        except Py4JError:  # progress is optional, and collect raises the error of the job
            return 0
        return sum(stage.numCompletedTasks for stage in stages if stage)

    def interrupt(self) -> None:
        """Cancel the job group, for any session of the frame."""
        self._context.cancelJobGroup(self._group)


class ConnectJobMonitor:
    """Monitors jobs with a tag in the caller's session; old clients cannot create a new session."""

    def __init__(self, session: SparkSession, label: str) -> None:
        self.session = session
        # a tag must not contain a comma
        self._tag = f"{label.replace(',', ' ')} {uuid4()}"
        self._thread: int | None = None
        self._finished_tasks = 0

    def collect(self, frame: DataFrame) -> pa.Table:
        """Run the frame with the tag of this thread; the handler is called in the same thread."""
        self._thread = threading.get_ident()
        self.session.addTag(self._tag)
        # any callable with this signature is a valid handler
        handler = cast("ProgressHandler", self._on_progress)
        self.session.registerProgressHandler(handler)
        try:
            return frame.toArrow()
        finally:
            self.session.removeProgressHandler(handler)
            self.session.removeTag(self._tag)

    def count_finished_tasks(self) -> int:
        """Return the latest number of finished tasks from the server."""
        return self._finished_tasks

    def interrupt(self) -> None:
        """Interrupt the operations with the tag."""
        self.session.interruptTag(self._tag)

    def _on_progress(
        self,
        stages: "Iterable[StageInfo] | None",
        inflight_tasks: int,  # noqa: ARG002 - the handler's signature is Spark's
        operation_id: str | None,  # noqa: ARG002
        done: bool,  # noqa: ARG002, FBT001
    ) -> None:
        # the handler is also called for operations of other threads of the session
        if threading.get_ident() == self._thread:
            self._finished_tasks = sum(stage.num_completed_tasks for stage in stages or ())
