"""The public API of a catalog: databases and tables, wherever the catalog keeps them.

See docs/format/catalogs.md.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from paimon_orch.catalog.backend import (
    CatalogBackend,
    CatalogTable,
    LostTableError,
    SnapshotBackend,
)
from paimon_orch.catalog.catalog_options import (
    ALLOWED_EXTERNAL_PATHS,
    ALLOWED_HOSTS,
    extract_table_defaults,
    read_permissions,
)
from paimon_orch.catalog.file_system import FileSystemBackend
from paimon_orch.catalog.identifier import BRANCH_SEPARATOR, TableIdentifier, check_database_name
from paimon_orch.catalog.named_catalogs import describe_unconfigured_name
from paimon_orch.catalog.open_backend import open_backend, resolve_options
from paimon_orch.errors import AlreadyExistsError, InputError, NotFoundError
from paimon_orch.format.argument_checks import check_names, check_text, to_option_texts
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.text import select_names
from paimon_orch.format.types.arrow import to_paimon_fields
from paimon_orch.format.types.data_types import Field, parse_columns
from paimon_orch.safe_text import format_names, format_similar_names, get_logger
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.storage.concurrency import map_concurrently, overlap_operations
from paimon_orch.table.catalog_environment import SnapshotsNotServedError
from paimon_orch.table.iceberg.iceberg_settings import (
    find_external_directory,
    list_metadata_directories,
)
from paimon_orch.table.permissions import find_directory_requests
from paimon_orch.table.step_gate import require_external_systems, warn_of_options
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import build_table_state

if TYPE_CHECKING:
    from paimon_orch.catalog.catalog_tables import CatalogSystemTable
    from paimon_orch.table.schema_change.schema_changes import SchemaChange
    from paimon_orch.table.system_table import SystemTable

T = TypeVar("T")

logger = get_logger(__name__)

_LOCATION_OPTION = "path"
"""The location of an external table, which the catalog stores and not the schema."""


class Catalog:
    """The databases and tables of one catalog: a directory, a REST server, a metastore or SQL.

    >>> catalog = Catalog("/warehouse")
    >>> catalog.create_table("db.orders", "id BIGINT NOT NULL, status STRING", primary_key=["id"],
    ...                      options={"bucket": "2"})
    >>> table = catalog.table("db.orders")
    >>> Catalog(metastore="rest", uri="https://catalog.example.com", warehouse="prod", token="...")
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | None = None,
        *,
        allowances: Allowances = NO_ALLOWANCES,
        allowed_external_paths: Iterable[str] = (),
        allowed_hosts: Iterable[str] = (),
        **options: Any,
    ) -> None:
        """Open a catalog; this may read its configuration, and nothing else.

        Without ``metastore``, ``uri`` is the name of a configured catalog, or a warehouse
        directory, which may not exist yet: a local path or the URI of an object store. ``options``
        are then the fsspec options of the store, such as ``key``, ``secret`` and
        ``endpoint_url``. The environment variable ``PAIMON_STORAGE_OPTIONS``, a JSON object, adds
        further options.

        With ``metastore`` (``filesystem``, ``rest``, ``hive`` or ``jdbc``), ``uri`` and ``options``
        are catalog options of Paimon; options of the store begin with ``storage.``.

        ``allowances`` apply to all tables that this catalog opens; see :meth:`Table.allow`.

        ``allowed_external_paths`` and ``allowed_hosts`` say which directories outside of its own,
        and which hosts, a table may use if its options ask for them; by default none. In a path,
        ``{database}`` and ``{table}`` stand for the names of the table; a path without them allows
        the directory ``<path>/<database>.db/<table>``, and a path that ends with ``/*`` is open to
        all tables. The options ``allowed-external-paths`` and ``allowed-hosts``, texts with commas,
        add to them.
        """
        self.allowances = allowances
        if uri is not None:
            uri = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
            check_text("the location of a catalog", uri, "/lake")
        self.name, resolved = resolve_options(uri, options)
        """The name in the configuration, or None."""
        for option, values in (
            (ALLOWED_EXTERNAL_PATHS, allowed_external_paths),
            (ALLOWED_HOSTS, allowed_hosts),
        ):
            configured = resolved.get(option.key) or ()  # a text, or a list of a YAML file
            texts = (configured,) if isinstance(configured, str) else configured
            if names := [*texts, *values]:
                resolved[option.key] = ",".join(names)
        self.backend: CatalogBackend = open_backend(resolved)
        self.permissions = read_permissions(resolved)
        """What tables may use outside of their directories."""
        self._table_defaults = extract_table_defaults(resolved)

    @property
    def uri(self) -> str:
        """Return the location of the catalog, without secrets."""
        return self.backend.description

    def __repr__(self) -> str:
        return f"Catalog({self.uri!r})"

    @property
    def waits_for_network(self) -> bool:
        """Return whether the catalog, or its store, answers over a network."""
        if isinstance(self.backend, FileSystemBackend):
            return self.backend.io.capabilities.has_slow_requests
        return True

    def examine_each(self, examine: Callable[[str], T], names: Iterable[str]) -> Iterator[T]:
        """Yield ``examine(name)`` for each table; a few at the same time if the catalog is remote."""
        return (overlap_operations if self.waits_for_network else map)(examine, names)

    def require_exists(self) -> None:
        """Raise :class:`NotFoundError` if the location of the catalog does not exist."""
        self.backend.require_exists()

    def databases(self) -> list[str]:
        """Return the names of all databases, sorted."""
        return sorted(self.backend.list_databases())

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables, sorted."""
        self._require_database(database)
        return sorted(self.backend.list_tables(database))

    def find_tables(
        self,
        *,
        including_databases: str | None = None,
        including_tables: str | None = None,
        excluding_tables: str | None = None,
    ) -> list[str]:
        """Return the ``database.table`` names that regular expressions select, sorted.

        ``including_databases`` must match the whole name of the database, the other expressions the
        whole ``database.table``; the default selects all tables. Raises :class:`InputError` for an
        invalid expression.
        """
        names = [
            f"{database}.{table}"
            for database in select_names(self.databases(), including_databases)
            for table in self.tables(database)
        ]
        return select_names(names, including_tables, excluding_tables)

    def _require_database(self, database: str) -> None:
        if not self.backend.has_database(database):
            raise NotFoundError(
                f"{self.uri} has no database {database!r}; it has {format_names(self.databases())}"
            )

    def table(self, identifier: str) -> Table:
        """Return a table or ``database.table$branch_name``; raises :class:`NotFoundError`."""
        parsed = TableIdentifier.parse(identifier)
        table = self._find_table(parsed)
        if table is None:
            raise NotFoundError(self._describe_missing_table(parsed))
        return table

    def locate(self, identifier: str) -> Table:
        """Return a table as :meth:`table` does; if its name tells its place, without a request.

        The table may not exist. Use this to read a file of the table that shows whether it does.
        """
        if not isinstance(self.backend, FileSystemBackend):
            return self.table(identifier)
        parsed = TableIdentifier.parse(identifier)
        return self._open_table(parsed, self.backend.locate_table(parsed))

    def _find_table(self, identifier: TableIdentifier) -> Table | None:
        """Return a table or branch, or None if it does not exist."""
        entry = self.backend.load_table(identifier)
        return None if entry is None else self._open_table(identifier, entry)

    def _open_table(self, identifier: TableIdentifier, entry: CatalogTable) -> Table:
        # Others may write links next to the table, and in the shared directory of Iceberg metadata.
        published = list_metadata_directories(entry.root)[1:]
        shared = [path.rsplit("/", 3)[0] for path in published]
        anchors = [*shared, *self.permissions.list_shared_directories()]
        allowed = self.permissions.list_directories(str(identifier))
        return Table(
            str(identifier),
            entry.io.confine((entry.root, *published, *allowed), anchors),
            TablePaths(entry.root, identifier.branch),
            self.allowances,
            environment=replace(
                entry.environment,
                command_argument=self._command_argument,
                permissions=self.permissions,
            ),
            hint=entry.hint,
        )

    @property
    def _command_argument(self) -> str | None:
        """Return how commands name this catalog, or None for the warehouse of the table's path."""
        if self.name is not None or isinstance(self.backend, FileSystemBackend):
            return self.name
        return "CATALOG"  # the user has passed options, which may be secret

    @property
    def label(self) -> str:
        """Return how commands name this catalog: its name, its warehouse, or a placeholder."""
        return self._command_argument or self.uri

    def latest_snapshot(self, identifier: str) -> Snapshot | None:
        """Return the newest snapshot of a table or branch, or None if it has none.

        Raises :class:`NotFoundError` if the table does not exist.
        """
        served = self.served_snapshot(identifier)
        return self.table(identifier).snapshot() if served is None else served

    def served_snapshot(self, identifier: str) -> Snapshot | None:
        """Return the newest snapshot if one request to the catalog gives it.

        Returns None if the table has no snapshot, or if the catalog does not have it, because
        commits create files. Raises :class:`NotFoundError` as the catalog does.
        """
        if not isinstance(self.backend, SnapshotBackend):
            return None
        try:
            return self.backend.load_latest_snapshot(TableIdentifier.parse(identifier))
        except SnapshotsNotServedError:
            return None

    def open(self, identifier: str) -> "Table | SystemTable":
        """Return a table, a branch, or a system table, for example ``db.t$files``."""
        check_text("a table name", identifier, "database.table")
        name, separator, system = identifier.rpartition("$")
        if not separator or system.startswith(BRANCH_SEPARATOR[1:]):
            return self.table(identifier)
        return self.table(name).system(system)

    def system(self, name: str) -> "CatalogSystemTable":
        """Return a system table of the catalog: tables, partitions or all_table_options."""
        from paimon_orch.catalog.catalog_tables import CatalogSystemTable

        return CatalogSystemTable(self, name)

    def _describe_missing_table(self, identifier: TableIdentifier) -> str:
        if identifier.branch != MAIN_BRANCH and self._find_table(identifier.main) is not None:
            return f"table {identifier.main} has no branch {identifier.branch!r}"
        database, name = identifier.database, identifier.main
        if not self.backend.has_database(database):
            databases = self.databases()
            try:
                if not databases:
                    self.require_exists()
            except NotFoundError as missing:
                return f"there is no table {name}: {missing}"
            hint = "" if databases else describe_unconfigured_name(self.uri)
            return (
                f"there is no table {name} in {self.uri}: no database {database!r} "
                f"(databases: {format_names(databases)}){hint}"
            )
        existing = format_similar_names(identifier.table, self.tables(database))
        return f"there is no table {name} in {self.uri} (tables of {database}: {existing})"

    def create_table(
        self,
        identifier: str,
        columns: str | pa.Schema,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str | int | float | bool] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table, and its database if it does not exist.

        ``columns`` is ``"id BIGINT NOT NULL, v DOUBLE"`` or an Arrow schema. The option ``path``
        is the location of an external table, in catalogs that have them. Raises
        :class:`InputError` if the table exists (unless ``if_not_exists``) or the definition breaks
        a rule of the format. Logs a warning for each option that is unknown or that some step will
        refuse.
        """
        check_names("primary_key", primary_key)
        check_names("partition_by", partition_by)
        fields = _parse_fields(columns)
        values = {**self._table_defaults, **to_option_texts(options or {})}
        location = values.pop(_LOCATION_OPTION, None)
        schema = build_table_schema(
            fields,
            primary_key=primary_key,
            partition_by=partition_by,
            options=values,
            comment=comment,
            time_millis=int(time.time() * 1000),
        )
        parsed = _parse_main(identifier)
        check_database_name(parsed.database)
        from paimon_orch.files.file_format import check_file_formats
        from paimon_orch.merge.engine.merge_engine import check_merge_engine

        check_merge_engine(schema)
        check_file_formats(schema)
        created = self.backend.create_table(parsed, schema, location)
        if not created and not if_not_exists:
            raise AlreadyExistsError(f"table {identifier} already exists in {self.uri}")
        table = self.table(identifier)
        if created:
            self._warn_of_refusals(table, schema)
        return table

    def _warn_of_refusals(self, table: Table, schema: TableSchema) -> None:
        """Log a warning for each option of a new table that is unknown or that steps refuse."""
        name = table.identifier
        warn_of_options(name, schema.options, has_service=table.environment.is_service)
        for sentence in self.permissions.list_refusals(name, schema):
            logger.warning("%s: %s", name, sentence)

    def create_database(self, database: str, *, if_not_exists: bool = False) -> None:
        """Create an empty database; :meth:`create_table` also creates the table's database.

        Raises :class:`InputError` if it exists (unless ``if_not_exists``), and
        :class:`UnsupportedError` in object stores, which have no empty directories.
        """
        if not self.backend.create_database(check_database_name(database)) and not if_not_exists:
            raise AlreadyExistsError(f"database {database!r} already exists in {self.uri}")

    def drop_database(
        self, database: str, *, cascade: bool = False, if_exists: bool = False
    ) -> None:
        """Drop a database; raises :class:`InputError` if it has tables, unless ``cascade``."""
        check_database_name(database)
        for table in self.list_tables_to_drop(database, cascade=cascade, if_exists=if_exists):
            self.drop_table(f"{database}.{table}", if_exists=True)
        if self.backend.has_database(database):
            self.backend.drop_database(database)

    def list_tables_to_drop(
        self, database: str, *, cascade: bool = False, if_exists: bool = False
    ) -> list[str]:
        """Return the tables that :meth:`drop_database` deletes; raises the same errors."""
        if if_exists and not self.backend.has_database(check_database_name(database)):
            return []
        tables = self.tables(database)
        if isinstance(self.backend, FileSystemBackend) and database not in self.databases():
            raise InputError(
                f"the directory of database {database!r} in {self.uri} is a symbolic link; links are "
                "not followed to delete files. Remove the link and its target yourself"
            )
        if tables and not cascade:
            raise InputError(
                f"database {database!r} has the tables {format_names(tables)}; drop them first, or "
                "drop the database with cascade"
            )
        for table in tables:
            self.can_drop_table(f"{database}.{table}")
        return tables

    def drop_table(self, identifier: str, *, if_exists: bool = False) -> None:
        """Drop a table with all its files and branches."""
        if not self.can_drop_table(identifier, if_exists=if_exists):
            return
        try:
            table = self.table(identifier)
        except LostTableError as error:
            parsed = TableIdentifier.parse(identifier)
            self.backend.drop_table(parsed, self._open_table(parsed, error.table))
            return
        schema = table.stores.get_schema()
        external = [request.place for request in find_directory_requests(schema)]
        entries = _list_entries(table, schema)
        _delete_iceberg_metadata(table.io, find_external_directory(schema, table.paths))
        self.backend.drop_table(TableIdentifier.parse(identifier), table)
        _warn_of_entries(table, entries)
        if external:
            logger.warning(
                "%s was dropped; its files in external paths were not deleted, as other tables may "
                "use these directories: %s",
                identifier,
                ", ".join(external),
            )

    def can_drop_table(self, identifier: str, *, if_exists: bool = False) -> bool:
        """Return whether :meth:`drop_table` has a table to delete; raises the same errors."""
        check_text("a table name", identifier, "database.table")
        if BRANCH_SEPARATOR in identifier:
            raise InputError(f"{identifier} is a branch: drop it with Table.branches.delete")
        try:
            table = self.table(identifier)
        except NotFoundError:
            if not if_exists:
                raise
            return False
        except LostTableError:
            return True
        require_external_systems(
            identifier,
            table.stores.get_schema().typed_options.values,
            self.allowances,
            has_service=table.environment.is_service,
        )
        return True

    def count_files(self, identifier: str) -> tuple[int, int]:
        """Return the number of files below a table's directory, and their total size in bytes."""
        try:
            table = self.table(identifier)
        except LostTableError as error:
            table = self._open_table(TableIdentifier.parse(identifier), error.table)
        sizes = [info.size for info in _list_files(table.io, table.paths.root)]
        return len(sizes), sum(sizes)

    def rename_table(self, identifier: str, to: str) -> Table:
        """Rename a table, or move it to another existing database; return the renamed table.

        Renames the table's directory, including its branches, atomically. No other process may
        write to the table during the call, as it would continue under the old name. Raises
        :class:`UnsupportedError` in object stores, which have no atomic rename, and
        :class:`InputError` if the new name is taken.
        """
        for name in (identifier, to):
            check_text("a table name", name, "database.table")
        if BRANCH_SEPARATOR in identifier or BRANCH_SEPARATOR in to:
            raise InputError(f"{identifier} cannot become {to}: branches cannot be renamed")
        source, target = self.table(identifier), TableIdentifier.parse(to)
        source.stores.check_step(StepKind.METADATA)
        self._require_database(target.database)
        schema = source.stores.get_schema()
        iceberg_directory = find_external_directory(schema, source.paths)
        entries = _list_entries(source, schema)
        if not self.backend.rename_table(TableIdentifier.parse(identifier), target, source):
            raise AlreadyExistsError(f"table {to} already exists in {self.uri}")
        renamed = self.table(to)
        renamed.stores.publish_iceberg_metadata()
        _delete_iceberg_metadata(source.io, iceberg_directory)
        _warn_of_entries(source, entries - _list_entries(renamed, renamed.stores.get_schema()))
        return renamed

    def alter_table(self, identifier: str, changes: Iterable["SchemaChange"]) -> TableSchema:
        """Apply all changes to columns, options or comments in one schema version.

        Returns the new schema. Old files are not rewritten; reads convert their rows. Logs a
        warning if readers see other values of existing rows. Raises :class:`InputError` if a change
        breaks a rule of the format; the table is then unchanged.

        >>> note = AddColumn(column="note", type="STRING")
        >>> catalog.alter_table("db.orders", [note, SetOption("bucket", "4")])

        See docs/format/schema.md#schema-changes.
        """
        from paimon_orch.table.schema_change.changed_rows import describe_changed_rows
        from paimon_orch.table.schema_change.deletion_vectors_switch import (
            check_deletion_vectors_change,
        )
        from paimon_orch.table.schema_change.indexed_columns import (
            check_no_index_of_changed_columns,
        )
        from paimon_orch.table.schema_change.readable_types import check_files_have_readable_types
        from paimon_orch.table.schema_change.schema_changes import SchemaChange, SetOption

        table = self.table(identifier)
        given: Any = changes
        changes = list(given) if isinstance(given, Iterable) else [given]
        for change in changes:
            if not isinstance(change, SchemaChange):
                raise InputError(
                    "changes must be a list of schema changes, such as "
                    f"[AddColumn(column='note', type='STRING')]; {change!r} is none"
                )
            path: Any = getattr(change, "column", "")
            if not isinstance(path, str):
                check_names("a path of a column", path)
        state = table.load()
        state.check_step(StepKind.ALTER)
        check_deletion_vectors_change(state, changes)
        check_no_index_of_changed_columns(state, changes)
        check_files_have_readable_types(state, changes)
        schema = self.backend.alter_table(TableIdentifier.parse(identifier), table, changes)
        for effect in describe_changed_rows(state, state.schema, schema):
            logger.warning("readers of %s see other rows now: the change of %s", identifier, effect)
        build_table_state(state, schema, state.snapshot).publish_iceberg_metadata()
        altered = {change.key for change in changes if isinstance(change, SetOption)}
        warn_of_options(
            identifier,
            {key: value for key, value in schema.options.items() if key in altered},
            has_service=table.environment.is_service,
        )
        return schema


