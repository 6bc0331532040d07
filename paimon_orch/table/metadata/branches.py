"""Branches: separate schemas, snapshots and tags over the same data files.

See docs/format/tags-branches-consumers.md#overview-of-the-files.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from paimon_orch.errors import CommitConflictError, InputError, NotFoundError, UnsupportedError
from paimon_orch.format.argument_checks import check_text
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.safe_text import format_names
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.storage.base import walk
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.catalog_environment import CatalogBranches
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.metadata_io import read_json_to_copy
from paimon_orch.table.metadata.name_lookup import check_path_component, resolve_name
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, LATEST, SnapshotStore
from paimon_orch.table.metadata.tags import Tags, extract_snapshot

_BRANCH_NAME = re.compile(r"[^/\\$\x00-\x1f]*[^/\\$\s\x00-\x1f][^/\\$\x00-\x1f]*")
_BRANCH_PREFIX = "branch-"
BRANCH_DIRECTORY = "branch"
"""The directory of the branches in that of the table."""
_FALLBACK_OPTIONS = (
    "scan.fallback-branch",
    "scan.primary-branch",
    "scan.fallback-snapshot-branch",
    "scan.fallback-delta-branch",
)
_REFERENCE_FOLDERS = ("snapshot", "changelog", "tag")


@dataclass(frozen=True, slots=True, kw_only=True)
class FastForwardPlan:
    """The files of main that a fast-forward deletes, and those that it copies from the branch."""

    branch: str
    snapshots: Sequence[int]
    """The ids of the branch's snapshots, ascending."""
    latest_id: int | None
    """The id of the newest snapshot of main; None also if the catalog moves main."""
    replaced_snapshots: Sequence[int]
    """The ids of the snapshots of main that the branch does not have, or has with other content."""
    replaced_tags: Sequence[str]
    deleted_paths: Sequence[str]
    """The files of main to delete, in this order."""
    sources: Mapping[str, str]
    """The file of the branch to copy, for each path of main."""


