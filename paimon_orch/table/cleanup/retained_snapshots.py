"""Lists and reads the snapshots, tags and changelogs of all branches of a table.

Here, a *version* of a table is a snapshot, a tag, or the changelog of an expired snapshot.

See docs/format/snapshot-expiration.md and docs/format/tags-branches-consumers.md.
"""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from paimon_orch.errors import NotFoundError, PaimonError, StorageError
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.retry_policy import SNAPSHOT_LISTING
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.storage.concurrency import map_concurrently, start_call
from paimon_orch.table.metadata.branches import BRANCH_DIRECTORY, Branches, select_branches
from paimon_orch.table.metadata.changelog_store import CHANGELOG_PREFIX, ChangelogStore
from paimon_orch.table.metadata.metadata_io import list_metadata_directory, read_metadata_file
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.small_listings import list_small_folder
from paimon_orch.table.metadata.snapshot_store import (
    EARLIEST,
    SNAPSHOT_PREFIX,
    TAG_PREFIX,
    SnapshotStore,
    number_files,
    select_tag_files,
)

_NONE: Final = MappingProxyType[Any, Any]({})


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

    listed: FileInfo | None = field(default=None, repr=False, compare=False)
    """The file in the listing before it was read."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedVersions:
    """The versions of a table at one point in time."""

    branches: tuple[TablePaths, ...]
    by_path: Mapping[str, RetainedSnapshot]
    """The versions: by branch, first tags, then snapshots, then changelogs."""
    newest_schemas: Mapping[str, int]
    """The id of the newest schema by branch, for branches whose schemas were listed."""

    def of_branch(self, branch: str) -> list[RetainedSnapshot]:
        """Return the versions of one branch."""
        return [version for version in self.by_path.values() if version.branch == branch]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedVersion:
    """A version whose file is not read yet."""

    kind: RetainedSnapshotKind
    branch: str
    name: str
    info: FileInfo
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class RetainedSnapshotStore:
    """The snapshots, tags and changelogs of all branches of a table."""

    io: FileIO
    root: str
    on_error: Callable[[PaimonError], None] | None = None
    """Receives the errors of files that cannot be decoded; by default they are raised."""
    with_schema: Collection[str] = ()
    """Branches of which the caller has read a schema, so that it is not searched again."""

    def list_snapshots(self, paths: TablePaths) -> list[FileInfo]:
        """List the snapshot files of a branch, and their hints."""
        return list_metadata_directory(self.io, paths.snapshot_dir)

    def read_snapshot(
        self, paths: TablePaths, number: int, info: FileInfo
    ) -> RetainedSnapshot | None:
        """Read a listed snapshot; return None if it was deleted."""
        kind = RetainedSnapshotKind.SNAPSHOT
        listed = _ListedVersion(kind=kind, branch=paths.branch, name=str(number), info=info)
        return self._read_file(listed)

    def all(
        self,
        known: Mapping[str, RetainedSnapshot] | None = None,
        listings: Mapping[str, Sequence[FileInfo]] = _NONE,
    ) -> RetainedVersions:
        """Read all versions, as they existed at one point in time.

        All are listed, except the directories in ``listings``, which the caller has just listed. On a
        store where each read is a request, the versions of ``known`` whose files have not changed
        since are not read again: the listing says that they are the same files. If a version is
        deleted during the read, all are listed and read again, because another version may have
        been created after the listing. Raises :class:`NotFoundError` if a branch has no schema.
        """
        first_listings = [listings]

        def read_stable() -> RetainedVersions | None:
            vanished: list[str] = []
            listed = first_listings.pop() if first_listings else _NONE
            versions = self.read(vanished, known=known or {}, listings=listed)
            return None if vanished else versions

        versions = SNAPSHOT_LISTING.call_until_result(read_stable)
        if versions is None:
            raise StorageError(
                f"{self.root}: snapshots are expiring faster than they can be listed; nothing was "
                "deleted. Try again"
            )
        return versions

    def read(
        self,
        vanished: list[str],
        *,
        known: Mapping[str, RetainedSnapshot] = _NONE,
        listings: Mapping[str, Sequence[FileInfo]] = _NONE,
    ) -> RetainedVersions:
        """Read all versions once; adds paths that were deleted during the read to ``vanished``.

        The listings are in an order in which no version is missed that another process moves: a
        snapshot is copied to a tag or a changelog, and a tag to a branch, before it is deleted.
        """
        main = TablePaths(self.root)
        find_schema = start_call(self.io, partial(self._find_newest_schema, main))
        snapshots = self._list(listings, main.snapshot_dir)
        find_missing = start_call(self.io, partial(self._find_missing, main, listings))
        listings = {**listings, main.snapshot_dir: snapshots}
        listed = self._list_branch(listings, main, find_missing)
        newest_schemas = {main.branch: find_schema()}
        listings = {**listings, **find_missing()}
        list_branches = start_call(self.io, partial(self._list_branch_names, listings))
        versions = self._read_all(listed, known, vanished)
        others = [TablePaths(self.root, name) for name in list_branches()]
        branches = map_concurrently(
            self.io,
            lambda paths: (self._find_newest_schema(paths), self._list_branch(listings, paths)),
            others,
        )
        found = list(branches)  # all are listed before one of them is read
        newest_schemas |= {paths.branch: each[0] for paths, each in zip(others, found, strict=True)}
        listed = [version for _, of_branch in found for version in of_branch]
        versions += self._read_all(listed, known, vanished)
        return RetainedVersions(
            branches=(main, *others),
            by_path={version.path: version for version in versions},
            newest_schemas={
                name: schema for name, schema in newest_schemas.items() if schema is not None
            },
        )

    def _list_branch_names(self, listings: Mapping[str, Sequence[FileInfo]]) -> list[str]:
        entries = listings.get(f"{self.root}/{BRANCH_DIRECTORY}")
        names = Branches(self.io, self.root).names
        return names() if entries is None else list(select_branches(entries))

    def _find_newest_schema(self, paths: TablePaths) -> int | None:
        """Return the id of a branch's newest schema, or None if the caller has read it."""
        if paths.branch in self.with_schema:
            return None
        ids = SchemaStore(self.io, paths).ids()
        if not ids:
            raise NotFoundError(
                f"{paths.branch_root} has no schema, so the files it refers to are unknown. "
                "Nothing was deleted; remove the branch if it is not needed, or restore its "
                "schema"
            )
        return ids[-1]

    def _find_missing(
        self, main: TablePaths, listings: Mapping[str, Sequence[FileInfo]]
    ) -> Mapping[str, Sequence[FileInfo]]:
        """Return empty listings of directories of versions that one listing shows to be missing."""
        branches = f"{self.root}/{BRANCH_DIRECTORY}"
        versions = [
            path for path in (main.tag_dir, main.changelog_dir, branches) if path not in listings
        ]
        entries = (
            list_small_folder(self.io, f"{self.root}/", with_directories=True) if versions else None
        )
        if entries is None:
            return {}
        existing = {info.path for info in entries}
        if main.tag_dir in existing:  # a tag can become a branch before the tags are listed
            existing.add(branches)
        return {path: () for path in versions if path not in existing}

    def _list_branch(
        self,
        listings: Mapping[str, Sequence[FileInfo]],
        paths: TablePaths,
        find_missing: Callable[[], Mapping[str, Sequence[FileInfo]]] = dict,
    ) -> list[_ListedVersion]:
        """List the versions of a branch: first its snapshots, then what they can become."""
        entries = self._list(listings, paths.snapshot_dir)
        has_hint = any(info.name == EARLIEST for info in entries)
        store = SnapshotStore(self.io, paths)
        read_earliest = start_call(self.io, lambda: store.hint(EARLIEST) if has_hint else None)
        listings = {**listings, **find_missing()}
        list_changelogs = start_call(self.io, partial(self._list_changelogs, listings, paths))
        build = partial(_ListedVersion, branch=paths.branch)
        tags = [
            build(kind=RetainedSnapshotKind.TAG, name=info.name.removeprefix(TAG_PREFIX), info=info)
            for info in select_tag_files(self._list(listings, paths.tag_dir))
        ]
        numbered = _number(
            partial(build, kind=RetainedSnapshotKind.SNAPSHOT),
            number_files(entries, SNAPSHOT_PREFIX),
            read_earliest(),
        )
        return [*tags, *numbered, *list_changelogs()]

    def _list(
        self, listings: Mapping[str, Sequence[FileInfo]], directory: str
    ) -> Sequence[FileInfo]:
        entries = listings.get(directory)
        return list_metadata_directory(self.io, directory) if entries is None else entries

    def _list_changelogs(
        self, listings: Mapping[str, Sequence[FileInfo]], paths: TablePaths
    ) -> list[_ListedVersion]:
        entries = self._list(listings, paths.changelog_dir)
        files = number_files(entries, CHANGELOG_PREFIX)
        earliest = ChangelogStore(self.io, paths).hint(EARLIEST) if files else None
        kind = RetainedSnapshotKind.CHANGELOG
        return _number(partial(_ListedVersion, branch=paths.branch, kind=kind), files, earliest)

    def _read_all(
        self,
        listed: Sequence[_ListedVersion],
        known: Mapping[str, RetainedSnapshot],
        vanished: list[str],
    ) -> list[RetainedSnapshot]:
        """Read versions; reports the errors of files that cannot be decoded."""
        versions = list[RetainedSnapshot]()
        unchanged = [self._find_unchanged(known, each) for each in listed]
        read = map_concurrently(
            self.io,
            self._try_read,
            [each for each, same in zip(listed, unchanged, strict=True) if same is None],
        )
        for each, same in zip(listed, unchanged, strict=True):
            version = next(read) if same is None else same
            if version is None:
                vanished.append(each.info.path)
            elif isinstance(version, RetainedSnapshot):
                versions.append(version)
            elif self.on_error is None:
                raise version
            else:
                self.on_error(version)
        tagged = {(v.branch, v.snapshot.id) for v in versions if v.kind is RetainedSnapshotKind.TAG}
        return [_decide_changelog(version, tagged) for version in versions]

    def _find_unchanged(
        self, known: Mapping[str, RetainedSnapshot], listed: _ListedVersion
    ) -> RetainedSnapshot | None:
        """Return a known version if the listing says that its file has not changed."""
        same = known.get(listed.info.path)
        # The version alone may be a hash of the content: a tag that was moved and moved back,
        # between which it was read, has the same hash, but was modified later.
        if (
            same is None
            or not self.io.capabilities.has_slow_requests
            or not listed.info.version
            or same.listed != listed.info
        ):
            return None
        return replace(same, is_complete=listed.is_complete, listed=listed.info)

    def _try_read(self, listed: _ListedVersion) -> RetainedSnapshot | PaimonError | None:
        """Read a version; return the error if its content cannot be decoded."""
        try:
            return self._read_file(listed)
        except StorageError:
            raise
        except PaimonError as error:
            return error

    def _read_file(self, listed: _ListedVersion) -> RetainedSnapshot | None:
        """Read a version; return None if it was deleted."""
        path = listed.info.path
        try:
            data = read_metadata_file(self.io, path)
        except FileNotFoundError:
            return None
        return RetainedSnapshot(
            kind=listed.kind,
            branch=listed.branch,
            name=listed.name,
            path=path,
            snapshot=Snapshot.from_json(data, path),
            is_complete=listed.is_complete,
            listed=listed.info,
        )


def _number(
    build: Callable[..., _ListedVersion], files: Mapping[int, FileInfo], earliest: int | None
) -> list[_ListedVersion]:
    """Return numbered versions; those before the hint EARLIEST are not complete."""
    first = earliest if earliest is not None and earliest in files else 0
    return [
        build(name=str(number), info=files[number], is_complete=number >= first)
        for number in sorted(files)
    ]


def _decide_changelog(
    version: RetainedSnapshot, tagged: Container[tuple[str, int]]
) -> RetainedSnapshot:
    """Set whether the changelog files of a version still exist."""
    keeps_changelog = version.is_complete
    if version.kind is RetainedSnapshotKind.TAG:
        keeps_changelog = False
    elif version.kind is RetainedSnapshotKind.SNAPSHOT:
        is_tagged = (version.branch, version.snapshot.id) in tagged
        keeps_changelog &= version.branch == MAIN_BRANCH and not is_tagged
    return replace(version, keeps_changelog=keeps_changelog)
