"""The summary of an Iceberg snapshot: what it added and removed, and the totals after it.

See docs/format/iceberg-metadata.md#table-metadata.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from paimon_orch.format.iceberg.iceberg_manifest import Entry, ManifestContent
from paimon_orch.format.iceberg.iceberg_manifest_list import IcebergManifestFile
from paimon_orch.format.manifest.manifest_entry import ManifestEntry

_TOTAL_DATA_FILES, _TOTAL_FILES_SIZE = "total-data-files", "total-files-size"
_SIZE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """Numbers of data files, their rows and bytes."""

    files: int
    rows: int
    size: int

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "FileCounts":
        """Count the files of manifest entries."""
        files = [entry["data_file"] for entry in entries]
        return cls(
            files=len(files),
            rows=sum(file["record_count"] for file in files),
            size=sum(file["file_size_in_bytes"] for file in files),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDelta:
    """The data files that a snapshot added and removed."""

    added: FileCounts
    removed: FileCounts
    changed_partitions: int

    @classmethod
    def of(cls, added: Iterable[Entry], removed: Iterable[Entry]) -> "SnapshotDelta":
        """Count the files of manifest entries."""
        added, removed = list(added), list(removed)
        partitions = {
            tuple(entry["data_file"]["partition"].values()) for entry in (*added, *removed)
        }
        return cls(
            added=FileCounts.of(added),
            removed=FileCounts.of(removed),
            changed_partitions=len(partitions),
        )

    @classmethod
    def of_new_files(cls, entries: Collection[ManifestEntry]) -> "SnapshotDelta":
        """Count the files of a snapshot that adds all visible files of a table."""
        added = FileCounts(
            files=len(entries),
            rows=sum(entry.file.row_count for entry in entries),
            size=sum(entry.file.file_size for entry in entries),
        )
        return cls(
            added=added,
            removed=FileCounts(files=0, rows=0, size=0),
            changed_partitions=len({entry.partition for entry in entries}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals:
    """The files of a snapshot."""

    data: FileCounts
    delete_files: int
    deleted_rows: int

    @classmethod
    def of(cls, manifests: Iterable[IcebergManifestFile], size: int) -> "FileTotals":
        """Sum the manifests of a snapshot whose data files have ``size`` bytes."""
        manifests = list(manifests)
        data = [m for m in manifests if m.content is ManifestContent.DATA]
        deletes = [m for m in manifests if m.content is ManifestContent.DELETES]
        return cls(
            data=FileCounts(
                files=sum(manifest.live_files for manifest in data),
                rows=sum(manifest.live_rows for manifest in data),
                size=size,
            ),
            delete_files=sum(manifest.live_files for manifest in deletes),
            deleted_rows=sum(manifest.live_rows for manifest in deletes),
        )

    @staticmethod
    def find_data_size(
        summary: Mapping[str, str], manifests: Sequence[IcebergManifestFile]
    ) -> int | None:
        """Return the bytes of all data files by a summary, or None if it cannot be trusted.

        Totals of Java Paimon can drift; then the number of files differs from the manifests.
        """
        files = sum(m.live_files for m in manifests if m.content is ManifestContent.DATA)
        size = summary.get(_TOTAL_FILES_SIZE, "")
        is_right = summary.get(_TOTAL_DATA_FILES) == str(files)
        return int(size) if is_right and _SIZE.fullmatch(size) else None


def build_summary(delta: SnapshotDelta, totals: FileTotals, operation: str) -> dict[str, str]:
    """Return the summary of a snapshot with the keys of Java Paimon."""
    values = {
        "operation": operation,
        "added-data-files": delta.added.files,
        "added-records": delta.added.rows,
        "added-files-size": delta.added.size,
        "deleted-data-files": delta.removed.files,
        "deleted-records": delta.removed.rows,
        "removed-files-size": delta.removed.size,
        "changed-partition-count": delta.changed_partitions,
        "total-records": totals.data.rows,
        _TOTAL_DATA_FILES: totals.data.files,
        _TOTAL_FILES_SIZE: totals.data.size,
        "total-delete-files": totals.delete_files,
        "total-position-deletes": totals.deleted_rows,
        "total-equality-deletes": 0,
    }
    return {key: str(value) for key, value in values.items()}
