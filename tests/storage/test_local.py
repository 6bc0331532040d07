"""Files of the local file system are complete on the disk before they get their name."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.tables import new_table

from paimon_orch.errors import StorageError
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.storage import LocalFileIO

Event = tuple[str, int, int]
"""The name of a function, the inode of its file, and the size of the file at this time."""


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Record the calls that sync files or give them their names."""
    recorded: list[Event] = []

    def sync(descriptor: int) -> None:
        stat = os.fstat(descriptor)
        recorded.append(("fsync", stat.st_ino, stat.st_size))

    def record(name: str, call: Callable[..., None]) -> None:
        def recorder(source: str, target: str, **options: Any) -> None:
            stat = os.stat(source, dir_fd=options.get("src_dir_fd"))
            recorded.append((name, stat.st_ino, stat.st_size))
            call(source, target, **options)

        monkeypatch.setattr(os, name, recorder)

    monkeypatch.setattr(os, "fsync", sync)
    for name in ("link", "replace", "rename"):
        record(name, getattr(os, name))
    return recorded


def test_a_created_file_is_synced_before_it_is_linked(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "t" / "snapshot-1"

    assert LocalFileIO().create(str(path), b"12345")

    inode = path.stat().st_ino
    assert events == [("fsync", inode, 5), ("link", inode, 5)]


def test_a_replaced_file_is_synced_before_it_is_renamed(
    tmp_path: Path, events: list[Event]
) -> None:
    path = tmp_path / "LATEST"
    path.write_bytes(b"1")

    LocalFileIO().write(str(path), b"22")

    inode = path.stat().st_ino
    assert events == [("fsync", inode, 2), ("replace", inode, 2)]


def test_metadata_of_a_table_is_synced_before_it_gets_its_name(
    tmp_path: Path, events: list[Event]
) -> None:
    table = new_table(tmp_path)
    for key in range(2):
        table.upsert(pa.table({"k": [key], "v": ["a"]}))
    table.tags.create("first", snapshot_id=1)
    expire_snapshots(table, retain_max=1)

    synced = {event[1:] for event in events if event[0] == "fsync"}
    named = {event[1:] for event in events if event[0] != "fsync"}
    root = Path(table.paths.root)
    files = [path for folder in ("schema", "snapshot", "tag") for path in (root / folder).iterdir()]
    assert {path.name for path in files} == {"schema-0", "snapshot-2", "EARLIEST", "LATEST", "tag-first"}  # fmt: skip
    assert {(path.stat().st_ino, path.stat().st_size) for path in files} <= named <= synced


@pytest.mark.parametrize(
    ("function", "put"),
    [
        ("fsync", LocalFileIO.create),
        ("link", LocalFileIO.create),
        ("fsync", LocalFileIO.write),
        ("replace", LocalFileIO.write),
    ],
)
def test_a_file_that_cannot_be_synced_or_named_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    put: Callable[[LocalFileIO, str, bytes], object],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises((StorageError, OSError), match="No space left on device"):
        put(LocalFileIO(), str(tmp_path / "file"), b"12345")

    assert list(tmp_path.iterdir()) == []
