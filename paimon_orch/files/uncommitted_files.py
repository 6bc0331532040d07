"""Files that are deleted if an error occurs before they can be committed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from paimon_orch.errors import PaimonError, StorageError, is_temporary
from paimon_orch.storage import FileIO
from paimon_orch.storage.store_operation import try_once

_NOTE = "nothing of this write was committed, and its new files were deleted"
_NOTE_OF_OUTAGE = (
    "nothing of this write was committed; remove-orphan-files deletes those of its new files that "
    "remain, because the store is unavailable"
)


class UncommittedFiles(ABC):
    """Base of writers whose files are deleted if their ``with`` block ends with an error.

    The block must contain everything that can fail before the files are in a task's result.
    """

    __slots__ = ()

    @abstractmethod
    def delete_files(self) -> None:
        """Delete all files that were written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            return
        with try_once():
            self.delete_files()
        if isinstance(error, StorageError):
            note = _NOTE_OF_OUTAGE if error.is_unavailable else _NOTE
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)


@dataclass(slots=True)
class UncommittedPaths(UncommittedFiles):
    """The paths of the files that a task has created so far."""

    io: FileIO
    paths: list[str] = field(default_factory=list)

    def delete_files(self) -> None:
        """Delete all files; a file that cannot be deleted is left to the orphan cleanup."""
        delete_unused_files(self.io, self.paths)


def delete_unused_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that no commit will name; the orphan cleanup deletes those that remain.

    No call is repeated, and none follows one that failed because the store is unavailable.
    """
    for path in paths:
        try:
            with try_once():
                io.delete(path)
        except (OSError, PaimonError) as error:
            if is_temporary(error):
                return
