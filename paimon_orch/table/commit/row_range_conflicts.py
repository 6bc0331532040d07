"""Detects conflicts between ranges of row ids in tables with data evolution.

See docs/format/commit.md#row-ids-of-data-evolution-tables.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from paimon_orch.errors import CommitConflictError
from paimon_orch.format.arrays import Indices, Int64Array
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.paths import is_blob_file
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.table.commit.row_id_assignment import build_shared_row_ids_error
from paimon_orch.table.metadata.manifest_io import ManifestReader

_PLAN_AGAIN = "Nothing was changed; plan and run the step again."


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of row ids of files, ordered by first id; ``ends`` are exclusive."""

    entries: Sequence[ManifestEntry]
    starts: Int64Array
    ends: Int64Array

    @classmethod
    def of(cls, entries: Iterable[ManifestEntry]) -> "_Ranges":
        numbered = [entry for entry in entries if entry.file.first_row_id is not None]
        starts = np.array([entry.file.first_row_id for entry in numbered], np.int64)
        ends = starts + np.array([entry.file.row_count for entry in numbered], np.int64)
        order = np.lexsort((ends, starts))
        return cls([numbered[index] for index in order.tolist()], starts[order], ends[order])

    @classmethod
    def without_blobs(cls, entries: Iterable[ManifestEntry]) -> "_Ranges":
        return cls.of(entry for entry in entries if not is_blob_file(entry.file.file_name))

    def find_partial_overlap(self) -> tuple[str, str] | None:
        """Return the names of two files that have only a part of their rows in common."""
        starts, ends = self.starts, self.ends
        is_partial = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
        for index in np.flatnonzero(is_partial & (starts[1:] < ends[:-1]))[:1].tolist():
            return self._name(index), self._name(index + 1)
        return None

    def _name(self, index: int) -> str:
        return self.entries[index].file.file_name

    def merge_adjacent(self) -> tuple[Int64Array, Int64Array]:
        """Return the starts and the ends of the contiguous ids."""
        if not len(self.starts):
            return self.starts, self.ends
        ends = np.maximum.accumulate(self.ends)
        begins: Indices = np.flatnonzero(np.append(True, self.starts[1:] > ends[:-1]))
        return self.starts[begins], np.append(ends[begins[1:] - 1], ends[-1])


def check_row_ranges(
    kind: CommitKind,
    base: Sequence[ManifestEntry],
    delta: Iterable[ManifestEntry],
    live: Iterable[ManifestEntry],
    next_row_ids: tuple[int, int],
) -> None:
    """Raise :class:`CommitConflictError` if files would have only a part of their rows in common.

    Raises :class:`UnsupportedError` if the files before the commit have, so no attempt can commit.

    :param base: all live entries of the partitions that ``delta`` changes
    :param live: the same entries after ``delta``
    :param next_row_ids: the next free row id before and after the commit
    """
    before, after = next_row_ids
    live = list(live)
    ranges = _Ranges.without_blobs(live)
    if (names := ranges.find_partial_overlap()) is not None:
        if (old := _Ranges.without_blobs(base).find_partial_overlap()) is not None:
            raise build_shared_row_ids_error(*old)
        raise CommitConflictError(
            f"files {names[0]} and {names[1]} would have only a part of their rows in common: "
            f"another commit updated or compacted the same rows. {_PLAN_AGAIN}"
        )
    _check_last_id(ranges, after)
    blobs = _Ranges.of(entry for entry in live if is_blob_file(entry.file.file_name))
    _check_blob_ranges(ranges, blobs)
    added = [
        entry
        for entry in delta
        if entry.kind is FileKind.ADD
        and entry.file.first_row_id is not None
        and entry.file.first_row_id < before
    ]
    if not added:
        return
    existing = _Ranges.of(base)
    if kind is CommitKind.COMPACT:
        _check_rows_exist(existing, added)
    else:
        columns = [entry for entry in added if not is_blob_file(entry.file.file_name)]
        _check_files_exist(existing, columns)


