"""Finds the files to delete when snapshots expire: those that only expired snapshots reference.

See docs/format/snapshot-expiration.md#deleting-files.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.live_entries import filter_live_entries
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.cleanup.references import (
    ReferenceReader,
    RetainedSnapshot,
    RetainedSnapshotKind,
    list_metadata_names,
)


@dataclass(frozen=True, slots=True)
class UnreferencedFiles:
    """Paths of files that only expired versions reference.

    Delete them in the order ``data``, ``metadata``, ``lists``: then an interrupted deletion can be
    repeated.
    """

    data: tuple[str, ...] = ()
    """Data files, their side files, and changelog files."""

    metadata: tuple[str, ...] = ()
    """Manifests, index files and statistics."""

    lists: tuple[str, ...] = ()
    """Manifest lists and index manifests."""

    sizes: tuple[int, ...] = ()
    """The sizes of ``data`` in bytes according to manifests; 0 for side files."""

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.data) + len(self.metadata) + len(self.lists)

    @property
    def bytes(self) -> int:
        """Return the total size of the data files in bytes."""
        return sum(self.sizes)

    def filter(self, keep: Callable[[str], bool]) -> "UnreferencedFiles":
        """Return only the paths that ``keep`` accepts."""
        sized = dict(zip(self.data, self.sizes, strict=True))
        data, metadata, lists = (
            tuple(path for path in paths if keep(path))
            for paths in (self.data, self.metadata, self.lists)
        )
        return UnreferencedFiles(data, metadata, lists, tuple(sized[path] for path in data))


@dataclass(slots=True, kw_only=True)
class SnapshotDeletionPlanner:
    """Finds the files that only expired versions reference; opens each manifest at most once."""

    reader: ReferenceReader
    paths: TablePaths
    schema: TableSchema
    retained: Sequence[RetainedSnapshot]
    """All other versions of the table; an unreadable metadata file of them is an error."""

    _entries: dict[str, ManifestEntry] = field(default_factory=dict)  # by path
    _opened: dict[str, Manifest] = field(default_factory=dict)
    _shared_manifests: set[str] = field(default_factory=set)
    _directories: dict[PartitionBucket, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for version in self.retained:
            metas = [*self.reader.state(version), *self.reader.changelog(version)]
            self._shared_manifests.update(meta.file_name for meta in metas)

    def add_deleted_files(self, version: RetainedSnapshot) -> None:
        """Add the files that a version's delta deleted to the candidates."""
        self._add(self._read(self.reader.delta(version)), FileKind.DELETE)

    def add_changelog_files(self, version: RetainedSnapshot) -> None:
        """Add the changelog files of a version to the candidates."""
        self._add(self._read(self.reader.changelog(version)), FileKind.ADD)

    def add_live_files(self, version: RetainedSnapshot) -> None:
        """Add the live files of a version to the candidates."""
        manifests = list(self._read(self.reader.state(version)))
        entries = [entry for manifest in manifests for entry in manifest.entries()]
        self._record_entries(filter_live_entries(entries))

    def collect(self, expiring: Iterable[RetainedSnapshot]) -> UnreferencedFiles:
        """Return the unreferenced candidates and metadata files of expiring versions."""
        referenced = self._find_referenced_names()
        data: list[str] = []
        sizes: list[int] = []
        for path, entry in self._entries.items():
            name = path.rpartition("/")[2]
            if name not in referenced:
                data.append(path)
                sizes.append(entry.file.file_size if name == entry.file.file_name else 0)
        expiring = list(expiring)
        referenced = {
            name for version in self.retained for name in list_metadata_names(self.reader, version)
        }
        metadata = self._exclude_referenced(expiring, self._list_metadata_paths, referenced)
        lists = self._exclude_referenced(expiring, self._list_manifest_list_paths, referenced)
        return UnreferencedFiles(tuple(data), metadata, lists, tuple(sizes))

    def _read(self, metas: Iterable[ManifestFileMeta]) -> Iterator[Manifest]:
        for meta in metas:
            name = meta.file_name
            manifest = self._opened.get(name)
            if manifest is None:
                # An interrupted run may have deleted a manifest that no retained version needs.
                manifest = self.reader.open(meta, optional=name not in self._shared_manifests)
            if manifest is None:
                continue
            if name in self._shared_manifests:
                self._opened[name] = manifest
            yield manifest

    def _add(self, manifests: Iterable[Manifest], kind: FileKind) -> None:
        for manifest in manifests:
            self._record_entries(manifest.entries(np.flatnonzero(manifest.kinds == kind)))

    def _record_entries(self, entries: Iterable[ManifestEntry]) -> None:
        for entry in entries:
            path = self._get_path(entry)
            directory = path.rpartition("/")[0]
            self._entries[path] = entry
            for extra in entry.file.extra_files:
                self._entries[f"{directory}/{extra}"] = entry

    def _get_path(self, entry: ManifestEntry) -> str:
        if entry.file.external_path is not None:
            return self.paths.data_file(self.schema, entry.partition, entry.bucket, entry.file)
        bucket = entry.partition_bucket
        if bucket not in self._directories:
            self._directories[bucket] = self.paths.bucket_dir(self.schema, *bucket)
        return f"{self._directories[bucket]}/{entry.file.file_name}"

    def _find_referenced_names(self) -> set[str]:
        """Return the names of the candidates that retained versions reference."""
        candidates = {entry.file.file_name for entry in self._entries.values()}
        cache: dict[str, list[ManifestEntry]] = {}
        referenced: set[str] = set()
        for version in self.retained if candidates else ():
            state = self._read_candidate_entries(self.reader.state(version), candidates, cache)
            changelog = self._read_candidate_entries(
                self.reader.changelog(version), candidates, cache
            )
            if version.kind is RetainedSnapshotKind.CHANGELOG:
                needed = [entry for entry in (*state, *changelog) if entry.kind is FileKind.ADD]
            else:
                needed = [*filter_live_entries(state), *filter_live_entries(changelog)]
            for entry in needed:
                referenced.add(entry.file.file_name)
                referenced.update(entry.file.extra_files)
        return referenced

    def _read_candidate_entries(
        self,
        metas: Iterable[ManifestFileMeta],
        candidates: Collection[str],
        cache: dict[str, list[ManifestEntry]],
    ) -> list[ManifestEntry]:
        for meta in metas:
            if meta.file_name not in cache:
                cache[meta.file_name] = [
                    entry
                    for manifest in self._read([meta])
                    for entry in _select_entries_by_name(manifest, candidates)
                ]
                self._opened.pop(meta.file_name, None)
        return [entry for meta in metas for entry in cache[meta.file_name]]

    def _exclude_referenced(
        self,
        expiring: Iterable[RetainedSnapshot],
        paths_of: Callable[[RetainedSnapshot], Iterator[str]],
        referenced: Collection[str],
    ) -> tuple[str, ...]:
        paths = dict.fromkeys(path for version in expiring for path in paths_of(version))
        return tuple(path for path in paths if path.rpartition("/")[2] not in referenced)

    def _list_metadata_paths(self, version: RetainedSnapshot) -> Iterator[str]:
        for meta in (*self.reader.state(version), *self.reader.changelog(version)):
            yield f"{self.paths.manifest_dir}/{meta.file_name}"
        for item in self.reader.index(version):
            yield self.paths.index_file(self.schema, item)
        if version.statistics is not None:
            yield f"{self.paths.root}/statistics/{version.statistics}"

    def _list_manifest_list_paths(self, version: RetainedSnapshot) -> Iterator[str]:
        if version.index_manifest is not None:
            yield f"{self.paths.manifest_dir}/{version.index_manifest}"
        for name, _ in (*version.changelog_list, *version.state_lists):
            yield f"{self.paths.manifest_dir}/{name}"


def _select_entries_by_name(manifest: Manifest, names: Collection[str]) -> list[ManifestEntry]:
    rows = [row for row, name in enumerate(manifest.names) if name in names]
    return manifest.entries(np.array(rows, np.int64)) if rows else []
