"""The storage contract: the operations that the format needs, and their paths."""

import os
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Protocol, Self

from paimon_orch.decode_limits import MAX_NESTING
from paimon_orch.errors import CorruptFileError, NotAllowedError
from paimon_orch.stores import StoreCapabilities

# matches an empty, "." or ".." component, and a NUL character
_UNSAFE_COMPONENT = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One entry of a directory listing."""

    path: str
    size: int
    """Bytes."""
    modified: float
    """The modification time in epoch seconds."""
    is_dir: bool
    """False for symbolic links."""
    is_link: bool = False
    version: str = ""
    """Differs after the file is replaced; empty if the store does not tell."""

    @property
    def name(self) -> str:
        """Return the last component of the path."""
        return self.path.rsplit("/", 1)[-1]


class FileIO(Protocol):
    """The storage contract. Every missing file raises ``FileNotFoundError``.

    Paths are absolute strings: ``/warehouse/db.db/t`` or ``s3://bucket/warehouse/db.db/t``. Names
    in metadata are untrusted input, so a path with an empty, ``.`` or ``..`` component raises
    :class:`CorruptFileError`.
    """

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what the store can do; does no I/O."""
        ...

    @property
    def store(self) -> Hashable:
        """Return what identifies the store in this process: equal stores have the same files."""
        ...

    @property
    def time_precision_seconds(self) -> float:
        """Return by how much the modification time of a file may be too early."""
        ...

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the directories that may be used, or () for all; see :meth:`confine`."""
        ...

    def confine(self, roots: Sequence[str], anchors: Sequence[str] = ()) -> Self:
        """Return a copy that refuses other paths than those of some directories.

        The methods of the copy raise :class:`NotAllowedError` for other paths. They follow no
        symbolic link below the directories, except to read a file that is in one of them. They
        follow none below the ``anchors`` either, which are directories above some of them; a copy
        of the copy keeps them.
        """
        ...

    def check_readable(self, path: str) -> None:
        """Raise :class:`NotAllowedError` if a path may not be read; does not open the file."""
        ...

    def open_input(self, path: str, size: int | None = None) -> IO[bytes]:
        """Open for random reads; an object store needs no request for the size if it is given.

        Raises :class:`CorruptFileError` if ``size`` in bytes is not the size of the file.
        """
        ...

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new, uniquely named file for writing; parent directories are created."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Create ``path`` with ``data`` atomically; return ``False`` if it exists already.

        An object store cannot distinguish the retry of a request from the request of another
        client. There the result is also ``True`` if ``path`` already holds the same bytes, so if
        only one of two callers may succeed, the data must identify its creator.
        """
        ...

    def write(self, path: str, data: bytes) -> None:
        """Replace ``path`` atomically; readers see the old or the new content."""
        ...

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``; yield nothing if it does not exist."""
        ...

    def list_tree(self, path: str) -> list[FileInfo] | None:
        """Return all files below ``path``, or None if the store has directories.

        A store without directories lists 1,000 files per request, in any number of folders.
        """
        ...

    def list_few(
        self, prefix: str, limit: int, *, with_directories: bool = False
    ) -> list[FileInfo] | None:
        """Return all files whose paths begin with ``prefix``, at any depth, from one request.

        With ``with_directories``, these are the files and directories at the depth of the prefix.
        Returns None if there are more than ``limit`` (at most 1,000), or if the store has no such
        request.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        ...

    def file_exists(self, path: str) -> bool:
        """Return whether a file exists; an object store needs one request."""
        ...

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        ...

    def delete(self, path: str) -> None:
        """Delete one file; a missing file is not an error."""
        ...

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files; a missing file is not an error.

        An object store may delete many files in one request. An error is raised by the name of its
        file; some of the other files are then not deleted.
        """
        ...

    def delete_dir(self, path: str) -> None:
        """Delete a directory with its content, to drop a table; a missing one is not an error."""
        ...

    def make_dir(self, path: str) -> bool:
        """Create an empty directory and its parents; return ``False`` if it exists.

        Raises :class:`UnsupportedError` for stores without directories.
        """
        ...

    def rename_dir(self, source: str, target: str) -> bool:
        """Rename a directory atomically; change nothing and return ``False`` if ``target`` exists.

        Raises :class:`UnsupportedError` for stores that would have to copy each file.
        """
        ...

    def delete_empty_dir(self, path: str) -> bool:
        """Delete an empty directory; return ``False`` if it is missing or not empty.

        Object stores have no empty directories.
        """
        ...

    def move(self, source: str, target: str) -> bool:
        """Rename a file and create its parents; return ``False`` if ``target`` exists.

        If it is interrupted, the file exists under the old name, the new name, or both.
        """
        ...


class StoreWithDirectories:
    """A store whose directories are listed one by one, because no request lists more."""

    __slots__ = ()

    def list_tree(self, path: str) -> list[FileInfo] | None:  # noqa: ARG002 - of other stores
        """Return None: directories are listed one by one."""
        return None

    def list_few(
        self,
        prefix: str,  # noqa: ARG002 - of other stores
        limit: int,  # noqa: ARG002
        *,
        with_directories: bool = False,  # noqa: ARG002
    ) -> list[FileInfo] | None:
        """Return None: directories are listed one by one."""
        return None


def check_path(path: str) -> str:
    """Return a path after checking it.

    Raises :class:`CorruptFileError` for invalid names and for empty, ``.`` and ``..`` components.
    """
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise CorruptFileError(path, "is refused: it is not a valid file name") from None
    inner = (path.partition("://")[2] or path).lstrip("/")
    if inner and _UNSAFE_COMPONENT.search(inner):
        raise CorruptFileError(
            path, "is refused: an empty, '.' or '..' component could point outside the table"
        )
    return path


def build_size_error(path: str, size: int, expected: int) -> CorruptFileError:
    """Return the error for a file whose size in bytes differs from its metadata."""
    return CorruptFileError(path, f"has {size} bytes, but its manifest entry states {expected}")


def walk(io: FileIO, directory: str) -> Iterator[FileInfo]:
    """Yield the files and directories below a directory, each after the one that contains it.

    Raises :class:`CorruptFileError` for directories that are nested too deeply to be those of a
    table.
    """
    pending = [(directory, 0)]
    while pending:
        path, depth = pending.pop()
        if depth > MAX_NESTING:
            raise CorruptFileError(
                directory, f"has more than {MAX_NESTING} directories in each other; delete them"
            )
        for info in io.list_dir(path):
            if info.is_dir:
                pending.append((info.path, depth + 1))
            yield info


def find_root(path: str, roots: Sequence[str]) -> str | None:
    """Return the directory of ``roots`` that is or contains a path, or None without roots.

    Raises :class:`NotAllowedError` if there is none.
    """
    for root in roots:
        if path == root or path.startswith(f"{root}/"):
            return root
    if not roots:
        return None
    raise NotAllowedError(
        f"{path} is outside of the directories of the table: {', '.join(roots)}. If the table may "
        "use it, add its directory to the catalog option 'allowed-external-paths'"
    )
