"""A warehouse directory: databases are directories ``<name>.db``, tables have a ``schema`` in them.

See docs/format/table-layout.md#directory-tree.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paimon_orch.catalog.backend import CatalogTable
from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.catalog.named_catalogs import describe_unconfigured_name
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileIO
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import LATEST, LatestHint, read_hint
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from paimon_orch.table.schema_change.schema_changes import SchemaChange


@dataclass(slots=True)
class FileSystemBackend:
    """The tables below one directory of a file system or object store."""

    description: str
    """The location as the user wrote it."""
    io: FileIO = field(repr=False)
    root: str = field(repr=False)

    def require_exists(self) -> None:
        """Raise :class:`NotFoundError` if the directory does not exist."""
        if not self.io.exists(self.root):
            raise NotFoundError(
                f"{self.description} does not exist; check the path of the warehouse, or create a "
                "table in it with paimon-orch create" + describe_unconfigured_name(self.description)
            )
        if self.io.capabilities.is_local and Path(self.root).is_file():
            raise InputError(f"{self.description} is a file; a warehouse is a directory")

    def list_databases(self) -> list[str]:
        """Return the names of the directories that end with ``.db``."""
        names = (info.name for info in self.io.list_dir(self.root) if info.is_dir)
        return [name.removesuffix(".db") for name in names if name.endswith(".db")]

    def has_database(self, database: str) -> bool:
        """Return whether the directory of a database exists."""
        return self.io.exists(self._get_database_root(database))

    def create_database(self, database: str) -> bool:
        """Create the directory of a database.

        Raises :class:`UnsupportedError` in object stores, which have no empty directories.
        """
        self._refuse_misspelled_name()
        return self.io.make_dir(self._get_database_root(database))

    def _refuse_misspelled_name(self) -> None:
        """Raise :class:`InputError` before a misspelled name becomes a new warehouse."""
        hint = describe_unconfigured_name(self.description)
        if hint and not self.io.exists(self.root):
            raise InputError(
                f"{self.root} does not exist{hint}. To create a warehouse there, write "
                f"./{self.description}"
            )

    def drop_database(self, database: str) -> None:
        """Delete the directory of a database with all its files."""
        self.io.delete_dir(self._get_database_root(database))

    def list_tables(self, database: str) -> list[str]:
        """Return the names of the directories that have schemas."""
        entries = self.io.list_dir(self._get_database_root(database))
        folders = [info for info in entries if info.is_dir]
        paths = (f"{info.path}/schema" for info in folders)
        are_tables = map_concurrently(self.io, self.io.exists, paths)
        return [i.name for i, is_table in zip(folders, are_tables, strict=True) if is_table]

    def load_table(self, identifier: TableIdentifier) -> CatalogTable | None:
        """Return a table or branch that has a schema."""
        table = self.locate_table(identifier)
        paths = TablePaths(table.root, identifier.branch)
        # A link in place of the table is followed here, so that a check can report it.
        hint = LatestHint(read_hint(self.io, f"{paths.snapshot_dir}/{LATEST}"))
        if hint.snapshot_id is None and not SchemaStore(self.io, paths).ids():
            return None
        return replace(table, hint=hint)

    def locate_table(self, identifier: TableIdentifier) -> CatalogTable:
        """Return a table or branch that may not exist; sends no request."""
        root = self._get_table_root(identifier)
        return CatalogTable(io=self.io.confine((root,), (self.root,)), root=root)

    def create_table(
        self, identifier: TableIdentifier, schema: TableSchema, location: str | None
    ) -> bool:
        """Write the first schema of a table."""
        refuse_location(identifier, location)
        self._refuse_misspelled_name()
        table = self.locate_table(identifier)
        store = SchemaStore(table.io, TablePaths(table.root))
        return not store.ids() and store.create(schema)

    def drop_table(self, identifier: TableIdentifier, table: Table) -> None:  # noqa: ARG002 - protocol
        """Delete the directory of a table."""
        table.io.delete_dir(table.paths.root)

    def rename_table(
        self,
        source: TableIdentifier,  # noqa: ARG002 - protocol
        target: TableIdentifier,
        table: Table,
    ) -> bool:
        """Rename the directory of a table, including its branches, atomically."""
        io = self.io.confine((self.root,))
        return io.rename_dir(table.paths.root, self._get_table_root(target))

    def alter_table(
        self,
        identifier: TableIdentifier,  # noqa: ARG002 - protocol
        table: Table,
        changes: Sequence["SchemaChange"],
    ) -> TableSchema:
        """Write the next schema of a table."""
        return write_next_schema(table, changes)

    def _get_database_root(self, database: str) -> str:
        return f"{self.root}/{database}.db"

    def _get_table_root(self, identifier: TableIdentifier) -> str:
        return f"{self._get_database_root(identifier.database)}/{identifier.table}"


def refuse_location(identifier: TableIdentifier, location: str | None) -> None:
    """Raise :class:`InputError` for a table with a location of its own."""
    if location is not None:
        raise InputError(
            f"{identifier}: option 'path' = {location} cannot be set, because the location of a "
            "table follows from its name; catalogs with metastore=hive or rest have external tables"
        )


def write_next_schema(table: Table, changes: Sequence["SchemaChange"]) -> TableSchema:
    """Write the next schema file of a table, under its lock if it has one."""
    from paimon_orch.table.schema_change.apply_schema_changes import alter_schema

    stores = table.stores
    with stores.environment.hold_lock():
        return alter_schema(
            stores.schemas,
            changes,
            has_snapshots=lambda: stores.snapshots.latest_id() is not None,
            time_millis=int(time.time() * 1000),
        )
