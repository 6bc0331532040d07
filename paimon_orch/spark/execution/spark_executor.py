"""Runs work units as Spark tasks, one unit per task, on classic Spark and on Spark Connect.

The closure of the tasks contains all units, but each unit is pickled separately, so that a task
decodes only its own unit. Results are returned as bytes in a column. Errors are also returned as
data, because Spark would retry a failed task and finally return only a message. Tasks raise only
transient errors.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paimon_orch.errors import PaimonError
from paimon_orch.retry_policy import SPARK_JOB, STORE_RETRY_SECONDS
from paimon_orch.safe_text import get_logger
from paimon_orch.spark.execution.job_failures import STAGE_LOST, translate_failure
from paimon_orch.spark.execution.job_monitor import JobMonitor, build_job_monitor
from paimon_orch.spark.execution.tasks import ArrowTask, build_worker_task, map_units_in_spark
from paimon_orch.spark.session.session import TASK_ATTEMPTS
from paimon_orch.steps.common.executor import Join, Progress, Undo
from paimon_orch.steps.common.unit_outcome import (
    build_cancelled_error,
    decode_error,
    decode_traceback,
    encode_error,
    is_transient,
    run_unit,
)

logger = get_logger(__name__)

U = TypeVar("U")
_UnitTask = Callable[[int], Iterator[pa.RecordBatch]]

RESULT_COLUMNS = "id bigint, result binary, error string"
_RESULT_SCHEMA = pa.schema({"id": pa.int64(), "result": pa.binary(), "error": pa.string()})
_POLL_SECONDS = 0.1
_INTERRUPT_SECONDS = 10  # after an interrupt, to wait for the end of the jobs
_FAILED_PART = -1  # the part number of failed units


class SparkExecutor:
    """Runs work units as tasks of a session; implements :class:`Executor`.

    :meth:`cancel` may be called from any thread. A cancelled executor cannot be used again.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._cancelled = threading.Event()

    def map(
        self,
        run: Callable[[U], bytes],
        units: Sequence[U],
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
        work_bytes: int | None = None,  # noqa: ARG002 - part of the contract
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit, in the order of the units.

        An ``OSError`` is raised as ``StorageError``, and other unexpected errors as
        ``PaimonError``.

        :raises PaimonError: the error of the first unit that fails, or a failure of Spark
        :raises CancelledError: after :meth:`cancel` or Ctrl-C
        """
        if not units:
            return []
        count, attempts = len(units), read_task_attempts(self._session)
        task = _build_unit_task(run, [cloudpickle.dumps(unit) for unit in units], attempts)
        frame = partial(map_units_in_spark, count=count, run=task, schema=RESULT_COLUMNS)
        return self.collect_results(frame, count, label=label, progress=progress, undo=undo)

    def shuffle(
        self,
        split: Callable[[U], Iterable[tuple[int, bytes]]],
        units: Sequence[U],
        join: Join,
        *,
        parts: int,
        label: str,
        progress: Progress | None = None,
        work_bytes: int | None = None,  # noqa: ARG002
    ) -> list[bytes]:
        """Call ``join`` on the pieces of each part, and return the results.

        Raises the same errors as :meth:`map`.
        """
        if not units:
            return []
        attempts, count = read_task_attempts(self._session), len(units)
        split_task = _build_split_task(split, [cloudpickle.dumps(unit) for unit in units], attempts)
        join_task = build_worker_task(_build_join_task(join, attempts), _RESULT_SCHEMA.names)

        def frame(session: SparkSession) -> DataFrame:
            pieces = map_units_in_spark(session, count, split_task, RESULT_COLUMNS)
            by_part = pieces.repartition(parts, "id").sortWithinPartitions("id")
            return by_part.mapInArrow(join_task, RESULT_COLUMNS)

        return self.collect_results(frame, count, label=label, progress=progress)

    def collect_results(
        self,
        frame_of: Callable[[SparkSession], DataFrame],
        tasks: int,
        *,
        label: str,
        progress: Progress | None = None,
        undo: Undo | None = None,
    ) -> list[bytes]:
        """Return the results of a frame whose tasks yield batches of :func:`build_result_batch`.

        This is similar to :meth:`map`, for tasks that read rows; ``tasks`` is the total for
        ``progress``. If Spark aborts the job because an earlier stage was lost, a second job runs
        with a new frame that reads the rows again.
        """

        def warn(_number: int, _error: BaseException) -> None:
            logger.warning(
                "%s: executors with rows of an earlier stage were lost; running again", label
            )

        for attempt in SPARK_JOB.retrying(retry_on=_is_stage_lost, before_retry=warn):
            with attempt:
                rows = self._collect(frame_of, tasks, label, progress)
        if progress is not None:
            progress(tasks, tasks)
        return _unpack_results(rows, label, undo)

    def _collect(
        self,
        frame_of: Callable[[SparkSession], DataFrame],
        tasks: int,
        label: str,
        progress: Progress | None,
    ) -> pa.Table:
        if self._cancelled.is_set():
            raise build_cancelled_error(label)
        jobs = build_job_monitor(self._session, label)
        frame = frame_of(jobs.session)
        # The progress is read by a thread too: an interrupt of this thread while it waits for an
        # answer of the JVM would leave the answer to its next call.
        pool = ThreadPoolExecutor(2, thread_name_prefix="paimon-orch")
        try:
            future = pool.submit(jobs.collect, frame)
            self._watch(future, jobs, pool, count=tasks, label=label, progress=progress)
            return self._rows(future, label)
        finally:
            # after an interrupt, the thread may wait for a JVM or a server that does not answer
            pool.shutdown(wait=False)

    def cancel(self) -> None:
        """Interrupt running jobs and refuse new ones."""
        self._cancelled.set()

    def _watch(
        self,
        future: "Future[pa.Table]",
        jobs: JobMonitor,
        pool: ThreadPoolExecutor,
        *,
        count: int,
        label: str,
        progress: Progress | None,
    ) -> None:
        """Wait for the result and report progress; interrupt the jobs on cancellation."""
        reported = 0
        try:
            while not _is_finished(future):
                if self._cancelled.is_set():
                    # the interrupt is repeated, because it has no effect before the job starts
                    jobs.interrupt()
                elif progress is not None:
                    finished = pool.submit(jobs.count_finished_tasks).result()
                    if reported < finished < count:
                        reported = finished
                        progress(finished, count)
        except BaseException as error:
            deadline = time.monotonic() + _INTERRUPT_SECONDS
            with suppress(Py4JError, PySparkException, OSError):  # the JVM may have stopped too
                while not _is_finished(future) and time.monotonic() < deadline:
                    jobs.interrupt()
            if isinstance(error, KeyboardInterrupt):
                raise build_cancelled_error(label) from error
            raise

    def _rows(self, future: "Future[pa.Table]", label: str) -> pa.Table:
        error = future.exception()
        if error is None:
            return future.result()
        if self._cancelled.is_set():
            raise build_cancelled_error(label) from error
        raise translate_failure(label, error, SPARK_JOB.attempts) from error


def _is_finished(future: "Future[pa.Table]") -> bool:
    return bool(wait([future], timeout=_POLL_SECONDS).done)


def read_task_attempts(session: SparkSession) -> int:
    """Return the number of attempts per task; for a local master, from its URL, by default 1."""
    try:
        master = session.conf.get("spark.master", "") or ""
        max_failures = session.conf.get("spark.task.maxFailures", None)
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().splitlines()[0]
        raise PaimonError(
            f"The Spark session is no longer usable; start a new one: {reason}"
        ) from error
    if master.startswith("local") and not master.startswith("local-cluster"):
        _, comma, attempts = master.rstrip("]").partition(",")
        return int(attempts) if comma else 1
    return int(max_failures or TASK_ATTEMPTS)


def _build_unit_task(run: Callable[[U], bytes], units: list[bytes], attempts: int) -> _UnitTask:
    """Return a task that maps the number of a unit to (number, result or error)."""

    def task(index: int) -> Iterator[pa.RecordBatch]:
        yield build_result_batch(index, lambda: run(cloudpickle.loads(units[index])), attempts)

    return task


def _build_split_task(
    split: Callable[[U], Iterable[tuple[int, bytes]]], units: list[bytes], attempts: int
) -> _UnitTask:
    """Return a shuffle task that maps the number of a unit to (part, piece or error)."""

    def task(index: int) -> Iterator[pa.RecordBatch]:
        try:
            pieces = list(split(cloudpickle.loads(units[index])))
        except Exception as error:
            if is_retryable(error, attempts):
                raise
            yield _build_batch([{"id": _FAILED_PART, "error": encode_error(error)}])
        else:
            yield _build_batch([{"id": part, "result": piece} for part, piece in pieces])

    return task


def _build_join_task(join: Join, attempts: int) -> ArrowTask:
    """Return a shuffle task that maps sorted (part, piece or error) rows to (part, result)."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for part, group in groupby(rows, key=lambda row: row["id"]):
            part_rows = list(group)
            if part == _FAILED_PART:
                yield _build_batch(part_rows)
            else:
                pieces = [row["result"] for row in part_rows]
                yield build_result_batch(part, partial(join, pieces), attempts)

    return task


def build_result_batch(index: int, work: Callable[[], bytes], attempts: int) -> pa.RecordBatch:
    """Run a task and return one row with its result or error.

    Raises transient errors, unless this is the last attempt.
    """
    outcome = run_unit(work, is_retryable=lambda error: is_retryable(error, attempts))
    return _build_batch([{"id": index, "result": outcome.result, "error": outcome.error}])


def _build_batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    # Spark matches columns by position and requires exactly these types
    return pa.RecordBatch.from_pylist(rows, schema=_RESULT_SCHEMA)


def is_retryable(error: Exception, attempts: int) -> bool:
    """Return whether an error is transient and the task has another attempt.

    A call that has spent its time on its own attempts is not repeated.
    """
    context = TaskContext.get()
    has_attempt = context is not None and context.attemptNumber() + 1 < attempts
    spent = getattr(error, "retry_seconds", 0.0)
    return has_attempt and is_transient(error) and spent < STORE_RETRY_SECONDS


def _unpack_results(rows: pa.Table, label: str, undo: Undo | None) -> list[bytes]:
    results: list[bytes] = rows.sort_by("id").column("result").drop_null().to_pylist()
    failed = rows.filter(rows.column("error").is_valid()).sort_by("id").to_pylist()
    if failed:
        first = failed[0]
        error = decode_error(first["error"])
        error.add_note(f"{label}: {len(failed)} of {rows.num_rows} tasks failed")
        logger.debug("%s: %s", label, decode_traceback(first["error"]))
        if undo is not None:
            undo(results)
        raise error
    return results


def _is_stage_lost(error: BaseException) -> bool:
    return isinstance(error, PaimonError) and STAGE_LOST.search(str(error.__cause__)) is not None
