"""Keeps the event loop of fsspec from logging requests that were not sent.

aiohttp writes each request in a task. If the server has closed the connection, the request raises
an error, and nobody asks this task for its own. asyncio would log it later, with a traceback.
"""

import asyncio
from functools import cache
from typing import Any

_WRITING = "ClientRequest.write_bytes"


@cache
def ignore_unsent_requests(loop: Any) -> None:
    """Log all errors that no task has awaited, except those of aiohttp's requests."""
    previous = loop.get_exception_handler()

    def handle(loop: Any, context: dict[str, Any]) -> None:
        task = context.get("future")
        is_writing = isinstance(task, asyncio.Task) and (
            getattr(task.get_coro(), "__qualname__", "") == _WRITING
        )
        if is_writing and isinstance(context.get("exception"), ConnectionResetError):
            return
        if previous is None:
            loop.default_exception_handler(context)
        else:
            previous(loop, context)

    loop.set_exception_handler(handle)
