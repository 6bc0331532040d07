"""Writes to a disk that is full: one error that names the file, and the table is unchanged."""

import errno
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_orch import Catalog
from paimon_orch.errors import SnapshotNotCreatedError, StorageError
from paimon_orch.storage import LocalFileIO


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse to make files of this process larger than ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


NOTE = "nothing of this write was committed, and its new files were deleted"


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# An error inside pyarrow's writer of ORC would end the process.
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_write_to_a_full_disk_names_the_file_and_leaves_none(
    tmp_path: Path, file_format: str
) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "id BIGINT, v STRING", options={"file.format": file_format}
    )
    before = list_files(tmp_path)
    generator = random.Random(1)  # noqa: S311
    texts = [f"{generator.getrandbits(200):x}" for _ in range(30_000)]
    rows = pa.table({"id": range(len(texts)), "v": texts})

    with (
        largest_file(100_000),
        pytest.raises(
            StorageError, match=rf"{file_format} cannot be written \(File too large\)"
        ) as caught,
    ):
        table.append(rows)

    assert caught.value.__notes__ == [NOTE]
    assert list_files(tmp_path) == before
    table.append(rows.slice(0, 10))
    assert table.scan().count() == 10


def test_nothing_is_committed_or_left_if_the_snapshot_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id BIGINT")
    table.append(pa.table({"id": [1]}))
    before = list_files(tmp_path)
    open_new = LocalFileIO._open_new

    def open_on_full_disk(io: LocalFileIO, path: str) -> FileIO:
        is_snapshot = "/.snapshot-" in path
        return FileIO("/dev/full", "wb") if is_snapshot else open_new(io, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileIO, "_open_new", open_on_full_disk)
        with pytest.raises(SnapshotNotCreatedError, match=r"No space left.* Nothing was committed"):
            table.append(pa.table({"id": [2]}))

    assert list_files(tmp_path) == before
    table.append(pa.table({"id": [2]}))
    assert table.scan().count() == 2


def test_a_write_to_a_read_only_file_system_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "id BIGINT")

    def refuse(_: LocalFileIO, path: str) -> FileIO:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileIO, "_open_new", refuse)
        with pytest.raises(
            StorageError, match=r"\.parquet cannot be written \(Read-only"
        ) as caught:
            table.append(pa.table({"id": [1]}))

    assert caught.value.__notes__ == [NOTE]
    assert table.snapshot() is None
