"""Deletes files of a table, but not outside its directories and not through symbolic links."""

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from paimon_orch.errors import CorruptFileError, NotAllowedError, StorageError
from paimon_orch.format.external_paths import strip_file_scheme
from paimon_orch.format.options.core_options import DATA_FILE_EXTERNAL_PATHS
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.safe_text import get_logger
from paimon_orch.storage import FileIO

logger = get_logger(__name__)

_REFUSED = (NotAllowedError, CorruptFileError, IsADirectoryError, NotADirectoryError)
"""The errors for a link, a directory, and a file in place of a directory or a link that is gone."""


def list_data_roots(paths: TablePaths, schema: TableSchema) -> tuple[str, ...]:
    """Return the directories of a table's data files: its own, and its external paths."""
    external = schema.typed_options.get(DATA_FILE_EXTERNAL_PATHS)
    return (paths.root, *(strip_file_scheme(uri).rstrip("/") for uri in external))


@dataclass(slots=True, kw_only=True)
class SafeDeleter:
    """Deletes single files below some directories.

    File names come from metadata and are not trusted: a path is refused if it leads out of the
    directories, or through a symbolic link below them.
    """

    io: FileIO
    roots: Sequence[str]
    refused: list[str] = field(default_factory=list)
    """The paths that were not deleted."""

    def __post_init__(self) -> None:
        self.io = self.io.confine(self.roots)

    def has_safe_name(self, path: str) -> bool:
        """Return whether the path is below the roots; does not access storage."""
        return any(path.startswith(f"{root}/") for root in self.roots) and is_plain_path(path)

    def delete(self, path: str) -> bool:
        """Delete a file, which may be missing; return False if the path is refused."""
        return self._run_if_safe(path, lambda: self.io.delete(path))

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files like :meth:`delete`; in an object store, many at the same time."""
        if not self.io.capabilities.has_slow_requests:
            for path in paths:
                self.delete(path)
            return
        check = self.io.check_readable  # raises the error with which a deletion refuses a path
        self.io.delete_many(
            [path for path in paths if self._run_if_safe(path, partial(check, path))]
        )

    def move(self, path: str, target: str) -> bool:
        """Move a file, which may be missing, below the roots; return False if a path is refused."""

        def move() -> None:
            with suppress(FileNotFoundError):
                self.io.move(path, target)

        return self._run_if_safe(path, move)

    def _run_if_safe(self, path: str, action: Callable[[], None]) -> bool:
        allowed = self.has_safe_name(path)
        try:
            if allowed:
                action()
        except _REFUSED:
            allowed = False
        except PermissionError as error:  # some systems raise this error for a directory
            siblings = self.io.list_dir(path.rpartition("/")[0])
            if not any(info.path == path and info.is_dir for info in siblings):
                raise StorageError(
                    f"{path} cannot be removed ({error.strerror or error}). Repeat the step to "
                    "continue from there"
                ) from error
            allowed = False
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:  # no file has such a name
                raise
            allowed = False
        if not allowed:
            logger.warning("%s is not deleted: it is not in the table's own directories", path)
            self.refused.append(path)
        return allowed

    def delete_empty_dirs(self, directories: Iterable[str], root: str) -> int:
        """Delete empty directories and their empty parents below ``root``; return their number."""
        removed = 0
        pending = sorted(set(directories), key=lambda path: -path.count("/"))
        while pending:
            parents = set()
            for path in pending:
                if path.startswith(f"{root}/") and self.io.delete_empty_dir(path):
                    removed += 1
                    parents.add(path.rpartition("/")[0])
            pending = sorted(parents, key=lambda path: -path.count("/"))
        return removed


def is_plain_path(path: str) -> bool:
    """Return whether a path is absolute and has no empty, ``.`` or ``..`` component."""
    _, separator, location = path.partition("://")
    parts = (location or path).removeprefix("/").split("/")
    absolute = bool(separator) or path.startswith("/")
    return absolute and not any(part in ("", ".", "..") for part in parts)
