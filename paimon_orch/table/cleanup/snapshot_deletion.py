"""Finds the files to delete when snapshots expire: those that only expired snapshots reference.

See docs/format/snapshot-expiration.md#deleting-files.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.live_entries import (
    DeletedFiles,
    filter_live_entries,
    iterate_live_rows,
)
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.cleanup.references import ReferenceReader, list_metadata_names
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshot, RetainedSnapshotKind


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

    @property
    def paths(self) -> list[str]:
        """Return all files in the order of their deletion."""
        return [*self.data, *self.metadata, *self.lists]

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
    """Finds the files that only expired versions reference.

    Candidates are compared with the files of retained versions by name, one manifest at a time;
    entries are built for candidates only. Opens each manifest at most once, except those with
    candidates from :meth:`add_live_files`.
    """

    reader: ReferenceReader
    paths: TablePaths
    schema: TableSchema
    retained: Sequence[RetainedSnapshot]
    """All other versions of the table; an unreadable metadata file of them is an error."""

    _names: set[str] = field(default_factory=set)  # of the data files that may be deleted
    _entries: dict[str, ManifestEntry] = field(default_factory=dict)  # by path
    _live_files: list[tuple[Sequence[ManifestFileMeta], DeletedFiles]] = field(default_factory=list)
    _opened: dict[str, Manifest] = field(default_factory=dict)
    _shared_manifests: set[str] = field(default_factory=set)
    _directories: dict[PartitionBucket, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for version in self.retained:
            metas = [*self.reader.state(version), *self.reader.changelog(version)]
            self._shared_manifests.update(meta.file_name for meta in metas)

    def add_deleted_files(self, version: RetainedSnapshot) -> None:
        """Add the files that a version's delta deleted to the candidates."""
        metas = [meta for meta in self.reader.delta(version) if meta.num_deleted_files]
        self._add(metas, FileKind.DELETE)

    def add_changelog_files(self, version: RetainedSnapshot) -> None:
        """Add the changelog files of a version to the candidates."""
        metas = [meta for meta in self.reader.changelog(version) if meta.num_added_files]
        self._add(metas, FileKind.ADD)

    def add_live_files(self, version: RetainedSnapshot) -> None:
        """Add the live files of a version to the candidates."""
        metas = self.reader.state(version)
        deleted = DeletedFiles.of(self._read([meta for meta in metas if meta.num_deleted_files]))
        for manifest, rows in iterate_live_rows(self._read(metas), deleted):
            self._names.update(_select(manifest.names, rows))
        self._live_files.append((metas, deleted))

    def collect(self, expiring: Iterable[RetainedSnapshot]) -> UnreferencedFiles:
        """Return the unreferenced candidates and metadata files of expiring versions."""
        references = self._find_references()
        self._record_live_files(references)
        data: list[str] = []
        sizes: list[int] = []
        for path, entry in self._entries.items():
            name = path.rpartition("/")[2]
            if not references.contains(name):
                data.append(path)
                sizes.append(entry.file.file_size if name == entry.file.file_name else 0)
        expiring = list(expiring)
        referenced = {
            name for version in self.retained for name in list_metadata_names(self.reader, version)
        }
        metadata = self._exclude_referenced(expiring, self._list_metadata_paths, referenced)
        lists = self._exclude_referenced(expiring, self._list_manifest_list_paths, referenced)
        return UnreferencedFiles(tuple(data), metadata, lists, tuple(sizes))

    def _read(self, metas: Iterable[ManifestFileMeta], *, keep: bool = False) -> Iterator[Manifest]:
        """Open manifests; ``keep`` keeps those that retained versions share until the next call."""
        metas = list(metas)
        manifests = map_concurrently(self.reader.io, self._open, metas)
        for meta, manifest in zip(metas, manifests, strict=True):
            if manifest is None:
                continue
            if keep and meta.file_name in self._shared_manifests:
                self._opened[meta.file_name] = manifest
            yield manifest

    def _open(self, meta: ManifestFileMeta) -> Manifest | None:
        manifest = self._opened.pop(meta.file_name, None)
        if manifest is None:
            # An interrupted run may have deleted a manifest that no retained version needs.
            is_optional = meta.file_name not in self._shared_manifests
            manifest = self.reader.open(meta, optional=is_optional)
        return manifest

    def _add(self, metas: Iterable[ManifestFileMeta], kind: FileKind) -> None:
        for manifest in self._read(metas, keep=True):
            entries = manifest.entries(np.flatnonzero(manifest.kinds == kind))
            self._names.update(entry.file.file_name for entry in entries)
            self._record_entries(entries)

    def _record_live_files(self, references: "_CandidateReferences") -> None:
        """Record the live files that may be unreferenced, or that have extra files."""
        for metas, deleted in self._live_files:
            for manifest, rows in iterate_live_rows(self._read(metas), deleted):
                if manifest.extra_file_names():
                    recorded = rows
                else:
                    names = _select(manifest.names, rows)
                    recorded = rows[_to_mask(map(references.unreferenced.__contains__, names))]
                self._record_entries(manifest.entries(recorded))

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

    def _find_references(self) -> "_CandidateReferences":
        """Find the candidates that retained versions reference: files added and not deleted."""
        references = _CandidateReferences(self._names, set(self._names))
        if not self._names:
            return references
        metas = {
            meta.file_name: meta
            for version in self.retained
            for meta in (*self.reader.state(version), *self.reader.changelog(version))
        }
        # Entries are compared only for candidates that a manifest of a retained version deletes.
        with_deletes = [meta for meta in metas.values() if meta.num_deleted_files]
        entries = {
            meta.file_name: manifest.entries(_find_rows(manifest, self._names))
            for meta, manifest in self._read_retained(with_deletes)
        }
        deleted = {
            entry.file.file_name
            for group in entries.values()
            for entry in group
            if entry.kind is FileKind.DELETE
        }
        others = [meta for name, meta in metas.items() if name not in entries]
        for meta, manifest in self._read_retained(others):
            references.add_names(manifest, exclude=deleted)
            entries[meta.file_name] = (
                manifest.entries(_find_rows(manifest, deleted)) if deleted else []
            )
        references.add(
            entry
            for group in entries.values()
            for entry in group
            if entry.kind is FileKind.ADD and entry.file.file_name not in deleted
        )
        for version in self.retained if deleted else ():
            state, changelog = (
                [entry for meta in metas for entry in entries[meta.file_name]]
                for metas in (self.reader.state(version), self.reader.changelog(version))
            )
            if version.kind is RetainedSnapshotKind.CHANGELOG:
                references.add(e for e in (*state, *changelog) if e.kind is FileKind.ADD)
            else:
                references.add(filter_live_entries(state))
                references.add(filter_live_entries(changelog))
        return references

    def _read_retained(
        self, metas: Sequence[ManifestFileMeta]
    ) -> Iterator[tuple[ManifestFileMeta, Manifest]]:
        """Open manifests of retained versions, none of which may be missing."""
        return zip(metas, self._read(metas), strict=True)

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


