"""A REST server that names the tables, owns their schemas, and makes their commits.

See docs/format/catalogs.md#rest-catalogs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paimon_orch.catalog.backend import CatalogTable
from paimon_orch.catalog.catalog_options import extract_table_defaults
from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.catalog.rest import resource_paths
from paimon_orch.catalog.rest.answer_fields import read_number, read_text
from paimon_orch.catalog.rest.data_token import DataTokenCredentials
from paimon_orch.catalog.rest.rest_branches import RestBranches
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_marks import RestMarks
from paimon_orch.catalog.rest.rest_options import DATA_TOKEN_ENABLED
from paimon_orch.catalog.rest.rest_snapshots import RestSnapshots, load_latest_snapshot
from paimon_orch.catalog.rest.schema_messages import encode_changes, encode_schema
from paimon_orch.catalog.store_options import confine_to_served_directory, open_served_location
from paimon_orch.errors import AlreadyExistsError, NotFoundError
from paimon_orch.format.options import Options
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileIO
from paimon_orch.table.catalog_environment import CatalogEnvironment
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.schema_change.apply_schema_changes import apply_schema_changes
from paimon_orch.table.schema_change.schema_changes import SchemaChange
from paimon_orch.table.table import Table

_LOCATION_OPTION = "path"
_PAGE_SIZE = 1000
"""Servers send pages of 100 names by default."""


@dataclass(frozen=True, slots=True)
class RestBackend:
    """The tables of one warehouse of a REST server."""

    client: RestClient

    @property
    def description(self) -> str:
        """Return the address of the server."""
        return self.client.uri

    def require_exists(self) -> None:
        """Do nothing: the server has answered when the catalog was opened."""

    def list_databases(self) -> list[str]:
        """Ask for the names of all databases, page by page."""
        return _to_names(self._list(resource_paths.DATABASES, "databases"))

    def has_database(self, database: str) -> bool:
        """Ask for a database."""
        try:
            self.client.get(resource_paths.database(database))
        except NotFoundError:
            return False
        return True

    def create_database(self, database: str) -> bool:
        """Ask the server to create a database."""
        try:
            self.client.post(resource_paths.DATABASES, {"name": database, "options": {}})
        except AlreadyExistsError:
            return False
        return True

    def drop_database(self, database: str) -> None:
        """Ask the server to drop a database."""
        self.client.delete(resource_paths.database(database))

    def list_tables(self, database: str) -> list[str]:
        """Ask for the names of a database's tables, page by page."""
        return _to_names(self._list(resource_paths.tables(database), "tables"))

    def _list(self, path: str, key: str) -> Iterator[Any]:
        return self.client.get_pages(path, key, {"maxResults": _PAGE_SIZE})

    def load_table(self, identifier: TableIdentifier) -> CatalogTable | None:
        """Ask for a table or branch; one request."""
        path = resource_paths.table(identifier.database, identifier.object_name)
        try:
            answer = self.client.get(path)
        except NotFoundError:
            return None
        location, table_id = read_text(answer, "path", path), read_text(answer, "id", path)
        is_external = answer.get("isExternal") is True
        io, root = self._open_location(identifier, location, is_external=is_external)
        if is_external:  # the server knows the table, but its files are all there is to it
            return CatalogTable(
                io=io, root=root, environment=CatalogEnvironment(is_service=True), is_external=True
            )
        return CatalogTable(
            io=io, root=root, environment=self._build_environment(identifier, table_id)
        )

    def load_latest_snapshot(self, identifier: TableIdentifier) -> Snapshot | None:
        """Ask for the newest snapshot of a table; one request."""
        return load_latest_snapshot(self.client, identifier)

    def _build_environment(self, identifier: TableIdentifier, table_id: str) -> CatalogEnvironment:
        database, table = identifier.database, identifier.table
        return CatalogEnvironment(
            snapshots=RestSnapshots(client=self.client, identifier=identifier, table_id=table_id),
            is_service=True,
            marks=RestMarks(
                client=self.client, database=database, object_name=identifier.object_name
            ),
            branches=RestBranches(client=self.client, database=database, table=table),
        )

    def _open_location(
        self, identifier: TableIdentifier, location: str, *, is_external: bool
    ) -> tuple[FileIO, str]:
        options, token = self.client.options, None
        if not is_external and Options(options).get(DATA_TOKEN_ENABLED):
            token = DataTokenCredentials(
                client=self.client,
                database=identifier.database,
                object_name=identifier.object_name,
                location=location,
            )
        io, root = open_served_location(options, location, token)
        return confine_to_served_directory(options, io, root, str(identifier)), root

    def create_table(
        self, identifier: TableIdentifier, schema: TableSchema, location: str | None
    ) -> bool:
        """Ask the server to create a table, and its database if it does not exist."""
        extra = {}
        if location is not None:  # a table whose directory is refused later must not be created
            self._open_location(identifier, location, is_external=True)
            extra = {_LOCATION_OPTION: location}
        defaults = extract_table_defaults(self.client.options)
        sent = replace(schema, options={**defaults, **schema.options, **extra})
        message = {"identifier": _encode_identifier(identifier), "schema": encode_schema(sent)}
        path = resource_paths.tables(identifier.database)
        try:
            try:
                self.client.post(path, message)
            except NotFoundError:
                self.create_database(identifier.database)
                self.client.post(path, message)
        except AlreadyExistsError:
            return False
        if location is not None:
            self._write_first_schema(identifier, schema)
        return True

    def _write_first_schema(self, identifier: TableIdentifier, schema: TableSchema) -> None:
        """Write the schema of an external table if neither the server nor an older table did."""
        entry = self.load_table(identifier)
        if entry is not None and entry.is_external:
            store = SchemaStore(entry.io, TablePaths(entry.root))
            if not store.ids():
                store.create(schema)

    def drop_table(self, identifier: TableIdentifier, table: Table) -> None:  # noqa: ARG002 - protocol
        """Ask the server to drop a table; it deletes the files of tables that it owns."""
        self.client.delete(resource_paths.table(identifier.database, identifier.table))

    def rename_table(
        self,
        source: TableIdentifier,
        target: TableIdentifier,
        table: Table,  # noqa: ARG002 - protocol
    ) -> bool:
        """Ask the server to rename a table; it may keep the path."""
        if self.load_table(target) is not None:
            return False  # not every server checks this
        message = {
            "source": _encode_identifier(source),
            "destination": _encode_identifier(target),
        }
        try:
            self.client.post(resource_paths.RENAME, message)
        except AlreadyExistsError:
            return False
        return True

    def alter_table(
        self, identifier: TableIdentifier, table: Table, changes: Sequence[SchemaChange]
    ) -> TableSchema:
        """Check the changes and ask the server to apply them; it writes the next schema file."""
        stores = table.stores
        apply_schema_changes(
            stores.get_schema(),
            changes,
            has_snapshots=stores.snapshots.latest_id() is not None,
            time_millis=0,
        )
        path = resource_paths.table(identifier.database, identifier.object_name)
        self.client.post(path, {"changes": encode_changes(changes)})
        return stores.schemas.get(read_number(self.client.get(path), "schemaId", path))


def open_rest_backend(options: Mapping[str, Any]) -> RestBackend:
    """Connect to the server that the options name."""
    return RestBackend(RestClient.connect(options))


def _encode_identifier(identifier: TableIdentifier) -> dict[str, str]:
    return {"database": identifier.database, "object": identifier.object_name}


def _to_names(items: Iterable[Any]) -> list[str]:
    return [name for name in items if isinstance(name, str)]
