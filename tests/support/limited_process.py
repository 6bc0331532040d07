"""Runs attacks in a child process with limited memory and time, which they may end."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from paimon_orch.errors import PaimonError

MEMORY_BYTES = 2 << 30
SECONDS = 60.0
_FORK = multiprocessing.get_context("fork")


def run_limited(
    action: Callable[[], object], *, memory: int = MEMORY_BYTES, seconds: float = SECONDS
) -> object:
    """Return the result of an action, or the error of this library that it raised.

    The result must be small, because it is sent to this process. Fails if the action raises
    another error, needs more memory than ``memory`` bytes or more than ``seconds``, or is ended by
    a signal.
    """
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_run, args=(action, sender, memory), daemon=True)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise AssertionError(f"the action did not end within {seconds} s")
        outcome = receiver.recv()
    except EOFError:
        process.join(seconds)
        code = process.exitcode or 0
        reason = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        raise AssertionError(f"the process of the action ended: {reason}") from None
    finally:
        process.kill()
        process.join()
    assert isinstance(outcome, PaimonError) or not isinstance(outcome, BaseException), (
        f"the action raised {outcome!r}"
    )
    return outcome


def _run(action: Callable[[], object], sender: Connection, memory: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        outcome = action()
    except BaseException as error:  # noqa: BLE001 - this process ends
        outcome = error if isinstance(error, PaimonError) else RuntimeError(repr(error))
    sender.send(outcome)


def refuse(action: Callable[[], object], **limits: float) -> str:
    """Return the message of the error of this library that an action raises."""
    outcome = run_limited(action, **limits)  # type: ignore[arg-type]
    assert isinstance(outcome, PaimonError), f"the action was not refused: {outcome!r}"
    return str(outcome)
