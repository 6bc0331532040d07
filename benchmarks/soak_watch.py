"""Counts the snapshots on a local disk that a rename replaced.

Java Paimon and pypaimon check that ``snapshot-N`` does not exist, and then rename a temporary file
to it. If another process creates it between the two, its commit is lost, although it succeeded; see
docs/format/table-layout.md#atomic-writes. This library creates snapshots by a hard link, which
replaces nothing. inotify reports each file that is created or renamed.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import struct
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from support.soak_tables import SoakTable

_CREATED, _RENAMED, _DELETED = 0x100, 0x80, 0x200
_EVENT = struct.Struct("iIII")
_SNAPSHOT = re.compile(r"snapshot-\d+")
_BUFFER = 1 << 16


class SnapshotWatch(threading.Thread):
    """Watches the snapshots of tables until it is closed."""

    def __init__(self, warehouse: str, tables: Sequence[SoakTable]) -> None:
        super().__init__(name="snapshot watch", daemon=True)
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK)
        self._tables: dict[int, str] = {}
        for table in tables:
            folder = Path(warehouse, "soak.db", table.name, "snapshot")
            folder.mkdir(parents=True, exist_ok=True)
            watch = libc.inotify_add_watch(
                self._descriptor, os.fsencode(folder), _CREATED | _RENAMED | _DELETED
            )
            assert watch >= 0, os.strerror(ctypes.get_errno())
            self._tables[watch] = table.name
        self._existing: set[tuple[str, str]] = set()
        self._is_closed = threading.Event()
        self.replaced: Counter[str] = Counter()
        """The number of replaced snapshots, by table."""

    def run(self) -> None:
        """Read events until the watch is closed."""
        while not self._is_closed.is_set():
            if select.select([self._descriptor], [], [], 0.2)[0]:
                self._read(os.read(self._descriptor, _BUFFER))
        os.close(self._descriptor)

    def close(self) -> None:
        """End the watch."""
        self._is_closed.set()
        self.join()

    def _read(self, events: bytes) -> None:
        position = 0
        while position < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, position)
            position += _EVENT.size
            name = events[position : position + length].rstrip(b"\0").decode()
            position += length
            if _SNAPSHOT.fullmatch(name):
                self._note((self._tables[watch], name), mask)

    def _note(self, snapshot: tuple[str, str], mask: int) -> None:
        if mask & _DELETED:
            self._existing.discard(snapshot)
        elif snapshot not in self._existing:
            self._existing.add(snapshot)
        elif mask & _RENAMED:
            self.replaced[snapshot[0]] += 1
