"""Keeps the branches of a chain table consistent when partitions are dropped or overwritten.

See docs/format/chain-tables.md#commits.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_orch.errors import InputError, PaimonError, StorageError
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.table.chain.chain_branches import ChainBranches
from paimon_orch.table.chain.chain_splits import ChainPartitions
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.filter.partition_spec import format_partition

if TYPE_CHECKING:
    from paimon_orch.table.table_stores import TableStores

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChainCommitRules:
    """The rules for commits to the snapshot branch or the delta branch of a chain table."""

    stores: "TableStores"
    """The stores of the branch that is written."""
    branches: ChainBranches

    @property
    def _is_delta(self) -> bool:
        return self.branches.is_delta(self.stores.paths.branch)

    def check(self, kind: CommitKind, entries: Sequence[ManifestEntry]) -> None:
        """Check that no delta partition loses the partition that it is merged with.

        Raises :class:`InputError` with the partitions.
        """
        if kind is not CommitKind.OVERWRITE or not entries:
            return
        added = {entry.partition for entry in entries if entry.kind is FileKind.ADD}
        changed = {entry.partition for entry in entries}
        if self._is_delta:
            removed = self._find_live(self.branches.delta) & (changed - added)
            deltas = (self._find_live(self.branches.delta) | added) - removed
            self._check_drop(self._find_live(self.branches.snapshot), changed, deltas)
        elif not added:
            anchors = self._find_live(self.branches.snapshot)
            self._check_drop(anchors, changed, self._find_live(self.branches.delta))

    def follow(self, snapshot: Snapshot, entries: Sequence[ManifestEntry]) -> None:
        """Drop partitions of the snapshot branch whose delta partition a commit has replaced.

        Otherwise readers would return the rows of the snapshot branch, which are older. Raises
        :class:`StorageError` if that fails; the commit exists.
        """
        if snapshot.commit_kind is not CommitKind.OVERWRITE or not self._is_delta:
            return
        replaced = {entry.partition for entry in entries}
        stale = replaced & self._find_live(self.branches.snapshot)
        if not stale:
            return
        branch = self.stores.of_branch(self.branches.snapshot)
        names = _format(stale, branch.get_schema())
        changes = CommitChanges(kind=CommitKind.OVERWRITE, overwrite=stale.__contains__)
        try:
            branch.new_commit(StepKind.WRITE_ROWS).commit(changes)
        except (PaimonError, OSError) as error:
            raise StorageError(
                f"snapshot {snapshot.id} of {self.stores.identifier} is committed, but readers "
                f"still see the old rows of the partitions {names} in {branch.identifier} "
                f"({error}); drop these partitions there"
            ) from error
        logger.info("dropped the partitions %s of %s", names, branch.identifier)

    def _find_live(self, branch: str) -> set[bytes]:
        """Return the partitions of a branch with live files."""
        snapshot = self.stores.get_branch_snapshots(branch).latest()
        if snapshot is None:
            return set()
        return {entry.partition for entry in self.stores.manifests.read_live_entries(snapshot)}

    def _check_drop(
        self, anchors: Collection[bytes], dropped: Collection[bytes], deltas: Collection[bytes]
    ) -> None:
        """Check that each delta partition with a dropped anchor has an earlier anchor left."""
        schema = self.stores.get_schema()
        before = ChainPartitions.of(schema, anchors, deltas)
        after = ChainPartitions.of(schema, set(anchors) - set(dropped), deltas)
        lost = set[bytes]()
        dependent = set[bytes]()
        for delta in (delta for group in before.deltas.values() for delta in group):
            anchor = before.find_anchor(delta)
            is_complete = delta.serialized in anchors and delta.serialized not in dropped
            if anchor is not None and not is_complete and after.find_anchor(delta) is None:
                lost.add(anchor.serialized)
                dependent.add(delta.serialized)
        if lost:
            raise InputError(
                f"cannot drop the partitions {_format(lost, schema)} of branch "
                f"{self.branches.snapshot!r}: the delta partitions {_format(dependent, schema)} "
                "contain only the changes since then, and there is no earlier partition in this "
                "branch. Drop these delta partitions first, or compact the chain table. Nothing "
                "was changed"
            )


def _format(partitions: Collection[bytes], schema: TableSchema) -> str:
    names = sorted(format_partition(partition, schema) for partition in partitions)
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
