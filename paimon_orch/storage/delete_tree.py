"""Deletes local directories of any depth, also those that were made deep on purpose."""

import os
import stat
from contextlib import suppress
from uuid import uuid4

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def delete_tree(parent: int, name: str) -> None:
    """Delete a directory with its content; ``parent`` is the open directory above it.

    Follows no links. ``shutil.rmtree`` calls itself for each level, and holds a descriptor for it,
    so a deep directory could never be deleted. Here the directories of a directory that is deleted
    move to the top first.
    """
    top = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        while names := _delete_files(top):
            for inner in names:
                with suppress(FileNotFoundError):
                    _lift_content(top, inner)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _lift_content(top: int, name: str) -> None:
    """Delete a directory, after its own directories were moved to ``top``."""
    directory = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        for inner in _delete_files(directory):
            try:
                os.rmdir(inner, dir_fd=directory)
            except FileNotFoundError:
                continue
            except OSError:  # it is not empty
                os.rename(inner, f".{uuid4()}.tmp", src_dir_fd=directory, dst_dir_fd=top)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)


def _delete_files(directory: int) -> list[str]:
    """Delete what is not a directory; return the names of the directories."""
    names = []
    for name in os.listdir(directory):
        try:
            if stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                names.append(name)
            else:
                os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            continue
    return names
