"""Databases and tables of a Hive metastore.

The metastore has names, locations and copies of the columns; the schema files of a table define it.
See docs/format/catalogs.md#hive-metastores.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlparse

from paimon_orch.catalog.backend import CatalogTable, LostTableError
from paimon_orch.catalog.catalog_options import (
    LOCK_ACQUIRE_TIMEOUT,
    LOCK_CHECK_MAX_SLEEP,
    LOCK_ENABLED,
)
from paimon_orch.catalog.file_system import write_next_schema
from paimon_orch.catalog.hive import hive_tables
from paimon_orch.catalog.hive.hive_lock import HiveLock
from paimon_orch.catalog.hive.hive_partitions import HivePartitions
from paimon_orch.catalog.hive.hive_settings import (
    ALTER_CASCADE,
    BATCH_SIZE,
    LOCATION_IN_PROPERTIES,
    SKIP_UPDATE_STATS,
    TABLE_TYPE,
    HiveSettings,
    read_settings,
)
from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.catalog.store_options import confine_to_served_directory, open_served_location
from paimon_orch.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    InputError,
    NotAllowedError,
    NotFoundError,
    PaimonError,
    UnsupportedError,
)
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.metastore.hive_client import (
    HiveClient,
    import_thrift_types,
    request_table,
    request_tables,
)
from paimon_orch.metastore.hive_types import choose_local_timestamp
from paimon_orch.safe_text import get_logger
from paimon_orch.storage import FileIO, resolve_warehouse
from paimon_orch.stores import find_store
from paimon_orch.table.catalog_environment import CatalogEnvironment
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.schema_change.schema_changes import ResetOption, SchemaChange
from paimon_orch.table.table import Table

logger = get_logger(__name__)


def open_hive(options: Mapping[str, Any]) -> "HiveBackend":
    """Open a Hive catalog; raises :class:`InputError` for wrong options. Does not connect."""
    settings = read_settings(options)
    import_thrift_types()
    return HiveBackend(settings, options, HiveClient(settings.address))


@dataclass(slots=True)
class HiveBackend:
    """The tables of one metastore."""

    settings: HiveSettings
    catalog_options: Mapping[str, Any] = field(repr=False)
    client: HiveClient

    @property
    def description(self) -> str:
        """Return the addresses of the metastore."""
        return str(self.settings.address)

    def require_exists(self) -> None:
        """Raise :class:`CatalogUnavailableError` if the metastore cannot be reached."""
        self.list_databases()

    def list_databases(self) -> list[str]:
        """Return the names of all databases."""
        return list(self.client.read("get_all_databases"))

    def has_database(self, database: str) -> bool:
        """Return whether a database exists."""
        return self._find_database(database) is not None

    def create_database(self, database: str) -> bool:
        """Create a database in the warehouse; return False if it exists."""
        _check_lower_case(database)
        if self.has_database(database):
            return False
        self._create_database(database)
        return True

    def _create_database(self, database: str) -> Any:
        location = f"{self.settings.warehouse}/{database}.db"
        options = self.settings.options
        if options.get(LOCATION_IN_PROPERTIES):
            io, root = self._open_location(location, database)
            if io.capabilities.has_directories:
                io.confine((root.rpartition("/")[0],)).make_dir(root)
        entry = hive_tables.build_database(database, location, options)
        try:
            self.client.write("create_database", entry)
        except AlreadyExistsError:
            logger.info("%s: another process created database %s", self.description, database)
        return self._find_database(database)

    def drop_database(self, database: str) -> None:
        """Drop a database without Paimon tables, and its directory if that is empty.

        Raises :class:`InputError` if it has other tables of Hive: they are not dropped.
        """
        entry = self._find_database(database)
        # The metastore would delete the directory with the files of external tables in it.
        deletes_data, cascades = False, False
        self.client.write("drop_database", database, deletes_data, cascades)
        options = self.settings.options
        location = None if entry is None else hive_tables.get_database_location(entry, options)
        if location is not None:
            try:
                io, root = self._open_location(location, database)
            except NotAllowedError as error:
                logger.warning("%s: its directory was kept: %s", database, error)
                return
            io.delete_empty_dir(root)

    def list_tables(self, database: str) -> list[str]:
        """Return the Paimon tables: one request for all names, and one for each batch of them."""
        names = list(self.client.read("get_all_tables", database))
        size = self.settings.options.get(BATCH_SIZE)
        tables = []
        for start in range(0, len(names), size):
            request = request_tables(database, names[start : start + size])
            tables += self.client.read("get_table_objects_by_name_req", request).tables
        return [table.tableName for table in tables if hive_tables.is_paimon_table(table)]

    def load_table(self, identifier: TableIdentifier) -> CatalogTable | None:
        """Return a table or branch.

        Raises :class:`UnsupportedError` for a table of Hive that is not a Paimon table, and
        :class:`LostTableError` if there is no schema file.
        """
        entry = self._find_table(identifier)
        if entry is None:
            return None
        _require_paimon(entry, identifier)
        io, root = self._open_location(self._get_location(entry), str(identifier))
        table = CatalogTable(
            io=io,
            root=root,
            environment=self._build_environment(identifier),
            is_external=hive_tables.is_external(entry),
        )
        if not SchemaStore(io, TablePaths(root, identifier.branch)).ids():
            if identifier.branch != MAIN_BRANCH:
                return None
            raise LostTableError(table, identifier, f"the metastore {self.description}")
        return table

    def create_table(
        self, identifier: TableIdentifier, schema: TableSchema, location: str | None
    ) -> bool:
        """Write the first schema, then add the table to the metastore."""
        _check_lower_case(identifier.database, identifier.table)
        options = self.settings.options
        database = self._find_database(identifier.database)
        existing = self._find_table(identifier) if database is not None else None
        if existing is not None:
            _require_paimon(existing, identifier)
            return False
        if database is None:
            database = self._create_database(identifier.database)
        parent = hive_tables.get_database_location(database, options)
        parent = (parent or f"{self.settings.warehouse}/{identifier.database}.db").rstrip("/")
        external = location is not None or hive_tables.is_created_external(
            schema.options, by_default=options.get(TABLE_TYPE) == "external"
        )
        if location is None:
            location = f"{parent}/{identifier.table}"
        else:
            opened = self._open_location(location, str(identifier))
            location = location if _has_scheme(location) else opened[1]
            # Java stores it, too, though the metastore's location counts.
            schema = replace(schema, options={**schema.options, "path": location})
        table = hive_tables.build_hive_table(
            identifier, schema, options, owner=self.settings.address.user, external=external
        )
        hive_tables.set_schema(
            table, schema, location, options, self._choose_local_timestamp(schema, None)
        )
        io, root = self._open_location(location, str(identifier))
        store = SchemaStore(io, TablePaths(root))
        lock = self._build_lock(identifier)
        with nullcontext() if lock is None else lock.hold():
            is_new = _create_first_schema(store, schema, external=external)
        self._add_table(identifier, table, store, schema if is_new else None)
        return True

    def _add_table(
        self, identifier: TableIdentifier, table: Any, store: SchemaStore, new: TableSchema | None
    ) -> None:
        """Add a table to the metastore; if that is refused, delete its new schema file."""
        try:
            self.client.write("create_table", table)
        except CommitOutcomeUnknownError:
            if self._find_table(identifier) is None:
                raise
        except PaimonError:
            if new is not None:
                store.io.delete(store.path(new.id))
                for directory in (store.paths.schema_dir, store.paths.root):
                    store.io.delete_empty_dir(directory)
            raise

    def drop_table(self, identifier: TableIdentifier, table: Table) -> None:
        """Drop a table, and the files of a managed one."""
        entry = self._require_table(identifier)
        managed = not hive_tables.is_external(entry)
        purge = import_thrift_types().EnvironmentContext(properties={"ifPurge": "TRUE"})
        names = identifier.database, identifier.table
        try:
            self.client.write("drop_table_with_environment_context", *names, managed, purge)
        except CommitOutcomeUnknownError:
            if self._find_table(identifier) is not None:
                raise
        if managed:
            table.io.delete_dir(table.paths.root)

    def rename_table(self, source: TableIdentifier, target: TableIdentifier, table: Table) -> bool:
        """Rename a table; the metastore moves the directory of a managed one.

        Raises :class:`UnsupportedError` for managed tables in object stores.
        """
        _check_lower_case(target.database, target.table)
        entry = self._require_table(source)
        if self._find_table(target) is not None:
            return False
        external = hive_tables.is_external(entry)
        if not table.io.capabilities.has_atomic_rename and not external:
            raise UnsupportedError(
                f"{source} cannot be renamed: it is a managed table in an object store, which has "
                "no atomic rename, so the metastore would copy each file"
            )
        entry.dbName, entry.tableName = target.database, target.table
        try:
            self.client.write("alter_table", source.database, source.table, entry)
        except CommitOutcomeUnknownError:
            if self._find_table(target) is None:
                raise
        if not external:
            self._move_files(target, table)
        return True

    def _move_files(self, target: TableIdentifier, table: Table) -> None:
        """Move the files of a renamed table if the metastore has not done so."""
        entry = self._require_table(target)
        location = self._get_location(entry)
        io, root = self._open_location(location, str(target))
        is_moved = not SchemaStore(table.io, TablePaths(table.paths.root)).ids()
        if is_moved != (root == table.paths.root):
            return
        if is_moved:  # the location in the parameters is the old one
            location = entry.sd.location
        elif not io.confine((root.rpartition("/")[0], table.paths.root)).rename_dir(
            table.paths.root, root
        ):
            raise AlreadyExistsError(
                f"{root} exists; the files of {target} are in {table.paths.root}"
            )
        hive_tables.set_location(entry, location, self.settings.options)
        self.client.write("alter_table", target.database, target.table, entry)

    def alter_table(
        self, identifier: TableIdentifier, table: Table, changes: Sequence[SchemaChange]
    ) -> TableSchema:
        """Write the next schema file, then the columns and parameters of the metastore."""
        entry = self._require_table(identifier)
        schema = write_next_schema(table, changes)
        if identifier.branch != MAIN_BRANCH:
            return schema  # the metastore shows the main branch
        options = self.settings.options
        removed = [change.key for change in changes if isinstance(change, ResetOption)]
        try:
            hive_tables.update_parameters(entry, schema, options, removed)
            local_timestamp = self._choose_local_timestamp(schema, entry)
            location = self._get_location(entry)
            hive_tables.set_schema(entry, schema, location, options, local_timestamp)
            self._alter_entry(identifier, entry)
        except CommitOutcomeUnknownError:
            raise
        except PaimonError:
            # The metastore refused the schema: it is deleted unless a newer one builds on it.
            store = table.stores.schemas
            if store.ids()[-1] == schema.id:
                table.io.delete(store.path(schema.id))
            raise
        return schema

    def _alter_entry(self, identifier: TableIdentifier, entry: Any) -> None:
        options = self.settings.options
        skips = entry.parameters.get("DO_NOT_UPDATE_STATS", "").lower() == "true"
        properties = {"DO_NOT_UPDATE_STATS": str(skips or options.get(SKIP_UPDATE_STATS)).lower()}
        if options.get(ALTER_CASCADE):
            properties["CASCADE"] = "true"
        self.client.write(
            "alter_table_with_environment_context",
            identifier.database,
            identifier.table,
            entry,
            import_thrift_types().EnvironmentContext(properties=properties),
        )

    def _find_database(self, database: str) -> Any:
        try:
            return self.client.read("get_database", database)
        except NotFoundError:
            return None

    def _find_table(self, identifier: TableIdentifier) -> Any:
        request = request_table(identifier.database, identifier.table)
        try:
            return self.client.read("get_table_req", request).table
        except NotFoundError:
            return None

    def _require_table(self, identifier: TableIdentifier) -> Any:
        entry = self._find_table(identifier)
        if entry is None:
            raise NotFoundError(f"there is no table {identifier.main} in {self.description}")
        _require_paimon(entry, identifier)
        return entry

    def _get_location(self, entry: Any) -> str:
        location = hive_tables.get_table_location(entry, self.settings.options)
        if location is None:
            raise InputError(f"{entry.dbName}.{entry.tableName} has no location in the metastore")
        return location.rstrip("/")

    def _open_location(self, location: str, identifier: str) -> tuple[FileIO, str]:
        """Return the file system of a location, which may differ from that of the warehouse.

        ``identifier`` is the table or database. Raises :class:`NotAllowedError` for a local
        directory outside of the warehouse.
        """
        if location.startswith("file:"):  # the metastore does not encode the path
            path = location.removeprefix("file:").lstrip("/")
            io, root = resolve_warehouse(f"/{path}")
        elif not _has_scheme(location):
            io, root = resolve_warehouse(location)
        else:
            io, root = open_served_location(self.catalog_options, location)
        io = confine_to_served_directory(
            self.catalog_options, io, root, identifier, warehouse=self.settings.warehouse
        )
        return io, root

    def _build_environment(self, identifier: TableIdentifier) -> CatalogEnvironment:
        partitions = HivePartitions(
            client=self.client,
            database=identifier.database,
            table=identifier.table,
            options=self.settings.options,
        )
        return CatalogEnvironment(
            lock=self._build_lock(identifier),
            partitions=partitions,
            marks=partitions,
            is_service=True,
        )

    def _build_lock(self, identifier: TableIdentifier) -> HiveLock | None:
        options = self.settings.options
        scheme = urlparse(self.settings.warehouse).scheme
        store = find_store(scheme)
        is_local = scheme in ("", "file")
        # Java commits without a lock where a rename is atomic.
        has_rename = is_local if store is None else store.capabilities.has_atomic_rename
        if not options.get(LOCK_ENABLED, not has_rename):
            return None
        return HiveLock(
            client=self.client,
            identifier=identifier,
            acquire_timeout=options.get(LOCK_ACQUIRE_TIMEOUT).total_seconds(),
            max_sleep=options.get(LOCK_CHECK_MAX_SLEEP).total_seconds(),
        )

    def _choose_local_timestamp(self, schema: TableSchema, entry: Any) -> str:
        """Return the Hive type of TIMESTAMP_LTZ: that of the table, or of the metastore's release."""
        existing = [] if entry is None else hive_tables.list_column_types(entry)
        return choose_local_timestamp(
            self.client, [field.type for field in schema.fields], existing
        )


