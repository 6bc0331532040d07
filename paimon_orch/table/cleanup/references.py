"""Lists the snapshots, tags and changelogs of all branches, and the files that they reference.

Every deletion checks these references first. A metadata file that cannot be read is an error; only
files that are optional in the format may be missing. Here, a *version* of a table is a snapshot, a
tag, or the changelog of an expired snapshot.

See docs/format/snapshot-expiration.md and docs/format/tags-branches-consumers.md.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from paimon_orch.errors import MissingFileError, NotFoundError, PaimonError, StorageError
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.retry_policy import REFERENCE_READ, SNAPSHOT_LISTING
from paimon_orch.storage import FileIO
from paimon_orch.table.metadata.branches import Branches
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, SnapshotStore


class RetainedSnapshotKind(StrEnum):
    """The kind of file that retains a snapshot."""

    SNAPSHOT = "snapshot"
    TAG = "tag"
    CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedSnapshot:
    """A version of a table: a snapshot file, a tag, or the changelog of an expired snapshot."""

    kind: RetainedSnapshotKind
    branch: str
    name: str
    path: str
    snapshot: Snapshot
    is_complete: bool = True
    """False for a snapshot before the hint EARLIEST, whose expiration is not finished."""

    keeps_changelog: bool = True
    """False for tags and tagged snapshots, whose changelog files expiration may have deleted."""

    def __str__(self) -> str:
        where = "" if self.branch == MAIN_BRANCH else f" of branch {self.branch}"
        return f"{self.kind} {self.name}{where}"

    @property
    def state_lists(self) -> tuple[tuple[str, int | None], ...]:
        """Return the name and size of the manifest lists of data files."""
        snapshot = self.snapshot
        if (
            self.kind is RetainedSnapshotKind.CHANGELOG
            and snapshot.changelog_manifest_list is not None
        ):
            return ()
        return (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        )

    @property
    def may_lack_state(self) -> bool:
        """Return whether expiration may have deleted the manifest lists of the data files.

        Java Paimon keeps a changelog for each expired snapshot. In tables with a changelog
        producer, the changelogs of snapshots without changes (compactions) have no list.
        """
        return not self.is_complete or self.kind is RetainedSnapshotKind.CHANGELOG

    @property
    def changelog_list(self) -> tuple[tuple[str, int | None], ...]:
        """Return the name and size of the manifest list of changelog files, if it exists."""
        snapshot = self.snapshot
        if snapshot.changelog_manifest_list is None:
            return ()
        return ((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),)

    @property
    def index_manifest(self) -> str | None:
        """Return the name of the index manifest, or None for changelogs."""
        return None if self.kind is RetainedSnapshotKind.CHANGELOG else self.snapshot.index_manifest

    @property
    def statistics(self) -> str | None:
        """Return the name of the statistics file, or None for changelogs."""
        return None if self.kind is RetainedSnapshotKind.CHANGELOG else self.snapshot.statistics


@dataclass(frozen=True, slots=True)
class RetainedSnapshotStore:
    """The snapshots, tags and changelogs of all branches of a table."""

    io: FileIO
    root: str
    on_error: Callable[[PaimonError], None] | None = None
    """Receives the errors of files that cannot be decoded; by default they are raised."""

    def branches(self) -> list[TablePaths]:
        """Return all branches; raises :class:`NotFoundError` if a branch has no schema."""
        names = [MAIN_BRANCH, *Branches(self.io, self.root).names()]
        branches = [TablePaths(self.root, name) for name in names]
        for paths in branches:
            if not SchemaStore(self.io, paths).ids():
                raise NotFoundError(
                    f"{paths.branch_root} has no schema, so the files it refers to are unknown. "
                    "Nothing was deleted; remove the branch if it is not needed, or restore its "
                    "schema"
                )
        return branches

    def all(self) -> dict[str, RetainedSnapshot]:
        """Read all versions, by path, as they existed at one point in time.

        If a version is deleted during the read, all are listed and read again, because another
        version may have been created after the listing.
        """
        versions = SNAPSHOT_LISTING.call_until_result(self._read_stable)
        if versions is None:
            raise StorageError(
                f"{self.root}: snapshots are expiring faster than they can be listed; nothing was "
                "deleted. Try again"
            )
        return versions

    def _read_stable(self) -> dict[str, RetainedSnapshot] | None:
        """Read all versions; return None if one of them was deleted during the read."""
        vanished: list[str] = []
        versions = {
            version.path: version
            for paths in self.branches()
            for version in self.read_branch(paths, vanished)
        }
        return None if vanished else versions

    def read_branch(
        self, paths: TablePaths, vanished: list[str] | None = None
    ) -> Iterator[RetainedSnapshot]:
        """Yield the versions of a branch; adds paths deleted during the read to ``vanished``."""
        deleted = [] if vanished is None else vanished
        store = SnapshotStore(self.io, paths)
        earliest, ids = store.hint(EARLIEST), store.ids()
        first = earliest if earliest is not None and earliest in ids else 0
        tagged = set()
        for name in store.tags():
            version = self._read(
                RetainedSnapshotKind.TAG, paths, name, f"{paths.tag_dir}/tag-{name}", deleted
            )
            if version is not None:
                tagged.add(version.snapshot.id)
                yield replace(version, keeps_changelog=False)
        for number in ids:
            version = self._read(
                RetainedSnapshotKind.SNAPSHOT, paths, str(number), store.path(number), deleted
            )
            if version is not None:
                is_complete = number >= first
                has_changelog = is_complete and paths.branch == MAIN_BRANCH and number not in tagged
                yield replace(version, is_complete=is_complete, keeps_changelog=has_changelog)
        yield from self._read_changelogs(paths, deleted)

    def _read_changelogs(
        self, paths: TablePaths, vanished: list[str]
    ) -> Iterator[RetainedSnapshot]:
        store = ChangelogStore(self.io, paths)
        ids, earliest = store.ids(), store.hint(EARLIEST)
        first = earliest if earliest is not None and earliest in ids else 0
        for number in ids:
            version = self._read(
                RetainedSnapshotKind.CHANGELOG, paths, str(number), store.path(number), vanished
            )
            if version is not None:
                is_complete = number >= first
                yield replace(version, is_complete=is_complete, keeps_changelog=is_complete)

    def _read(
        self,
        kind: RetainedSnapshotKind,
        paths: TablePaths,
        name: str,
        path: str,
        vanished: list[str],
    ) -> RetainedSnapshot | None:
        try:
            data = self.io.read_bytes(path)
        except FileNotFoundError:
            vanished.append(path)
            return None
        except OSError as error:
            raise StorageError(f"{path} cannot be read ({error.strerror or error})") from error
        try:
            return RetainedSnapshot(
                kind=kind,
                branch=paths.branch,
                name=name,
                path=path,
                snapshot=Snapshot.from_json(data, path),
            )
        except PaimonError as error:
            if self.on_error is None:
                raise
            self.on_error(error)
            return None


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
        if name not in self._indexes:
            try:
                self._indexes[name] = tuple(self.manifests.index_manifest(name))
            except MissingFileError:
                if version.is_complete:
                    raise
                return ()
        return self._indexes[name]

    def _read_metas(
        self, lists: Iterable[tuple[str, int | None]], *, optional: bool
    ) -> list[ManifestFileMeta]:
        metas: list[ManifestFileMeta] = []
        for name, size in lists:
            if name not in self._lists:
                try:
                    self._lists[name] = tuple(self.manifests.manifest_list(name, size))
                except MissingFileError:
                    if optional:
                        continue
                    raise
            metas += self._lists[name]
        return metas

    def open(self, meta: ManifestFileMeta, *, optional: bool = False) -> Manifest | None:
        """Read a manifest; return None if it is missing and ``optional`` is true."""
        try:
            return self.manifests.open(meta)
        except MissingFileError:
            if optional:
                return None
            raise


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
    _opened: set[str] = field(default_factory=set)
    _reader: ReferenceReader | None = field(default=None, repr=False)

    def list_unread_manifests(self) -> list[ManifestFileMeta]:
        """Return the distinct manifests of the current versions that were not read yet."""
        reader, metas = self._lists(), dict[str, ManifestFileMeta]()
        for version in self._list_pending_versions():
            with suppress(MissingFileError):  # update raises this error
                for meta in (*reader.state(version), *reader.changelog(version)):
                    metas.setdefault(meta.file_name, meta)
        return [meta for name, meta in metas.items() if name not in self._opened]

    def mark_as_read(self, manifests: Iterable[str]) -> None:
        """Exclude manifests from :meth:`update`, because another process compares their names."""
        self._opened.update(manifests)

    def update(self) -> bool:
        """Read all versions that were not read yet; return whether there were any.

        If a version expires during the read, the versions are listed and read again. If a file of
        an existing version is missing, an expiration may be running: the read is repeated for one
        second before :class:`MissingFileError` is raised.
        """
        has_new_versions = False

        def read_pending() -> None:
            nonlocal has_new_versions
            pending = self._list_pending_versions()
            has_new_versions |= bool(pending)
            self._read(pending)

        REFERENCE_READ.call(
            read_pending, retry_on=lambda error: isinstance(error, MissingFileError)
        )
        self._reader = None  # the manifest lists of these versions are no longer needed
        return has_new_versions

    def _lists(self) -> ReferenceReader:
        if self._reader is None:
            self._reader = ReferenceReader.of(self.store.io, self.store.root)
        return self._reader

    def _list_pending_versions(self) -> list[RetainedSnapshot]:
        """Return the versions that were created or replaced since the last read."""
        versions = self.store.all()
        return [
            v for path, v in versions.items() if not _has_same_snapshot(self.versions.get(path), v)
        ]

    def _read(self, pending: Sequence[RetainedSnapshot]) -> None:
        """Read all pending versions, then raise the last :class:`MissingFileError`, if any."""
        reader, failure = self._lists(), None
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
                manifest = reader.open(meta, optional=optional)
                if manifest is not None:
                    self.names.update(manifest.names)
                    self.names.update(manifest.extra_file_names())
                    self._opened.add(meta.file_name)
        self.names |= names


def _has_same_snapshot(previous: RetainedSnapshot | None, version: RetainedSnapshot) -> bool:
    return previous is not None and previous.snapshot == version.snapshot
