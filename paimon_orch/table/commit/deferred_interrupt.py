"""Delays interrupts while a snapshot is created, so that the caller knows the outcome."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Handle SIGINT and SIGTERM after the block; a second signal is handled at once.

    Python handles signals in the main thread only, so a block in another thread is not interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}

    def defer(number: int, _frame: FrameType | None) -> None:
        pending.append(number)
        if len(pending) > 1:
            _handle(number, handlers[signal.Signals(number)])

    # a handler that was not installed by Python is None and cannot be restored
    replaced = [number for number in _SIGNALS if handlers[number] is not None]
    for number in replaced:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, handlers[number])
        if len(pending) == 1:
            _handle(pending[0], handlers[signal.Signals(pending[0])])


def _handle(number: int, handler: Callable[[int, FrameType | None], Any] | int | None) -> None:
    if callable(handler):
        handler(number, None)
    elif handler == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
