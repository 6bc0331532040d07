"""The lock of a table in a JDBC catalog: a row that at most one committer can insert.

See docs/format/catalogs.md#locks.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
import sqlalchemy.exc

from paimon_orch.catalog.jdbc.jdbc_database import JdbcDatabase
from paimon_orch.catalog.jdbc.jdbc_errors import is_busy
from paimon_orch.catalog.jdbc.jdbc_tables import LOCKS
from paimon_orch.errors import LockTimeoutError, PaimonError
from paimon_orch.retry_policy import RetryPolicy
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)

_MIN_WAIT = 0.1
"""Seconds before the second attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcLock:
    """The lock of one table or branch."""

    database: JdbcDatabase
    lock_id: str
    acquire_timeout: timedelta
    """How long to wait for the lock, and the age at which others may remove it."""
    check_max_sleep: timedelta

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Wait for the lock, and release it at the end.

        Raises :class:`LockTimeoutError` if other committers hold it too long.
        """
        acquired_at = self._acquire()
        try:
            yield
        finally:
            self._release(acquired_at)

    def _acquire(self) -> object:
        """Return the time of the row, which identifies it."""
        timeout = self.acquire_timeout.total_seconds()
        policy = RetryPolicy(
            attempts=sys.maxsize,
            min_wait=min(_MIN_WAIT, self.check_max_sleep.total_seconds()),
            max_wait=self.check_max_sleep.total_seconds(),
            timeout=timeout,
        )
        acquired_at = policy.call_until_result(
            lambda: self.database.run_statement(self._try_to_acquire)
        )
        if acquired_at is None:
            raise LockTimeoutError(
                f"{self.database.address.description}: the lock {self.lock_id!r} was held by other "
                f"committers for {timeout:g} s; nothing was changed. Try again, or raise the "
                "option 'lock-acquire-timeout' in all programs that write to the table."
            )
        return acquired_at

    def _try_to_acquire(self, connection: sa.Connection) -> object | None:
        """Insert the row, after removing an expired one; return its time, or None if it is held."""
        acquired_at = self._insert(connection)
        if acquired_at is None and self._remove_expired(connection):
            acquired_at = self._insert(connection)
        return acquired_at

    def _insert(self, connection: sa.Connection) -> object | None:
        seconds = int(self.acquire_timeout.total_seconds())
        row = sa.insert(LOCKS).values(lock_id=self.lock_id, expire_time_seconds=seconds)
        column = _time_column(connection)
        try:
            if connection.dialect.insert_returning:
                returned: object = connection.execute(row.returning(column)).scalar_one()
                return returned
            connection.execute(row)
        except sa.exc.IntegrityError:
            return None
        except sa.exc.OperationalError as error:
            if is_busy(error):
                return None
            raise
        selected: object = connection.execute(sa.select(column).where(self._is_ours)).scalar_one()
        return selected

    def _remove_expired(self, connection: sa.Connection) -> bool:
        is_expired = compute_age(connection.dialect.name) > LOCKS.c.expire_time_seconds
        deletion = sa.delete(LOCKS).where(is_expired, self._is_ours)
        try:
            removed = connection.execute(deletion).rowcount > 0
        except sa.exc.OperationalError as error:
            if is_busy(error):
                return False
            raise
        if removed:
            logger.warning(
                "removed the expired lock %r; its committer was killed or is very slow",
                self.lock_id,
            )
        return removed

    def _release(self, acquired_at: object) -> None:
        """Delete the row, unless another committer has removed it since and inserted its own."""

        def delete(connection: sa.Connection) -> int:
            is_same = _time_column(connection) == acquired_at
            return connection.execute(sa.delete(LOCKS).where(self._is_ours, is_same)).rowcount

        try:
            if self.database.run_statement(delete) == 0:
                logger.warning(
                    "the lock %r was removed while it was held, because it expired after %g s; "
                    "raise the option 'lock-acquire-timeout'",
                    self.lock_id,
                    self.acquire_timeout.total_seconds(),
                )
        except PaimonError as error:
            logger.warning("the lock %r is not released until it expires: %s", self.lock_id, error)

    @property
    def _is_ours(self) -> sa.ColumnElement[bool]:
        return LOCKS.c.lock_id == self.lock_id


def _time_column(connection: sa.Connection) -> sa.ColumnElement[Any]:
    """Return the time of acquisition in the form that the database stores."""
    if connection.dialect.name == "sqlite":
        # SQLAlchemy would compare with fractions of a second, which CURRENT_TIMESTAMP has not.
        return sa.type_coerce(LOCKS.c.acquired_at, sa.String)
    return LOCKS.c.acquired_at


def compute_age(dialect: str) -> sa.ColumnElement[Any]:
    """Return the age of a lock in seconds by the clock of the database, as Java computes it."""
    acquired_at, now = LOCKS.c.acquired_at, sa.func.now()
    match dialect:
        case "sqlite":
            return sa.func.strftime("%s", "now") - sa.func.strftime("%s", acquired_at)
        case "postgresql":
            return sa.extract("epoch", sa.func.age(now, acquired_at))
        case _:
            return sa.func.timestampdiff(sa.text("SECOND"), acquired_at, now)
