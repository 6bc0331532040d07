"""Files that are deleted if an error occurs before they can be committed."""

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from paimon_orch.errors import StorageError
from paimon_orch.storage import FileIO


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
        if kind is not None:
            self.delete_files()


@dataclass(slots=True)
class UncommittedPaths(UncommittedFiles):
    """The paths of the files that a task has created so far."""

    io: FileIO
    paths: list[str] = field(default_factory=list)

    def delete_files(self) -> None:
        """Delete all files; a file that cannot be deleted is left to the orphan cleanup."""
        for path in self.paths:
            with suppress(OSError, StorageError):
                self.io.delete(path)
