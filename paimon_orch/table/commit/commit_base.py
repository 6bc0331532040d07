"""The state of a table that an attempt of a commit is checked against.

After a lost race, it follows the commits of others instead of being read again. See
docs/format/commit.md#attempts-after-a-lost-race.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.storage.concurrency import map_concurrently, start_call
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.scan.partition_pruner import build_partition_manifest_selector

_LOOK_AHEAD = 3
"""The number of next snapshots that are read at the same time."""


@dataclass(frozen=True, slots=True)
class TouchedBuckets:
    """Some buckets of some partitions; all buckets if ``buckets`` is None."""

    partitions: frozenset[bytes]
    buckets: frozenset[int] | None = None

    def select_manifests(
        self, metas: Sequence[ManifestFileMeta], schema: TableSchema
    ) -> list[ManifestFileMeta]:
        """Return the manifests that may name the buckets, by their statistics."""
        select = build_partition_manifest_selector(self.partitions, schema)
        return [meta for meta in select(metas) if self._may_name(meta)]

    def _may_name(self, meta: ManifestFileMeta) -> bool:
        if self.buckets is None or meta.min_bucket is None or meta.max_bucket is None:
            return True
        return any(meta.min_bucket <= bucket <= meta.max_bucket for bucket in self.buckets)

    def select_rows(self, manifest: Manifest, rows: Indices) -> Indices:
        """Return the rows of the buckets."""
        if self.buckets is None:
            return rows
        selected: Indices = rows[np.isin(manifest.buckets[rows], list(self.buckets))]
        return selected

    def has(self, entry: ManifestEntry) -> bool:
        """Return whether the file of an entry is in one of the buckets."""
        is_in_bucket = self.buckets is None or entry.bucket in self.buckets
        return is_in_bucket and entry.partition in self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBase:
    """The newest snapshot and schema at the start of an attempt, and the lists of the snapshot."""

    snapshot: Snapshot | None
    """None for a table without a snapshot."""
    schema: TableSchema
    reader: ManifestReader
    manifests: Sequence[ManifestFileMeta] = ()
    index: Sequence[IndexManifestEntry] = ()
    later: Sequence[Snapshot] | None = None
    """The snapshots after that of the previous attempt; None if it is not known to precede."""
    changes: Sequence[ManifestFileMeta] | None = None
    """The delta manifests of ``later``; None if these are not all changes of the live files."""

    @classmethod
    def read(
        cls, snapshot: Snapshot | None, schema: TableSchema, reader: ManifestReader
    ) -> "CommitBase":
        """Read the lists of a snapshot, at the same time."""
        if snapshot is None:
            return cls(snapshot=None, schema=schema, reader=reader)
        read_index = start_call(reader.io, lambda: reader.read_index_entries(snapshot))
        manifests = reader.manifests(snapshot)
        return cls(
            snapshot=snapshot,
            schema=schema,
            reader=reader,
            manifests=manifests,
            index=read_index(),
        )

    def follow(self, later: Sequence[Snapshot], schema: TableSchema) -> "CommitBase":
        """Return the state after more snapshots; reads only what they have changed.

        An OVERWRITE may also change files that its delta does not name.
        """
        if not later:
            return replace(self, schema=schema, later=(), changes=())
        latest, reader = later[-1], self.reader
        read_index = start_call(reader.io, lambda: self._read_index_of(latest))
        read_base = start_call(
            reader.io,
            lambda: reader.manifest_list(latest.base_manifest_list, latest.base_manifest_list_size),
        )
        deltas = list(map_concurrently(reader.io, reader.read_delta_list, later))
        is_complete = all(each.commit_kind is not CommitKind.OVERWRITE for each in later)
        return CommitBase(
            snapshot=latest,
            schema=schema,
            reader=reader,
            manifests=[*read_base(), *deltas[-1]],
            index=read_index(),
            later=later,
            changes=[meta for delta in deltas for meta in delta] if is_complete else None,
        )

    def _read_index_of(self, latest: Snapshot) -> Sequence[IndexManifestEntry]:
        is_kept = (
            self.snapshot is not None and latest.index_manifest == self.snapshot.index_manifest
        )
        return self.index if is_kept else self.reader.read_index_entries(latest)

    def read_live_entries(self, touched: TouchedBuckets) -> list[ManifestEntry]:
        """Return the live entries of buckets; reads only manifests that may name them."""
        if self.snapshot is None:
            return []
        return self.reader.read_live_entries(
            self.snapshot,
            manifests=touched.select_manifests(self.manifests, self.schema),
            partitions=lambda _: touched.partitions,
            choose=touched.select_rows,
        )

    def read_changes(self, touched: TouchedBuckets) -> list[ManifestEntry] | None:
        """Return the entries of ``changes`` in some buckets, or None if they are not known."""
        if self.changes is None:
            return None
        manifests = touched.select_manifests(self.changes, self.schema)
        return [entry for entry in self.reader.entries(manifests) if touched.has(entry)]

    def read_changed_partitions(self) -> set[bytes] | None:
        """Return the partitions of the entries of ``changes``, or None if they are not known."""
        if self.changes is None:
            return None
        opened = self.reader.open_all(self.changes)
        return {partition for manifest in opened for partition in manifest.encode_partitions()[0]}


def apply_changes(
    live: Sequence[ManifestEntry], changes: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """Return the live entries after some changes, as they would be read from the manifests."""
    deleted = {entry.identity for entry in changes if entry.kind is FileKind.DELETE}
    added = [entry for entry in changes if entry.kind is FileKind.ADD]
    if not deleted:
        return [*live, *added]
    return [entry for entry in (*live, *added) if entry.identity not in deleted]


def find_later_snapshots(snapshots: SnapshotStore, base: Snapshot) -> list[Snapshot] | None:
    """Return the snapshots after ``base``, oldest first.

    Returns None if ``base`` has expired, or if the table was rolled back since it was read: another
    commit may have used its id.
    """
    if snapshots.catalog is None:
        found = _read_ahead(snapshots, base.id)
        newest = max(found, default=0)
    else:
        latest = snapshots.latest()
        if latest is None or latest.id < base.id:
            return None
        found = {**snapshots.find_many(range(base.id, latest.id)), latest.id: latest}
        newest = latest.id
    first = found.get(base.id)
    if first is None or first.base_manifest_list != base.base_manifest_list:
        return None
    if len(found) <= newest - base.id:  # some of them have expired
        return None
    return [found[number] for number in range(base.id + 1, newest + 1)]


def _read_ahead(snapshots: SnapshotStore, first: int) -> dict[int, Snapshot]:
    """Read the files of a snapshot and all that follow it without a gap, several at a time."""
    found: dict[int, Snapshot] = {}
    while len(found) % (_LOOK_AHEAD + 1) == 0:
        start = first + len(found)
        read = snapshots.find_many(range(start, start + _LOOK_AHEAD + 1))
        if not read:
            break
        found |= read
    return found