def _has_scheme(location: str) -> bool:
    return ":" in location.partition("/")[0]


def _require_paimon(entry: Any, identifier: TableIdentifier) -> None:
    if not hive_tables.is_paimon_table(entry):
        kind = "a view" if entry.tableType == "VIRTUAL_VIEW" else "a table of another format"
        raise UnsupportedError(f"{identifier.main} in the metastore is {kind}, no Paimon table")


def _check_lower_case(*names: str) -> None:
    for name in names:
        if name != name.lower():
            raise InputError(f"name {name!r} must be lower case, as a Hive metastore stores it so")


def _create_first_schema(store: SchemaStore, schema: TableSchema, *, external: bool) -> bool:
    """Write the first schema; return False if an external table has the same one already."""
    if not store.ids() and store.create(schema):
        return True
    if not external:
        raise AlreadyExistsError(
            f"{store.paths.root} has a Paimon table that the metastore does not have; move its "
            "files, or create the table as external"
        )
    existing = store.latest()
    different = [
        name
        for name in ("fields", "partition_keys", "primary_keys")
        if getattr(existing, name) != getattr(schema, name)
    ]
    ignored = ("owner", "path")
    given = {key: value for key, value in schema.options.items() if key not in ignored}
    if given and given != {k: v for k, v in existing.options.items() if k not in ignored}:
        different.append("options")
    if different:
        raise InputError(
            f"{store.paths.root} has a Paimon table with different {', '.join(different)}"
        )
    return False
