"""Watching and interrupting the jobs of one caller, on classic Spark and on Spark Connect.

The two differ in everything here. Only this module knows, and only :class:`ClassicJobMonitor`
touches the Spark context; nothing that it reports decides what a step does.
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
    """The session to build the frame on."""

    def collect(self, frame: DataFrame) -> pa.Table:
        """Return the rows of ``frame``; blocks, so it is called in a thread of its own."""
        ...

    def count_done_tasks(self) -> int:
        """Return how many tasks are done, as far as is known now."""
        ...

    def interrupt(self) -> None:
        """Make :meth:`collect` fail soon; without effect before its job has started."""
        ...


def build_job_monitor(session: SparkSession, label: str) -> JobMonitor:
    """Return the way to watch jobs on ``session``, whichever kind it is."""
    return ConnectJobMonitor(session, label) if is_remote() else ClassicJobMonitor(session, label)


class ClassicJobMonitor:
    """Jobs of one job group: ``interruptTag`` has no effect here, cancelling the group has."""

    def __init__(self, session: SparkSession, label: str) -> None:
        self.session = session.newSession()
        self._context = session.sparkContext
        self._group = str(uuid4())
        self._label = label

    def collect(self, frame: DataFrame) -> pa.Table:
        """Run under a job group, by which the jobs are found again."""
        self._context.setJobGroup(self._group, self._label)
        return frame.toArrow()

    def count_done_tasks(self) -> int:
        """Ask the status tracker, which may know nothing yet, or no longer."""
        try:
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        except Py4JError:  # progress is a courtesy: the job itself says what went wrong
            return 0
        return sum(stage.numCompletedTasks for stage in stages if stage)

    def interrupt(self) -> None:
        """Cancel the group, whichever session its frame belongs to."""
        self._context.cancelJobGroup(self._group)


class ConnectJobMonitor:
    """Jobs under a tag, in the caller's session: older clients cannot make a second one."""

    def __init__(self, session: SparkSession, label: str) -> None:
        self.session = session
        # A tag must not hold a comma.
        self._tag = f"{label.replace(',', ' ')} {uuid4()}"
        self._thread: int | None = None
        self._done = 0

    def collect(self, frame: DataFrame) -> pa.Table:
        """Run under the tag; tags belong to a thread, and the handler is called in it too."""
        self._thread = threading.get_ident()
        self.session.addTag(self._tag)
        # Any callable of that shape is a handler, whatever class the annotation asks for.
        handler = cast("ProgressHandler", self._on_progress)
        self.session.registerProgressHandler(handler)
        try:
            return frame.toArrow()
        finally:
            self.session.removeProgressHandler(handler)
            self.session.removeTag(self._tag)

    def count_done_tasks(self) -> int:
        """Return what the server last reported."""
        return self._done

    def interrupt(self) -> None:
        """Interrupt what runs under the tag."""
        self.session.interruptTag(self._tag)

    def _on_progress(
        self,
        stages: "Iterable[StageInfo] | None",
        inflight_tasks: int,  # noqa: ARG002 - the handler's signature is Spark's
        operation_id: str | None,  # noqa: ARG002
        done: bool,  # noqa: ARG002, FBT001
    ) -> None:
        # A handler hears of all the session's operations; those of other threads are not ours.
        if threading.get_ident() == self._thread:
            self._done = sum(stage.num_completed_tasks for stage in stages or ())
