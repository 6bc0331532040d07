"""Work units on Spark: one unit a task, expected errors as data, the same on classic and Connect.

The units ride in the task's closure, each pickled by itself so that a task reads only its own;
results come back as bytes in a column. An error of ours comes back as data too, as Spark would run
a failing task four times and then hand over a text. Only what another attempt may cure is raised in
the task.
"""

import json
import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import groupby
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paimon_orch import errors
from paimon_orch.errors import (
    CancelledError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    PaimonError,
    TransientError,
)
from paimon_orch.retry_policy import SPARK_JOB
from paimon_orch.spark.execution.job_failures import STAGE_LOST, translate_failure
from paimon_orch.spark.execution.job_monitor import JobMonitor, build_job_monitor
from paimon_orch.spark.execution.tasks import ArrowTask, lighten_worker_after, map_units_in_spark
from paimon_orch.spark.session.session import TASK_ATTEMPTS
from paimon_orch.steps.common.executor import Join, Progress, Undo

logger = logging.getLogger(__name__)

U = TypeVar("U")
_UnitTask = Callable[[int], Iterator[pa.RecordBatch]]

RESULT_COLUMNS = "id bigint, result binary, error string"
_RESULT_SCHEMA = pa.schema({"id": pa.int64(), "result": pa.binary(), "error": pa.string()})
_POLL_SECONDS = 0.1
_FAILED_PART = -1  # the part of units that failed


class SparkExecutor:
    """Runs work units as tasks of one session; keeps the contract of ``steps.executor.Executor``.

    :meth:`cancel` may be called from any thread. An executor that was cancelled stays so.
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
    ) -> list[bytes]:
        """Return ``run(unit)`` for each unit, in the order of the units; no unit, no Spark job.

        What is neither ours nor transient arrives as a bare ``PaimonError`` with its text, an
        ``OSError`` as a ``StorageError``; a note on the error names the unit.

        :raises PaimonError: the first failing unit's error, of its own class; or that Spark itself
            failed, such as a worker that died
        :raises CancelledError: after :meth:`cancel` or Ctrl-C, once the tasks were told to stop
        """
        if not units:
            return []
        count, attempts = len(units), read_task_attempts(self._session)
        task = _build_unit_task(run, [cloudpickle.dumps(unit) for unit in units], attempts)

        def frame(session: SparkSession) -> DataFrame:
            return map_units_in_spark(session, count, task, RESULT_COLUMNS)

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
    ) -> list[bytes]:
        """Return ``join`` of each part's pieces, which go from task to task; errors are those of :meth:`map`."""
        if not units:
            return []
        attempts, count = read_task_attempts(self._session), len(units)
        sent = _build_split_task(split, [cloudpickle.dumps(unit) for unit in units], attempts)
        received = _build_join_task(join, attempts)

        def frame(session: SparkSession) -> DataFrame:
            pieces = map_units_in_spark(session, count, sent, RESULT_COLUMNS)
            gathered = pieces.repartition(parts, "id").sortWithinPartitions("id")
            return gathered.mapInArrow(lighten_worker_after(received), RESULT_COLUMNS)

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
        """Return the results of a frame whose tasks yield what :func:`build_result_batch` makes.

        As :meth:`map`, for tasks that read rows; ``tasks`` is what progress counts up to. A job
        that Spark gave up because it would have to repeat an earlier stage is run again, on a new
        frame that reads the rows anew.
        """

        def warn(_number: int, _error: BaseException) -> None:
            logger.warning("%s: executors died with rows of an earlier stage; runs again", label)

        rows = SPARK_JOB.call(
            partial(self._collect, frame_of, tasks, label, progress),
            retry_on=_is_stage_lost,
            before_retry=warn,
        )
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
            raise _build_cancelled_error(label)
        jobs = build_job_monitor(self._session, label)
        frame = frame_of(jobs.session)
        with ThreadPoolExecutor(1, thread_name_prefix="paimon-orch") as pool:
            future = pool.submit(jobs.collect, frame)
            self._watch(future, jobs, count=tasks, label=label, progress=progress)
            return self._rows(future, label)

    def cancel(self) -> None:
        """Interrupt what is running here, and refuse what is still asked for."""
        self._cancelled.set()

    def _watch(
        self,
        future: "Future[pa.Table]",
        jobs: JobMonitor,
        count: int,
        label: str,
        progress: Progress | None,
    ) -> None:
        """Wait for the result, reporting progress; interrupt the jobs when asked to stop waiting."""
        seen = 0
        try:
            while not _is_finished(future):
                if self._cancelled.is_set():
                    # Again each time: an interrupt that comes before the job has started is lost.
                    jobs.interrupt()
                elif progress is not None and seen < (done := jobs.count_done_tasks()) < count:
                    seen = done
                    progress(done, count)
        except BaseException as error:
            while not _is_finished(future):
                jobs.interrupt()
            if isinstance(error, KeyboardInterrupt):
                raise _build_cancelled_error(label) from error
            raise

    def _rows(self, future: "Future[pa.Table]", label: str) -> pa.Table:
        error = future.exception()
        if error is None:
            return future.result()
        if self._cancelled.is_set():
            raise _build_cancelled_error(label) from error
        raise translate_failure(label, error, SPARK_JOB.attempts) from error


