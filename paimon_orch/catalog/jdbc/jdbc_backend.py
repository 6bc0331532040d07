"""A catalog in an SQL database: rows name databases and tables, whose files are in a warehouse.

See docs/format/catalogs.md#jdbc-catalogs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from paimon_orch.catalog.backend import CatalogTable, LostTableError
from paimon_orch.catalog.catalog_options import (
    LOCK_ACQUIRE_TIMEOUT,
    LOCK_CHECK_MAX_SLEEP,
    LOCK_ENABLED,
    LOCK_TYPE,
    URI,
    WAREHOUSE,
    check_option_names,
    require_option,
)
from paimon_orch.catalog.file_system import refuse_location, write_next_schema
from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.catalog.jdbc.jdbc_database import JdbcDatabase
from paimon_orch.catalog.jdbc.jdbc_lock import JdbcLock
from paimon_orch.catalog.jdbc.jdbc_tables import (
    DATABASE_PROPERTIES,
    TABLE_PROPERTIES,
    TABLES,
    VIEWS,
)
from paimon_orch.catalog.jdbc.jdbc_url import parse_jdbc_url
from paimon_orch.catalog.store_options import open_location
from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogUnavailableError,
    InputError,
    NotFoundError,
    PaimonError,
)
from paimon_orch.format.options import Options
from paimon_orch.format.options.option_builders import honoured
from paimon_orch.format.options.value_type import BOOLEAN, INTEGER, TEXT
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.retry_policy import RetryPolicy
from paimon_orch.safe_text import get_logger
from paimon_orch.storage import FileIO
from paimon_orch.table.catalog_environment import CatalogEnvironment
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.schema_change.schema_changes import SchemaChange
from paimon_orch.table.table import Table

logger = get_logger(__name__)

JDBC_PREFIX = "jdbc."
"""The prefix of properties of the driver."""
CATALOG_KEY = honoured("catalog-key", TEXT, "jdbc")
LOCK_KEY_MAX_LENGTH = honoured("lock-key-max-length", INTEGER, "255")
SYNC_ALL_PROPERTIES = honoured("sync-all-properties", BOOLEAN, "true")

_REGISTRATION = RetryPolicy(attempts=6, min_wait=0.05, max_wait=0.5)
"""How long a table may have a schema file and no row yet, while another process creates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOptions:
    """How tables are locked."""

    acquire_timeout: timedelta
    check_max_sleep: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcBackend:
    """The tables that one catalog key names in an SQL database."""

    io: FileIO = field(repr=False)
    root: str
    database: JdbcDatabase
    key: str
    """The name of the catalog in the database, which several catalogs can share."""
    lock: LockOptions | None

    @property
    def description(self) -> str:
        """Return the address of the database, without credentials."""
        return self.database.address.description

    def require_exists(self) -> None:
        """Raise :class:`NotFoundError` if the file of a SQLite database does not exist."""
        address = self.database.address
        path = address.url.database
        if address.kind == "sqlite" and path is not None and not Path(path).exists():
            raise NotFoundError(
                f"{self.description} does not exist; check the option 'uri', or create a table "
                "with paimon-orch create"
            )
        self.database.create_tables()

    def list_databases(self) -> list[str]:
        """Return the names of all databases that have a table, a view or a property."""
        names = (
            sa.select(table.c.database_name).where(table.c.catalog_key == self.key)
            for table in self._list_naming_tables()
        )
        return [name for (name,) in self.database.read(sa.union(*names))]

    def has_database(self, database: str) -> bool:
        """Return whether a database has a table, a view or a property."""
        return bool(self.database.read(self._select_exists(database))[0][0])

    def create_database(self, database: str) -> bool:
        """Insert the properties of an empty database."""

        def insert(connection: sa.Connection) -> bool:
            if connection.execute(self._select_exists(database)).scalar_one():
                return False
            rows = [("exists", "true"), ("location", self._get_database_root(database))]
            self._insert_properties(connection, DATABASE_PROPERTIES, (database,), rows)
            return True

        try:
            return self.database.run_transaction(insert)
        except AlreadyExistsError:
            return False

    def drop_database(self, database: str) -> None:
        """Delete the properties of a database; as in Java, its directory is kept."""
        kinds = [(TABLES, "tables")]
        if self.database.has_views(is_certain=True):
            kinds.append((VIEWS, "views"))

        def delete(connection: sa.Connection) -> None:
            for table, kind in kinds:
                names = connection.execute(
                    sa.select(table.c[2]).where(*self._match(table, database))
                ).scalars()
                existing = ", ".join(sorted(names))
                if existing:
                    raise InputError(
                        f"database {database!r} has the {kind} {existing}; "
                        "drop them first, with the program that has created them"
                    )
            for table in [DATABASE_PROPERTIES, *self._table_property_tables()]:
                connection.execute(sa.delete(table).where(*self._match(table, database)))

        self.database.run_transaction(delete)

    def list_tables(self, database: str) -> list[str]:
        """Return the names in the rows of a database."""
        names = sa.select(TABLES.c.table_name).where(*self._match(TABLES, database))
        return [name for (name,) in self.database.read(names)]

    def load_table(self, identifier: TableIdentifier) -> CatalogTable | None:
        """Return a table or branch that has a row and a schema."""
        if not self._has_table(identifier):
            return None
        io, root = self._locate_table(identifier)
        table = CatalogTable(
            io=io,
            root=root,
            environment=CatalogEnvironment(lock=self._build_lock(identifier), is_service=True),
        )
        if not SchemaStore(io, TablePaths(table.root, identifier.branch)).ids():
            if identifier.branch != MAIN_BRANCH:
                return None
            raise LostTableError(table, identifier, self.description)
        return table

    def _locate_table(self, identifier: TableIdentifier) -> tuple[FileIO, str]:
        """Return the directory of a table, and the file system for it."""
        root = self._get_table_root(identifier)
        return self.io.confine((root,), (self.root,)), root

    def create_table(
        self, identifier: TableIdentifier, schema: TableSchema, location: str | None
    ) -> bool:
        """Write the first schema of a table, and insert its row, as Java does."""
        refuse_location(identifier, location)
        if not self.has_database(identifier.database):
            self.create_database(identifier.database)
        io, root = self._locate_table(identifier)
        store = SchemaStore(io, TablePaths(root))
        with self._hold_locks(identifier):
            if self._has_table(identifier):
                return False
            self._refuse_view(identifier)
            if store.ids() or not store.create(schema):
                return self._refuse_unregistered(identifier)
            self._register(identifier, store.path(schema.id))
        self._write_properties(identifier, schema)
        return True

    def _register(self, identifier: TableIdentifier, schema_path: str) -> None:
        """Insert the row of a table; delete its schema if the database refuses the row."""
        values = self.key, identifier.database, identifier.table
        row = dict(zip(TABLES.c.keys(), values, strict=True))
        try:
            self.database.run_transaction(lambda c: c.execute(sa.insert(TABLES).values(row)))
        except (InputError, AccessDeniedError):  # other errors may hide that it was inserted
            with suppress(PaimonError, OSError):
                self._locate_table(identifier)[0].delete(schema_path)
            raise

    def _refuse_unregistered(self, identifier: TableIdentifier) -> bool:
        """Return False if another process creates the table at this moment, else raise an error."""
        if _REGISTRATION.call_until_result(lambda: self._has_table(identifier) or None):
            return False
        raise AlreadyExistsError(
            f"{self._get_table_root(identifier)} has the files of a table that is not in "
            f"{self.description}, so {identifier} cannot be created; move or delete the directory"
        )

    def drop_table(self, identifier: TableIdentifier, table: Table) -> None:
        """Delete the rows of a table, and then its directory."""

        def delete(connection: sa.Connection) -> None:
            for rows in (TABLES, *self._table_property_tables()):
                connection.execute(sa.delete(rows).where(*self._match_table(rows, identifier)))

        self.database.run_transaction(delete)
        table.io.delete_dir(table.paths.root)

    def rename_table(self, source: TableIdentifier, target: TableIdentifier, table: Table) -> bool:
        """Change the rows of a table and rename its directory, both or neither."""
        target_root = self._get_table_root(target)
        io = self.io.confine((self.root,))
        renamed = False

        def rename(connection: sa.Connection) -> None:
            nonlocal renamed
            names = {"database_name": target.database, "table_name": target.table}
            for rows in (TABLES, *self._table_property_tables()):
                matches = self._match_table(rows, source)
                connection.execute(sa.update(rows).where(*matches).values(names))
            if not io.rename_dir(table.paths.root, target_root):
                raise AlreadyExistsError(
                    f"{target_root} exists, but is not a table in {self.description}; move or "
                    "delete the directory"
                )
            renamed = True

        with self._hold_locks(source, target):
            if self._has_table(target):
                return False
            self._refuse_view(target)
            try:
                self.database.run_transaction(rename)
            except CatalogUnavailableError:
                if not renamed:
                    raise
                if not self._has_table(target):  # the rows were not committed
                    io.rename_dir(target_root, table.paths.root)
                    raise
        return True

    def alter_table(
        self, identifier: TableIdentifier, table: Table, changes: Sequence[SchemaChange]
    ) -> TableSchema:
        """Write the next schema of a table under its lock, and copy its options."""
        schema = write_next_schema(table, changes)
        if identifier.branch == MAIN_BRANCH:
            self._write_properties(identifier, schema)
        return schema

    def _write_properties(self, identifier: TableIdentifier, schema: TableSchema) -> None:
        """Copy the options of a table to the database, for people: no catalog reads them."""
        if not self.database.has_properties:
            return

        def write(connection: sa.Connection) -> None:
            matches = self._match_table(TABLE_PROPERTIES, identifier)
            connection.execute(sa.delete(TABLE_PROPERTIES).where(*matches))
            names = (identifier.database, identifier.table)
            rows = list(schema.list_properties().items())
            self._insert_properties(connection, TABLE_PROPERTIES, names, rows)

        try:
            self.database.run_transaction(write)
        except PaimonError as error:
            logger.warning(
                "the options of %s are changed, but not copied to paimon_table_properties: %s",
                identifier,
                error,
            )

    def _insert_properties(
        self,
        connection: sa.Connection,
        table: sa.Table,
        names: Sequence[str],
        properties: Sequence[tuple[str, str]],
    ) -> None:
        columns = table.c.keys()
        rows = [dict(zip(columns, (self.key, *names, *pair), strict=True)) for pair in properties]
        if rows:
            connection.execute(sa.insert(table).values(rows))

    def _build_lock(self, identifier: TableIdentifier) -> JdbcLock | None:
        if self.lock is None:
            return None
        return JdbcLock(
            database=self.database,
            lock_id=f"{self.key}.{identifier}",
            acquire_timeout=self.lock.acquire_timeout,
            check_max_sleep=self.lock.check_max_sleep,
        )

    @contextmanager
    def _hold_locks(self, *identifiers: TableIdentifier) -> Iterator[None]:
        """Hold the locks of tables, if they are enabled, in an order that prevents deadlocks."""
        with ExitStack() as stack:
            for identifier in sorted(identifiers, key=lambda i: (i.database, i.table)):
                lock = self._build_lock(identifier)
                if lock is not None:
                    stack.enter_context(lock.hold())
            yield

    def _has_table(self, identifier: TableIdentifier) -> bool:
        name = sa.select(TABLES.c.table_name).where(*self._match_table(TABLES, identifier))
        return bool(self.database.read(name))

    def _refuse_view(self, identifier: TableIdentifier) -> None:
        """Raise :class:`AlreadyExistsError` if a view has the name of a new table."""
        if not self.database.has_views(is_certain=True):
            return
        names = (VIEWS.c.view_name == identifier.table, *self._match(VIEWS, identifier.database))
        if self.database.read(sa.select(VIEWS.c.view_name).where(*names)):
            raise AlreadyExistsError(f"{identifier} is a view in {self.description}")

    def _select_exists(self, database: str) -> sa.Select[Any]:
        return sa.select(
            sa.or_(
                *(
                    sa.exists().where(*self._match(table, database))
                    for table in self._list_naming_tables()
                )
            )
        )

    def _list_naming_tables(self) -> list[sa.Table]:
        """Return the tables whose rows make a database exist."""
        views = [VIEWS] if self.database.has_views() else []
        return [TABLES, DATABASE_PROPERTIES, *views]

    def _match(self, table: sa.Table, database: str) -> tuple[sa.ColumnElement[bool], ...]:
        return table.c.catalog_key == self.key, table.c.database_name == database

    def _match_table(
        self, table: sa.Table, identifier: TableIdentifier
    ) -> tuple[sa.ColumnElement[bool], ...]:
        is_named = table.c.table_name == identifier.table
        return *self._match(table, identifier.database), is_named

    def _table_property_tables(self) -> list[sa.Table]:
        return [TABLE_PROPERTIES] if self.database.has_properties else []

    def _get_database_root(self, database: str) -> str:
        return f"{self.root}/{database}.db"

    def _get_table_root(self, identifier: TableIdentifier) -> str:
        return f"{self._get_database_root(identifier.database)}/{identifier.table}"


