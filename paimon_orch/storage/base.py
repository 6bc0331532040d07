"""The storage contract: the few operations the format needs, and the paths they take."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol

from paimon_orch.errors import CorruptFileError

# an empty, "." or ".." component, or a NUL
_UNSAFE_COMPONENT = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One entry of a listing; ``modified`` is epoch seconds, ``size`` bytes. A link is no directory."""

    path: str
    size: int
    modified: float
    is_dir: bool
    is_link: bool = False

    @property
    def name(self) -> str:
        """Return the last component of the path."""
        return self.path.rsplit("/", 1)[-1]


class FileIO(Protocol):
    """The storage contract. Every missing file raises ``FileNotFoundError``.

    Paths are absolute strings: ``/warehouse/db.db/t`` or ``s3://bucket/warehouse/db.db/t``. A path with a component
    that leads elsewhere (``..``) is refused with :class:`CorruptFileError`: names in metadata are input.
    """

    @property
    def remote(self) -> bool:
        """Tell whether a read is a request over a network, so that few large reads are best."""
        ...

    def open_input(self, path: str) -> IO[bytes]:
        """Open for random reads."""
        ...

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new, uniquely named file for writing; parents are made."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Make ``path`` with ``data``, wholly or not at all; ``False`` if it exists already.

        An object store cannot tell a request that it answered twice from one of somebody else: there it is also
        ``True`` if ``path`` holds the very same bytes. Data that two callers must not both create names its creator.
        """
        ...

    def write(self, path: str, data: bytes) -> None:
        """Replace ``path`` by ``data``; a reader sees the old or the new content."""
        ...

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``; nothing if it does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory is there."""
        ...

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        ...

    def delete(self, path: str) -> None:
        """Remove one file; a missing one is no error."""
        ...

    def delete_dir(self, path: str) -> None:
        """Remove a whole directory (dropping a table); a missing one is no error."""
        ...

    def make_dir(self, path: str) -> bool:
        """Make an empty directory, parents included; ``False`` if it is there.

        Raises :class:`UnsupportedError` where there are no empty directories.
        """
        ...

    def rename_dir(self, source: str, target: str) -> bool:
        """Give a directory another name at one stroke; ``False``, and nothing happens, if ``target`` exists.

        Raises :class:`UnsupportedError` where that would mean to copy one file after the other.
        """
        ...

    def delete_empty_dir(self, path: str) -> bool:
        """Remove a directory that holds nothing; ``False``, and nothing happens, if there is none or it holds something.

        An object store has no empty directories.
        """
        ...

    def move(self, source: str, target: str) -> bool:
        """Give a file another name; ``False``, and nothing happens, if ``target`` exists already. Parents are made.

        Whenever it stops half way the file is there, under one name or both.
        """
        ...


def check_path(path: str) -> str:
    """Return a path that leads where it seems to; others are refused before anything is touched."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise CorruptFileError(path, "is refused: it is not a valid file name") from None
    inner = (path.partition("://")[2] or path).lstrip("/")
    if inner and _UNSAFE_COMPONENT.search(inner):
        raise CorruptFileError(
            path, "is refused: a name with an empty, '.' or '..' part may lead out of the table"
        )
    return path
