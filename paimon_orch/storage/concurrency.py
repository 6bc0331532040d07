"""Sends independent requests to a store at the same time, from one pool of threads per process.

See docs/storage.md#requests-and-caches.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from paimon_orch.errors import InputError, PaimonError, StorageError
from paimon_orch.storage.base import FileIO
from paimon_orch.storage.store_operation import continue_operation

CONCURRENCY_VARIABLE = "PAIMON_ORCH_CONCURRENT_REQUESTS"
"""The environment variable with the number of requests that a process sends at the same time."""
_DEFAULT_CONCURRENCY = 16
_MAX_OPERATIONS = 4

T = TypeVar("T")
R = TypeVar("R")


class _Pool:
    """The pool of the process."""

    def __init__(self) -> None:
        self.executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def get(self) -> ThreadPoolExecutor:
        """Return the pool; the first call starts it."""
        with self._lock:
            if self.executor is None:
                self.executor = ThreadPoolExecutor(
                    read_concurrency(), "paimon-orch-request", initializer=_mark_worker
                )
            return self.executor

    def forget(self) -> None:
        """Forget the pool in a forked process, which has none of its threads."""
        self.executor, self._lock = None, threading.Lock()


_pool = _Pool()
_thread = threading.local()
"""The attribute ``is_worker`` is set in the threads of the pool."""
os.register_at_fork(after_in_child=_pool.forget)


def _mark_worker() -> None:
    _thread.is_worker = True


def read_concurrency() -> int:
    """Return the number of requests that a process sends at the same time."""
    text = os.environ.get(CONCURRENCY_VARIABLE, str(_DEFAULT_CONCURRENCY))
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000):
        raise InputError(f"{CONCURRENCY_VARIABLE} must be a number from 1 to 1000; got {text!r}")
    return int(text)


def map_concurrently(io: FileIO, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in their order.

    If each call waits for the network, up to :func:`read_concurrency` calls run at the same time or
    have a result that is not consumed yet. Raises the error of the first call that fails; calls
    that have started then end before it is raised.
    """
    if can_overlap(io):
        yield from overlap_calls(function, items)
    else:  # a worker that waits for other workers could block them
        yield from map(function, items)


def overlap_calls(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``function(item)`` as :func:`map_concurrently` does if each call waits for the network.

    The function itself sends its requests one after the other. Close the iterator to start no
    further calls.
    """
    yield from _overlap(_pool.get(), read_concurrency(), function, items)


def overlap_operations(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``function(item)`` as :func:`overlap_calls` does, for calls that overlap requests, too.

    Only a few run at the same time, because each may need much memory. They have threads of their
    own, and share the pool of requests.
    """
    with ThreadPoolExecutor(_MAX_OPERATIONS, "paimon-orch-operation") as threads:
        yield from _overlap(threads, _MAX_OPERATIONS, function, items)


def _overlap(
    pool: ThreadPoolExecutor, limit: int, function: Callable[[T], R], items: Iterable[T]
) -> Iterator[R]:
    pending = deque[Future[R]]()
    try:
        for item in items:
            pending.append(pool.submit(continue_operation(function), item))
            if len(pending) == limit:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        wait(pending)


def run_concurrently(io: FileIO, function: Callable[[T], object], items: Iterable[T]) -> None:
    """Call a function for each item, as :func:`map_concurrently` does, for its effect."""
    for _ in map_concurrently(io, function, items):
        pass


def read_ahead(io: FileIO, reads: Iterable[Callable[[], object]]) -> None:
    """Run reads whose results are kept for later, several at the same time; none of local files.

    Files that cannot be read are left to the later reads, which raise their errors. If the store is
    unavailable, its error is raised at once, because the later reads would also wait for it.
    """
    if not io.capabilities.has_slow_requests:
        return

    def try_read(read: Callable[[], object]) -> None:
        try:
            read()
        except PaimonError as error:
            if isinstance(error, StorageError) and error.is_unavailable:
                raise

    run_concurrently(io, try_read, reads)


def can_overlap(io: FileIO) -> bool:
    """Return whether a call of :func:`start_call` runs while the caller does something else."""
    return io.capabilities.has_slow_requests and not getattr(_thread, "is_worker", False)


def start_call(io: FileIO, function: Callable[[], R]) -> Callable[[], R]:
    """Start a call that only reads; return a function that returns its result or raises its error.

    The call has ended already unless each call waits for the network.
    """
    if not can_overlap(io):
        result = function()
        return lambda: result
    return _pool.get().submit(continue_operation(function)).result
