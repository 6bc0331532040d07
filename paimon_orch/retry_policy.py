"""Retry policies: how many attempts a call gets, and the waits between them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import uniform
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_random,
)
from tenacity.stop import stop_base

T = TypeVar("T")

_RACE_WAIT_FACTOR = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The limits of the attempts of a call, and the waits between them.

    The wait before attempt ``n`` is ``min_wait * 2 ** (n - 2)`` seconds, at most ``max_wait``, plus
    a random time of up to ``min_wait``. The last attempt starts ``timeout`` seconds after the first,
    unless there are no more attempts before.
    """

    attempts: int
    min_wait: float = 0.0
    max_wait: float = 0.0
    timeout: float | None = None

    def call(
        self,
        function: Callable[[], T],
        *,
        retry_on: Callable[[BaseException], bool],
        before_retry: Callable[[int, BaseException], None] | None = None,
        wait_at_least: Callable[[BaseException], float] | None = None,
    ) -> T:
        """Call ``function`` until it succeeds; retry the errors that ``retry_on`` accepts.

        ``before_retry`` gets the number of the failed attempt, from 1, and its error.
        ``wait_at_least`` returns the shortest wait after an error, which ``max_wait`` does not
        limit. Raises the error of the last attempt.
        """
        retrying = self.retrying(
            retry_on=retry_on, before_retry=before_retry, wait_at_least=wait_at_least
        )
        return retrying(function)

    def retrying(
        self,
        *,
        retry_on: Callable[[BaseException], bool],
        before_retry: Callable[[int, BaseException], None] | None = None,
        wait_at_least: Callable[[BaseException], float] | None = None,
    ) -> Retrying:
        """Return the attempts of :meth:`call`, as context managers.

        >>> for attempt in policy.retrying(retry_on=is_transient):
        ...     with attempt:
        ...         return work()
        """

        def notify(state: RetryCallState) -> None:
            error = None if state.outcome is None else state.outcome.exception()
            if before_retry is not None and error is not None:
                before_retry(state.attempt_number, error)

        def wait(state: RetryCallState) -> float:
            error = None if state.outcome is None else state.outcome.exception()
            least = 0.0 if wait_at_least is None or error is None else wait_at_least(error)
            return max(self._wait(state), least)

        return Retrying(
            retry=retry_if_exception(retry_on),
            stop=self._stop,
            wait=wait,
            before_sleep=notify,
            reraise=True,
        )

    def call_until_result(
        self,
        function: Callable[[], T | None],
        *,
        draw_wait: Callable[[], float | None] = lambda: None,
    ) -> T | None:
        """Return the first result of ``function`` that is not None, or None if there is none.

        Errors are not retried. ``draw_wait`` returns the wait after an attempt in seconds, or None
        for that of the policy.
        """

        def wait(state: RetryCallState) -> float:
            seconds = draw_wait()
            return self._wait(state) if seconds is None else seconds

        retrying = Retrying(
            retry=retry_if_result(lambda result: result is None),
            stop=self._stop,
            wait=wait,
            retry_error_callback=lambda _: None,
        )
        return retrying(function)

    def draw_wait(self, failures: int, elapsed: float) -> float | None:
        """Return the seconds to wait after a number of failed attempts, or None to stop.

        For clients that repeat requests themselves. ``elapsed`` is the time since the first attempt
        in seconds.
        """
        if failures >= self.attempts or elapsed >= (self.timeout or inf):
            return None
        seconds = min(self.min_wait * 2 ** (failures - 1), self.max_wait)
        return self._shorten(seconds + uniform(0, self.min_wait), elapsed)  # noqa: S311 - no secret

    def draw_wait_after_lost_race(self, losses: int) -> float:
        """Return the seconds to wait after the given number of lost races, 1 or more.

        The first retry starts at once. Later ones wait for a random time up to a bound that begins
        with ``min_wait * 64`` and is halved by each loss, down to ``min_wait``. So those that have
        lost more races wait less than the others. ``max_wait`` limits the bound.
        """
        if losses == 1:
            return 0.0
        bound = self.min_wait * max(1, _RACE_WAIT_FACTOR >> (losses - 2))
        return uniform(0, min(bound, self.max_wait))  # noqa: S311 - no secret

    @property
    def _stop(self) -> stop_base:
        stop = stop_after_attempt(self.attempts)
        return stop if self.timeout is None else stop | stop_after_delay(self.timeout)

    @property
    def _wait(self) -> Callable[[RetryCallState], float]:
        exponential = wait_exponential(multiplier=self.min_wait, max=self.max_wait)
        draw = exponential + wait_random(0, self.min_wait)
        return lambda state: self._shorten(draw(state), state.seconds_since_start or 0.0)

    def _shorten(self, seconds: float, elapsed: float) -> float:
        """Return a wait that does not end after ``timeout``."""
        return seconds if self.timeout is None else max(0.0, min(seconds, self.timeout - elapsed))


SINGLE_ATTEMPT = RetryPolicy(attempts=1)
"""No retries: the caller repeats the call."""

STORE_RETRY_SECONDS = 10.0
"""The time that an operation of a store spends on failed attempts.

A unit is not run again after this time. Another NameNode of HDFS takes over within some seconds.
"""

STORE_CONNECT_SECONDS = 5
"""The time that a remote store has to accept a connection."""

STORE_ANSWER_SECONDS = 15
"""The time without a byte of an answer of an object store, after which a request has failed."""

STORE_CALL = RetryPolicy(attempts=12, min_wait=0.1, max_wait=2.0, timeout=STORE_RETRY_SECONDS)
"""Calls of any remote store that it refuses for the moment, or that break off.

The packages of object stores repeat their requests by this policy, too
(:mod:`paimon_orch.storage.client_retries`). If one gives up, its operation does, too
(:mod:`paimon_orch.storage.store_operation`).
"""

READ_AFTER_OTHER_ERROR = RetryPolicy(attempts=2, min_wait=0.1, max_wait=0.1)
"""Reads of an object store with an error that may be permanent, or an answer that broke off."""

LOCAL_CREATE = RetryPolicy(attempts=4)
"""Creation of local files whose empty directory was deleted by a concurrent cleanup."""

STEP_ON_CONFLICT = RetryPolicy(attempts=3)
"""Steps that plan again after a commit conflict."""

SCHEMA_CHANGE = RetryPolicy(attempts=10, min_wait=0.01, max_wait=0.1)
"""Schema changes after another writer changed the schema first."""

SNAPSHOT_LISTING = RetryPolicy(attempts=5)
"""Listings of snapshots during which snapshots expired."""

EXPIRED_READ = RetryPolicy(attempts=5)
"""Reads of the newest snapshot that expired before the read was complete."""

REFERENCE_READ = RetryPolicy(attempts=5, min_wait=0.05, max_wait=1.0)
"""Reads of all referenced files, while listed metadata files are missing."""

CATALOG_REQUEST = RetryPolicy(attempts=5, min_wait=0.5, max_wait=16.0, timeout=120.0)
"""Requests to a catalog server that it refused for the moment, or reads that it did not answer."""

TOKEN_FILE_READ = RetryPolicy(attempts=5, min_wait=0.5, max_wait=4.0)
"""Reads of a file with credentials that another program replaces."""

LOCAL_UNIT = RetryPolicy(attempts=4)
"""Work units in processes of this machine, after transient errors; Spark makes as many attempts."""

SPARK_JOB = RetryPolicy(attempts=3)
"""Spark jobs that failed because the output of an earlier stage was lost."""
