"""Operations of a store: when the last call of one is not repeated, no other call of it is.

An operation may need several calls, such as a put, and a look at the object after an error. Each of
them is made at least once. A call is repeated by ``STORE_CALL``. As soon as one has used its
attempts, the operation has given up, so that it ends within the time of one call.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from paimon_orch.errors import StorageError
from paimon_orch.retry_policy import STORE_CALL, STORE_RETRY_SECONDS

R = TypeVar("R")


@dataclass(slots=True)
class StoreOperation:
    """An operation that its caller waits for."""

    start: float = field(default_factory=time.monotonic)
    has_given_up: bool = False


# fsspec runs coroutines in another thread, with the context of the caller.
_current: ContextVar[StoreOperation | None] = ContextVar("store operation", default=None)


@contextmanager
def begin_operation() -> Iterator[None]:
    """Begin an operation, or continue that of the caller."""
    if _current.get() is not None:
        yield
        return
    token = _current.set(StoreOperation())
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def try_once() -> Iterator[None]:
    """Repeat no failed call in this block, such as those that clean up after a failure."""
    token = _current.set(StoreOperation(has_given_up=True))
    try:
        yield
    finally:
        _current.reset(token)


def continue_operation(function: Callable[..., R]) -> Callable[..., R]:
    """Return a function that continues the operation of this thread in another one."""
    operation = _current.get()
    if operation is None:
        return function

    def run(*arguments: Any) -> R:
        token = _current.set(operation)
        try:
            return function(*arguments)
        finally:
            _current.reset(token)

    return run


def describe_attempts(failure: StorageError) -> StorageError:
    """Return an error with what the current operation has tried."""
    operation = _current.get()
    if operation is not None:
        failure.retry_seconds = time.monotonic() - operation.start
        failure.is_unavailable = operation.has_given_up
    return failure


def may_repeat() -> bool:
    """Return whether a failed call of the current operation may be repeated."""
    operation = _current.get()
    return operation is None or not operation.has_given_up


def limit_call(seconds: float) -> float:
    """Return the time limit of the next call of an operation whose calls have ``seconds`` in all.

    A call that follows the one that used them, or that follows a failure, still has the time of
    ``STORE_CALL``, so that it can find out what happened.
    """
    operation = _current.get()
    if operation is None:
        return seconds
    rest = 0.0 if operation.has_given_up else seconds - (time.monotonic() - operation.start)
    return min(seconds, max(rest, STORE_RETRY_SECONDS))


def give_up() -> None:
    """Repeat no further call of the current operation."""
    operation = _current.get()
    if operation is not None:
        operation.has_given_up = True


def give_up_if_late() -> None:
    """Repeat no further call if the current operation has taken the time of failed attempts."""
    operation = _current.get()
    if operation is not None and time.monotonic() - operation.start >= STORE_RETRY_SECONDS:
        operation.has_given_up = True


@dataclass(slots=True)
class FailedRequest:
    """Counts the attempts of a request for a client that repeats its requests itself."""

    failures: int = 0
    first_failure: float = field(default_factory=time.monotonic)

    def draw_wait(self) -> float | None:
        """Return the seconds to wait after one more failed attempt, or None to give up."""
        self.failures += 1
        elapsed = time.monotonic() - self.first_failure
        wait = STORE_CALL.draw_wait(self.failures, elapsed) if may_repeat() else None
        if wait is None:
            give_up()
        return wait
