"""Quarantine for orphan files: dated folders in the table's directory, for restoring files."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO

from paimon_orch.errors import InputError, NotAllowedError, NotFoundError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.times import parse_duration
from paimon_orch.safe_text import format_names, get_logger
from paimon_orch.storage import FileIO
from paimon_orch.storage.base import walk
from paimon_orch.table.cleanup.data_roots import DataRoots
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.table import Table

logger = get_logger(__name__)

_QUARANTINE_FOLDER = ".quarantine"  # engines ignore folders that they do not know
_ROWS_FOLDER = "rows"
"""The part of a dated folder with rows in Parquet files, which were not files of the table."""
_FOLDER_NAME_FORMAT = "%Y%m%dT%H%M%S%f"
_COMPARE_BYTES = 1 << 20
_FOLDER_NAME = re.compile(r"\d{8}T\d{12}")


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The quarantined files of a table; each cleanup creates a folder named by its UTC time."""

    io: FileIO
    root: str
    clock: Callable[[], float] = time.time
    external_roots: tuple[str, ...] = ()
    """External paths of the table; their files are quarantined below the same path."""

    @classmethod
    def of(cls, table: Table, schema: TableSchema | None = None) -> "Quarantine":
        """Return the quarantine of a table, including its external paths.

        ``schema`` is the table's schema if it has been read.
        """
        schema = schema or table.stores.get_schema()
        owns = table.stores.owns_directory
        roots = DataRoots.of(table.io, table.paths, schema, owns).roots
        return cls(table.io, table.paths.root, external_roots=roots[1:])

    @property
    def path(self) -> str:
        """Return the folder of all quarantined files."""
        return f"{self.root}/{_QUARANTINE_FOLDER}"

    @property
    def _roots(self) -> tuple[str, ...]:
        return (self.root, *self.external_roots)

    def build_folder_name(self) -> str:
        """Return the name of a new folder."""
        return datetime.fromtimestamp(self.clock(), UTC).strftime(_FOLDER_NAME_FORMAT)

    def list_folders(self) -> list[str]:
        """Return the names of all folders, oldest first."""
        self._check_not_links()
        entries = (
            info
            for root in self._roots
            for info in self.io.list_dir(f"{root}/{_QUARANTINE_FOLDER}")
        )
        return sorted(
            {info.name for info in entries if info.is_dir and _parse_folder_time(info.name)}
        )

    def _check_not_links(self) -> None:
        for root in self._roots:
            if any(
                info.name == _QUARANTINE_FOLDER and info.is_link for info in self.io.list_dir(root)
            ):
                raise InputError(
                    f"{root}/{_QUARANTINE_FOLDER} is a symbolic link, which is not followed; "
                    "remove it"
                )

    def put(self, folder: str, paths: Iterable[str]) -> list[str]:
        """Move files of the table into a folder; return the paths that were refused."""
        self._check_not_links()
        remover = SafeDeleter(io=self.io, roots=self._roots)
        for path in paths:
            root = next((root for root in self._roots if path.startswith(f"{root}/")), self.root)
            remover.move(
                path, f"{root}/{_QUARANTINE_FOLDER}/{folder}/{path.removeprefix(f'{root}/')}"
            )
        return remover.refused

    def open_rows(self, folder: str, name: str) -> IO[bytes]:
        """Create a file for rows in a folder; :meth:`restore` leaves it there."""
        self._check_not_links()
        return self.io.open_output(self.build_rows_path(folder, name))

    def build_rows_path(self, folder: str, name: str) -> str:
        """Return the path of a file for rows."""
        return f"{self.path}/{folder}/{_ROWS_FOLDER}/{name}"

    def restore(self, folder: str | None = None) -> int:
        """Move the files of a folder, by default of all folders, to their original paths.

        Returns the number of restored files. Skips rows, and files whose original path exists again
        or leads through a symbolic link. After a failure, repeat the call. Raises :class:`NotFoundError` for
        an unknown folder.
        """
        restored = 0
        for name in self.select_folders(folder):
            for root in self._roots:
                restored += self._restore(f"{root}/{_QUARANTINE_FOLDER}/{name}", root)
        return restored

    def select_folders(self, folder: str | None) -> list[str]:
        """Return the given folder, or all folders; raises :class:`NotFoundError` if unknown."""
        names = self.list_folders()
        if folder is not None and folder not in names:
            text = format_names(names)
            raise NotFoundError(f"{self.path} has no folder {folder!r}; it has {text}")
        return names if folder is None else [folder]

    def _restore(self, base: str, root: str) -> int:
        restored, io = 0, self.io.confine((root,))
        for path in list(self._list_files(base)):
            target = f"{root}/{path.removeprefix(f'{base}/')}"
            if path.startswith(f"{base}/{_ROWS_FOLDER}/"):
                continue
            try:
                if io.move(path, target):
                    restored += 1
                # A move that was killed may have copied the file already.
                elif self._has_same_content(path, target):
                    io.delete(path)
            except NotAllowedError as error:
                logger.warning("%s is not restored: %s", path, error)
        self._delete_empty_directories(base)
        return restored

    def empty(self, retention: timedelta) -> int:
        """Delete the files of folders older than ``retention``; return the number of files."""
        return self.delete(self.find_expired_folders(retention))

    def delete(self, folders: Iterable[str]) -> int:
        """Delete the files of the given folders; return the number of files."""
        deleted = 0
        for name in folders:
            for base in (f"{root}/{_QUARANTINE_FOLDER}/{name}" for root in self._roots):
                remover = SafeDeleter(io=self.io, roots=(base,))
                for path in list(self._list_files(base)):
                    deleted += remover.delete(path)
                self._delete_empty_directories(base)
        return deleted

    def find_expired_folders(self, retention: timedelta) -> list[str]:
        """Return the folders that are older than ``retention``."""
        retention = parse_duration("retention", retention)
        now = datetime.fromtimestamp(self.clock(), UTC)
        times = {name: _parse_folder_time(name) for name in self.list_folders()}
        return [name for name, time in times.items() if time and now - time >= retention]

    def count(self, folders: Iterable[str]) -> int:
        """Return the number of files in the given folders."""
        bases = (f"{root}/{_QUARANTINE_FOLDER}/{name}" for name in folders for root in self._roots)
        return sum(1 for base in bases for _ in self._list_files(base))

    def _has_same_content(self, path: str, other: str) -> bool:
        if self.io.size(path) != self.io.size(other):
            return False
        with self.io.open_input(path) as file, self.io.open_input(other) as other_file:
            while chunk := file.read(_COMPARE_BYTES):
                if chunk != other_file.read(_COMPARE_BYTES):
                    return False
        return True

    def _list_files(self, directory: str) -> Iterator[str]:
        entries = walk(self.io, directory)
        return (info.path for info in entries if not info.is_dir and not info.is_link)

    def _delete_empty_directories(self, base: str) -> None:
        """Remove the empty directories of a folder, innermost first."""
        directories = [info.path for info in walk(self.io, base) if info.is_dir]
        for path in [*reversed(directories), base, base.rpartition("/")[0]]:
            self.io.delete_empty_dir(path)


def _parse_folder_time(folder: str) -> datetime | None:
    """Return the time in a folder's name, or None for other names."""
    if not _FOLDER_NAME.fullmatch(folder):
        return None
    try:
        return datetime.strptime(folder, _FOLDER_NAME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
