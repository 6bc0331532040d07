"""What one snapshot changes, as a step hands it over to be committed.

See docs/format/commit.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind
from paimon_orch.table.commit.conflict_detection import BucketGuard, HashIndexGuard
from paimon_orch.table.commit.row_level_conflicts import ReadGuard

PartitionFilter = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges:
    """What one snapshot changes.

    ``overwrite`` selects the partitions whose live files are all removed first; it is asked again on every attempt.
    ``guards`` are the states of buckets that the changes were computed from, ``hash_guards`` those of dynamic buckets;
    ``read_guard`` is what rows were computed from.
    ``statistics`` names a new statistics file; without one the old is kept as long as it fits the schema.
    ``merge_manifests`` merges all manifests that are not full, and takes deleted entries out of them.
    """

    kind: CommitKind
    entries: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    guards: tuple[BucketGuard, ...] = ()
    hash_index_guards: tuple[HashIndexGuard, ...] = ()
    read_guard: ReadGuard | None = None
    overwrite: PartitionFilter | None = None
    identifier: int = BATCH_COMMIT_IDENTIFIER
    statistics: str | None = None
    merge_manifests: bool = False

    @property
    def can_conflict(self) -> bool:
        """Tell whether the changes can collide with others at all."""
        return (
            self.kind in (CommitKind.COMPACT, CommitKind.OVERWRITE)
            or bool(self.index)
            or any(entry.kind is FileKind.DELETE for entry in self.entries)
        )
