"""The exceptions of the library.

::

    PaimonError
    ├── TransientError                      a retry may succeed
    │   ├── CommitConflictError             another committer changed the same files first
    │   ├── LockTimeoutError                other committers hold the lock of the table
    │   ├── CatalogUnavailableError         a catalog cannot be reached, or refuses for the moment
    │   └── StorageError                    a file system call failed
    │       └── CommitOutcomeUnknownError   the commit may have succeeded: do not retry blindly
    ├── InputError                          an argument, option or input data cannot be used
    │   ├── AlreadyExistsError              a database, table, branch or column exists already
    │   ├── MissingPackageError             a Python package is not installed
    │   └── NotFoundError                   a table, snapshot, tag or column does not exist
    ├── AccessDeniedError                   a catalog refuses the credentials or the permission
    │   └── NotAllowedError                 a table asks for a place that the operator must allow
    ├── CorruptFileError                    the content of a stored file violates the format
    │   └── MissingFileError                a file that the metadata refers to does not exist
    ├── UnsupportedError                    a feature or format version that is not implemented
    └── CancelledError                      the caller cancelled the work

The type decides whether a caller may retry: ``TransientError`` except
``CommitOutcomeUnknownError``.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from json import JSONDecodeError
from typing import Any

from paimon_orch.safe_text import clean_message

_TEMPORARY_ERRNOS = frozenset((errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ESTALE))


class PaimonError(Exception):
    """Base class of all errors of the library.

    Its message is one line of limited length without secrets, whatever it was built from.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*(clean_message(arg) if isinstance(arg, str) else arg for arg in args))

    def add_note(self, note: str) -> None:
        """Add a line, for example on what was committed before the error."""
        super().add_note(clean_message(note))


class TransientError(PaimonError):
    """The same call may succeed if it is repeated.

    :ivar retry_seconds: the time that the call has already spent on its own attempts
    """

    retry_seconds: float = 0.0


class CommitConflictError(TransientError):
    """A concurrent commit changed the table so that this one cannot be applied. Plan again.

    :ivar is_lost_race: whether the changes still fit the table, and another commit was only faster
        in each attempt
    """

    is_lost_race: bool = False


class LockTimeoutError(TransientError):
    """Other committers held the lock of the table for too long. Nothing was changed."""


class CatalogUnavailableError(TransientError):
    """A catalog cannot be reached or is overloaded. The request was not carried out."""


class StorageError(TransientError):
    """A file system or object store call failed.

    :ivar is_unavailable: whether the store refused the call for the moment or was not reachable,
        until the call was not repeated any more
    """

    is_unavailable: bool = False


class FileNotCreatedError(StorageError):
    """A file was neither created nor changed, for example because the disk is full."""


class SnapshotNotCreatedError(StorageError):
    """The file of a snapshot could not be written; nothing was committed."""


class CommitOutcomeUnknownError(StorageError):
    """A commit may or may not have succeeded: storage failed, and the result could not be read.

    Written files are kept. Look for the commit user in the newest snapshots before a retry, or
    repeat the call with the same ``CommitId``, which commits at most once.
    """


class InputError(PaimonError):
    """An argument, an option or input data cannot be used. Nothing was changed."""


class NotFoundError(InputError):
    """A named table, database, snapshot, tag, branch or column does not exist."""


class AlreadyExistsError(InputError):
    """A database, table, branch or column with this name exists already."""


class MissingPackageError(InputError, ImportError):
    """A feature needs a package that is not installed. The message has the command to install it."""


class AccessDeniedError(PaimonError):
    """A catalog does not accept the credentials, or the user may not do this."""


class NotAllowedError(AccessDeniedError):
    """A table or a catalog's server asks for a file or host that the operator has not allowed.

    See SECURITY.md.
    """


class DecodeLimitError(ValueError):
    """Stored content needs more memory than its size allows; it becomes a CorruptFileError."""