def open_jdbc_backend(options: Mapping[str, Any]) -> JdbcBackend:
    """Open a catalog by its options; connects to no database yet."""
    known = (
        URI,
        CATALOG_KEY,
        LOCK_ENABLED,
        LOCK_TYPE,
        LOCK_ACQUIRE_TIMEOUT,
        LOCK_CHECK_MAX_SLEEP,
        LOCK_KEY_MAX_LENGTH,
        SYNC_ALL_PROPERTIES,
    )
    check_option_names(options, known, (JDBC_PREFIX,))
    properties = {
        name.removeprefix(JDBC_PREFIX): str(value)
        for name, value in options.items()
        if name.startswith(JDBC_PREFIX)
    }
    address = parse_jdbc_url(require_option(options, URI), properties)
    io, root = open_location(options, require_option(options, WAREHOUSE))
    typed = Options(
        {option.key: str(options[option.key]) for option in known if option.key in options}
    )
    lock = _read_lock_options(typed, is_object_store=not io.capabilities.has_atomic_rename)
    database = JdbcDatabase(
        address=address,
        has_properties=typed.get(SYNC_ALL_PROPERTIES),
        lock_key_length=None if lock is None else typed.get(LOCK_KEY_MAX_LENGTH),
    )
    return JdbcBackend(io=io, root=root, database=database, key=typed.get(CATALOG_KEY), lock=lock)


def _read_lock_options(options: Options, *, is_object_store: bool) -> LockOptions | None:
    """Return how to lock tables, or None if locks are not enabled.

    Raises :class:`InputError` for locks of another type.
    """
    if options.get(LOCK_TYPE, "jdbc") != "jdbc":
        raise InputError("a catalog with metastore=jdbc needs lock.type=jdbc, or no such option")
    lock = LockOptions(
        acquire_timeout=options.get(LOCK_ACQUIRE_TIMEOUT),
        check_max_sleep=options.get(LOCK_CHECK_MAX_SLEEP),
    )
    return lock if options.get(LOCK_ENABLED, is_object_store) else None
