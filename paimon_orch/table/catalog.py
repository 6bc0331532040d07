"""A warehouse: databases and tables in a file system (format section 1.1)."""

import re
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.arrow import fields_of_arrow
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.schema import new_schema
from paimon_orch.format.types import parse_columns
from paimon_orch.storage import resolve_warehouse
from paimon_orch.table.schemas import SchemaStore
from paimon_orch.table.table import Table

_NAME = re.compile(r"[^/\\.$\x00-\x1f]+")
_BRANCH = "$branch_"


class Catalog:
    """The tables below one warehouse location.

    >>> catalog = Catalog("/warehouse")
    >>> catalog.create_table("db.orders", "id BIGINT NOT NULL, status STRING", primary_key=["id"],
    ...                      options={"bucket": "2"})
    >>> table = catalog.table("db.orders")
    """

    def __init__(self, uri: str) -> None:
        """Open a warehouse, a local path or ``file:`` URI; it need not exist yet."""
        self.uri = str(uri)
        self.io, self.root = resolve_warehouse(self.uri)

    def __repr__(self) -> str:
        return f"Catalog({self.uri!r})"

    def databases(self) -> list[str]:
        """Return the names of all databases, sorted."""
        names = (info.name for info in self.io.list_dir(self.root) if info.is_dir)
        return sorted(name.removesuffix(".db") for name in names if name.endswith(".db"))

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables, sorted."""
        directory = f"{self.root}/{database}.db"
        if not self.io.exists(directory):
            known = ", ".join(self.databases()) or "none"
            raise NotFoundError(f"{self.uri} has no database {database!r}; it has {known}")
        candidates = (info for info in self.io.list_dir(directory) if info.is_dir)
        return sorted(i.name for i in candidates if self.io.exists(f"{i.path}/schema"))

    def table(self, identifier: str) -> Table:
        """Return ``database.table`` or ``database.table$branch_name``; :class:`NotFoundError` if absent."""
        name, _, branch = identifier.partition(_BRANCH)
        table = Table(
            identifier, self.io, TablePaths(self._table_root(name), branch or MAIN_BRANCH)
        )
        if not table.schemas.ids():
            raise NotFoundError(self._missing(name, branch))
        return table

    def _missing(self, identifier: str, branch: str) -> str:
        if branch and self.io.exists(self._table_root(identifier)):
            return f"table {identifier} has no branch {branch!r}"
        database = identifier.split(".", maxsplit=1)[0]
        if database not in self.databases():
            known = ", ".join(self.databases()) or "none"
            return f"there is no table {identifier} in {self.uri}: no database {database!r} (databases: {known})"
        known = ", ".join(self.tables(database)) or "none"
        return f"there is no table {identifier} in {self.uri} (tables of {database}: {known})"

    def _table_root(self, identifier: str) -> str:
        parts = identifier.split(".")
        if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
            raise InputError(f"table name {identifier!r} must be 'database.table'")
        return f"{self.root}/{parts[0]}.db/{parts[1]}"

    def create_table(
        self,
        identifier: str,
        columns: str | pa.Schema,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table, and its database if need be.

        ``columns`` is ``"id BIGINT NOT NULL, v DOUBLE"`` or an Arrow schema. Raises :class:`InputError` if the table
        exists (unless ``if_not_exists``) or the definition breaks a rule of the format.
        """
        fields = parse_columns(columns) if isinstance(columns, str) else fields_of_arrow(columns)
        schema = new_schema(
            fields,
            primary_key=primary_key,
            partition_by=partition_by,
            options=options,
            comment=comment,
            time_millis=int(time.time() * 1000),
        )
        table = Table(identifier, self.io, TablePaths(self._table_root(identifier)))
        store = SchemaStore(self.io, table.paths)
        created = not store.ids() and store.create(schema)
        if not created and not if_not_exists:
            raise InputError(f"table {identifier} exists already in {self.uri}")
        return table

    def drop_table(self, identifier: str) -> None:
        """Remove a table with all its files."""
        self.table(identifier)
        self.io.delete_dir(self._table_root(identifier))
