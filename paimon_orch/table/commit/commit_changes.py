"""The changes of one commit, as steps pass them to :class:`TableCommit`.

See docs/format/commit.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind
from paimon_orch.table.commit.conflict_detection import BucketGuard, HashIndexGuard
from paimon_orch.table.commit.global_index_conflicts import IndexedRowsGuard
from paimon_orch.table.commit.row_id_reassignment import RowIdReassignment
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.commit.row_range_conflicts import ColumnGuard
from paimon_orch.table.commit.state_replacement import StateReplacement

PartitionFilter = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges:
    """The changes of one snapshot."""

    kind: CommitKind
    entries: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()

    guards: tuple[BucketGuard, ...] = ()
    """The states of buckets that the changes were computed from."""

    hash_index_guards: tuple[HashIndexGuard, ...] = ()
    """The states of the dynamic buckets when rows were assigned to them."""

    read_guard: ReadGuard | None = None
    """The state of the rows that the changes were computed from."""

    column_guard: ColumnGuard | None = None
    """The columns of existing rows that the changes write."""

    indexed_rows_guard: IndexedRowsGuard | None = None
    """The state of the rows that new global indexes were built from."""

    reassignment: RowIdReassignment | None = None
    """New row ids of existing files; there are no other changes."""

    replacement: StateReplacement | None = None
    """Another state of the table; there are no other changes."""

    expected_latest: int | None = None
    """The newest snapshot that the changes require; a commit after it is a conflict."""

    overwrite: PartitionFilter | None = None
    """Selects partitions to delete all live files of; each attempt evaluates it again."""

    identifier: int = BATCH_COMMIT_IDENTIFIER

    statistics: str | None = None
    """A new statistics file; by default, the old one is kept if it fits the schema."""

    merge_manifests: bool = False
    """Whether to merge all manifests that are not full, and to drop deleted entries from them."""

    @property
    def changelog_rows(self) -> int | None:
        """Return the number of rows of the changelog, or None if there is none."""
        return sum(entry.file.row_count for entry in self.changelog) if self.changelog else None

    @property
    def can_conflict(self) -> bool:
        """Return whether the changes can conflict with other commits."""
        return (
            self.kind in (CommitKind.COMPACT, CommitKind.OVERWRITE)
            or bool(self.index)
            or any(
                entry.kind is FileKind.DELETE or entry.file.first_row_id is not None
                for entry in self.entries
            )
        )

    @property
    def has_results_of_work(self) -> bool:
        """Return whether the changes were computed from files of the table.

        To compute them again is more expensive than more attempts of the commit.
        """
        return (
            self.kind is CommitKind.COMPACT
            or self.read_guard is not None
            or self.column_guard is not None
            or any(entry.kind is FileKind.DELETE for entry in self.entries)
        )