def select_branches(entries: Iterable[FileInfo]) -> dict[str, float]:
    """Return the branches in a listing, and the times of their directories, sorted by branch."""
    times = {
        info.name.removeprefix(_BRANCH_PREFIX): info.modified
        for info in entries
        if (info.is_dir or info.is_link) and info.name.startswith(_BRANCH_PREFIX)
    }
    times.pop(MAIN_BRANCH, None)  # readers of main do not look there
    return dict(sorted(times.items()))


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches of a table, seen from its main branch.

    >>> table.branches.create("dev", tag="2026-01-31")
    >>> catalog.table("db.orders$branch_dev").upsert(rows)
    >>> table.branches.fast_forward("dev")
    """

    io: FileIO
    root: str
    check: Callable[[], None] = lambda: None
    """Raises an error if the table's options forbid changes of branches."""
    on_change: Callable[[], None] = lambda: None
    """Called after main was moved to the state of a branch; must not raise an error."""
    catalog: CatalogBranches | None = None
    """The catalog that creates and deletes the branches, if it does."""

    def names(self) -> list[str]:
        """Return the sorted names of all branches except main.

        Symbolic links are included: readers follow them, and their targets refer to files of the
        table.
        """
        return list(self.read_modification_times())

    def read_modification_times(self) -> dict[str, float]:
        """Return the time of each branch's directory in epoch seconds, sorted by branch."""
        return select_branches(self._list_entries())

    def find(self, text: str) -> str:
        """Return the name of the branch that a user means; see :func:`resolve_name`."""
        return resolve_name("branch", text, self.names)

    def _list_entries(self) -> Iterator[FileInfo]:
        return self.io.list_dir(f"{self.root}/{BRANCH_DIRECTORY}")

    def create(self, name: str, tag: str | None = None) -> None:
        """Create a branch from a tag, or with the table's schemas and no rows.

        If the call failed, repeat it to complete the branch. Raises :class:`InputError` if the name
        is taken or not allowed, :class:`NotFoundError` if the tag does not exist.
        """
        paths, files = self.plan_creation(name, tag)
        if self.catalog is not None:
            self.catalog.create(name, tag)
            return
        try:
            for path, data in files.items():
                self.io.create(path, data)  # a file that exists has the same content
            if tag is not None:  # this fails if another process has deleted the tag
                SnapshotStore(self.io, TablePaths(self.root)).tag(tag)
        except BaseException:
            self.io.delete_dir(paths.branch_root)
            raise

    def plan_creation(self, name: str, tag: str | None) -> tuple[TablePaths, dict[str, bytes]]:
        """Return the paths and files of a new branch; raises the errors of :meth:`create`."""
        self.check()
        paths = self._get_paths(name)
        files = self._read_initial_files(paths, tag)
        if name in self.names() and not self._is_partially_created(paths, files):
            raise InputError(f"{self.root} already has a branch {name!r}")
        return paths, files

    def _read_initial_files(self, paths: TablePaths, tag: str | None) -> dict[str, bytes]:
        """Return path and content of a new branch's files: schemas, tag, and the tag's snapshot."""
        main, branch = SnapshotStore(self.io, TablePaths(self.root)), SnapshotStore(self.io, paths)
        schemas, tagged = SchemaStore(self.io, main.paths), dict[str, bytes]()
        ids = schemas.ids()
        if not ids:
            schemas.latest()  # raises the error
        newest = ids[-1]
        if tag is not None:
            snapshot, path = main.tag(tag), Tags(main).path(tag)
            data, newest = read_json_to_copy(self.io, path), snapshot.schema_id
            tagged[Tags(branch).path(tag)] = data
            tagged[branch.path(snapshot.id)] = extract_snapshot(data, path)
        copies = SchemaStore(self.io, paths)
        numbers = [number for number in ids if number <= newest]
        contents = map_concurrently(
            self.io, partial(read_json_to_copy, self.io), map(schemas.path, numbers)
        )
        return dict(zip(map(copies.path, numbers), contents, strict=True)) | tagged

    def _is_partially_created(self, paths: TablePaths, files: dict[str, bytes]) -> bool:
        """Return whether the creation of a branch was interrupted."""
        existing = {
            info.path
            for info in walk(self.io, paths.branch_root)
            if not info.is_dir and not info.name.endswith(".tmp")
        }
        return existing < set(files) and all(
            self.io.read_bytes(path) == files[path] for path in existing
        )

    def delete(self, name: str) -> None:
        """Delete a branch. Files that only it referred to are deleted as orphan files later."""
        paths = self.check_can_delete(name)
        if self.catalog is not None:
            self.catalog.delete(name)
            return
        # The schemas are deleted last, because a partly deleted branch without schemas could not
        # be read or deleted.
        for folder in _REFERENCE_FOLDERS:
            self.io.delete_dir(f"{paths.branch_root}/{folder}")
        self.io.delete_dir(paths.branch_root)

    def rename(self, name: str, to: str) -> None:
        """Rename a branch to an unused name.

        Raises :class:`InputError` if the new name is taken or not allowed, or if an option names
        the branch; :class:`UnsupportedError` if the storage cannot rename directories, or if a
        catalog has the branches. The table is then unchanged.
        """
        paths, target = self.plan_renaming(name, to)
        if not self.io.rename_dir(paths.branch_root, target.branch_root):
            raise InputError(f"{self.root} already has a branch {to!r}")

    def plan_renaming(self, name: str, to: str) -> tuple[TablePaths, TablePaths]:
        """Return the paths of both names; raises the errors of :meth:`rename`, but of storage."""
        paths, target = self.check_can_delete(name), self._get_paths(to)
        if self.catalog is not None:
            raise UnsupportedError(
                f"{self.root}: the branches of this table belong to its catalog, which this "
                "library cannot ask to rename one; rename it there"
            )
        if to in self.names():
            raise InputError(f"{self.root} already has a branch {to!r}")
        return paths, target

    def check_can_delete(self, name: str) -> TablePaths:
        """Return the paths of a branch; raises :class:`InputError` if it cannot be deleted."""
        paths = self.find_existing(name)
        options = SchemaStore(self.io, TablePaths(self.root)).latest().options
        for key in _FALLBACK_OPTIONS:
            if key in options and options[key].strip() == name:
                raise InputError(
                    f"branch {name!r} is the value of the table option {key!r}, so readers use it; "
                    "reset this option first if no reader needs the rows of the branch"
                )
        if any(info.path == paths.branch_root and info.is_link for info in self._list_entries()):
            raise InputError(
                f"{paths.branch_root} is a symbolic link; links are not followed to delete files. "
                "Remove the link and its target yourself"
            )
        self.check()
        return paths

    def fast_forward(self, name: str) -> None:
        """Move main to the state of a branch; commits to main since the branch's start are lost.

        The branch is kept. No other process may write to main or the branch during the call. If the
        call failed, repeat it to complete the move. Raises :class:`InputError` if the branch has no
        snapshot.
        """
        self.run_fast_forward(self.plan_fast_forward(name))

    def plan_fast_forward(self, name: str) -> FastForwardPlan:
        """Return what :meth:`fast_forward` does; changes nothing, and raises the same errors."""
        self.check()
        ids, paths = self.snapshots(name), TablePaths(self.root, name)
        branch, main = SnapshotStore(self.io, paths), SnapshotStore(self.io, TablePaths(self.root))
        schemas, main_schemas = SchemaStore(self.io, paths), SchemaStore(self.io, main.paths)
        # A catalog compares by itself; the Java server names a branch's snapshot in main's hint.
        latest_id = main.latest_id() if self.catalog is None else None
        first, first_schema = ids[0], branch.get(ids[0]).schema_id
        # files of the branch may have older schemas than its snapshots, of which some have expired
        sources = {main_schemas.path(i): schemas.path(i) for i in schemas.ids()}
        sources |= {Tags(main).path(tag): Tags(branch).path(tag) for tag in branch.tags()}
        sources |= {main.path(i): branch.path(i) for i in ids}
        select_replaced = partial(self._select_replaced, sources)
        later = [number for number in main.ids() if number >= first]
        replaced = select_replaced(map(main.path, later))
        snapshots = [number for number in later if main.path(number) in replaced]
        names = main.tags()
        tagged = list(map_concurrently(self.io, main.tag, names))
        later_tags = [t for t, each in zip(names, tagged, strict=True) if each.id >= first]
        replaced = select_replaced(map(Tags(main).path, later_tags))
        tags = [tag for tag in later_tags if Tags(main).path(tag) in replaced]
        schema_ids = {main_schemas.path(i): i for i in main_schemas.ids()}
        replaced = select_replaced(
            path for path, i in schema_ids.items() if i >= first_schema or path in sources
        )
        if replaced:
            lowest = min(schema_ids[path] for path in replaced)
            kept = {
                f"tag {tag!r}": each
                for tag, each in zip(names, tagged, strict=True)
                if each.id < first and Tags(main).path(tag) not in sources
            }
            self._check_kept_schemas(lowest, kept, first, name)
        return FastForwardPlan(
            branch=name,
            snapshots=ids,
            latest_id=latest_id,
            replaced_snapshots=snapshots,
            replaced_tags=tags,
            deleted_paths=[
                *map(main.path, reversed(snapshots)),
                *map(Tags(main).path, tags),
                *(path for path in reversed(schema_ids) if path in replaced),
            ],
            sources=sources,
        )

    def _select_replaced(self, sources: Mapping[str, str], paths: Iterable[str]) -> set[str]:
        """Return the files of main that are not equal on the branch."""

        def is_replaced(path: str) -> bool:
            if path not in sources:
                return True
            return self.io.read_bytes(path) != self.io.read_bytes(sources[path])

        candidates = list(paths)
        flags = map_concurrently(self.io, is_replaced, candidates)
        return {path for path, flag in zip(candidates, flags, strict=True) if flag}

    def _check_kept_schemas(
        self, schema_id: int, tagged: Mapping[str, Snapshot], first: int, branch: str
    ) -> None:
        """Refuse to replace a schema of main by which a snapshot before ``first`` is read."""
        main = SnapshotStore(self.io, TablePaths(self.root))
        changelogs, earliest = ChangelogStore(self.io, main.paths), main.earliest_id() or 0
        ids = [i for i in main.ids() if i >= earliest]
        kept = dict(tagged)
        for kind, read, numbers in (
            ("changelog", changelogs.get, changelogs.ids()),
            ("snapshot", main.get, ids),
        ):
            for each in map_concurrently(self.io, read, [i for i in numbers if i < first]):
                kept[f"{kind} {each.id}"] = each
        harmed = [name for name, each in kept.items() if each.schema_id >= schema_id]
        if harmed:
            raise InputError(
                f"{self.root}: the schemas of main and of branch {branch!r} differ from schema "
                f"{schema_id} on, and main keeps {harmed[-1]}, which is older than the branch and "
                "would be read by the schemas of the branch; expire or delete it first, or copy "
                "the rows of the branch. Nothing was changed"
            )

    def run_fast_forward(self, plan: FastForwardPlan) -> None:
        """Execute a planned fast-forward.

        Raises :class:`CommitConflictError` if main got a snapshot since the plan; main is then
        unchanged.
        """
        if self.catalog is not None:
            self.catalog.fast_forward(plan.branch)
            self.on_change()
            return
        main = SnapshotStore(self.io, TablePaths(self.root))
        if main.latest_id() != plan.latest_id:
            raise CommitConflictError(
                f"{self.root}: the newest snapshot of main is {main.latest_id()}, not "
                f"{plan.latest_id} as when the fast-forward to branch {plan.branch!r} was planned; "
                "stop the writers, and repeat it. Nothing was changed"
            )
        self.io.delete(f"{main.paths.snapshot_dir}/{LATEST}")
        for path in plan.deleted_paths:
            self.io.delete(path)
        for path, source in plan.sources.items():
            data = read_json_to_copy(self.io, source)
            if not self.io.create(path, data):
                self.io.write(path, data)
        if (main.hint(EARLIEST) or 0) > plan.snapshots[0]:
            main.write_hint(EARLIEST, plan.snapshots[0])
        main.write_hint(LATEST, plan.snapshots[-1])
        self.on_change()

    def snapshots(self, name: str) -> list[int]:
        """Return the snapshot ids of a branch for :meth:`fast_forward`, ascending.

        Leaves out snapshots whose expiration was interrupted. Raises the same errors as
        :meth:`fast_forward`.
        """
        store = SnapshotStore(self.io, self.find_existing(name))
        earliest = store.earliest_id()
        if earliest is None:
            raise InputError(f"branch {name!r} has no snapshot; main cannot be moved to it")
        return [number for number in store.ids() if number >= earliest]

    def find_existing(self, name: str) -> TablePaths:
        """Return the paths of a branch; raises :class:`NotFoundError` if it does not exist."""
        check_path_component("branch", name)
        names = self.names()
        if name == MAIN_BRANCH or name not in names:
            self._get_paths(name)
            raise NotFoundError(f"{self.root} has no branch {name!r}; it has {format_names(names)}")
        return TablePaths(self.root, name)

    def _get_paths(self, name: str) -> TablePaths:
        check_text("a branch name", name, "test")
        if not _BRANCH_NAME.fullmatch(name) or name == MAIN_BRANCH or name.isdigit():
            raise InputError(
                f"branch name {name!r} must not be blank, {MAIN_BRANCH!r} or a number, and must "
                "not contain a slash or '$'"
            )
        return TablePaths(self.root, name)
