"""What commits check and drop by the kind of table.

See docs/format/commit.md#conflicts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.format.table_kind import TableKind
from paimon_orch.table.commit.conflict_detection import check_level_0_order, check_level_overlaps
from paimon_orch.table.commit.index_sources import (
    find_indexes_of_removed_rows,
    find_stale_index_files,
)
from paimon_orch.table.commit.row_id_assignment import check_row_ids, refuse_unassigned_row_ids
from paimon_orch.table.commit.row_level_conflicts import check_deletion_vectors
from paimon_orch.table.commit.row_range_conflicts import check_row_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDelta:
    """The changes of a commit, and the live files of the buckets that they touch."""

    kind: CommitKind
    base: Sequence[ManifestEntry]
    """All live entries of the touched buckets before the commit."""
    entries: Sequence[ManifestEntry]
    live: Sequence[ManifestEntry]
    """The same entries as ``base``, after the commit."""
    previous_index: Sequence[IndexManifestEntry]
    index: Sequence[IndexManifestEntry]
    """The changes of index files."""
    next_row_ids: tuple[int, int]
    """The next free row id before and after the commit."""


@dataclass(frozen=True, slots=True)
class KindConflicts(ABC):
    """The checks of a kind of table."""

    schema: TableSchema

    @abstractmethod
    def find_stale_indexes(
        self,
        kind: CommitKind,
        entries: Sequence[ManifestEntry],
        previous: Sequence[IndexManifestEntry],
        changes: Sequence[IndexManifestEntry],
    ) -> list[IndexManifestEntry]:
        """Return deletes of previous index files that do not fit the files after the commit."""

    @abstractmethod
    def check(self, delta: CommitDelta) -> None:
        """Raise :class:`CommitConflictError` if the changes conflict with the live files."""


@dataclass(frozen=True, slots=True)
class AppendConflicts(KindConflicts):
    """Two commits must not delete rows of a file, and replace it."""

    def find_stale_indexes(
        self,
        kind: CommitKind,
        entries: Sequence[ManifestEntry],
        previous: Sequence[IndexManifestEntry],
        changes: Sequence[IndexManifestEntry],
    ) -> list[IndexManifestEntry]:
        """Return deletes of the global indexes of rows to which a compaction gives new ids."""
        if kind is not CommitKind.COMPACT:
            return []
        return find_indexes_of_removed_rows(entries, previous, changes)

    def check(self, delta: CommitDelta) -> None:
        """Check deletion vectors and row ids."""
        check_deletion_vectors(
            self.schema,
            delta.base,
            delta=delta.entries,
            previous=delta.previous_index,
            changes=delta.index,
        )
        base = ((entry.file.file_name, entry.file.last_row_id) for entry in delta.base)
        refuse_unassigned_row_ids(base, delta.next_row_ids[0])
        self._check_row_ids(delta)

    def _check_row_ids(self, delta: CommitDelta) -> None:
        check_row_ids(self.schema, delta.base, delta.live, delta.next_row_ids[1])


@dataclass(frozen=True, slots=True)
class DataEvolutionConflicts(AppendConflicts):
    """Files of the same row ids must have all of these rows."""

    def _check_row_ids(self, delta: CommitDelta) -> None:
        check_row_ranges(delta.kind, delta.base, delta.entries, delta.live, delta.next_row_ids)


@dataclass(frozen=True, slots=True)
class PrimaryKeyConflicts(KindConflicts):
    """The files of a level must not overlap."""

    def find_stale_indexes(
        self,
        kind: CommitKind,
        entries: Sequence[ManifestEntry],
        previous: Sequence[IndexManifestEntry],
        changes: Sequence[IndexManifestEntry],
    ) -> list[IndexManifestEntry]:
        """Return deletes of the indexes of levels whose files change."""
        del kind
        return find_stale_index_files(entries, previous, changes)

    def check(self, delta: CommitDelta) -> None:
        """Check the order of files in levels."""
        check_level_overlaps(self.schema, delta.live, delta.entries)
        if delta.kind is CommitKind.COMPACT:
            check_level_0_order(self.schema, delta.live, delta.entries)


_CONFLICTS: Mapping[TableKind, type[KindConflicts]] = {
    TableKind.APPEND: AppendConflicts,
    TableKind.ROW_TRACKING: AppendConflicts,
    TableKind.DATA_EVOLUTION: DataEvolutionConflicts,
    TableKind.PRIMARY_KEY: PrimaryKeyConflicts,
}


def find_conflicts(schema: TableSchema) -> KindConflicts:
    """Return the checks of the kind of table that a schema describes."""
    return _CONFLICTS[schema.kind](schema)
