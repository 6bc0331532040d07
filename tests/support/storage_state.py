"""What a directory contains, without what differs between two runs of the same operations."""

from __future__ import annotations

import re
from pathlib import Path

# UUIDs, and numbers of three or more digits, such as times and the sizes of compressed files.
_VARYING = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{3,}")


def read_storage_state(root: Path) -> list[tuple[str, str]]:
    """Return the paths and contents of files and directories, for tests on small tables.

    Two equal states differ at most in UUIDs, long numbers and the bytes of binary files.
    """
    state = []
    for path in root.rglob("*"):
        content = "directory" if path.is_dir() else _read_content(path)
        state.append((_VARYING.sub("#", str(path.relative_to(root))), content))
    return sorted(state)


def _read_content(path: Path) -> str:
    data = path.read_bytes()
    try:
        return _VARYING.sub("#", data.decode())
    except UnicodeDecodeError:
        return "binary"
