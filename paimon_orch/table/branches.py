"""Branches: schemas, snapshots and tags of their own over the same data files (format section 3.3)."""

import re
from dataclasses import dataclass

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.storage import FileIO
from paimon_orch.table.schemas import SchemaStore
from paimon_orch.table.snapshots import EARLIEST, LATEST, SnapshotStore
from paimon_orch.table.tags import Tags, snapshot_of_tag

_NAME = re.compile(r"[^/\\$\x00-\x1f]*[^/\\$\s\x00-\x1f][^/\\$\x00-\x1f]*")
_PREFIX = "branch-"


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches of a table, seen from its main branch.

    >>> table.branches.create("dev", tag="2026-01-31")
    >>> catalog.table("db.orders$branch_dev").upsert(rows)
    >>> table.branches.fast_forward("dev")
    """

    io: FileIO
    root: str

    def names(self) -> list[str]:
        """Return the names of all branches but main, sorted."""
        found = self.io.list_dir(f"{self.root}/branch")
        directories = (info.name for info in found if info.is_dir)
        return sorted(
            name.removeprefix(_PREFIX) for name in directories if name.startswith(_PREFIX)
        )

    def create(self, name: str, tag: str | None = None) -> None:
        """Start a branch at a tag, or with the table's schemas and no rows.

        Raises :class:`InputError` if the name is taken or not allowed, :class:`NotFoundError` if there is no such tag.
        """
        paths = self._paths(name)
        if name in self.names():
            raise InputError(f"{self.root} has a branch {name!r} already")
        main = SchemaStore(self.io, TablePaths(self.root))
        try:
            newest = main.latest().id if tag is None else self._copy_tag(tag, paths)
            for schema_id in main.ids():
                if schema_id <= newest:
                    self._copy(main.path(schema_id), SchemaStore(self.io, paths).path(schema_id))
        except BaseException:
            self.io.delete_dir(paths.branch_root)
            raise

    def _copy_tag(self, tag: str, paths: TablePaths) -> int:
        """Copy a tag with its snapshot and return the id of its schema."""
        main, branch = SnapshotStore(self.io, TablePaths(self.root)), SnapshotStore(self.io, paths)
        snapshot, path = main.tag(tag), Tags(main).path(tag)
        self._copy(path, Tags(branch).path(tag))
        data = self.io.read_bytes(path)
        self.io.create(branch.path(snapshot.id), snapshot_of_tag(data, path))
        return snapshot.schema_id

    def delete(self, name: str) -> None:
        """Remove a branch. Files that it alone referred to stay until orphan files are removed."""
        paths = self._existing(name)
        options = SchemaStore(self.io, TablePaths(self.root)).latest().options
        if options.get("scan.fallback-branch") == name:
            raise InputError(
                f"branch {name!r} is the table's 'scan.fallback-branch'; reset this option first"
            )
        self.io.delete_dir(paths.branch_root)

    def fast_forward(self, name: str) -> None:
        """Let main become what a branch is: what main did since the branch began is given up.

        The branch stays. Nothing may write to either of them meanwhile; done again after a failure it completes what
        was begun. Raises :class:`InputError` if the branch has no snapshot.
        """
        paths = self._existing(name)
        branch, main = SnapshotStore(self.io, paths), SnapshotStore(self.io, TablePaths(self.root))
        ids = branch.ids()
        if not ids:
            raise InputError(f"branch {name!r} has no snapshot, so main cannot move to it")
        first = ids[0]
        schemas, main_schemas = SchemaStore(self.io, paths), SchemaStore(self.io, main.paths)
        first_schema = branch.get(first).schema_id
        new = {main_schemas.path(i): schemas.path(i) for i in schemas.ids() if i >= first_schema}
        new |= {Tags(main).path(tag): Tags(branch).path(tag) for tag in branch.tags()}
        new |= {main.path(i): branch.path(i) for i in ids}
        old = [main.path(i) for i in reversed(main.ids()) if i >= first]
        old += [Tags(main).path(tag) for tag in main.tags() if main.tag(tag).id >= first]
        old += [main_schemas.path(i) for i in reversed(main_schemas.ids()) if i >= first_schema]
        self.io.delete(f"{main.paths.snapshot_dir}/{LATEST}")
        for path in old:  # what both have stays
            if path not in new or not self._equal(path, new[path]):
                self.io.delete(path)
        for path, source in new.items():
            self._copy(source, path)
        if (main.hint(EARLIEST) or 0) > first:
            main.write_hint(EARLIEST, first)
        main.write_hint(LATEST, ids[-1])

    def _equal(self, one: str, other: str) -> bool:
        return self.io.read_bytes(one) == self.io.read_bytes(other)

    def _copy(self, source: str, target: str) -> None:
        data = self.io.read_bytes(source)
        if not self.io.create(target, data):
            self.io.write(target, data)

    def _existing(self, name: str) -> TablePaths:
        paths = self._paths(name)
        if name not in self.names():
            known = ", ".join(self.names()) or "none"
            raise NotFoundError(f"{self.root} has no branch {name!r}; it has {known}")
        return paths

    def _paths(self, name: str) -> TablePaths:
        if not _NAME.fullmatch(name) or name == MAIN_BRANCH or name.isdigit():
            raise InputError(
                f"branch name {name!r} must not be blank, {MAIN_BRANCH!r} or a number, and hold no slash and no '$'"
            )
        return TablePaths(self.root, name)
