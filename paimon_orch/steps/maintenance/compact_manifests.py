"""Merging the manifests of a table into few, without deleted entries; rows stay as they are.

See docs/format/procedures.md#compact-manifests.
"""

from dataclasses import dataclass

from paimon_orch.format.options.core_options import MANIFEST_TARGET_FILE_SIZE
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True)
class ManifestCompactionPlan:
    """The manifests of the newest snapshot in figures; it is false when merging them would change nothing."""

    manifests: int = 0
    small: int = 0
    deleted_entries: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        """Tell whether there is anything to merge."""
        return self.small > 1 or self.deleted_entries > 0

    def to_dict(self) -> dict[str, object]:
        """Return the figures."""
        return {
            "manifests": self.manifests,
            "small": self.small,
            "deleted_entries": self.deleted_entries,
            "bytes": self.bytes,
        }


def plan(table: Table) -> ManifestCompactionPlan:
    """Look at the manifests of the newest snapshot, by its lists alone."""
    table.stores.check_step(StepKind.METADATA)
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return ManifestCompactionPlan()
    metas = table.stores.manifests.manifests(snapshot)
    target = table.options.get(MANIFEST_TARGET_FILE_SIZE)
    return ManifestCompactionPlan(
        len(metas),
        sum(meta.file_size < target for meta in metas),
        sum(meta.num_deleted_files for meta in metas),
        sum(meta.file_size for meta in metas),
    )


def compact_manifests(table: Table) -> Snapshot | None:
    """Merge the manifests in one snapshot; None if there is nothing to do."""
    if not plan(table):
        return None
    return table.stores.new_commit(StepKind.METADATA).commit(
        CommitChanges(kind=CommitKind.COMPACT, merge_manifests=True)
    )
