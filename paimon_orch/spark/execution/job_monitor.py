"""Monitor and interrupt the jobs of one caller, on classic Spark and on Spark Connect.

Only :class:`ClassicJobMonitor` uses the Spark context. Progress is informational: steps do not
depend on it.
"""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, cast
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:  # at run time this needs the client of Spark Connect
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo


class JobMonitor(Protocol):
    """The jobs that one :meth:`collect` starts."""

    session: SparkSession
    """The session to build the frame with."""

    def collect(self, frame: DataFrame) -> pa.Table:
        """Return the rows of ``frame``; blocks, so it is called in a separate thread."""
        ...

    def count_done_tasks(self) -> int:
        """Return the number of finished tasks, as far as it is known."""
        ...

    def interrupt(self) -> None:
        """Make :meth:`collect` fail; without effect before its job has started."""
        ...


def build_job_monitor(session: SparkSession, label: str) -> JobMonitor:
    """Return a monitor for jobs of a session."""
    return ConnectJobMonitor(session, label) if is_remote() else ClassicJobMonitor(session, label)


class ClassicJobMonitor:
    """Jobs of one job group; ``interruptTag`` has no effect on classic Spark."""

    def __init__(self, session: SparkSession, label: str) -> None:
        self.session = session.newSession()
        self._context = session.sparkContext
        self._group = str(uuid4())
        self._label = label

    def collect(self, frame: DataFrame) -> pa.Table:
        """Run under a job group, which identifies the jobs."""
        self._context.setJobGroup(self._group, self._label)
        return frame.toArrow()

    def count_done_tasks(self) -> int:
        """Return the count of the status tracker, which may not have the jobs yet, or no longer."""
        try:
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        except Py4JError:  # progress is informational; collect raises the error
            return 0
        return sum(stage.numCompletedTasks for stage in stages if stage)

    def interrupt(self) -> None:
        """Cancel the group, whichever session its frame belongs to."""
        self._context.cancelJobGroup(self._group)


class ConnectJobMonitor:
    """Jobs with a tag in the caller's session; older clients cannot create another session."""

    def __init__(self, session: SparkSession, label: str) -> None:
        self.session = session
        # A tag must not contain a comma.
        self._tag = f"{label.replace(',', ' ')} {uuid4()}"
        self._thread: int | None = None
        self._done = 0

    def collect(self, frame: DataFrame) -> pa.Table:
        """Run with the tag; tags belong to a thread, and the handler is called in the same one."""
        self._thread = threading.get_ident()
        self.session.addTag(self._tag)
        # Any callable with this signature is a valid handler.
        handler = cast("ProgressHandler", self._on_progress)
        self.session.registerProgressHandler(handler)
        try:
            return frame.toArrow()
        finally:
            self.session.removeProgressHandler(handler)
            self.session.removeTag(self._tag)

    def count_done_tasks(self) -> int:
        """Return the last count that the server reported."""
        return self._done

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
        # A handler is called for all operations of the session, also those of other threads.
        if threading.get_ident() == self._thread:
            self._done = sum(stage.num_completed_tasks for stage in stages or ())
