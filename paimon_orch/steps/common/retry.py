"""Steps that lose a race: what they wrote is removed, and they plan again, as it may rest on files that are gone."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from paimon_orch.errors import CommitConflictError, InputError, UnsupportedError
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files

logger = logging.getLogger(__name__)

R = TypeVar("R")
_MAX_ATTEMPTS = 3


def retry_on_conflict(label: str, attempt: Callable[[int], R]) -> R:
    """Return what ``attempt`` returns, which is given its number from 1.

    It is called again after a :class:`CommitConflictError`, three times at most; the last error is raised.
    """

    def warn(state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        logger.warning("%s: attempt %d lost: %s", label, state.attempt_number, error)

    retrying = Retrying(
        retry=retry_if_exception_type(CommitConflictError),
        stop=stop_after_attempt(_MAX_ATTEMPTS),
        before_sleep=warn,
        reraise=True,
    )
    for state in retrying:
        with state:
            result = attempt(state.retry_state.attempt_number)
    return result


@contextmanager
def discard_files_on_conflict(table: Table, messages: Iterable[CommitMessage]) -> Iterator[None]:
    """Remove what tasks wrote if the commit inside is refused; after any other error it may have happened.

    Raises :class:`UnsupportedError` if a task refused already.
    """
    messages = list(messages)
    try:
        for message in messages:
            if message.refusal is not None:
                raise UnsupportedError(message.refusal)
        yield
    except (CommitConflictError, InputError, UnsupportedError):
        discard_written_files(table.stores.reader(), messages)
        raise


def discard_results(table: Table, results: Iterable[bytes]) -> None:
    """Remove what finished tasks wrote when another one failed; ``results`` are encoded messages."""
    discard_written_files(
        table.stores.reader(), [CommitMessage.decode(result) for result in results]
    )