@dataclass(frozen=True, slots=True)
class _CandidateReferences:
    """The candidates that retained versions reference."""

    candidates: Collection[str]
    """The names of data files that may be deleted."""
    unreferenced: set[str]
    extra_files: set[str] = field(default_factory=set)
    """The names of extra files of referenced candidates."""

    def contains(self, name: str) -> bool:
        """Return whether a retained version references the file of a candidate."""
        is_referenced = name in self.candidates and name not in self.unreferenced
        return is_referenced or name in self.extra_files

    def add(self, entries: Iterable[ManifestEntry]) -> None:
        """Add the data files and extra files of entries of candidates."""
        for entry in entries:
            self.unreferenced.discard(entry.file.file_name)
            self.extra_files.update(entry.file.extra_files)

    def add_names(self, manifest: Manifest, exclude: Collection[str]) -> None:
        """Add the files that a manifest without DELETE entries adds."""
        if manifest.extra_file_names():
            entries = manifest.entries(_find_rows(manifest, self.candidates))
            self.add(entry for entry in entries if entry.file.file_name not in exclude)
        elif exclude:
            self.unreferenced.difference_update(set(manifest.names).difference(exclude))
        else:
            self.unreferenced.difference_update(manifest.names)


def _find_rows(manifest: Manifest, names: Collection[str]) -> Indices:
    return np.flatnonzero(_to_mask(map(names.__contains__, manifest.names)))


def _select(names: Sequence[str], rows: Indices) -> Sequence[str]:
    return names if len(rows) == len(names) else [names[row] for row in rows.tolist()]


def _to_mask(flags: Iterable[bool]) -> Mask:
    return np.fromiter(flags, bool)
