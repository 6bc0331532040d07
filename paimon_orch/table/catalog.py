"""A warehouse: databases and tables in a file system.

See docs/format/table-layout.md#directory-tree.
"""

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.schema import TableSchema, build_table_schema
from paimon_orch.format.types.arrow import to_paimon_fields
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.storage import resolve_warehouse
from paimon_orch.table.cleanup.safe_delete import list_file_roots
from paimon_orch.table.iceberg.iceberg_settings import find_external_directory
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.schema_change.apply_schema_changes import alter_schema
from paimon_orch.table.schema_change.deletion_vectors_switch import check_deletion_vectors_change
from paimon_orch.table.schema_change.schema_changes import SchemaChange, SetOption
from paimon_orch.table.step_gate import require_external_systems, warn_of_options
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.table import Table

logger = logging.getLogger(__name__)

_NAME_PATTERN = re.compile(r"[^/\\.$\x00-\x1f]+")
_BRANCH_SEPARATOR = "$branch_"
_SYSTEM_DATABASE = "sys"


class Catalog:
    """The tables below one warehouse location.

    >>> catalog = Catalog("/warehouse")
    >>> catalog.create_table("db.orders", "id BIGINT NOT NULL, status STRING", primary_key=["id"],
    ...                      options={"bucket": "2"})
    >>> table = catalog.table("db.orders")
    """

    def __init__(
        self, uri: str, *, allowances: Allowances = NO_ALLOWANCES, **storage_options: Any
    ) -> None:
        """Open a warehouse, which may not exist yet: a local path or the URI of an object store.

        ``storage_options`` are the fsspec options of the store, such as ``key``, ``secret`` and
        ``endpoint_url``. The environment variable ``PAIMON_STORAGE_OPTIONS``, a JSON object, adds
        further options. ``allowances`` apply to all tables that this catalog opens; see
        :meth:`Table.allow`.
        """
        self.uri = str(uri)
        self.allowances = allowances
        self.io, self.root = resolve_warehouse(self.uri, storage_options)

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
            existing = ", ".join(self.databases()) or "none"
            raise NotFoundError(f"{self.uri} has no database {database!r}; it has {existing}")
        candidates = (info for info in self.io.list_dir(directory) if info.is_dir)
        return sorted(i.name for i in candidates if self.io.exists(f"{i.path}/schema"))

    def table(self, identifier: str) -> Table:
        """Return a table or ``database.table$branch_name``; raises :class:`NotFoundError`."""
        name, _, branch = identifier.partition(_BRANCH_SEPARATOR)
        paths = TablePaths(self._get_table_root(name), branch or MAIN_BRANCH)
        table = Table(identifier, self.io, paths, self.allowances)
        if not table.stores.schemas.ids():
            raise NotFoundError(self._describe_missing_table(name, branch))
        return table

    def open(self, identifier: str) -> Table | SystemTable:
        """Return a table, a branch, or a system table, for example ``db.t$files``."""
        name, separator, system = identifier.rpartition("$")
        if not separator or system.startswith(_BRANCH_SEPARATOR[1:]):
            return self.table(identifier)
        return self.table(name).system(system)

    def _describe_missing_table(self, identifier: str, branch: str) -> str:
        if branch and self.io.exists(self._get_table_root(identifier)):
            return f"table {identifier} has no branch {branch!r}"
        database = identifier.split(".", maxsplit=1)[0]
        if database not in self.databases():
            existing = ", ".join(self.databases()) or "none"
            return (
                f"there is no table {identifier} in {self.uri}: no database {database!r} "
                f"(databases: {existing})"
            )
        existing = ", ".join(self.tables(database)) or "none"
        return f"there is no table {identifier} in {self.uri} (tables of {database}: {existing})"

    def _get_table_root(self, identifier: str) -> str:
        parts = identifier.split(".")
        if len(parts) != 2 or not all(_NAME_PATTERN.fullmatch(part) for part in parts):
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
        """Create a table, and its database if it does not exist.

        ``columns`` is ``"id BIGINT NOT NULL, v DOUBLE"`` or an Arrow schema. Raises
        :class:`InputError` if the table exists (unless ``if_not_exists``) or the definition breaks
        a rule of the format. Logs a warning for each option that is unknown or that some step will
        refuse.
        """
        fields = parse_columns(columns) if isinstance(columns, str) else to_paimon_fields(columns)
        schema = build_table_schema(
            fields,
            primary_key=primary_key,
            partition_by=partition_by,
            options=options,
            comment=comment,
            time_millis=int(time.time() * 1000),
        )
        paths = TablePaths(self._get_table_root(identifier))
        table = Table(identifier, self.io, paths, self.allowances)
        store = SchemaStore(self.io, table.paths)
        created = not store.ids() and store.create(schema)
        if not created and not if_not_exists:
            raise InputError(f"table {identifier} already exists in {self.uri}")
        if created:
            warn_of_options(identifier, schema.options)
        return table

    def create_database(self, database: str, *, if_not_exists: bool = False) -> None:
        """Create an empty database; :meth:`create_table` also creates the table's database.

        Raises :class:`InputError` if it exists (unless ``if_not_exists``), and
        :class:`UnsupportedError` in object stores, which have no empty directories.
        """
        if not self.io.make_dir(self._get_database_root(database)) and not if_not_exists:
            raise InputError(f"database {database!r} already exists in {self.uri}")

    def drop_database(
        self, database: str, *, cascade: bool = False, if_exists: bool = False
    ) -> None:
        """Drop a database; raises :class:`InputError` if it has tables, unless ``cascade``."""
        self.list_tables_to_drop(database, cascade=cascade, if_exists=if_exists)
        self.io.delete_dir(self._get_database_root(database))

    def list_tables_to_drop(
        self, database: str, *, cascade: bool = False, if_exists: bool = False
    ) -> list[str]:
        """Return the tables that :meth:`drop_database` deletes; raises the same errors."""
        if not self.io.exists(self._get_database_root(database)):
            if if_exists:
                return []
            existing = ", ".join(self.databases()) or "none"
            raise NotFoundError(f"{self.uri} has no database {database!r}; it has {existing}")
        tables = self.tables(database)
        if tables and not cascade:
            raise InputError(
                f"database {database!r} has the tables {', '.join(tables)}; drop them first, or "
                "drop the database with cascade"
            )
        for table in tables:
            self.can_drop_table(f"{database}.{table}")
        return tables

    def _get_database_root(self, database: str) -> str:
        if not _NAME_PATTERN.fullmatch(database):
            raise InputError(
                f"database name {database!r} must not be empty or contain '.', '$' or '/'"
            )
        if database == _SYSTEM_DATABASE:
            raise InputError(f"database name {database!r} is reserved for system tables")
        return f"{self.root}/{database}.db"

    def drop_table(self, identifier: str, *, if_exists: bool = False) -> None:
        """Drop a table with all its files and branches."""
        if not self.can_drop_table(identifier, if_exists=if_exists):
            return
        table = self.table(identifier)
        external = list_file_roots(self.io, table.paths)[1:]
        self._delete_iceberg_metadata(find_external_directory(table.schema, table.paths))
        self.io.delete_dir(self._get_table_root(identifier))
        if external:
            logger.warning(
                "%s was dropped; its files in external paths were not deleted, as other tables may "
                "use these directories: %s",
                identifier,
                ", ".join(external),
            )

    def _delete_iceberg_metadata(self, directory: str | None) -> None:
        if directory is not None:
            self.io.delete_dir(directory)

    def can_drop_table(self, identifier: str, *, if_exists: bool = False) -> bool:
        """Return whether :meth:`drop_table` has a table to delete; raises the same errors."""
        if _BRANCH_SEPARATOR in identifier:
            raise InputError(f"{identifier} is a branch: drop it with Table.branches.delete")
        try:
            table = self.table(identifier)
        except NotFoundError:
            if not if_exists:
                raise
            return False
        require_external_systems(identifier, table.options.values, self.allowances)
        return True

    def count_files(self, identifier: str) -> tuple[int, int]:
        """Return the number of files below a table's directory, and their total size in bytes."""
        count, size, directories = 0, 0, [self._get_table_root(identifier)]
        while directories:
            for info in self.io.list_dir(directories.pop()):
                if info.is_dir:
                    directories.append(info.path)
                else:
                    count, size = count + 1, size + info.size
        return count, size

    def rename_table(self, identifier: str, to: str) -> Table:
        """Rename a table, or move it to another existing database; return the renamed table.

        Renames the table's directory, including its branches, atomically. No other process may
        write to the table during the call, as it would continue under the old name. Raises
        :class:`UnsupportedError` in object stores, which have no atomic rename, and
        :class:`InputError` if the new name is taken.
        """
        if _BRANCH_SEPARATOR in identifier or _BRANCH_SEPARATOR in to:
            raise InputError(f"{identifier} cannot become {to}: branches cannot be renamed")
        source, target = self.table(identifier), self._get_table_root(to)
        source.stores.check_step(StepKind.METADATA)
        database = to.split(".", maxsplit=1)[0]
        if database not in self.databases():
            existing = ", ".join(self.databases()) or "none"
            raise NotFoundError(f"{self.uri} has no database {database!r}; it has {existing}")
        iceberg_directory = find_external_directory(source.schema, source.paths)
        if not self.io.rename_dir(source.paths.root, target):
            raise InputError(f"table {to} already exists in {self.uri}")
        renamed = self.table(to)
        renamed.stores.publish_iceberg_metadata()
        self._delete_iceberg_metadata(iceberg_directory)
        return renamed

    def alter_table(self, identifier: str, changes: Iterable[SchemaChange]) -> TableSchema:
        """Apply all changes to columns, options or comments in one schema version.

        Returns the new schema. Old files are not rewritten; reads convert their rows. Raises
        :class:`InputError` if a change breaks a rule of the format; the table is then unchanged.

        >>> note = AddColumn(column="note", type="STRING")
        >>> catalog.alter_table("db.orders", [note, SetOption("bucket", "4")])

        See docs/format/schema.md#schema-changes.
        """
        table, changes = self.table(identifier), list(changes)
        table.stores.check_step(StepKind.ALTER)
        check_deletion_vectors_change(table, changes)
        schema = alter_schema(
            table.stores.schemas,
            changes,
            has_snapshots=lambda: table.stores.snapshots.latest_id() is not None,
            time_millis=int(time.time() * 1000),
        )
        table.stores.publish_iceberg_metadata()
        altered = {change.key for change in changes if isinstance(change, SetOption)}
        warn_of_options(identifier, {k: v for k, v in schema.options.items() if k in altered})
        return schema