def _list_files(io: FileIO, root: str) -> Iterator[FileInfo]:
    """Yield all files below a directory; lists many directories at the same time."""
    tree = io.list_tree(root)
    yield from tree or ()
    directories = [root] if tree is None else []
    while directories:
        listings = map_concurrently(io, lambda path: list(io.list_dir(path)), directories)
        entries = [info for listing in listings for info in listing]
        yield from (info for info in entries if not info.is_dir)
        directories = [info.path for info in entries if info.is_dir]


def _parse_fields(columns: str | pa.Schema) -> list[Field]:
    if isinstance(columns, str):
        return parse_columns(columns)
    if isinstance(columns, pa.Schema):
        return to_paimon_fields(columns)
    raise InputError(
        "columns must be text, such as 'id BIGINT NOT NULL, v DOUBLE', or an Arrow schema, "
        f"not {columns!r}"
    )


def _parse_main(identifier: str) -> TableIdentifier:
    """Parse the name of a table; raises :class:`InputError` for a branch."""
    parsed = TableIdentifier.parse(identifier)
    if parsed.branch != MAIN_BRANCH:
        raise InputError(f"{identifier} is a branch: create it with Table.branches.create")
    return parsed


def _list_entries(table: Table, schema: TableSchema) -> set[str]:
    """Return the names of a table in an external Iceberg catalog."""
    from paimon_orch.table.iceberg.open_catalog_entry import find_entry_names

    return set(map(".".join, find_entry_names(table.identifier, schema, table.paths)))


def _warn_of_entries(table: Table, entries: Iterable[str]) -> None:
    """Log that an external Iceberg catalog still shows a table; Java Paimon leaves it, too."""
    for entry in sorted(entries):
        logger.warning(
            "%s does not exist any more; if the Iceberg catalog still has the entry %s, drop it "
            "there, without its data",
            table.identifier,
            entry,
        )


def _delete_iceberg_metadata(io: FileIO, directory: str | None) -> None:
    if directory is not None:
        io.delete_dir(directory)
