"""Sends independent requests to a store at the same time, from one pool of threads per process.

See docs/storage.md#concurrent-requests.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

from paimon_orch.errors import InputError, PaimonError
from paimon_orch.storage.base import FileIO

CONCURRENCY_VARIABLE = "PAIMON_ORCH_CONCURRENT_REQUESTS"
"""The environment variable with the number of requests that a process sends at the same time."""
_DEFAULT_CONCURRENCY = 16

T = TypeVar("T")
R = TypeVar("R")


class _Pool(threading.local):
    """The pool of the process; each thread knows whether it belongs to the pool."""

    executor: ThreadPoolExecutor | None = None
    lock = threading.Lock()
    is_worker = False

    @classmethod
    def get(cls) -> ThreadPoolExecutor:
        """Return the pool; the first call starts it."""
        with cls.lock:
            if cls.executor is None:
                cls.executor = ThreadPoolExecutor(
                    read_concurrency(), "paimon-orch-request", initializer=_mark_worker
                )
            return cls.executor

    @classmethod
    def forget(cls) -> None:
        """Forget the pool in a forked process, which has none of its threads."""
        cls.executor, cls.lock = None, threading.Lock()


_pool = _Pool()
os.register_at_fork(after_in_child=_Pool.forget)


def _mark_worker() -> None:
    _pool.is_worker = True


def read_concurrency() -> int:
    """Return the number of requests that a process sends at the same time."""
    text = os.environ.get(CONCURRENCY_VARIABLE, str(_DEFAULT_CONCURRENCY))
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000):
        raise InputError(f"{CONCURRENCY_VARIABLE} must be a number from 1 to 1000; got {text!r}")
    return int(text)


def map_concurrently(io: FileIO, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in their order.

    If each call waits for the network, as ``io.remote`` says, up to :func:`read_concurrency` calls
    run at the same time or have a result that is not consumed yet. Raises the error of the first
    call that fails; calls that have started then end before it is raised.
    """
    if not can_overlap(io):  # a worker that waits for other workers could block them
        yield from map(function, items)
        return
    pool, limit = _Pool.get(), read_concurrency()
    pending = deque[Future[R]]()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) == limit:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        wait(pending)


def read_ahead(io: FileIO, reads: Iterable[Callable[[], object]]) -> None:
    """Run reads whose results are kept for later, several at the same time; none of local files.

    Files that cannot be read are left to the later reads, which raise their errors.
    """
    if not io.remote:
        return

    def try_read(read: Callable[[], object]) -> None:
        with suppress(PaimonError):
            read()

    deque(map_concurrently(io, try_read, reads), maxlen=0)


def can_overlap(io: FileIO) -> bool:
    """Return whether a call of :func:`start_call` runs while the caller does something else."""
    return io.remote and not _pool.is_worker


def start_call(io: FileIO, function: Callable[[], R]) -> Callable[[], R]:
    """Start a call that only reads; return a function that returns its result or raises its error.

    The call has ended already unless each call waits for the network.
    """
    if not can_overlap(io):
        result = function()
        return lambda: result
    return _Pool.get().submit(function).result
