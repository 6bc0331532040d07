"""Units on Spark: cancellation and failures of jobs. The common contract is in ``test_executor_contract``.

Units are functions inside the tests, which Spark sends to its workers by value.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from paimon_orch import errors
from paimon_orch.spark.execution.job_failures import translate_failure
from paimon_orch.spark.execution.job_monitor import ClassicJobMonitor
from paimon_orch.spark.execution.spark_executor import SparkExecutor


def test_a_map_without_units_does_not_use_spark() -> None:
    executor = SparkExecutor(None)  # type: ignore[arg-type] # would fail if it were used

    assert executor.map(lambda _: b"", [], label="nothing") == []


def waiting_unit(started: Path) -> Callable[[int], bytes]:
    """A unit that reports its start and then waits for a file that is never created."""

    def run(_: int) -> bytes:
        import time  # the import runs on the worker

        started.touch()
        while not started.with_name("never").exists():
            time.sleep(0.05)
        return b""

    return run


def cancel_once(started: Path, executor: SparkExecutor) -> threading.Thread:
    """Start a thread that cancels the executor once the unit runs."""

    def watch() -> None:
        import time

        while not started.exists():
            time.sleep(0.02)
        executor.cancel()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_cancelling_interrupts_the_running_units_and_refuses_further_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    executor = SparkExecutor(spark)
    watcher = cancel_once(tmp_path / "started", executor)

    with pytest.raises(errors.CancelledError, match="compact: canceled"):
        executor.map(waiting_unit(tmp_path / "started"), [1], label="compact")

    watcher.join()
    with pytest.raises(errors.CancelledError):
        executor.map(lambda _: b"", [1], label="compact")


@pytest.mark.slow
def test_cancelling_does_not_affect_other_jobs_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    def until_the_other_is_cancelled(path: str) -> bytes:
        import pathlib
        import time

        while not pathlib.Path(path).exists():
            time.sleep(0.02)
        return b"done"

    cancelled, go_on = SparkExecutor(spark), tmp_path / "go on"
    results: list[bytes] = []
    bystander = threading.Thread(
        target=lambda: results.extend(
            SparkExecutor(spark).map(until_the_other_is_cancelled, [str(go_on)], label="other")
        )
    )
    bystander.start()
    watcher = cancel_once(tmp_path / "started", cancelled)

    with pytest.raises(errors.CancelledError):
        cancelled.map(waiting_unit(tmp_path / "started"), [1], label="compact")

    go_on.touch()
    bystander.join()
    watcher.join()
    assert results == [b"done"]


def test_ctrl_c_cancels_the_units(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"

    def interrupt(_done: int, _count: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "paimon_orch.spark.execution.job_monitor.ClassicJobMonitor.count_finished_tasks",
        lambda _: 1,
    )

    with pytest.raises(errors.CancelledError) as caught:
        SparkExecutor(spark).map(waiting_unit(started), [1, 2], label="compact", progress=interrupt)

    assert isinstance(caught.value.__cause__, KeyboardInterrupt)


def test_another_thread_asks_the_jvm_for_the_progress(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An interrupt during the question would leave the answer to the next call of the thread.
    threads: set[threading.Thread] = set()

    def note_thread(_: ClassicJobMonitor) -> int:
        threads.add(threading.current_thread())
        return 0

    monkeypatch.setattr(ClassicJobMonitor, "count_finished_tasks", note_thread)

    SparkExecutor(spark).map(lambda _: b"done", [1], label="compact", progress=lambda *_: None)

    assert threads
    assert threading.current_thread() not in threads


def test_java_exceptions_are_reported_by_their_cause() -> None:
    text = """An error occurred while calling o12.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: executor lost
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
"""

    message = str(translate_failure("compact", RuntimeError(text), 3))

    assert message.startswith("compact: the Spark job failed: ")
    assert message.endswith("SparkException: Job aborted due to stage failure: executor lost")


LOST_STAGE = """An error occurred while calling o12.getResult.
: org.apache.spark.SparkException: Job aborted due to stage failure: A shuffle map stage with indeterminate \
output was failed and retried. However, Spark cannot rollback the ResultStage 15 to re-process the input data
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
"""


def fail_jobs(monkeypatch: pytest.MonkeyPatch, text: str, times: int) -> list[DataFrame]:
    """Make the first jobs fail; return a list that collects the frames of all jobs."""
    frames: list[DataFrame] = []
    collect = ClassicJobMonitor.collect

    def collect_or_fail(jobs: ClassicJobMonitor, frame: DataFrame) -> pa.Table:
        frames.append(frame)
        if len(frames) <= times:
            raise RuntimeError(text)
        return collect(jobs, frame)

    monkeypatch.setattr(ClassicJobMonitor, "collect", collect_or_fail)
    return frames


@pytest.mark.slow
def test_a_job_that_lost_shuffle_rows_is_run_again_on_a_new_frame(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = fail_jobs(monkeypatch, LOST_STAGE, times=2)

    assert SparkExecutor(spark).map(lambda _: b"done", [1], label="ingest") == [b"done"]
    assert len({id(frame) for frame in frames}) == 3


@pytest.mark.parametrize(
    ("text", "message", "jobs"),
    [
        (
            LOST_STAGE,
            "executors with rows of an earlier stage were lost.*aborted the job 3 times",
            3,
        ),
        (
            "Job aborted due to stage failure: Task 1 failed\nan indeterminate value",
            "Task 1 failed$",
            1,
        ),
    ],
    ids=["a lost stage", "a failed task"],
)
def test_a_job_that_fails_permanently_raises_the_reason(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, message: str, jobs: int
) -> None:
    frames = fail_jobs(monkeypatch, text, times=99)

    with pytest.raises(errors.PaimonError, match=f"^ingest: .*{message}"):
        SparkExecutor(spark).map(lambda _: b"", [1], label="ingest")

    assert len(frames) == jobs
