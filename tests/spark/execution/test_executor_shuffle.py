"""The shuffle of executors, in the calling process and on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from paimon_orch import errors
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.steps.common.executor import Executor, InProcessExecutor


@pytest.fixture(params=["spark", "in process"])
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "in process":
        return InProcessExecutor()
    return SparkExecutor(request.getfixturevalue("spark"))


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
