"""The outcome of a work unit: its result, or its error as data.

Errors are returned as data, so that the caller raises an error of the same class whichever process
ran the unit.
"""

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from paimon_orch import errors
from paimon_orch.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    PaimonError,
    TransientError,
)
from paimon_orch.retry_policy import SINGLE_ATTEMPT, STORE_RETRY_SECONDS, RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOutcome:
    """The result or the error of a unit; exactly one is set."""

    result: bytes | None = None
    error: str | None = None
    """The error, encoded by :func:`encode_error`."""


def run_unit(
    work: Callable[[], bytes],
    *,
    attempts: RetryPolicy = SINGLE_ATTEMPT,
    is_retryable: Callable[[Exception], bool] = lambda _: False,
) -> UnitOutcome:
    """Run a unit, again after transient errors; its error is part of the outcome.

    An error that ``is_retryable`` accepts is raised instead, for a caller that runs the unit again.
    """
    spent = 0.0

    def is_worth_another(error: BaseException) -> bool:
        nonlocal spent
        spent += getattr(error, "retry_seconds", 0.0)
        return is_transient(error) and spent < STORE_RETRY_SECONDS

    try:
        result = attempts.call(work, retry_on=is_worth_another)
        if not isinstance(result, bytes):
            raise TypeError(f"a unit must return bytes, not {type(result).__name__}")
    except Exception as error:
        if is_retryable(error):
            raise
        return UnitOutcome(error=encode_error(error))
    return UnitOutcome(result=result)


def is_transient(error: BaseException) -> bool:
    """Return whether the same unit may succeed if it is run again."""
    if isinstance(error, (CommitConflictError, CommitOutcomeUnknownError)):
        return False
    return isinstance(error, (TransientError, OSError))


def encode_error(error: Exception) -> str:
    """Encode an error as JSON: its closest class in ``paimon_orch.errors``, and its arguments."""
    if isinstance(error, OSError):
        error = errors.StorageError(f"{type(error).__name__}: {error}").with_traceback(
            error.__traceback__
        )
    kind = next((c for c in type(error).__mro__ if getattr(errors, c.__name__, None) is c), None)
    text = str(error) if kind else f"{type(error).__name__}: {error}"
    # __reduce__ returns the arguments of the constructor, which may differ from the message.
    arguments = error.__reduce__()[1] if kind is type(error) else (text,)
    return json.dumps(
        {
            "type": kind.__name__ if kind else PaimonError.__name__,
            "arguments": [str(argument) for argument in arguments],
            "traceback": "".join(traceback.format_exception(error)),
        }
    )


def decode_error(text: str) -> PaimonError:
    """Decode an error; creates only classes of ``paimon_orch.errors``."""
    data = json.loads(text)
    kind = getattr(errors, data["type"], PaimonError)
    if not (isinstance(kind, type) and issubclass(kind, PaimonError)):
        kind = PaimonError
    return kind(*data["arguments"])


def decode_traceback(text: str) -> str:
    """Return the traceback of an encoded error."""
    trace: str = json.loads(text)["traceback"]
    return trace


def build_cancelled_error(label: str) -> errors.CancelledError:
    """Return the error of a job that the caller cancelled."""
    return errors.CancelledError(f"{label}: canceled before it finished; nothing was committed.")
