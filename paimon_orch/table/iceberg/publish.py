"""Publishes the newest snapshot of a table as Iceberg metadata.

See docs/format/iceberg-metadata.md#publishing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from paimon_orch.errors import CommitConflictError, CorruptFileError, PaimonError, UnsupportedError
from paimon_orch.format.iceberg.iceberg_manifest import ROW_LINEAGE_VERSION
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.storage import FileIO
from paimon_orch.table.iceberg.catalog_entry import IcebergCatalogEntry, PublishedMetadata
from paimon_orch.table.iceberg.metadata_builder import MetadataBuilder
from paimon_orch.table.iceberg.metadata_expiration import (
    delete_obsolete_files,
    find_obsolete_versions,
)
from paimon_orch.table.iceberg.metadata_store import (
    IcebergMetadataStore,
    find_versions,
    normalize_path,
)
from paimon_orch.table.iceberg.open_catalog_entry import open_catalog_entry
from paimon_orch.table.iceberg.publication_input import PublicationInput, read_publication_input
from paimon_orch.table.iceberg.publishable import check_readable
from paimon_orch.table.iceberg.published_base import (
    PublishedBase,
    find_base,
    find_location,
    has_columns,
    has_manifests,
    is_compatible,
)
from paimon_orch.table.iceberg.visible_files import VISIBLE_LEVELS
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.metadata_io import read_metadata_file
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, SnapshotStore
from paimon_orch.table.permissions import TablePermissions, find_iceberg_requests

_MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergPublisher:
    """Keeps the Iceberg metadata of the main branch of one table up to date."""

    identifier: str
    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestReader
    permissions: TablePermissions

    def publish(self) -> int | None:
        """Publish the newest snapshot unless it is published; return its id.

        Returns None if the table has no Iceberg metadata or no snapshot. Snapshots since the last
        published one are published too. Raises an error if the metadata cannot be written; the
        next call then tries again.
        """
        for _ in range(_MAX_ATTEMPTS):
            table = read_publication_input(self.schemas, self.snapshots)
            if table is None:
                return None
            check_readable(self.identifier, table.schema, self.snapshots.paths)
            if self._publish(table) and not self._has_changed(table):
                return table.latest.id
        raise CommitConflictError(
            f"{self.snapshots.paths.root}: other processes changed the table while its Iceberg "
            f"metadata was written, {_MAX_ATTEMPTS} times"
        )

    def _publish(self, table: PublicationInput) -> bool:
        """Publish a state of the table; return False if another process was faster."""
        store = IcebergMetadataStore(self.snapshots.io, table.settings.directory)
        files = store.list_files()
        versions = find_versions(files)
        base = find_base(store, versions, table, self.snapshots)
        dropped: Sequence[IcebergSnapshot] = ()
        is_restart = False
        if (
            base is not None
            and self.is_current(base, table)
            and has_manifests(store, base, files)
            and self._has_visible_files(store, base.metadata, table)
        ):
            metadata = base.metadata
        else:
            has_version = table.latest.id in versions
            replaced = store.find_metadata(table.latest.id) if has_version else None
            try:
                metadata, history = self.builder.build(store, table, base, files)
                is_overtaken = self._has_changed(table)
            except (PaimonError, OSError):
                store.delete_written_files()
                raise
            is_restart = history.is_restart
            dropped = [*history.new, *(() if replaced is None else replaced.snapshots)]
            dropped = [s for s in dropped if s.manifest_list not in metadata.manifest_lists]
            if is_overtaken or not store.write_metadata(metadata, replaced):
                store.delete_written_files()
                return False
        if store.read_hint() != metadata.current.id:
            if self._has_next_snapshot(table):
                return False
            store.write_hint(metadata.current.id)
        if not self._update_catalog(store, metadata, table):
            return False
        obsolete = find_obsolete_versions(
            table.settings, versions, table.latest.id, self.snapshots, is_restart=is_restart
        )
        is_repair = base is None or VISIBLE_LEVELS not in base.metadata.current.summary
        delete_obsolete_files(
            store, metadata, files, obsolete, dropped=dropped, is_repair=is_repair
        )
        return True

    def open_entry(self, table: PublicationInput) -> IcebergCatalogEntry | None:
        """Return the table in an external Iceberg catalog, or None if the table needs none."""
        self.permissions.check(self.identifier, find_iceberg_requests(table.schema))
        return open_catalog_entry(self.identifier, table.schema, self.snapshots.paths)

    def _update_catalog(
        self, store: IcebergMetadataStore, metadata: IcebergMetadata, table: PublicationInput
    ) -> bool:
        """Point the external catalog to the metadata, before older files are deleted.

        Returns False if another process was faster.
        """
        entry = self.open_entry(table)
        if entry is None:
            return True
        published = describe_published(store, metadata, table)
        return entry.update(published, lambda: not self._has_next_snapshot(table))

    @property
    def builder(self) -> MetadataBuilder:
        """Return the builder of the table's metadata."""
        return MetadataBuilder(
            schemas=self.schemas, snapshots=self.snapshots, manifests=self.manifests
        )

    def _has_visible_files(
        self, store: IcebergMetadataStore, metadata: IcebergMetadata, table: PublicationInput
    ) -> bool:
        """Return whether current metadata of Java Paimon has the right files; ours always has."""
        if VISIBLE_LEVELS in metadata.current.summary:
            return True
        replay = self.builder.create_replay(store, table, metadata)
        return replay.has_visible_files(table.latest, metadata.current)

    def _has_changed(self, table: PublicationInput) -> bool:
        """Return whether another process has changed the table, and so may have published it.

        An older publication must not replace a newer one, which has deleted what it did not need.
        """
        return (
            self._has_next_snapshot(table)
            or self.snapshots.hint(EARLIEST) != table.earliest_hint
            or self.snapshots.tags() != list(table.tags)
        )

    def _has_next_snapshot(self, table: PublicationInput) -> bool:
        return self.snapshots.exists(table.latest.id + 1)

    def is_current(self, base: PublishedBase, table: PublicationInput) -> bool:
        """Return whether the newest snapshot is published with the present options and tags."""
        metadata = base.metadata
        return (
            not base.is_truncated
            and base.version == table.latest.id == metadata.current.id
            and metadata.current_schema_id == table.schema.id
            and has_columns(metadata, table)
            and (metadata.format_version < ROW_LINEAGE_VERSION or metadata.next_row_id is not None)
            and metadata.location == find_location(self.snapshots.paths.root, metadata)
            and is_compatible(metadata, table)
            and metadata.tags == table.find_tags(metadata.snapshots)
            and len(table.select_retained(metadata.snapshots)) == len(metadata.snapshots)
        )


def describe_published(
    store: IcebergMetadataStore, metadata: IcebergMetadata, table: PublicationInput
) -> PublishedMetadata:
    """Return what an external catalog has to show; its path is spelled as those in the metadata."""
    path = store.metadata_path(metadata.current.id)
    directory = metadata.current.manifest_list.rpartition("/")[0]
    if normalize_path(directory) == normalize_path(store.directory):
        path = f"{directory}/{path.rpartition('/')[2]}"
    return PublishedMetadata(
        path=path,
        metadata=metadata,
        schema=table.schema,
        is_of_table=partial(_is_of_table, store.io, metadata),
    )


def _is_of_table(io: FileIO, metadata: IcebergMetadata, path: str) -> bool:
    """Return whether a metadata file has a snapshot of this table, or does not exist."""
    try:
        other = IcebergMetadata.from_json(read_metadata_file(io, normalize_path(path)), path)
    except FileNotFoundError:
        return True
    except (CorruptFileError, UnsupportedError):
        return False
    return bool(metadata.identities & other.identities)
