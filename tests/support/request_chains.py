"""Counts which requests of a process waited for each other, whatever time they took.

The times of requests do not tell it. If the process decodes the files that it has already got, its
next request starts after others have ended, although it did not wait for them; the longer the
decoding takes, the longer seems the chain. So each thread counts the longest chain of requests that
it has waited for. A call in the pool of requests continues the count of the thread that started it,
and that thread takes over the count of the call when it takes the result. A worker of the pool that
begins another call does not wait for the call before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from email.message import Message
from typing import Any
from unittest import mock

from aiobotocore.httpsession import AIOHTTPSession

from paimon_orch.storage import concurrency

HEADER = "x-length-of-chain"
"""The number of requests in the longest chain that a request waited for."""


@dataclass(slots=True)
class Chain:
    """The requests that a thread has waited for."""

    length: int = 0

    def extend(self, length: int) -> None:
        """Wait for the last request of a chain."""
        self.length = max(self.length, length)


# asyncio copies the context of the thread that calls s3fs to the tasks that send its requests
_chain: ContextVar[Chain] = ContextVar("chain")


class _ChainedFuture(Future[Any]):
    length = 0

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the requests of the call."""
        try:
            return super().result(timeout)
        finally:
            _chain.get().extend(self.length)


class ChainingPool(ThreadPoolExecutor):
    """A pool whose calls continue the chain of the thread that starts them."""

    def submit(  # type: ignore[override]  # the library passes arguments by position
        self, function: Callable[..., Any], /, *arguments: Any
    ) -> Future[Any]:
        """Start a call."""
        future, length = _ChainedFuture(), _chain.get().length

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            chain = Chain(length)
            _chain.set(chain)
            try:
                result = function(*arguments)
            except BaseException as error:  # noqa: BLE001 - the caller of result() gets it
                future.length = chain.length
                future.set_exception(error)
            else:
                future.length = chain.length
                future.set_result(result)

        super().submit(call)
        return future


def read_chain(headers: Message[str, str]) -> int | None:
    """Return the length in the header of a request, or None if its process does not count."""
    length = headers.get(HEADER)
    return None if length is None else int(length)


@contextmanager
def run_chains() -> Iterator[None]:
    """Send the header with each request of s3fs; the chain of this thread begins.

    A request of another thread is an error, except of those in the pools.
    """
    send = AIOHTTPSession.send

    async def send_with_header(session: AIOHTTPSession, request: Any) -> Any:
        chain = _chain.get()
        length = chain.length
        request.headers[HEADER] = str(length)
        response = await send(session, request)
        chain.extend(length + 1)
        return response

    pool = ChainingPool(
        concurrency.read_concurrency(),
        initializer=concurrency._mark_worker,
    )
    token = _chain.set(Chain())
    try:
        with (
            mock.patch.object(AIOHTTPSession, "send", send_with_header),
            mock.patch.object(concurrency._pool, "executor", pool),
            mock.patch.object(concurrency, "ThreadPoolExecutor", ChainingPool),
            pool,
        ):
            yield
    finally:
        _chain.reset(token)
