"""The measure of depth: which requests waited for each other, whatever a process does in between."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from functools import partial

import pytest
from support.memory_s3 import OPTIONS, MemoryS3, run_memory_s3
from support.request_chains import run_chains
from support.request_log import Request, count_requests

from paimon_orch.storage import FileIO, resolve_warehouse
from paimon_orch.storage.concurrency import map_concurrently, read_concurrency, start_call

ROOT = "s3://bench/t"


@pytest.fixture
def store() -> Iterator[MemoryS3]:
    with run_memory_s3() as store, run_chains():
        store.objects |= {f"bench/t/{number}": b"data" for number in range(100)}
        yield store


@pytest.fixture
def io(store: MemoryS3) -> FileIO:
    io = resolve_warehouse(ROOT, OPTIONS)[0]
    io.read_bytes(f"{ROOT}/0")
    store.requests.clear()
    return io


def read(io: FileIO, number: int) -> bytes:
    return io.read_bytes(f"{ROOT}/{number}")


def measure_depth(store: MemoryS3) -> int:
    first = min(request.chain or 0 for request in store.requests)
    assert first == 1  # the fixture has sent a request
    return count_requests(store.requests).depth - first


def test_requests_of_one_thread_wait_for_each_other(io: FileIO, store: MemoryS3) -> None:
    for number in range(3):
        read(io, number)

    assert measure_depth(store) == 3


def test_a_call_that_starts_late_does_not_wait_for_those_that_ended(
    io: FileIO, store: MemoryS3
) -> None:
    first = start_call(io, partial(read, io, 0))
    wait([first.__self__])  # type: ignore[attr-defined]  # the process computes, and takes no result
    second = start_call(io, partial(read, io, 1))

    assert [first(), second()] == [b"data", b"data"]
    assert measure_depth(store) == 1
    by_time = [
        Request(kind="GET", key="", start=each.start, end=each.end) for each in store.requests
    ]
    assert count_requests(by_time).depth == 2


def test_a_call_waits_for_the_result_that_its_caller_took(io: FileIO, store: MemoryS3) -> None:
    start_call(io, partial(read, io, 0))()
    start_call(io, partial(read, io, 1))()

    assert measure_depth(store) == 2


def test_the_window_of_requests_counts(io: FileIO, store: MemoryS3) -> None:
    count = 2 * read_concurrency() + 1

    assert list(map_concurrently(io, partial(read, io), range(count))) == [b"data"] * count
    assert measure_depth(store) == 3


def test_a_call_that_fails_counts(io: FileIO, store: MemoryS3) -> None:
    with pytest.raises(FileNotFoundError):
        start_call(io, partial(read, io, 1_000))()
    read(io, 0)

    assert measure_depth(store) == 2


def test_a_cancelled_call_sends_nothing(io: FileIO, store: MemoryS3) -> None:
    results = map_concurrently(io, partial(read, io), range(100))
    next(results)
    results.close()  # type: ignore[attr-defined]  # a generator

    assert len(store.requests) <= 2 * read_concurrency()
