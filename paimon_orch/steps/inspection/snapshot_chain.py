"""Checks that the newest snapshots continue each other, with few small reads.

A store without exclusive creation lets a writer overwrite the snapshot of another one. The next
snapshot then continues a state that is not stored. See docs/format/invariants.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

import numpy as np
import pyarrow as pa

from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.snapshot_store import SnapshotStore

MAX_SNAPSHOTS = 20
"""The number of snapshots that are compared; ``check`` compares all of them."""
_MAX_MANIFEST_BYTES = 8 << 20
"""The size of merged manifests that are read to compare two snapshots."""


@dataclass(frozen=True, slots=True)
class SnapshotChain:
    """The newest snapshots of a table, oldest first; snapshots before a gap are left out."""

    snapshots: Sequence[Snapshot]

    @classmethod
    def read(cls, store: SnapshotStore, latest: Snapshot) -> "SnapshotChain":
        """Read the snapshots before the newest; damaged ones raise the errors of the store."""
        earliest, ids = store.earliest_id(), set(store.ids())
        first = latest.id if earliest is None else max(earliest, latest.id - MAX_SNAPSHOTS + 1)
        numbers = takewhile(ids.__contains__, range(latest.id - 1, first - 1, -1))
        older = store.find_many(numbers)
        chain = [latest]  # not every catalog writes the file of its newest snapshot
        while (before := older.get(chain[-1].id - 1)) is not None:
            chain.append(before)
        return cls(chain[::-1])

    @property
    def oldest(self) -> Snapshot:
        """Return the oldest of the snapshots."""
        return self.snapshots[0]

    def find_newest_compaction(self) -> Snapshot | None:
        """Return the newest compaction among the snapshots."""
        compactions = (s for s in self.snapshots[::-1] if s.commit_kind is CommitKind.COMPACT)
        return next(compactions, None)

    def find_backward_times(self, tolerance_millis: int) -> Iterator[tuple[Snapshot, Snapshot]]:
        """Yield pairs of snapshots of which the later one has an earlier time."""
        for before, after in pairwise(self.snapshots):
            if after.time_millis < before.time_millis - tolerance_millis:
                yield before, after

    def find_breaks(self, manifests: ManifestReader) -> Iterator[tuple[Snapshot, Snapshot]]:
        """Yield pairs of snapshots of which the later one does not continue the earlier one.

        Raises :class:`CorruptFileError` if the earlier one cannot be read: a repair may have
        removed its missing or unreadable manifests.
        """
        state: list[ManifestFileMeta] | None = None
        for before, after in pairwise(self.snapshots):
            state = manifests.manifests(before) if state is None else state
            base = manifests.manifest_list(after.base_manifest_list, after.base_manifest_list_size)
            rows = before.total_record_count + after.delta_record_count
            if after.total_record_count != rows or not _have_same_files(manifests, state, base):
                kept = {meta.file_name for meta in base}
                for meta in state:
                    if meta.file_name not in kept:
                        manifests.open(meta)  # an error of a manifest explains the difference
                yield before, after
            delta = manifests.read_delta_list(after)
            state = [*base, *delta]


def _have_same_files(
    reader: ManifestReader, before: Sequence[ManifestFileMeta], after: Sequence[ManifestFileMeta]
) -> bool:
    """Return whether two lists of manifests have the same live files.

    Commits merge manifests, which keeps the number of added minus deleted files. Names are compared
    unless the merged manifests are large.
    """
    common = {meta.file_name for meta in before} & {meta.file_name for meta in after}
    old = [meta for meta in before if meta.file_name not in common]
    new = [meta for meta in after if meta.file_name not in common]
    if _count_files(old) != _count_files(new):
        return False
    size = sum(meta.file_size for meta in (*old, *new))
    if not 0 < size <= _MAX_MANIFEST_BYTES:
        return True
    return bool(_count_names(reader, old).equals(_count_names(reader, new)))


def _count_files(metas: Sequence[ManifestFileMeta]) -> int:
    return sum(meta.num_added_files - meta.num_deleted_files for meta in metas)


def _count_names(reader: ManifestReader, metas: Sequence[ManifestFileMeta]) -> pa.Table:
    """Return the names that are added more often than they are deleted, or less often."""
    opened = list(reader.open_all(metas))
    names = pa.chunked_array([pa.array(m.names, pa.string()) for m in opened], pa.string())
    signs = np.concatenate(
        [np.zeros(0, np.int64), *(np.where(m.kinds == FileKind.ADD, 1, -1) for m in opened)]
    )
    counts = pa.table({"name": names, "sign": signs}).group_by("name").aggregate([("sign", "sum")])
    return counts.filter(pa.compute.field("sign_sum") != 0).sort_by("name").combine_chunks()
