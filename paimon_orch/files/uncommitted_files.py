"""Files that are deleted if an error occurs before they can be committed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from paimon_orch.errors import StorageError, is_temporary
from paimon_orch.storage import FileIO

_NOTE = "nothing of this write was committed, and its new files were deleted"


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
        self.delete_files()
        if isinstance(error, StorageError) and _NOTE not in getattr(error, "__notes__", ()):
            error.add_note(_NOTE)


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

    Stops if the store is unavailable, because each further call would also wait for it.
    """
    for path in paths:
        try:
            io.delete(path)
        except (OSError, StorageError) as error:
            if is_temporary(error):
                return