class CorruptFileError(PaimonError):
    """A stored file is damaged or has invalid content.

    :ivar path: the damaged file
    :ivar reason: what is wrong with it
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type["CorruptFileError"], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class MissingFileError(CorruptFileError):
    """A file that the metadata refers to does not exist: expired concurrently, or lost."""


class UnsupportedError(PaimonError):
    """The table uses a feature or a format version that the library does not implement."""


class CancelledError(PaimonError):
    """The work was cancelled before it finished; nothing was committed."""


REFUSED_COMMIT_ERRORS = (
    AccessDeniedError,
    CatalogUnavailableError,
    CommitConflictError,
    InputError,
    LockTimeoutError,
    SnapshotNotCreatedError,
    UnsupportedError,
)
"""Errors of a commit after which the table is unchanged, so that written files can be deleted."""


@contextmanager
def wrap_decode_errors(path: str) -> Iterator[None]:
    """Convert decode errors into :class:`CorruptFileError` with ``path``.

    Decode errors are ``ValueError``, ``LookupError``, ``ArithmeticError``, ``EOFError``,
    ``RecursionError``, ``MemoryError`` and the errors of struct, zlib, lzma and pyarrow. Errors of
    the operating system or the network become :class:`StorageError`. Other errors, for example
    ``TypeError``, are bugs and pass through; see :func:`wrap_library_errors` for libraries that
    raise them on damaged content.
    """
    try:
        yield
    except PaimonError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(
            path, "is missing, but the metadata of the table names it"
        ) from error
    except (ConnectionError, TimeoutError) as error:
        raise StorageError(f"{path} cannot be read ({error})") from error
    except OSError as error:
        if error.errno is None:  # raised by Arrow for a damaged file, not by the operating system
            raise CorruptFileError(path, f"cannot be decoded: {error}") from error
        raise StorageError(f"{path} cannot be read ({error.strerror})") from error
    except MemoryError as error:
        raise CorruptFileError(path, "a length in the file is larger than memory") from error
    except JSONDecodeError as error:
        raise CorruptFileError(path, f"is not JSON, or is truncated: {error}") from error
    except Exception as error:
        if not isinstance(error, _damage_errors()):
            raise
        raise CorruptFileError(path, f"cannot be decoded: {_describe_damage(error)}") from error


def _describe_damage(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"text at byte {error.start:,} is not UTF-8"
    return f"{type(error).__name__}: {error}"


def is_temporary(error: BaseException) -> bool:
    """Return whether the same call may succeed later, without a change of the table or options."""
    if isinstance(error, StorageError) and error.is_unavailable:
        return True
    cause = error.__cause__ if isinstance(error, StorageError) else error
    is_lost = isinstance(cause, ConnectionError | TimeoutError)
    if isinstance(cause, OSError) and cause.errno is not None and not is_lost:
        return cause.errno in _TEMPORARY_ERRNOS
    return is_lost or isinstance(error, TransientError)


def raise_if_temporary(error: Exception) -> None:
    """Raise a temporary error, which describes no file or table; return after other errors.

    An ``OSError`` is raised as :class:`StorageError`.
    """
    if not is_temporary(error):
        return
    if isinstance(error, OSError) and not isinstance(error, PaimonError):
        raise StorageError(f"{error} (try again)") from error
    raise error


def raise_unless_damage(error: Exception) -> None:
    """Raise an error that does not mean that a stored file is damaged or missing.

    Such are temporary errors, a file of a newer format version, a refused access, and a valid file
    that may need more memory than is allowed, for which :class:`UnsupportedError` is raised. What
    cannot be read for these reasons must not be repaired.
    """
    raise_if_temporary(error)
    if not isinstance(error, CorruptFileError | NotFoundError | FileNotFoundError):
        raise error
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, DecodeLimitError | MemoryError):
            raise UnsupportedError(f"{error}. The file may be valid") from error
        cause = cause.__cause__


def describe_error(error: BaseException) -> str:
    """Return the message of an error; errors of other libraries and bugs are named by their type."""
    if isinstance(error, PaimonError | OSError):
        return clean_message(str(error))
    return clean_message(f"internal error ({type(error).__name__}: {error})")


@contextmanager
def wrap_library_errors() -> Iterator[None]:
    """Convert any error of a library's decoder into ``ValueError``.

    Use it only around calls of a library that raises, for example, ``TypeError`` on damaged
    content.
    """
    try:
        yield
    except (PaimonError, OSError, MemoryError, ValueError):
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


@cache
def _damage_errors() -> tuple[type[Exception], ...]:
    import lzma
    import struct
    import zlib

    import pyarrow as pa

    return (
        ValueError,
        LookupError,
        ArithmeticError,
        EOFError,
        RecursionError,
        struct.error,
        zlib.error,
        lzma.LZMAError,
        pa.ArrowException,
    )
