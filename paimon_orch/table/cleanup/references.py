"""Finds the files that the snapshots, tags and changelogs of all branches reference.

Every deletion checks these references first. A metadata file that cannot be read is an error; only
files that are optional in the format may be missing. These reads by-pass the cache of the process.

See docs/format/snapshot-expiration.md and docs/format/tags-branches-consumers.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from paimon_orch.errors import MissingFileError, PaimonError
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.retry_policy import REFERENCE_READ
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.storage.concurrency import map_concurrently, read_ahead, start_call
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshot, RetainedSnapshotStore
from paimon_orch.table.metadata.manifest_io import ManifestReader

_NONE: Final = MappingProxyType[Any, Any]({})


@dataclass(slots=True)
class ReferenceReader:
    """Reads and caches the manifest lists of versions; reads manifests without a cache."""

    manifests: ManifestReader
    _lists: dict[str, tuple[ManifestFileMeta, ...]] = field(default_factory=dict)
    _indexes: dict[str, tuple[IndexManifestEntry, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, io: FileIO, root: str) -> "ReferenceReader":
        """Return a reader for one table; all branches share the manifest directory."""
        return cls(ManifestReader(io, TablePaths(root)))

    @property
    def io(self) -> FileIO:
        """Return the file system of the table."""
        return self.manifests.io

    def read_ahead(self, versions: Iterable[RetainedSnapshot]) -> None:
        """Read the manifest lists and index manifests of versions that will be needed."""
        versions = list(versions)
        lists = {name: size for v in versions for name, size in (*v.state_lists, *v.changelog_list)}
        indexes = dict.fromkeys(v.index_manifest for v in versions)
        reads: list[Callable[[], object]] = [
            *(partial(self._read_list, *each) for each in lists.items()),
            *(partial(self._read_index, name) for name in indexes if name is not None),
        ]
        read_ahead(self.io, reads)

    def _read_list(self, name: str, size: int | None) -> tuple[ManifestFileMeta, ...]:
        if name not in self._lists:
            self._lists[name] = tuple(self.manifests.manifest_list(name, size))
        return self._lists[name]

    def _read_index(self, name: str) -> tuple[IndexManifestEntry, ...]:
        if name not in self._indexes:
            self._indexes[name] = tuple(self.manifests.index_manifest(name))
        return self._indexes[name]

    def state(self, version: RetainedSnapshot) -> list[ManifestFileMeta]:
        """Return the manifests of a version's data files, in the order of their lists."""
        return self._read_metas(version.state_lists, optional=version.may_lack_state)

    def delta(self, version: RetainedSnapshot) -> list[ManifestFileMeta]:
        """Return the manifests of a version's changes."""
        return self._read_metas(version.state_lists[1:], optional=version.may_lack_state)

    def changelog(self, version: RetainedSnapshot) -> list[ManifestFileMeta]:
        """Return the manifests of a version's changelog."""
        return self._read_metas(version.changelog_list, optional=not version.keeps_changelog)

    def index(self, version: RetainedSnapshot) -> tuple[IndexManifestEntry, ...]:
        """Return the index files of a version."""
        name = version.index_manifest
        if name is None:
            return ()
        try:
            return self._read_index(name)
        except MissingFileError:
            if version.is_complete:
                raise
            return ()

    def _read_metas(
        self, lists: Iterable[tuple[str, int | None]], *, optional: bool
    ) -> list[ManifestFileMeta]:
        metas: list[ManifestFileMeta] = []
        for name, size in lists:
            try:
                metas += self._read_list(name, size)
            except MissingFileError:
                if not optional:
                    raise
        return metas

    def read_lists(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Return the manifests of a snapshot's data files."""
        base = (snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta = (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        read_base = start_call(self.io, partial(self._read_list, *base))
        changes = self._read_list(*delta)
        return [*read_base(), *changes]

    def open(self, meta: ManifestFileMeta, *, optional: bool = False) -> Manifest | None:
        """Read a manifest; return None if it is missing and ``optional`` is true."""
        try:
            return self.manifests.open(meta)
        except MissingFileError:
            if optional:
                return None
            raise

    def try_read_names(self, meta: ManifestFileMeta) -> set[str] | None:
        """Return the names of a manifest's files, or None if it cannot be read."""
        try:
            manifest = self.manifests.open(meta)
            return {*manifest.names, *manifest.extra_file_names()}
        except PaimonError:
            return None


def list_metadata_names(reader: ReferenceReader, version: RetainedSnapshot) -> set[str]:
    """Return the names of a version's metadata and index files; names are unique in a table."""
    names = {name for name, _ in (*version.state_lists, *version.changelog_list)}
    metas = [*reader.state(version), *reader.changelog(version)]
    names |= {meta.file_name for meta in metas}
    names |= {entry.file_name for entry in reader.index(version)}
    optional = (version.index_manifest, version.statistics)
    return names | {name for name in optional if name is not None}


@dataclass(slots=True, kw_only=True)
class ReferencedFiles:
    """Collects the names of all files that the versions of a table reference.

    The set only grows: :meth:`update` adds the files of new versions and keeps the files of expired
    versions. Other processes, such as Spark tasks, may read the manifests that
    :meth:`list_unread_manifests` returns: after :meth:`mark_as_read`, this class does not open
    them, and ``names`` lacks their files.
    """

    store: RetainedSnapshotStore
    names: set[str] = field(default_factory=set)
    versions: dict[str, RetainedSnapshot] = field(default_factory=dict)
    branches: tuple[TablePaths, ...] = ()
    """The branches of the last listing."""
    _opened: set[str] = field(default_factory=set)
    _listed: Mapping[str, RetainedSnapshot] = field(default_factory=dict)
    _pending: list[RetainedSnapshot] | None = None
    _reader: ReferenceReader | None = field(default=None, repr=False)

    def add_read_versions(self, versions: Iterable[RetainedSnapshot]) -> None:
        """Add versions that were read after they were listed; they are not read again as such."""
        self._listed = {**self._listed, **{version.path: version for version in versions}}

    def read_until_referenced(
        self, names: Iterable[str], listings: Mapping[str, Sequence[FileInfo]]
    ) -> bool:
        """Read versions until they reference all files of some names; return whether they do.

        ``listings`` are directories of versions that were listed together with the files. They can
        show that all files are referenced; if they do not, all versions are listed again by the
        other methods, because a version that is newer may reference the rest. Reads the newest
        version first, and then twice as many older ones each time. The other methods read the rest.
        Also returns False if a version expires during the read.
        """
        pending = self._pending = self._list_pending_versions(listings)
        is_complete = self._read_newest_first(pending, names)
        if listings and not is_complete:
            self._pending = None
        return is_complete

    def _read_newest_first(
        self, versions: Sequence[RetainedSnapshot], names: Iterable[str]
    ) -> bool:
        for version in versions:  # its own file names these
            self.names.update(name for name, _ in (*version.state_lists, *version.changelog_list))
        pending = sorted(versions, key=lambda version: version.snapshot.id, reverse=True)
        missing, count = set(names) - self.names, 1
        while missing and pending:
            batch, pending, count = pending[:count], pending[count:], 2 * count
            try:
                self._read(batch)
            except MissingFileError:
                return False
            missing -= self.names
        self._pending = pending
        return not missing

    def list_unread_manifests(self) -> list[ManifestFileMeta]:
        """Return the distinct manifests of the current versions that were not read yet."""
        reader, metas = self._lists(), dict[str, ManifestFileMeta]()
        if self._pending is None:
            self._pending = self._list_pending_versions()
        reader.read_ahead(self._pending)
        for version in self._pending:
            with suppress(MissingFileError):  # update raises this error
                for meta in (*reader.state(version), *reader.changelog(version)):
                    metas.setdefault(meta.file_name, meta)
        return [meta for name, meta in metas.items() if name not in self._opened]

    def mark_as_read(self, manifests: Iterable[str]) -> None:
        """Exclude manifests from :meth:`update`, because another process compares their names."""
        self._opened.update(manifests)

    def update(self, *, is_listed: bool = False) -> bool:
        """Read all versions that were not read yet; return whether there were any.

        With ``is_listed``, reads those of :meth:`list_unread_manifests`, without a new listing.
        If a version expires during the read, the versions are listed and read again. If a file of
        an existing version is missing, an expiration may be running: the read is repeated for one
        second before :class:`MissingFileError` is raised.
        """
        has_new_versions = False
        if not is_listed:
            self._pending = None

        def read_pending() -> None:
            nonlocal has_new_versions
            pending, self._pending = self._pending, None
            if pending is None:
                pending = self._list_pending_versions()
            has_new_versions |= bool(pending)
            self._read(pending)

        REFERENCE_READ.call(
            read_pending, retry_on=lambda error: isinstance(error, MissingFileError)
        )
        self._reader = None  # the manifest lists of these versions are no longer needed
        return has_new_versions

    def count_entries(self, snapshot: Snapshot) -> int | None:
        """Return the number of manifest entries of a snapshot; None if its lists cannot be read."""
        try:
            metas = self._lists().read_lists(snapshot)
        except PaimonError:
            return None
        return sum(meta.num_added_files + meta.num_deleted_files for meta in metas)

    def _lists(self) -> ReferenceReader:
        if self._reader is None:
            self._reader = ReferenceReader.of(self.store.io, self.store.root)
        return self._reader

    def _list_pending_versions(
        self, listings: Mapping[str, Sequence[FileInfo]] = _NONE
    ) -> list[RetainedSnapshot]:
        """Return the versions that were created or replaced since the last read."""
        versions = self.store.all(self._listed, listings)
        self.branches, self._listed = versions.branches, versions.by_path
        return [
            version
            for path, version in versions.by_path.items()
            if path not in self.versions or self.versions[path].snapshot != version.snapshot
        ]

    def _read(self, pending: Sequence[RetainedSnapshot]) -> None:
        """Read all pending versions, then raise the last :class:`MissingFileError`, if any."""
        reader, failure = self._lists(), None
        reader.read_ahead(pending)
        self._read_manifests(reader, pending)
        for version in pending:
            try:
                self._add(reader, version)
            except MissingFileError as error:
                error.add_note(f"{version} refers to this file")
                failure = error
            else:
                self.versions[version.path] = version
        if failure is not None:
            raise failure

    def _read_manifests(self, reader: ReferenceReader, pending: Sequence[RetainedSnapshot]) -> None:
        """Add the names of manifests, some of which are read at the same time.

        Manifests that cannot be read are left to :meth:`_add`, which raises their errors.
        """
        metas = dict[str, ManifestFileMeta]()
        for version in pending:
            with suppress(PaimonError):
                metas |= {m.file_name: m for m in reader.state(version)}
                metas |= {m.file_name: m for m in reader.changelog(version)}
        unread = [meta for name, meta in metas.items() if name not in self._opened]
        for meta, names in zip(
            unread, map_concurrently(reader.io, reader.try_read_names, unread), strict=True
        ):
            if names is not None:
                self.names.update(names)
                self._opened.add(meta.file_name)

    def _add(self, reader: ReferenceReader, version: RetainedSnapshot) -> None:
        names = list_metadata_names(reader, version)
        kinds = (
            (reader.state(version), version.may_lack_state),
            (reader.changelog(version), not version.keeps_changelog),
        )
        for metas, optional in kinds:
            for meta in metas:
                if meta.file_name in self._opened:
                    continue
                # it could not be read with the others
                manifest = reader.open(meta, optional=optional)
                if manifest is not None:
                    self.names.update(manifest.names)
                    self.names.update(manifest.extra_file_names())
                    self._opened.add(meta.file_name)
        self.names |= names
