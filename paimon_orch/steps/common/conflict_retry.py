"""Handles conflicts with other commits: deletes the new files and retries."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from tenacity import Retrying

from paimon_orch.errors import (
    REFUSED_COMMIT_ERRORS,
    CommitConflictError,
    MissingFileError,
    PaimonError,
    UnsupportedError,
)
from paimon_orch.retry_policy import STEP_ON_CONFLICT
from paimon_orch.safe_text import get_logger
from paimon_orch.storage.store_operation import try_once
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files

logger = get_logger(__name__)

MAX_ATTEMPTS = STEP_ON_CONFLICT.attempts


def retry_on_conflict(
    label: str,
    *,
    max_attempts: int = MAX_ATTEMPTS,
    has_expired: Callable[[], bool] = lambda: False,
) -> Retrying:
    """Return the attempts of a step, as context managers.

    After a :class:`CommitConflictError` there is another attempt, at most ``max_attempts`` in all;
    the last error is raised. So is the error of a commit that only lost races: its attempts are used
    up, and a new plan would give the same changes. There is also another attempt if a file is
    missing and the snapshot of the plan ``has_expired``.
    """

    def may_retry(error: BaseException) -> bool:
        if isinstance(error, MissingFileError):
            return has_expired()
        return isinstance(error, CommitConflictError) and not error.is_lost_race

    def warn(number: int, error: BaseException) -> None:
        logger.warning("%s: attempt %d conflicted: %s", label, number, error)

    return replace(STEP_ON_CONFLICT, attempts=max_attempts).retrying(
        retry_on=may_retry,
        before_retry=warn,
    )


@contextmanager
def discard_files_on_conflict(table: Table, messages: Iterable[CommitMessage]) -> Iterator[None]:
    """Delete the files that tasks wrote if the commit in this context is refused.

    After other errors, the files are kept, because the commit may have succeeded. Raises
    :class:`UnsupportedError` if a task reported an unsupported table.
    """
    messages = list(messages)
    try:
        for message in messages:
            if message.refusal is not None:
                raise UnsupportedError(message.refusal)
        yield
    except REFUSED_COMMIT_ERRORS:
        discard_messages(table, messages)
        raise


def discard_results(table: Table, results: Iterable[bytes]) -> None:
    """Delete the files that finished tasks wrote; ``results`` are encoded messages."""
    discard_messages(table, [CommitMessage.decode(result) for result in results])


def discard_messages(table: Table, messages: Iterable[CommitMessage]) -> None:
    """Delete the files that finished tasks wrote, unless the store is unavailable."""
    messages = list(messages)
    if not messages:
        return
    with suppress(PaimonError, OSError), try_once():  # the error that came before is raised
        discard_written_files(table.stores.reader(), messages)
