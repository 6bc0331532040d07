"""What all executors have in common: order, progress, errors and the shuffle.

Units are functions inside the tests, which are sent to other processes by value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from paimon_orch import errors
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.common.local_executor import LocalExecutor

SPARK = pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.xdist_group("spark")])
WITHOUT_SPARK: dict[str, Callable[[], Executor]] = {
    "worker processes": lambda: LocalExecutor(workers=1),
    "calling thread": lambda: LocalExecutor(workers=0),
    "in process": InProcessExecutor,
}


def build_executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "spark":
        from paimon_orch.spark.execution.spark_executor import SparkExecutor

        return SparkExecutor(request.getfixturevalue("spark"))
    return WITHOUT_SPARK[request.param]()


@pytest.fixture(params=[SPARK, *WITHOUT_SPARK])
def executor(request: pytest.FixtureRequest) -> Executor:
    """Any executor."""
    return build_executor(request)


@pytest.fixture(params=[SPARK, "worker processes", "calling thread"])
def converting_executor(request: pytest.FixtureRequest) -> Executor:
    """An executor that converts unexpected errors."""
    return build_executor(request)


@pytest.mark.sampled(2)
def test_results_have_the_order_of_the_units_and_progress_reaches_the_total(
    executor: Executor,
) -> None:
    progress_calls: list[tuple[int, int]] = []

    results = executor.map(
        lambda unit: str(unit * unit).encode(),
        range(5),
        label="square",
        progress=lambda done, count: progress_calls.append((done, count)),
    )

    assert results == [b"0", b"1", b"4", b"9", b"16"]
    assert progress_calls[-1] == (5, 5)
    assert progress_calls == sorted(set(progress_calls))


@pytest.mark.sampled(2)
def test_a_map_without_units_returns_no_results(executor: Executor) -> None:
    assert executor.map(lambda _: b"", [], label="nothing") == []


@pytest.mark.sampled(2)
def test_an_expected_error_keeps_its_class(executor: Executor) -> None:
    def run(unit: int) -> bytes:
        if unit:
            raise errors.CorruptFileError("/t/bucket-0/data-1.parquet", "the footer is cut off")
        return b""

    with pytest.raises(errors.CorruptFileError, match="the footer is cut off") as caught:
        executor.map(run, [0, 1, 2], label="compact")

    assert caught.value.path == "/t/bucket-0/data-1.parquet"


@pytest.mark.sampled(2)
def test_results_of_finished_units_are_undone_if_another_unit_fails(executor: Executor) -> None:
    def run(unit: int) -> bytes:
        if unit == 1:
            raise errors.InputError("unit 1")
        return b"%d" % unit

    undone: list[bytes] = []
    with pytest.raises(errors.InputError, match="unit 1"):
        executor.map(run, [0, 1], label="compact", undo=undone.extend)

    assert undone == [b"0"]


@pytest.mark.sampled(2)
def test_the_error_of_the_first_failing_unit_is_raised(converting_executor: Executor) -> None:
    def run(unit: int) -> bytes:
        if unit:
            raise errors.InputError(f"unit {unit}")
        return b""

    with pytest.raises(errors.InputError, match="unit 1") as caught:
        converting_executor.map(run, [0, 1, 2], label="compact")

    # Spark starts all units; other executors start none after an error
    [note] = caught.value.__notes__
    assert note in ("compact: 1 of 3 tasks failed", "compact: 2 of 3 tasks failed")


@pytest.mark.sampled(2)
def test_an_unexpected_error_keeps_its_name_and_text(converting_executor: Executor) -> None:
    def run(unit: str) -> bytes:
        results: dict[str, bytes] = {}
        return results[unit]

    with pytest.raises(errors.PaimonError, match="KeyError: 'k'") as caught:
        converting_executor.map(run, ["k"], label="compact")

    assert type(caught.value) is errors.PaimonError


@pytest.mark.sampled(2)
def test_an_error_of_the_system_is_a_storage_error(converting_executor: Executor) -> None:
    def run(_: int) -> bytes:
        raise OSError("connection reset")

    with pytest.raises(errors.StorageError, match="OSError: connection reset"):
        converting_executor.map(run, [1], label="compact")


@pytest.mark.sampled(2)
def test_results_other_than_bytes_are_refused(converting_executor: Executor) -> None:
    def run(unit: int) -> bytes:
        return unit  # type: ignore[return-value]

    with pytest.raises(errors.PaimonError, match="a unit must return bytes, not int"):
        converting_executor.map(run, [1], label="compact")


def fail_until(error: Exception, attempts: Path, until: int) -> Callable[[int], bytes]:
    """A unit that records each attempt in a file, and fails before attempt ``until``."""

    def run(_: int) -> bytes:
        with attempts.open("a") as file:
            file.write("x")
        count = attempts.stat().st_size
        if count < until:
            raise error
        return str(count).encode()

    return run


@pytest.mark.sampled(2)
@pytest.mark.parametrize("error", [errors.StorageError("503"), OSError("connection reset")])
def test_a_transient_error_is_retried(
    converting_executor: Executor, tmp_path: Path, error: Exception
) -> None:
    run = fail_until(error, tmp_path / "attempts", until=3)

    assert converting_executor.map(run, [0], label="compact") == [b"3"]


@pytest.mark.sampled(2)
def test_a_persistent_transient_error_is_raised_after_the_last_attempt(
    converting_executor: Executor, tmp_path: Path
) -> None:
    run = fail_until(OSError("connection reset"), tmp_path / "attempts", until=99)

    with pytest.raises(errors.StorageError, match="OSError: connection reset"):
        converting_executor.map(run, [0], label="compact")

    assert (tmp_path / "attempts").stat().st_size == 4


@pytest.mark.sampled(2)
def test_a_commit_conflict_is_not_retried_inside_the_task(
    converting_executor: Executor, tmp_path: Path
) -> None:
    run = fail_until(errors.CommitConflictError("snapshot 7"), tmp_path / "attempts", until=99)

    with pytest.raises(errors.CommitConflictError, match="snapshot 7"):
        converting_executor.map(run, [0], label="compact")

    assert (tmp_path / "attempts").stat().st_size == 1


@pytest.mark.parametrize("executor", [SPARK, "worker processes"], indirect=True)
def test_a_worker_that_exits_raises_an_error_that_names_the_step(executor: Executor) -> None:
    def die(_: int) -> bytes:
        os._exit(9)

    with pytest.raises(errors.PaimonError, match=r"compact of db\.t: a .*worker.*exited"):
        executor.map(die, [1], label="compact of db.t")

    assert executor.map(lambda _: b"alive", [1], label="next") == [b"alive"]


@pytest.mark.sampled(2)
def test_pieces_are_joined_by_part_and_parts_are_in_order(executor: Executor) -> None:
    def digits(unit: int) -> Iterator[tuple[int, bytes]]:
        for digit in str(unit):
            yield int(digit), b"%d " % unit

    def joined(pieces: Sequence[bytes]) -> bytes:
        return b"".join(sorted(pieces))

    progress_calls: list[tuple[int, int]] = []
    results = executor.shuffle(
        digits, [12, 23, 31, 9, 11], joined, parts=10, label="digits",
        progress=lambda done, count: progress_calls.append((done, count)),
    )  # fmt: skip

    assert results == [b"11 11 12 31 ", b"12 23 ", b"23 31 ", b"9 "]
    assert progress_calls[-1] == (5, 5)
    assert executor.shuffle(digits, [], joined, parts=3, label="nothing") == []


@pytest.mark.sampled(2)
def test_an_error_in_split_or_join_keeps_its_class(executor: Executor) -> None:
    def split(unit: int) -> list[tuple[int, bytes]]:
        if unit == 3:
            raise errors.CorruptFileError("/t/manifest/manifest-1", "is cut off")
        return [(0, b"piece")]

    def join(pieces: Sequence[bytes]) -> bytes:
        raise errors.InputError(f"{len(pieces)} pieces")

    with pytest.raises(errors.CorruptFileError, match="is cut off"):
        executor.shuffle(split, [1, 2, 3], b"".join, parts=2, label="search")
    with pytest.raises(errors.InputError, match="2 pieces"):
        executor.shuffle(split, [1, 2], join, parts=2, label="search")
