"""Finds out whether a snapshot took an id that was free only because its snapshot has expired.

A writer can be slow between its read of the newest snapshot and its creation of the next one.
Others may commit that id, and more, and expire it meanwhile. The file can then be created, but it
has no place among the snapshots of the table. See docs/format/commit.md#late-creation.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from paimon_orch.errors import CommitOutcomeUnknownError, CorruptFileError, MissingFileError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileInfo
from paimon_orch.table.cleanup.retained_snapshots import (
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.metadata_io import list_metadata_directory
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import (
    EARLIEST,
    SNAPSHOT_PREFIX,
    SnapshotStore,
    number_files,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedSnapshot:
    """A snapshot whose file was just created, in the table where it was created."""

    snapshot: Snapshot
    changes: CommitChanges
    entries: Sequence[ManifestEntry]
    """The entries of its delta."""
    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestReader

    def is_late(self) -> bool:
        """Return whether another snapshot had this id before, and has expired.

        Lists the snapshots, and reads more only if there are later ones. Raises
        :class:`CommitOutcomeUnknownError` if this cannot be decided.
        """
        listing = list_metadata_directory(self.snapshots.io, self.snapshots.paths.snapshot_dir)
        try:
            files = number_files(listing, SNAPSHOT_PREFIX)
        except CorruptFileError:  # a file that Java cannot read, either, and of another id
            return False
        later = [number for number in files if number > self.snapshot.id]
        if not later:  # the newest snapshot never expires, so none with this id has expired
            return False
        previous = self.snapshot.id - 1
        if previous in files and (self.snapshots.hint(EARLIEST) or 0) <= self.snapshot.id:
            return False  # the previous one would have expired first, or the hint be greater
        following = self.snapshots.find(min(later))
        is_late = None if following is None else self._is_late_before(following, files)
        if is_late is None:
            raise CommitOutcomeUnknownError(
                f"{self.snapshots.path(self.snapshot.id)}: it is not known whether the commit "
                f"happened: the snapshot was created, but those before {min(later)} have expired "
                "meanwhile. No file was deleted. Before a retry, look for the changes in snapshot "
                f"{max(later)}."
            )
        return is_late

    def _is_late_before(self, following: Snapshot, files: Mapping[int, FileInfo]) -> bool | None:
        """Decide by the oldest later snapshot; return None if that is not possible."""
        base = self.manifests.manifest_list(
            following.base_manifest_list, following.base_manifest_list_size
        )
        new = self._find_new_files()
        if self._is_in_state(following, base, {entry.file.file_name for entry in new}):
            return False
        is_next = following.id == self.snapshot.id + 1
        if is_next and (new or self._contradicts(following, base)):
            return True
        created = files.get(self.snapshot.id)
        if created is not None and created.modified > files[following.id].modified:
            return True
        if not new:
            return following.time_millis < self.snapshot.time_millis or None
        names = self._find_existing(new)
        if not names or self._is_retained(names):
            return False
        return None if created is None else True

    def _find_new_files(self) -> list[ManifestEntry]:
        """Return the entries of files that no snapshot before this one can have."""
        if self.changes.replacement is not None:  # it adds files of older snapshots
            return []
        deleted = {e.file.file_name for e in self.entries if e.kind is FileKind.DELETE}
        added = (entry for entry in self.entries if entry.kind is FileKind.ADD)
        return [entry for entry in added if entry.file.file_name not in deleted]

    def _is_in_state(
        self, following: Snapshot, base: Sequence[ManifestFileMeta], new: Collection[str]
    ) -> bool:
        """Return whether a later snapshot has anything that this one was the first to have."""
        statistics = self.changes.statistics
        if statistics is not None and following.statistics == statistics:
            return True
        with suppress(MissingFileError):  # an expiration has deleted it
            delta = {meta.file_name for meta in self.manifests.read_delta_list(self.snapshot)}
            if any(meta.file_name in delta for meta in base):
                return True
        indexes = _name_added(self.changes.index)
        if indexes and indexes & _name_added(self.manifests.read_index_entries(following)):
            return True
        return bool(new) and self._has_any(base, new)

    def _has_any(self, manifests: Sequence[ManifestFileMeta], names: Collection[str]) -> bool:
        opened = self.manifests.open_all(manifests)
        return any(name in names for manifest in opened for name in manifest.names)

    def _contradicts(self, following: Snapshot, base: Sequence[ManifestFileMeta]) -> bool:
        """Return whether the live files before the next snapshot are not those after this one."""
        partitions = {entry.partition for entry in self.entries}
        live = self.manifests.read_live_entries(
            following, manifests=base, partitions=lambda _: partitions
        )
        identities = {entry.identity for entry in live}
        added = {entry.identity for entry in self.entries if entry.kind is FileKind.ADD}
        deleted = {entry.identity for entry in self.entries} - added
        return not added <= identities or not deleted.isdisjoint(identities)

    def _find_existing(self, new: Sequence[ManifestEntry]) -> set[str]:
        """Return the names of the new files that exist.

        If a snapshot in between had removed them, they would have been deleted before it, unless
        another version of the table has them.
        """
        schema, io, paths = self.schemas.latest(), self.snapshots.io, self.snapshots.paths
        return {
            entry.file.file_name
            for entry in new
            if io.file_exists(paths.data_file(schema, entry.partition, entry.bucket, entry.file))
        }

    def _is_retained(self, names: Collection[str]) -> bool:
        """Return whether a tag, branch or changelog has this snapshot or one of its new files."""
        own = self.snapshots.path(self.snapshot.id)
        store = RetainedSnapshotStore(self.snapshots.io, self.snapshots.paths.root)
        versions = store.all().by_path.items()
        return any(self._retains(version, names) for path, version in versions if path != own)

    def _retains(self, version: RetainedSnapshot, names: Collection[str]) -> bool:
        """Return whether a version is this snapshot, or has one of its files."""
        snapshot = version.snapshot
        if snapshot.delta_manifest_list == self.snapshot.delta_manifest_list:
            return True
        is_changelog = version.kind is RetainedSnapshotKind.CHANGELOG
        return not is_changelog and self._has_any(self.manifests.manifests(snapshot), names)


def _name_added(index: Sequence[IndexManifestEntry]) -> set[str]:
    return {item.file_name for item in index if item.kind is FileKind.ADD}
