"""A quarantine for orphan files: a dated folder of the table that they can be restored from."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.storage import FileIO
from paimon_orch.table.removal import Remover

_FOLDER = ".quarantine"  # no engine looks into folders that it does not know
_DATED = "%Y%m%dT%H%M%S%f"
_NAME = re.compile(r"\d{8}T\d{12}")


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The quarantined files of one table; each cleanup has a folder of its own, named after its time in UTC."""

    io: FileIO
    root: str
    clock: Callable[[], float] = time.time

    @property
    def path(self) -> str:
        """Return the folder of all quarantined files."""
        return f"{self.root}/{_FOLDER}"

    def new_folder(self) -> str:
        """Return the name of a fresh folder."""
        return datetime.fromtimestamp(self.clock(), UTC).strftime(_DATED)

    def folders(self) -> list[str]:
        """Return the names of the folders, the oldest first."""
        found = (info.name for info in self.io.list_dir(self.path) if info.is_dir)
        return sorted(name for name in found if _NAME.fullmatch(name))

    def put(self, folder: str, paths: Iterable[str]) -> list[str]:
        """Move files of the table into a folder; return those that were refused."""
        remover = Remover(self.io, (self.root,))
        for path in paths:
            relative = path.removeprefix(f"{self.root}/")
            remover.move(path, f"{self.path}/{folder}/{relative}")
        return remover.refused

    def restore(self, folder: str | None = None) -> int:
        """Move the files of a folder, by default of all, back to where they were; return how many.

        A name that is taken again meanwhile is left alone. Raises :class:`NotFoundError` for an unknown folder.
        """
        known = self.folders()
        if folder is not None and folder not in known:
            shown = ", ".join(known) or "none"
            raise NotFoundError(f"{self.path} has no folder {folder!r}; it has {shown}")
        restored = 0
        for name in known if folder is None else [folder]:
            base = f"{self.path}/{name}"
            for path in list(self._files(base)):
                restored += self.io.move(path, f"{self.root}/{path.removeprefix(f'{base}/')}")
            self._tidy(base)
        return restored

    def empty(self, retention: timedelta) -> int:
        """Delete the files of folders that are older than ``retention``; return how many."""
        if retention < timedelta(0):
            raise InputError(f"files cannot be kept in quarantine for {retention}")
        before = datetime.fromtimestamp(self.clock(), UTC) - retention
        deleted = 0
        for name in self.folders():
            if datetime.strptime(name, _DATED).replace(tzinfo=UTC) > before:
                continue
            base = f"{self.path}/{name}"
            remover = Remover(self.io, (base,))
            for path in list(self._files(base)):
                deleted += remover.delete(path)
            self._tidy(base)
        return deleted

    def _files(self, directory: str) -> Iterator[str]:
        for info in self.io.list_dir(directory):
            if info.is_dir:
                yield from self._files(info.path)
            elif not info.is_link:
                yield info.path

    def _directories(self, directory: str) -> Iterator[str]:
        for info in self.io.list_dir(directory):
            if info.is_dir:
                yield from self._directories(info.path)
                yield info.path

    def _tidy(self, base: str) -> None:
        """Remove a folder's empty directories, the innermost first."""
        for path in [*self._directories(base), base, self.path]:
            self.io.delete_empty_dir(path)
