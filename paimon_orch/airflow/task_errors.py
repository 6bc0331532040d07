"""Converts errors of the library to Airflow's: which of them a task repeats."""

from collections.abc import Iterator
from contextlib import contextmanager

from paimon_orch.errors import CancelledError, PaimonError
from paimon_orch.orchestration.error_handling import find_next_step, may_succeed_again
from paimon_orch.safe_text import clean_line

try:
    from airflow.sdk.exceptions import AirflowFailException
except ImportError:  # before Airflow 3.2
    from airflow.exceptions import AirflowFailException


@contextmanager
def raise_airflow_errors() -> Iterator[None]:
    """Fail a task without a retry after errors that a repetition does not change.

    These are refusals, damage, and commits whose outcome is unknown. Transient errors and errors of
    the operating system are raised unchanged, so that the ``retries`` of the task apply.
    """
    try:
        yield
    except CancelledError:
        raise
    except PaimonError as error:
        if may_succeed_again(error):
            raise
        raise build_failure(describe_with_next_step(error)) from error


def build_failure(message: str) -> Exception:
    """Return the exception that fails a task without a retry."""
    failure: Exception = AirflowFailException(message)
    return failure


def describe_with_next_step(error: BaseException) -> str:
    """Return the class and the message of an error, and what to do next."""
    message = clean_line(f"{type(error).__name__}: {error}")
    next_step = find_next_step(error)
    return message if next_step is None else f"{message} {next_step}"
