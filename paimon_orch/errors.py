"""The one exception tree of the library.

::

    PaimonError
    ├── TransientError               trying again may help
    │   ├── CommitConflictError      another committer changed the same files first
    │   └── StorageError             the file system failed
    ├── InputError                   what the caller gave cannot be used
    │   └── NotFoundError            a table, snapshot, tag or column that does not exist
    ├── CorruptFileError             a stored file is not what the format says
    │   └── MissingFileError         a stored file that another one names is not there
    ├── UnsupportedError             valid Paimon, but newer or other than what is implemented
    └── CancelledError               the work was cancelled by its caller

Whether a caller may retry is decided by type alone: ``TransientError`` or not.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class PaimonError(Exception):
    """Base of every error that the library raises on purpose."""


class TransientError(PaimonError):
    """The same call may succeed when it is made again."""


class CommitConflictError(TransientError):
    """Another committer won, and this commit's changes no longer fit the table. Plan again."""


class StorageError(TransientError):
    """A file system call failed for a reason that is not part of the format."""


class InputError(PaimonError):
    """An argument, an option or input data cannot be used. Nothing was changed."""


class NotFoundError(InputError):
    """A named table, database, snapshot, tag, branch or column does not exist."""


class CorruptFileError(PaimonError):
    """A stored file is damaged, or names something it must not name.

    :ivar path: the file that cannot be believed
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type["CorruptFileError"], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class MissingFileError(CorruptFileError):
    """A file that metadata names does not exist: removed by a concurrent expiration, or lost."""


class UnsupportedError(PaimonError):
    """The table uses a feature or a format version that this library does not implement."""


class CancelledError(PaimonError):
    """The work was cancelled before it was done; nothing was committed."""


@contextmanager
def wrap_decode_errors(path: str) -> Iterator[None]:
    """Turn whatever a decoder raises on garbage into a :class:`CorruptFileError` naming ``path``.

    What the system or a network raises says nothing of the content: it becomes a :class:`StorageError`.
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
        raise StorageError(f"{path}: cannot be read ({error})") from error
    except OSError as error:
        if error.errno is None:  # not the system's: Arrow has no other class for some damages
            raise CorruptFileError(path, f"cannot be decoded: {error}") from error
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from error
    except MemoryError as error:
        raise CorruptFileError(path, "a length in the file is larger than memory") from error
    except Exception as error:
        raise CorruptFileError(
            path, f"cannot be decoded: {type(error).__name__}: {error}"
        ) from error
