"""Concurrent requests: order, limits, errors, and calls from inside of the pool."""

from __future__ import annotations

import multiprocessing
import threading
import time
from dataclasses import replace

import pytest

from paimon_orch.errors import InputError
from paimon_orch.storage import LocalFileIO, concurrency
from paimon_orch.storage.concurrency import (
    CONCURRENCY_VARIABLE,
    map_concurrently,
    read_concurrency,
    start_call,
)


class RemoteFileIO(LocalFileIO):
    """Local files whose requests count as requests of a network."""

    capabilities = replace(LocalFileIO.capabilities, has_slow_requests=True)


REMOTE, LOCAL = RemoteFileIO(), LocalFileIO()


def count_most_at_once(io: LocalFileIO, items: int) -> int:
    """Return how many calls ran at the same time."""
    running, most, lock = 0, 0, threading.Lock()

    def call(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    list(map_concurrently(io, call, range(items)))
    return most


def test_results_have_the_order_of_the_items() -> None:
    def call(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number

    assert list(map_concurrently(REMOTE, call, range(50))) == list(range(50))


def test_calls_of_a_store_run_at_the_same_time_up_to_the_limit() -> None:
    assert 1 < count_most_at_once(REMOTE, 100) <= read_concurrency()


def test_calls_of_a_local_disk_run_one_after_the_other_in_the_same_thread() -> None:
    threads = set(map_concurrently(LOCAL, lambda _: threading.get_ident(), range(5)))

    assert count_most_at_once(LOCAL, 5) == 1
    assert threads == {threading.get_ident()}


def test_few_results_wait_for_a_slow_consumer() -> None:
    started: list[int] = []
    results = map_concurrently(REMOTE, started.append, range(1_000))
    next(results)
    time.sleep(0.05)

    assert len(started) <= read_concurrency() + 1
    results.close()  # type: ignore[attr-defined]  # a generator


def test_the_first_error_is_raised_after_the_calls_that_have_started() -> None:
    finished: list[int] = []

    def call(number: int) -> int:
        if number == 1:
            raise ValueError("1")
        time.sleep(0.02)
        finished.append(number)
        return number

    with pytest.raises(ValueError, match="1"):
        list(map_concurrently(REMOTE, call, range(100)))
    ended = len(finished)
    time.sleep(0.1)

    assert len(finished) == ended < 100


@pytest.mark.parametrize("wait", [0.0, 0.01])
def test_calls_that_start_others_do_not_block_each_other(wait: float) -> None:
    def inner(number: int) -> int:
        time.sleep(wait)
        return number

    def outer(number: int) -> int:
        return (
            sum(map_concurrently(REMOTE, inner, range(number)))
            + start_call(REMOTE, lambda: inner(1))()
        )

    expected = [sum(range(number)) + 1 for number in range(40)]
    assert list(map_concurrently(REMOTE, outer, range(40))) == expected


@pytest.mark.parametrize("io", [REMOTE, LOCAL])
def test_a_started_call_returns_its_result_each_time(io: LocalFileIO) -> None:
    numbers = iter(range(10))
    get = start_call(io, lambda: next(numbers))

    assert (get(), get()) == (0, 0)


def test_a_started_call_raises_its_error_when_the_result_is_needed() -> None:
    def fail() -> None:
        raise FileNotFoundError("x")

    get = start_call(REMOTE, fail)
    with pytest.raises(FileNotFoundError, match="x"):
        get()


@pytest.mark.parametrize("text", ["0", "-1", "many", "1001", "", "٣"])
def test_an_invalid_number_of_requests_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONCURRENCY_VARIABLE, text)
    with pytest.raises(InputError, match=f"{CONCURRENCY_VARIABLE} must be a number"):
        read_concurrency()


def test_a_forked_process_has_a_pool_of_its_own() -> None:
    list(map_concurrently(REMOTE, str, range(20)))  # starts the threads of this process
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_map_in_child)
    child.start()
    child.join(30)

    assert child.exitcode == 0


def _map_in_child() -> None:
    assert list(map_concurrently(REMOTE, str, range(20))) == [*map(str, range(20))]


def test_the_pool_is_started_once() -> None:
    pool, pools = concurrency._Pool(), list[object]()
    threads = [threading.Thread(target=lambda: pools.append(pool.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(map(id, pools))) == 1
