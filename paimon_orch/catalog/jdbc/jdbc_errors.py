"""Errors of SQL databases as errors of this library, without secrets."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
import sqlalchemy.exc

from paimon_orch.catalog.jdbc.jdbc_url import JdbcAddress
from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogUnavailableError,
    InputError,
    PaimonError,
)
from paimon_orch.safe_text import mask_values

_SQLITE_BUSY = {5, 6}
_SQLITE_DENIED = {3, 8, 23}
_SQLITE_UNAVAILABLE = {10, 13, 14}
_MYSQL_DENIED = {1044, 1045, 1142, 1143, 1227, 1698}
_MYSQL_UNAVAILABLE = {1040, 1205, 1213}
_POSTGRES_UNAVAILABLE = ("08", "40", "53", "55", "57", "58")
_POSTGRES_DENIED = ("28", "42501")
_REFUSED_LOGINS = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "authentication failed",
)
"""Texts of libpq, which has no code for a connection that the server refuses."""


@contextmanager
def wrap_database_errors(address: JdbcAddress) -> Iterator[None]:
    """Raise errors of SQLAlchemy and its drivers as errors of this library.

    The original error is not kept, as it may contain parameters and credentials.
    """
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        raise _build_error(address, error) from None


def _build_error(address: JdbcAddress, error: sa.exc.SQLAlchemyError) -> PaimonError:
    text = f"{address.description}: {_describe(address, error)}"
    if isinstance(error, sa.exc.IntegrityError):
        return AlreadyExistsError(text)
    if isinstance(error, sa.exc.DataError):
        return InputError(text)
    if isinstance(error, sa.exc.TimeoutError) or _is_unavailable(error):
        return CatalogUnavailableError(f"{text}. Check that the database runs, and try again.")
    if _is_denied(error):
        return AccessDeniedError(f"{text}. Check 'jdbc.user', 'jdbc.password' and the permissions.")
    if isinstance(error, sa.exc.OperationalError) and _find_code(error) is None:
        return CatalogUnavailableError(f"{text}. Check that the database runs, and try again.")
    return InputError(f"{text}. Check that this is the database of a JDBC catalog.")


def _describe(address: JdbcAddress, error: sa.exc.SQLAlchemyError) -> str:
    """Return the message of the driver without statement, parameters and secrets."""
    if not isinstance(error, sa.exc.DBAPIError):
        return f"the database cannot be used ({type(error).__name__})"
    text = " ".join(str(error.orig).partition("\nDETAIL")[0].split())
    return mask_values(text, address.secrets)


def _find_code(error: sa.exc.SQLAlchemyError) -> int | str | None:
    """Return the code of SQLite or MySQL, or the SQLSTATE of PostgreSQL."""
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorcode", None)
    if code is not None:
        return int(code) & 0xFF  # the upper bytes are details
    state = getattr(original, "pgcode", None)
    if state is not None:
        return str(state)
    arguments = getattr(original, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None


def is_busy(error: sa.exc.SQLAlchemyError) -> bool:
    """Return whether another connection was writing to the SQLite file for too long."""
    return hasattr(getattr(error, "orig", None), "sqlite_errorcode") and (
        _find_code(error) in _SQLITE_BUSY
    )


def _is_unavailable(error: sa.exc.SQLAlchemyError) -> bool:
    if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
        return True
    code = _find_code(error)
    if isinstance(code, str):
        return code.startswith(_POSTGRES_UNAVAILABLE)
    if hasattr(getattr(error, "orig", None), "sqlite_errorcode"):
        return code in _SQLITE_BUSY | _SQLITE_UNAVAILABLE
    return code is not None and (code in _MYSQL_UNAVAILABLE or 2000 <= code < 3000)


def _is_denied(error: sa.exc.SQLAlchemyError) -> bool:
    code = _find_code(error)
    if isinstance(code, str):
        return code.startswith(_POSTGRES_DENIED)
    if hasattr(getattr(error, "orig", None), "sqlite_errorcode"):
        return code in _SQLITE_DENIED
    if code is not None:
        return code in _MYSQL_DENIED
    text = str(getattr(error, "orig", ""))
    return any(part in text for part in _REFUSED_LOGINS)
