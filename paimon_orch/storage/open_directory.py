"""Opens directories of the local file system so that no symbolic link leads out of some roots.

A path is resolved one component at a time, each relative to the descriptor of its parent, because
another process could replace a directory by a link between a check and its use.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from paimon_orch.errors import NotAllowedError, StorageError
from paimon_orch.storage.base import find_root
from paimon_orch.storage.modes import make_directory

T = TypeVar("T")
InDirectory = Callable[[int, str, int], T]
"""Takes the descriptor of a directory, a name in it, and flags for ``os.open``.

It raises :func:`build_link_error` if the name is a link and the flags have ``O_NOFOLLOW``.
"""

_DIRECTORY = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)


@dataclass(frozen=True, slots=True)
class Roots:
    """The directories that may be used; all if there are none."""

    paths: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    """Directories above some of the roots below which links are not followed either."""

    def find_start(self, path: str) -> str | None:
        """Return the directory below which no link of a path is followed, or None without roots.

        Raises :class:`NotAllowedError` for a path outside of the roots.
        """
        root = find_root(path, self.paths)
        return root and (self._find_anchor(root) or root)

    def _find_anchor(self, root: str) -> str | None:
        """Return the outermost anchor above a root."""
        above = (anchor for anchor in self.anchors if root.startswith(f"{anchor}/"))
        return min(above, key=len, default=None)

    def resolve(self) -> "Roots":
        """Return the roots without links, except those below anchors, which others may write."""

        def resolve_root(root: str) -> str:
            anchor = self._find_anchor(root)
            if anchor is None:
                return os.path.realpath(root)
            return f"{os.path.realpath(anchor)}{root[len(anchor) :]}"

        return Roots(
            tuple(map(resolve_root, self.paths)), tuple(map(os.path.realpath, self.anchors))
        )


class LinkError(NotAllowedError):
    """A path below a root leads through a symbolic link."""


def call_to_change(roots: Roots, path: str, call: InDirectory[T]) -> T:
    """Call a function with the directory of a path, without following links below the roots.

    Without roots, all links are followed. Raises :class:`LinkError` for a link, and
    :class:`NotAllowedError` for a path outside of the roots. Other errors name the whole path.
    """
    start = roots.find_start(path)
    parent, _, name = path.rpartition("/")
    if start is None or start == path:  # the operator chooses the directories above the roots
        start = parent or "/"
    try:
        directory = _open_below(start, parent)
        try:
            return call(directory, name, os.O_NOFOLLOW if roots.paths else 0)
        finally:
            os.close(directory)
    except OSError as error:
        if (translated := _translate_error(roots, path, error)) is error:
            raise
        raise translated from error


def call_to_read(roots: Roots, path: str, call: InDirectory[T]) -> T:
    """Call a function as :func:`call_to_change` does, but follow links that end below the roots."""
    try:
        return call_to_change(roots, path, call)
    except LinkError:
        real = os.path.realpath(path)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        # A stored name may have any length, but no file has such a name.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    try:
        return call_to_change(roots.resolve(), real, call)
    except LinkError as error:
        raise StorageError(f"{path} was replaced by a symbolic link while it was read") from error
    except NotAllowedError:
        raise NotAllowedError(
            f"{path} leads through a symbolic link to {real}, which is outside of the directories "
            f"of the table: {', '.join(roots.paths)}. If the table may read it, add its directory to "
            "the catalog option 'allowed-external-paths'"
        ) from None


def make_directories(roots: Roots, path: str) -> None:
    """Create a directory and its missing parents; raises the errors of :func:`call_to_change`."""
    start = roots.find_start(path)
    existing = start or path
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    try:
        os.close(_open_below(existing, path, creates=True))
    except OSError as error:
        if (translated := _translate_error(roots, path, error)) is error:
            raise
        raise translated from error


def _open_below(start: str, path: str, *, creates: bool = False) -> int:
    """Return a directory that is or is below another one; follows links in ``start`` only.

    The caller closes it.
    """
    directory = os.open(start, _DIRECTORY)
    try:
        for name in path[len(start) :].split("/") if len(path) > len(start) else ():
            if not name:
                continue
            if creates:
                with suppress(FileExistsError):
                    make_directory(directory, name)
            outer, directory = directory, _open_inner(directory, name)
            os.close(outer)
    except BaseException:
        os.close(directory)
        raise
    return directory


def _open_inner(directory: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    except NotADirectoryError:  # also the error for a link, which is then not opened
        if stat.S_ISLNK(os.lstat(name, dir_fd=directory).st_mode):
            raise build_link_error(name) from None
        raise


def _translate_error(roots: Roots, path: str, error: OSError) -> Exception:
    """Return :class:`LinkError` for the error of a link, or else an error that names the path."""
    if roots.paths and error.errno == errno.ELOOP:
        return LinkError(
            f"{path} leads through a symbolic link, and links are not followed to change or delete "
            "the files of a table. Replace the link by its target"
        )
    if error.errno is None or error.filename == path:
        return error
    return OSError(error.errno, error.strerror, path)


def build_link_error(path: str) -> OSError:
    """Return the error for a link that must not be followed."""
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