def _is_finished(future: "Future[pa.Table]") -> bool:
    return bool(wait([future], timeout=_POLL_SECONDS).done)


def _build_cancelled_error(label: str) -> CancelledError:
    return CancelledError(f"{label}: cancelled before it was done; nothing was committed.")


def read_task_attempts(session: SparkSession) -> int:
    """Return how often the session tries a task: a local master has its own count, mostly one."""
    try:
        master = session.conf.get("spark.master", "") or ""
        most = session.conf.get("spark.task.maxFailures", None)
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().splitlines()[0]
        raise PaimonError(f"The Spark session is of no use, start another one: {reason}") from error
    if master.startswith("local") and not master.startswith("local-cluster"):
        _, comma, attempts = master.rstrip("]").partition(",")
        return int(attempts) if comma else 1
    return int(most or TASK_ATTEMPTS)


def _build_unit_task(run: Callable[[U], bytes], units: list[bytes], attempts: int) -> _UnitTask:
    """Return the function that Spark ships: the number of a unit in, (number, result or error) out."""

    def task(index: int) -> Iterator[pa.RecordBatch]:
        yield _run_unit(run, index, units[index], attempts)

    return task


def _build_split_task(
    split: Callable[[U], Iterable[tuple[int, bytes]]], units: list[bytes], attempts: int
) -> _UnitTask:
    """Return the task of a shuffle's first half: the number of a unit in, (part, piece or error) out."""

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
    """Return the task of a shuffle's second half: (part, piece or error) in, sorted by part, (part, result or error) out."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for part, group in groupby(rows, key=lambda row: row["id"]):
            found = list(group)
            if part == _FAILED_PART:
                yield _build_batch(found)
            else:
                pieces = [row["result"] for row in found]
                yield build_result_batch(part, partial(join, pieces), attempts)

    return task


def _run_unit(run: Callable[[U], bytes], index: int, unit: bytes, attempts: int) -> pa.RecordBatch:
    return build_result_batch(index, lambda: run(cloudpickle.loads(unit)), attempts)


def build_result_batch(index: int, work: Callable[[], bytes], attempts: int) -> pa.RecordBatch:
    """Do a task's work and return its one row: the result, or the error as data.

    Raises what another attempt may cure, unless this attempt is the last of ``attempts``.
    """
    result, failure = None, None
    try:
        result = work()
        if not isinstance(result, bytes):
            raise TypeError(f"a unit returns bytes, not {type(result).__name__}")
    except Exception as error:
        if is_retryable(error, attempts):
            raise
        result, failure = None, encode_error(error)
    return _build_batch([{"id": index, "result": result, "error": failure}])


def _build_batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    """Return rows in one place's types: Spark matches by position and reads another type as garbage or not at all."""
    return pa.RecordBatch.from_pylist(rows, schema=_RESULT_SCHEMA)


def is_retryable(error: Exception, attempts: int) -> bool:
    """Tell whether another attempt of this task may succeed, and will be made."""
    context = TaskContext.get()
    return _is_transient(error) and context is not None and context.attemptNumber() + 1 < attempts


def _is_transient(error: Exception) -> bool:
    if isinstance(error, (CommitConflictError, CommitOutcomeUnknownError)):
        return False
    return isinstance(error, (TransientError, OSError))


def encode_error(error: Exception) -> str:
    """Return an error as JSON: the nearest class of ``paimon_orch.errors`` and what rebuilds it."""
    if isinstance(error, OSError):
        error = errors.StorageError(f"{type(error).__name__}: {error}").with_traceback(
            error.__traceback__
        )
    kind = next((c for c in type(error).__mro__ if getattr(errors, c.__name__, None) is c), None)
    text = str(error) if kind else f"{type(error).__name__}: {error}"
    # __reduce__ gives the arguments of the constructor, which are not the message for each class.
    arguments = error.__reduce__()[1] if kind is type(error) else (text,)
    return json.dumps(
        {
            "type": kind.__name__ if kind else PaimonError.__name__,
            "arguments": [str(argument) for argument in arguments],
            "traceback": "".join(traceback.format_exception(error)),
        }
    )


def decode_error(text: str) -> PaimonError:
    """Rebuild an error; the name is looked up in ``paimon_orch.errors`` and nowhere else."""
    data = json.loads(text)
    kind = getattr(errors, data["type"], PaimonError)
    if not (isinstance(kind, type) and issubclass(kind, PaimonError)):
        kind = PaimonError
    return kind(*data["arguments"])


def _unpack_results(rows: pa.Table, label: str, undo: Undo | None) -> list[bytes]:
    results: list[bytes] = rows.sort_by("id").column("result").drop_null().to_pylist()
    failed = rows.filter(rows.column("error").is_valid()).sort_by("id").to_pylist()
    if failed:
        first = failed[0]
        error = decode_error(first["error"])
        error.add_note(f"{label}: {len(failed)} of {rows.num_rows} tasks failed")
        logger.debug("%s: %s", label, json.loads(first["error"])["traceback"])
        if undo is not None:
            undo(results)
        raise error
    return results


def _is_stage_lost(error: BaseException) -> bool:
    return isinstance(error, PaimonError) and STAGE_LOST.search(str(error.__cause__)) is not None
