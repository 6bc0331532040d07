"""Gives the rows of partitions consecutive row ids, by new metadata of their files.

See docs/format/row-tracking.md#reassigning-row-ids.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paimon_orch.errors import CommitConflictError, UnsupportedError
from paimon_orch.files.row_tracking import ROW_ID
from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter
from paimon_orch.table.scan.partition_pruner import build_partition_manifest_selector


@dataclass(frozen=True, slots=True)
class RowIdRuns:
    """Contiguous row ids of a partition, in ascending order, and the first new id of each run."""

    starts: Int64Array
    ends: Int64Array
    """The ids after the last rows."""
    new_starts: Int64Array

    def find_new_id(self, start: int, end: int) -> int | None:
        """Return the new id of the first of some rows, or None if they are not in one run."""
        run = int(np.searchsorted(self.starts, start, "right")) - 1
        if run < 0 or end > self.ends[run]:
            return None
        return int(self.new_starts[run]) + start - int(self.starts[run])

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether any of the rows is in a run."""
        first = int(np.searchsorted(self.ends, start, "right"))
        return first < len(self.starts) and int(self.starts[first]) < end


@dataclass(frozen=True, slots=True, kw_only=True)
class RowIdReassignment:
    """New row ids for the files of some partitions."""

    snapshot_id: int
    """The newest snapshot; a commit after it is a conflict."""
    runs: Mapping[bytes, RowIdRuns]
    """The runs by partition."""
    next_row_id: int

    def check(self, latest: Snapshot | None) -> None:
        """Raise :class:`CommitConflictError` if there is a newer snapshot."""
        if latest is None or latest.id != self.snapshot_id:
            raise CommitConflictError(
                f"another commit was made since snapshot {self.snapshot_id}, whose row ids are "
                "reassigned. Nothing was changed; run the step again."
            )

    def rewrite_manifests(
        self, reader: ManifestReader, writer: ManifestWriter, metas: Sequence[ManifestFileMeta]
    ) -> list[ManifestFileMeta]:
        """Return manifests with the new ids, in the same order."""
        select = build_partition_manifest_selector(self.runs.keys(), writer.schema)
        selected = {meta.file_name for meta in select(metas)}
        rewritten = list[ManifestFileMeta]()
        for meta in metas:
            entries = reader.entries([meta]) if meta.file_name in selected else []
            moved = [self._move_entry(entry) for entry in entries]
            if any(old is not new for old, new in zip(entries, moved, strict=True)):
                rewritten += writer.manifests(moved)
            else:
                rewritten.append(meta)
        return rewritten

    def _move_entry(self, entry: ManifestEntry) -> ManifestEntry:
        runs, file = self.runs.get(entry.partition), entry.file
        if runs is None or file.first_row_id is None:
            return entry
        new_id = runs.find_new_id(file.first_row_id, file.first_row_id + file.row_count)
        if new_id is None:
            return entry
        if ROW_ID.name in (file.write_cols or ()):
            raise UnsupportedError(
                f"{file.file_name} has a column of row ids, so its rows cannot get new ones"
            )
        return replace(entry, file=replace(file, first_row_id=new_id))

    def rewrite_index(self, entries: Iterable[IndexManifestEntry]) -> list[IndexManifestEntry]:
        """Return index entries with the new ids, without global indexes of rows in several runs."""
        rewritten = []
        for entry in entries:
            index, runs = entry.global_index, self.runs.get(entry.partition)
            if index is None or runs is None:
                rewritten.append(entry)
                continue
            start, end = index.row_range_start, index.row_range_end + 1
            new_id = runs.find_new_id(start, end)
            if new_id is not None:
                moved = replace(
                    index, row_range_start=new_id, row_range_end=new_id + end - start - 1
                )
                rewritten.append(replace(entry, global_index=moved))
            elif not runs.overlaps(start, end):
                rewritten.append(entry)
        return rewritten
