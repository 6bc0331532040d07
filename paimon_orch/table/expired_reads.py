"""Repeats what reads the newest snapshot if the snapshot expires meanwhile."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from paimon_orch.errors import MissingFileError
from paimon_orch.retry_policy import EXPIRED_READ
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def repeat_if_expired(function: Callable[P, T]) -> Callable[P, T]:
    """Call a function again if files of the snapshot that it has loaded are missing.

    An expiration deletes them if other writers have committed since. The function loads the newest
    snapshot, changes nothing, and gets other files from a newer one. So a file that is missing again
    is lost, and its :class:`MissingFileError` is raised. A function that takes the ``state`` that
    its caller has loaded gets None in later calls, and loads another one.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        missing: set[str] = set()

        def is_first_miss(error: BaseException) -> bool:
            if not isinstance(error, MissingFileError) or error.path in missing:
                return False
            missing.add(error.path)
            return True

        def note(number: int, error: BaseException) -> None:
            logger.info("the newest snapshot is read again after attempt %d: %s", number, error)

        def attempt() -> T:
            if missing and "state" in kwargs:
                kwargs["state"] = None
            return function(*args, **kwargs)

        return EXPIRED_READ.call(attempt, retry_on=is_first_miss, before_retry=note)

    return call
