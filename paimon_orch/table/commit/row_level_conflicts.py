"""Detects conflicts of row-level commits: changed rows, and deletion vectors of replaced files.

See docs/format/commit.md#conflicts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_orch.errors import CommitConflictError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    IndexManifestEntry,
    apply_index_changes,
)
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.table.metadata.manifest_io import ManifestReader


@dataclass(frozen=True, slots=True)
class ReadGuard:
    """Requires that no commit after a given snapshot changed rows in the given buckets.

    Compactions are allowed, because they do not change rows.
    """

    snapshot_id: int
    """The id of the snapshot that new rows were computed from, or 0 for an empty table."""

    buckets: frozenset[PartitionBucket] | None = None
    """The buckets that were read; None means all buckets."""

    def check(self, later: Sequence[Snapshot] | None, manifests: ManifestReader) -> None:
        """Raise :class:`CommitConflictError` if a commit since then changed rows that were read.

        ``later`` are the snapshots to check, or None if some of those since then are not known.
        """
        if later is None:
            raise _build_conflict_error(self.snapshot_id)
        for snapshot in later:
            if snapshot.commit_kind is not CommitKind.COMPACT:
                for entry in manifests.read_delta_entries(snapshot):
                    if self.buckets is None or entry.partition_bucket in self.buckets:
                        raise _build_conflict_error(self.snapshot_id)


def _build_conflict_error(snapshot_id: int) -> CommitConflictError:
    return CommitConflictError(
        f"another commit changed rows that this one was computed from, at snapshot {snapshot_id}. "
        "Nothing was changed; run the step again."
    )


def check_deletion_vectors(
    schema: TableSchema,
    base: Sequence[ManifestEntry],
    delta: Sequence[ManifestEntry],
    previous: Sequence[IndexManifestEntry],
    changes: Sequence[IndexManifestEntry],
) -> None:
    """Raise :class:`CommitConflictError` if deletion vectors of an append table conflict.

    If a file with a deletion vector were replaced, its deleted rows would reappear. A file must not
    have two deletion vectors. ``base`` must have all live entries of the partitions that ``delta``
    and ``changes`` change.

    See docs/format/commit.md#conflicts.
    """
    live = {entry.file.file_name for entry in base}
    deleted = set[str]()
    for entry in delta:
        if entry.kind is FileKind.ADD:
            live.add(entry.file.file_name)
        else:
            deleted.add(entry.file.file_name)
    deleted -= {entry.file.file_name for entry in delta if entry.kind is FileKind.ADD}
    vectors = Counter(
        _list_data_files(
            apply_index_changes(previous, changes, bucketed=not schema.is_bucket_unaware)
        )
    )
    new = set(_list_data_files(entry for entry in changes if entry.kind is FileKind.ADD))
    for name in sorted(deleted | new):
        if name in vectors and (name in deleted or name not in live):
            raise CommitConflictError(
                f"rows of file {name} are marked as deleted in one commit, and the file is "
                "replaced in another one. Nothing was changed; plan and run the step again."
            )
        if vectors[name] > 1:
            raise CommitConflictError(
                f"another commit marked rows of file {name} as deleted since this one was planned. "
                "Nothing was changed; plan and run the step again."
            )


def _list_data_files(entries: Iterable[IndexManifestEntry]) -> list[str]:
    vectors = (entry for entry in entries if entry.index_type == DELETION_VECTORS_INDEX)
    return [item.data_file for entry in vectors for item in entry.ranges or ()]
