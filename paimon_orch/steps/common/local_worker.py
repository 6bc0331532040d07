"""The main function of the worker processes that :mod:`worker_process` starts."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from paimon_orch.retry_policy import LOCAL_UNIT
from paimon_orch.steps.common.unit_outcome import UnitOutcome, run_unit

FUNCTION, UNIT = b"f", b"u"
"""The first byte of a message to a worker; the rest is a pickled function or unit."""
RESULT, ERROR = b"r", b"e"
"""The first byte of an answer; the rest is the result, or the encoded error."""


def encode_outcome(outcome: UnitOutcome) -> bytes:
    """Encode the answer to a unit."""
    if outcome.error is not None:
        return ERROR + outcome.error.encode()
    assert outcome.result is not None
    return RESULT + outcome.result


def decode_outcome(answer: bytes) -> UnitOutcome:
    """Decode an answer."""
    if answer[:1] == ERROR:
        return UnitOutcome(error=answer[1:].decode())
    return UnitOutcome(result=answer[1:])


def serve(connection: Connection) -> None:
    """Run the units that arrive, until the parent closes the connection."""
    function = b""
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        kind, content = message[:1], message[1:]
        if kind == FUNCTION:
            function = content
        else:
            outcome = run_unit(partial(_run_pickled, function, content), attempts=LOCAL_UNIT)
            connection.send_bytes(encode_outcome(outcome))


def _run_pickled(function: bytes, unit: bytes) -> bytes:
    result: bytes = _load_function(function)(cloudpickle.loads(unit))
    return result


@lru_cache(maxsize=1)
def _load_function(function: bytes) -> Callable[[Any], bytes]:
    run: Callable[[Any], bytes] = cloudpickle.loads(function)
    return run


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _stop(_signal: int, _frame: object) -> None:
    raise SystemExit  # leaves the unit through its ``with`` blocks, which delete unfinished files


def main() -> None:
    """Serve the parent process, through the socket whose number is the first argument.

    Standard input is a pipe to which the parent never writes. It ends when the parent does, however
    the parent ends.
    """
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    signal.signal(signal.SIGTERM, _stop)
    serve(Connection(int(sys.argv[1])))