def _check_last_id(ranges: _Ranges, next_row_id: int) -> None:
    ends = ranges.ends
    if len(ends) and ends[-1] > next_row_id:
        name = ranges.entries[-1].file.file_name
        raise CommitConflictError(
            f"file {name} has row ids up to {ends[-1] - 1}, but the table has assigned only ids "
            f"below {next_row_id}"
        )


def _check_blob_ranges(ranges: _Ranges, blobs: _Ranges) -> None:
    """Refuse BLOB files whose rows are not in one range of the other files."""
    indices = np.searchsorted(ranges.starts, blobs.starts, "right") - 1
    ends = np.append(ranges.ends, 0)[indices]  # the index -1 means that there is no range
    for number in np.flatnonzero((indices < 0) | (ends < blobs.ends))[:1].tolist():
        raise CommitConflictError(
            f"the rows of BLOB file {blobs.entries[number].file.file_name} would not be in one "
            f"data file: another commit compacted or removed the same rows. {_PLAN_AGAIN}"
        )


def _check_rows_exist(existing: _Ranges, added: Iterable[ManifestEntry]) -> None:
    """Refuse compacted files with ids that a concurrent reassignment has replaced."""
    starts, ends = existing.merge_adjacent()
    for entry in added:
        first = entry.file.first_row_id or 0
        index = int(np.searchsorted(starts, first, "right")) - 1
        if index < 0 or first + entry.file.row_count > ends[index]:
            raise _build_missing_rows_error(entry)


def _check_files_exist(existing: _Ranges, added: Iterable[ManifestEntry]) -> None:
    """Refuse columns of rows whose files were replaced, so that the ranges differ."""
    ranges = set(zip(existing.starts.tolist(), existing.ends.tolist(), strict=True))
    for entry in added:
        first = entry.file.first_row_id or 0
        if (first, first + entry.file.row_count) not in ranges:
            raise _build_missing_rows_error(entry)


def _build_missing_rows_error(entry: ManifestEntry) -> CommitConflictError:
    file = entry.file
    first = file.first_row_id or 0
    return CommitConflictError(
        f"file {file.file_name} has columns of the rows {first} to {first + file.row_count - 1}, "
        f"but another commit replaced the files of these rows. {_PLAN_AGAIN}"
    )


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """Columns of a range of rows that a commit writes; ``end`` is exclusive."""

    start: int
    end: int
    names: frozenset[str] | None
    """The columns; None means all columns, because rows are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGuard:
    """Requires that no commit after a given snapshot wrote the same columns of the same rows.

    Compactions are allowed, because they do not change rows.
    """

    snapshot_id: int
    """The id of the snapshot that the new values were computed from."""
    schema_id: int
    """The schema of the names; files of other schemas may use a name for another column."""
    changes: tuple[ColumnChange, ...]
    """Disjoint ranges, ordered by row id."""

    def check(self, later: Sequence[Snapshot] | None, manifests: ManifestReader) -> None:
        """Raise :class:`CommitConflictError` if a commit since then wrote the same columns.

        ``later`` are the snapshots to check, or None if some of those since then are not known.
        """
        starts = np.array([change.start for change in self.changes], np.int64)
        ends = np.array([change.end for change in self.changes], np.int64)
        if later is None:
            raise self._build_error()
        for snapshot in later:
            if snapshot.commit_kind is CommitKind.COMPACT:
                continue
            for file in (entry.file for entry in manifests.read_delta_entries(snapshot)):
                if file.first_row_id is None:
                    continue
                first = int(np.searchsorted(ends, file.first_row_id, "right"))
                last = int(np.searchsorted(starts, file.first_row_id + file.row_count, "left"))
                if any(self._is_same_column(c, file) for c in self.changes[first:last]):
                    raise self._build_error()

    def _is_same_column(self, change: ColumnChange, file: DataFileMeta) -> bool:
        if change.names is None or file.write_cols is None or file.schema_id != self.schema_id:
            return True
        return not change.names.isdisjoint(file.write_cols)

    def _build_error(self) -> CommitConflictError:
        return CommitConflictError(
            "another commit wrote the same columns of the same rows, or deleted them, since "
            f"snapshot {self.snapshot_id}. Nothing was changed; run the step again."
        )
