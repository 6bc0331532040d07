"""The table in an Iceberg REST catalog that shows the published metadata.

See docs/format/iceberg-metadata.md#rest-catalogs.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.iceberg.iceberg_metadata import COMMIT_IDENTITY
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    ICEBERG_DELETE_AFTER_COMMIT,
    ICEBERG_PREVIOUS_VERSIONS_MAX,
    ICEBERG_TABLE_PROPERTY,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.iceberg.catalog_entry import EntryState, PublishedMetadata
from paimon_orch.table.iceberg.iceberg_rest_client import (
    open_rest_catalog,
    read_rest_properties,
    redact,
)

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_PROPERTIES_PREFIX = ICEBERG_TABLE_PROPERTY.named("").key
_RESERVED_PROPERTIES = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""Properties that Iceberg derives from the metadata, and refuses to set."""


def open_rest_entry(schema: TableSchema, name: tuple[str, str]) -> "RestEntry":
    """Open the entry of a table with a database and a name. Does not connect."""
    return RestEntry(
        properties=read_rest_properties(schema.options), name=name, options=schema.typed_options
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestEntry:
    """The table in a REST catalog."""

    properties: Mapping[str, str] = field(repr=False)
    """The properties of the client, with credentials."""
    name: tuple[str, str]
    """The namespace and the table."""
    options: Options = field(repr=False)
    """The options of the Paimon table."""

    def read_state(self, published: PublishedMetadata) -> EntryState:
        """Compare the table of the catalog with the published metadata."""
        with open_rest_catalog(self.properties) as catalog:
            table = self._find_table(catalog)
        if table is None:
            return EntryState(problem=f"{self._describe()} does not exist")
        served = table.metadata
        snapshot_id = served.current_snapshot_id
        problem = None
        if snapshot_id != published.metadata.current.id:
            problem = f"{self._describe()} has snapshot {snapshot_id}, and the newest metadata is "
            problem += published.path
        elif self._plan(served, published) != ():
            problem = f"{self._describe()} differs from {published.path}"
        return EntryState(snapshot_id=snapshot_id, problem=problem)

    def update(self, published: PublishedMetadata, is_latest: Callable[[], bool]) -> bool:
        """Make the table show the published metadata; create it, or create it again, if needed."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        with open_rest_catalog(self.properties) as catalog:
            try:
                table = self._find_table(catalog)
                updates = None if table is None else self._plan(table.metadata, published)
                if updates == ():
                    return True
                if not is_latest():  # a later publication would be removed
                    return False
                if table is None or updates is None:
                    table = self._create(catalog, table, published)
                    updates = self._plan(table.metadata, published)
                return updates is not None and self._commit(catalog, table, updates)
            except (CommitFailedException, TableAlreadyExistsError):
                return False

    def _commit(self, catalog: "RestCatalog", table: "Table", updates: tuple[Any, ...]) -> bool:
        from pyiceberg.table.update import (
            AssertCurrentSchemaId,
            AssertRefSnapshotId,
            AssertTableUUID,
        )

        served = table.metadata
        requirements = (
            AssertTableUUID(uuid=served.table_uuid),
            AssertRefSnapshotId.model_validate(
                {"ref": "main", "snapshot-id": served.current_snapshot_id}
            ),
            AssertCurrentSchemaId.model_validate({"current-schema-id": served.current_schema_id}),
        )
        catalog.commit_table(table, requirements, updates)
        return True

    def _plan(
        self, served: "TableMetadata", published: PublishedMetadata
    ) -> tuple[Any, ...] | None:
        """Return the changes of the table; None if it must be created again."""
        from paimon_orch.table.iceberg.rest_updates import can_extend, plan_updates

        if not can_extend(served, published.metadata):
            return None
        return plan_updates(served, published.metadata, self._build_properties())

    def _build_properties(self) -> dict[str, str]:
        """Return the properties of the table, as Java Paimon sets them."""
        deletes = "true" if self.options.get(ICEBERG_DELETE_AFTER_COMMIT) else "false"
        given = {
            key.removeprefix(_PROPERTIES_PREFIX): value
            for key, value in self.options.values.items()
            if key.startswith(_PROPERTIES_PREFIX)
        }
        return {
            "write.metadata.previous-versions-max": str(
                self.options.get(ICEBERG_PREVIOUS_VERSIONS_MAX)
            ),
            "write.metadata.delete-after-commit.enabled": deletes,
            **{key: value for key, value in given.items() if key not in _RESERVED_PROPERTIES},
        }

    def _find_table(self, catalog: "RestCatalog") -> "Table | None":
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            table: Table = catalog.load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        return table

    def _create(
        self, catalog: "RestCatalog", existing: "Table | None", published: PublishedMetadata
    ) -> "Table":
        """Create the table without snapshots, after dropping an existing one without its data."""
        from pyiceberg.exceptions import (
            NamespaceAlreadyExistsError,
            RESTError,
            TableAlreadyExistsError,
        )

        from paimon_orch.table.iceberg.rest_updates import build_placeholder

        if existing is None:
            with suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace(self.name[:1])
        else:
            self._require_ours(existing.metadata, published)
            catalog.drop_table(self.name)
        schema, spec = build_placeholder(published.metadata)
        properties = {"format-version": str(published.metadata.format_version)}
        create = partial(
            catalog.create_table, self.name, schema, partition_spec=spec, properties=properties
        )
        try:
            table: Table = create()
        except TableAlreadyExistsError:
            raise
        except RESTError:  # some catalogs, as Glue, do not choose a location
            table = create(location=published.location)
        return table

    def _require_ours(self, served: "TableMetadata", published: PublishedMetadata) -> None:
        """Refuse to drop a table with manifests that are not of this table."""
        current = served.current_snapshot()
        if current is None:
            return
        theirs = {
            (item.snapshot_id, item.summary[COMMIT_IDENTITY])
            for item in served.snapshots
            if item.summary is not None and item.summary.get(COMMIT_IDENTITY) is not None
        }
        # A table that was renamed or moved has other directories, and the same snapshots.
        is_ours = bool(published.metadata.identities & theirs)
        if not is_ours and not published.is_in_metadata_directory(current.manifest_list):
            raise UnsupportedError(
                f"{self._describe()} is another table, which is not replaced; set "
                "'metadata.iceberg.database' or 'metadata.iceberg.table' to another name, or drop "
                "it there if it is not needed"
            )

    def _describe(self) -> str:
        uri = redact(self.properties["uri"], self.properties)
        return f"{'.'.join(self.name)} in the Iceberg REST catalog {uri}"
