"""A limit of the time for whole answers of HTTP servers, headers included.

The timeout of a socket is the longest wait for the next byte: a server that sends one byte a minute,
or headers, interim answers and trailers without end, would hold a request forever. See SECURITY.md.
"""

import socket
from collections.abc import Callable
from functools import cache, partial
from http.client import HTTPConnection, HTTPResponse
from io import BufferedReader, RawIOBase
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from requests import Session

C = TypeVar("C", bound=HTTPConnection)


class _Answer(HTTPResponse):
    """An answer that must be complete within the timeout of its socket."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = BufferedReader(_LimitedReader(sock, self.fp.detach()))


class _LimitedReader(RawIOBase):
    """Reads from a socket until its timeout, which begins now."""

    def __init__(self, sock: socket.socket, source: RawIOBase) -> None:
        super().__init__()
        self._socket, self._source = sock, source
        timeout = sock.gettimeout()
        self._deadline = None if timeout is None else monotonic() + timeout

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        """Receive bytes; raises :class:`TimeoutError` after the timeout."""
        if self._deadline is not None:
            left_seconds = self._deadline - monotonic()
            if left_seconds <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left_seconds)
        return self._source.readinto(buffer)

    def close(self) -> None:
        """Close the socket's file; the socket itself may be used for the next request."""
        self._source.close()
        super().close()


@cache
def limit_answers(connection: type[C]) -> type[C]:
    """Return the class of connections whose answers are limited."""
    if connection.response_class is _Answer:
        return connection
    return type(connection.__name__, (connection,), {"response_class": _Answer})


def limit_session(session: "Session") -> None:
    """Limit all answers to a session of ``requests``, those of adapters that are mounted later, too.

    The read timeout of a request becomes the time for its whole answer. Redirects are not followed:
    their target is a host that nobody has allowed, and their bodies have no limit.
    """
    session.get_adapter = partial(_find_adapter, session.get_adapter)  # type: ignore[method-assign]
    session.get_redirect_target = _find_no_target  # type: ignore[assignment,method-assign]


def _find_adapter(find: Callable[..., Any], url: str | bytes) -> Any:
    adapter = find(url)
    adapter.get_connection_with_tls_context = partial(_get_limited_pool, adapter)
    return adapter


def _get_limited_pool(adapter: Any, *args: Any, **kwargs: Any) -> Any:
    pool = type(adapter).get_connection_with_tls_context(adapter, *args, **kwargs)
    pool.ConnectionCls = limit_answers(pool.ConnectionCls)
    return pool


def _find_no_target(_response: object) -> None:
    """Follow no redirect."""
