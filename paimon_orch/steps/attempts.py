"""Steps that lose a race plan again: what they computed may rest on files that are gone."""

import logging
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from paimon_orch.errors import CommitConflictError

logger = logging.getLogger(__name__)

R = TypeVar("R")
_ATTEMPTS = 3


def replanned(label: str, attempt: Callable[[int], R]) -> R:
    """Return what ``attempt`` returns, which is given its number from 1.

    It is called again after a :class:`CommitConflictError`, three times at most; the last error is raised.
    """

    def warn(state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        logger.warning("%s: attempt %d lost: %s", label, state.attempt_number, error)

    retrying = Retrying(
        retry=retry_if_exception_type(CommitConflictError),
        stop=stop_after_attempt(_ATTEMPTS),
        before_sleep=warn,
        reraise=True,
    )
    for state in retrying:
        with state:
            result = attempt(state.retry_state.attempt_number)
    return result
