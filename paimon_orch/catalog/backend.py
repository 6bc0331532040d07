"""The operations that differ between catalogs; :class:`Catalog` adds names, checks and messages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.errors import MissingFileError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileIO
from paimon_orch.table.catalog_environment import NO_CATALOG, CatalogEnvironment
from paimon_orch.table.metadata.snapshot_store import LatestHint
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from paimon_orch.table.schema_change.schema_changes import SchemaChange


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table as its catalog describes it."""

    io: FileIO
    """The file system, which is confined to the table and follows no link to it."""
    root: str
    """The absolute path of the table's directory, without a trailing slash."""
    environment: CatalogEnvironment = NO_CATALOG
    hint: LatestHint = field(default_factory=LatestHint)
    """The hint LATEST, if it was read to find the table."""
    is_external: bool = False
    """Whether the files are kept when the table is dropped."""


class LostTableError(MissingFileError):
    """A catalog has a table whose directory has no schema; such a table can only be dropped."""

    def __init__(self, table: CatalogTable, identifier: TableIdentifier, catalog: str) -> None:
        super().__init__(
            f"{table.root}/schema",
            f"has no schema, but {catalog} has the table {identifier}; restore the files, or drop "
            "the table",
        )
        self.table = table

    def __reduce__(self) -> Any:
        """Return the error without its table, for another process."""
        return MissingFileError, (self.path, self.reason)


class CatalogBackend(Protocol):
    """One kind of catalog. Names are valid: :class:`Catalog` has checked them."""

    @property
    def description(self) -> str:
        """Return the location of the catalog for messages, without secrets."""
        ...

    def require_exists(self) -> None:
        """Raise :class:`NotFoundError` if the location of the catalog does not exist."""
        ...

    def list_databases(self) -> list[str]:
        """Return the names of all databases, in any order."""
        ...

    def has_database(self, database: str) -> bool:
        """Return whether a database exists."""
        ...

    def create_database(self, database: str) -> bool:
        """Create an empty database; return False if it exists."""
        ...

    def drop_database(self, database: str) -> None:
        """Drop a database; :class:`Catalog` has dropped its tables."""
        ...

    def list_tables(self, database: str) -> list[str]:
        """Return the names of the Paimon tables of an existing database, in any order."""
        ...

    def load_table(self, identifier: TableIdentifier) -> CatalogTable | None:
        """Return a table or branch, or None if it does not exist."""
        ...

    def create_table(
        self, identifier: TableIdentifier, schema: TableSchema, location: str | None
    ) -> bool:
        """Create a table, and its database if needed; return False if the table exists.

        With a ``location`` the table is external: its files are there, and stay when it is dropped.
        Raises :class:`InputError` if the catalog has no external tables.
        """
        ...

    def drop_table(self, identifier: TableIdentifier, table: Table) -> None:
        """Drop a table; its files are deleted too, unless it is external."""
        ...

    def rename_table(self, source: TableIdentifier, target: TableIdentifier, table: Table) -> bool:
        """Rename a table; return False if the target exists. The target's database exists."""
        ...

    def alter_table(
        self, identifier: TableIdentifier, table: Table, changes: Sequence["SchemaChange"]
    ) -> TableSchema:
        """Apply all changes in one schema version, and return it."""
        ...


@runtime_checkable
class SnapshotBackend(Protocol):
    """A catalog that makes the commits itself, and so has the newest snapshot of each table."""

    def load_latest_snapshot(self, identifier: TableIdentifier) -> Snapshot | None:
        """Return the newest snapshot with one request, or None if the table has none.

        Raises :class:`NotFoundError` if the table or branch does not exist, and
        :class:`SnapshotsNotServedError` if the server does not answer this question.
        """
        ...
