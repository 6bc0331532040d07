"""Files that are deleted if an error occurs before they can be committed."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


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
