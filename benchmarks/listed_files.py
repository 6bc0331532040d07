"""A file system that lists the data files of ``many_files.py`` without storing them.

Ten million files need as many inodes. Their names follow from the partition and the bucket, so a
listing is computed; everything else is read from the local file system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from uuid import NAMESPACE_OID, uuid5

from paimon_orch.storage import FileInfo, LocalFileIO

FIRST_DAY = date(1996, 1, 1).toordinal()
FILES_PER_PARTITION, BUCKETS = 100, 16
MAX_ENCODED = 1_000_000
"""The number of files with names of their own; those of more files have another first character."""
_COPY_LETTERS = " ghijklmnopqrstuvwxyz"  # a UUID is hexadecimal


def get_copy_letter(copy: int) -> str:
    """Return the first character of the names in a copy of the first files."""
    return _COPY_LETTERS[copy]


def compute_file_size(number: int) -> int:
    """Return the size of a file."""
    return 40_000 + number % MAX_ENCODED % 9_973


def build_file_name(number: int) -> str:
    """Return the name of a file."""
    copy, original = divmod(number, MAX_ENCODED)
    name = str(uuid5(NAMESPACE_OID, str(original)))
    if copy:
        name = get_copy_letter(copy) + name[1:]
    return f"data-{name}-0.parquet"


def build_partition_name(number: int) -> str:
    """Return the value of the partition column of a file."""
    return date.fromordinal(FIRST_DAY + number // FILES_PER_PARTITION).isoformat()


@dataclass(frozen=True)
class ListedFileIO(LocalFileIO):
    """The local file system, with the data files of a table of ``many_files.py``."""

    root: str
    """The directory of the table."""
    files: int

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries of a directory."""
        if path == self.root:
            yield from super().list_dir(path)
            for number in range(0, self.files, FILES_PER_PARTITION):
                yield _build_directory(f"{path}/dt={build_partition_name(number)}")
            return
        below = path.removeprefix(f"{self.root}/").split("/")
        if not below[0].startswith("dt="):
            yield from super().list_dir(path)
        elif len(below) == 1:
            for bucket in range(BUCKETS):
                yield _build_directory(f"{path}/bucket-{bucket}")
        else:
            yield from self._list_bucket(path, *below)

    def _list_bucket(self, path: str, partition: str, bucket: str) -> Iterator[FileInfo]:
        day = date.fromisoformat(partition.removeprefix("dt=")).toordinal() - FIRST_DAY
        first = day * FILES_PER_PARTITION
        for number in range(
            first + int(bucket.removeprefix("bucket-")), first + FILES_PER_PARTITION, BUCKETS
        ):
            yield FileInfo(
                path=f"{path}/{build_file_name(number)}",
                size=compute_file_size(number),
                modified=0.0,
                is_dir=False,
            )


def _build_directory(path: str) -> FileInfo:
    return FileInfo(path=path, size=0, modified=0.0, is_dir=True)
