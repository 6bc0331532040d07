"""Detects conflicts between new global indexes and commits that changed the indexed rows.

See docs/format/global-index-files.md#create-and-drop.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from paimon_orch.errors import CommitConflictError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.options.core_options import GLOBAL_INDEX_COLUMN_UPDATE_ACTION
from paimon_orch.format.paths import is_blob_file
from paimon_orch.format.row_range_set import RowRanges, unite_row_ranges
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.commit.row_range_conflicts import ColumnGuard

_PLAN_AGAIN = "Nothing was changed; plan and run the step again."

FileOfRows = tuple[bytes, str, int | None]
"""The partition, the name and the first row id of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedRowsGuard:
    """Requires that the files that new global indexes were built from have not changed.

    The format has no rule for that. Without this guard, an update between the plan and the commit
    of an index would make the index wrong.
    """

    schema_id: int
    """The schema of the name; files of other schemas may use it for another column."""
    column: str
    files: frozenset[FileOfRows]
    """The files with the rows of the indexes."""

    def check(
        self,
        base: Iterable[ManifestEntry],
        previous: Iterable[IndexManifestEntry],
        changes: Sequence[IndexManifestEntry],
    ) -> None:
        """Raise :class:`CommitConflictError` if the rows or their indexes changed.

        ``base`` must have all live entries of the partitions of the indexes.
        """
        live = {(e.partition, e.file.file_name, e.file.first_row_id): e for e in base}
        missing = self.files - live.keys()
        if missing:
            raise CommitConflictError(
                f"file {min(name for _, name, _ in missing)} was replaced or removed by another "
                f"commit while an index of its rows was built. {_PLAN_AGAIN}"
            )
        added = [entry for entry in changes if entry.kind is FileKind.ADD]
        for entry in added:
            rows = entry.row_range
            others = (
                other.file
                for key, other in live.items()
                if key not in self.files and other.partition == entry.partition
            )
            self._check_updates(rows, [file for file in others if self._may_have_column(file)])
        self._check_duplicates(previous, changes, added)

    def _may_have_column(self, file: DataFileMeta) -> bool:
        if file.first_row_id is None or is_blob_file(file.file_name):
            return False
        is_known = file.write_cols is not None and file.schema_id == self.schema_id
        return not is_known or self.column in (file.write_cols or ())

    def _check_updates(self, rows: RowRanges, files: Sequence[DataFileMeta]) -> None:
        starts = np.array([file.first_row_id for file in files], np.int64)
        ends = starts + np.array([file.row_count for file in files], np.int64)
        for number in np.flatnonzero(rows.overlaps(starts, ends))[:1].tolist():
            raise CommitConflictError(
                f"file {files[number].file_name} of another commit has new values of column "
                f"{self.column!r}, of which an index was built. {_PLAN_AGAIN}"
            )

    def _check_duplicates(
        self,
        previous: Iterable[IndexManifestEntry],
        changes: Sequence[IndexManifestEntry],
        added: Sequence[IndexManifestEntry],
    ) -> None:
        """Refuse a second index of rows, which another commit added."""
        replaced = {entry.file_name for entry in changes if entry.kind is FileKind.DELETE}
        keys = {_get_key(entry) for entry in added}
        for entry in previous:
            key = _get_key(entry)
            if entry.file_name in replaced or key is None or key not in keys:
                continue
            if entry.row_range & unite_row_ranges(
                [new.row_range for new in added if _get_key(new) == key]
            ):
                raise CommitConflictError(
                    f"index file {entry.file_name} of another commit has the same rows. "
                    f"{_PLAN_AGAIN}"
                )


def check_indexed_columns(
    schema: TableSchema,
    guard: ColumnGuard,
    previous: Iterable[IndexManifestEntry],
    changes: Iterable[IndexManifestEntry],
) -> None:
    """Raise :class:`CommitConflictError` if written columns of existing rows have an index.

    The step that writes them drops the indexes that it knows, or refuses the update, but another
    commit may have added an index since then.
    """
    if schema.typed_options.get(GLOBAL_INDEX_COLUMN_UPDATE_ACTION).upper() == "IGNORE":
        return
    updates = [(change, change.names) for change in guard.changes if change.names is not None]
    names = frozenset[str]().union(*(of_change for _, of_change in updates))
    ids = {field.id for field in schema.fields if field.name in names}
    rows = RowRanges.of(
        np.array([change.start for change, _ in updates], np.int64),
        np.array([change.end for change, _ in updates], np.int64),
    )
    dropped = {entry.file_name for entry in changes if entry.kind is FileKind.DELETE}
    for entry in previous:
        meta = entry.global_index
        if meta is None or entry.file_name in dropped:
            continue
        is_updated = not ids.isdisjoint(meta.field_ids)
        if is_updated and rows & entry.row_range:
            raise CommitConflictError(
                f"another commit added the index file {entry.file_name} of a column that this "
                f"commit updates. {_PLAN_AGAIN}"
            )


def _get_key(entry: IndexManifestEntry) -> tuple[bytes, str, int] | None:
    meta = entry.global_index
    return None if meta is None else (entry.partition, entry.index_type, meta.index_field_id)
