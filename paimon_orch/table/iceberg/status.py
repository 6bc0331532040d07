"""What Iceberg readers see of a table, compared with its newest snapshot; writes nothing.

See docs/format/iceberg-metadata.md#location-and-file-names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paimon_orch.errors import PaimonError
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata
from paimon_orch.safe_text import format_names
from paimon_orch.table.iceberg.catalog_entry import EntryState
from paimon_orch.table.iceberg.iceberg_settings import build_iceberg_settings
from paimon_orch.table.iceberg.metadata_store import (
    UNREADABLE,
    VERSION_HINT,
    IcebergMetadataStore,
    find_versions,
)
from paimon_orch.table.iceberg.publication_input import PublicationInput, read_publication_input
from paimon_orch.table.iceberg.publish import IcebergPublisher, describe_published
from paimon_orch.table.iceberg.published_base import (
    PublishedBase,
    find_location,
    has_columns,
    has_manifests,
    is_compatible,
    match_timeline,
    matches_commit,
)

_MAX_READS = 3
"""The number of times that the status is read while other processes commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergStatus:
    """The Iceberg metadata of a table, and the newest snapshot of the table."""

    published_id: int | None = None
    """The snapshot that Iceberg readers see; None if they cannot read the table."""
    latest_id: int | None = None
    """The newest snapshot; None if the table has no snapshot."""
    metadata_path: str | None = None
    """The metadata file that Iceberg readers start from."""
    is_current: bool = False
    """Whether Iceberg readers see the newest snapshot with the newest schema."""
    missing_snapshots: int | None = None
    """The number of snapshots after the published one; None if that one is not of the table."""
    problem: str | None = None
    """What publishing would change; None if there is nothing to publish."""
    metadata: IcebergMetadata | None = field(default=None, repr=False)
    """The content of the metadata file."""


def read_iceberg_status(publisher: IcebergPublisher) -> IcebergStatus | None:
    """Return the status of the Iceberg metadata, or None if this library does not publish it.

    Raises :class:`StorageError` if the directory of the metadata cannot be listed.
    """
    newest = publisher.schemas.latest()
    settings = build_iceberg_settings(newest, publisher.snapshots.paths)
    if settings is None:
        return None
    store = IcebergMetadataStore(publisher.snapshots.io, settings.directory)
    status = IcebergStatus(is_current=True)
    for attempt in range(_MAX_READS):
        known = None if attempt else newest
        table = read_publication_input(publisher.schemas, publisher.snapshots, known)
        if table is None:
            return IcebergStatus(is_current=True)
        status = _compare(publisher, store, table)
        # A commit during the comparison replaces the metadata.
        if status.problem is None or publisher.snapshots.latest_id() == table.latest.id:
            return status
    return status


def _compare(
    publisher: IcebergPublisher, store: IcebergMetadataStore, table: PublicationInput
) -> IcebergStatus:
    hint, files = store.read_hint(), store.list_files()
    version = hint or max(find_versions(files), default=None)
    if version is None:
        problem = f"{store.directory} has no Iceberg metadata"
        return IcebergStatus(latest_id=table.latest.id, problem=problem)
    path = store.metadata_path(version)
    try:
        metadata = store.read_metadata(version)
    except UNREADABLE as error:
        problem = f"{path} does not exist" if isinstance(error, FileNotFoundError) else str(error)
        return IcebergStatus(latest_id=table.latest.id, metadata_path=path, problem=problem)
    matching = match_timeline(version, metadata, table.latest, publisher.snapshots)
    is_of_table = matching is not None and not matching.is_truncated
    base = PublishedBase(
        version=version, metadata=metadata, is_truncated=not is_of_table, is_verified=is_of_table
    )
    stale = _find_difference(publisher, metadata, table)
    stale = stale or _find_damage(store, base, table, files)
    if stale is None and hint is None:
        stale = f"{store.directory}/{VERSION_HINT} is missing or not a number"
    state = _read_catalog_state(publisher, store, metadata, table)
    stale = stale or state.problem
    published_id, missing = state.snapshot_id, None
    if is_of_table and published_id is not None:
        missing = table.latest.id - published_id
    return IcebergStatus(
        published_id=published_id,
        latest_id=table.latest.id,
        metadata_path=path,
        is_current=stale is None,
        missing_snapshots=missing,
        problem=stale or _find_housekeeping(publisher, base, table),
        metadata=metadata,
    )


def _read_catalog_state(
    publisher: IcebergPublisher,
    store: IcebergMetadataStore,
    metadata: IcebergMetadata,
    table: PublicationInput,
) -> EntryState:
    """Return what readers see: the newest metadata file, or what an external catalog shows."""
    try:
        entry = publisher.open_entry(table)
        if entry is None:
            return EntryState(snapshot_id=metadata.current.id)
        return entry.read_state(describe_published(store, metadata, table))
    except PaimonError as error:
        return EntryState(problem=str(error))


def _find_difference(
    publisher: IcebergPublisher, metadata: IcebergMetadata, table: PublicationInput
) -> str | None:
    """Return why Iceberg readers do not see the newest snapshot and schema, or None."""
    published, latest = metadata.current, table.latest
    if published.id != latest.id:
        return f"Iceberg readers see snapshot {published.id}, and LATEST is {latest.id}"
    if not matches_commit(published, latest):
        return (
            f"Iceberg readers see another commit as snapshot {latest.id} than the table has, for "
            "example one before a rollback"
        )
    if metadata.current_schema_id != table.schema.id:
        return (
            f"Iceberg readers see schema {metadata.current_schema_id}, and the newest schema is "
            f"{table.schema.id}"
        )
    if not has_columns(metadata, table):
        return f"Iceberg readers see other columns as schema {table.schema.id} than the table has"
    if metadata.location != find_location(publisher.snapshots.paths.root, metadata):
        return f"Iceberg readers see files of {metadata.location}, where the table was before"
    if not is_compatible(metadata, table):
        return "the Iceberg metadata was written with other options of the table"
    return None


def _find_damage(
    store: IcebergMetadataStore,
    base: PublishedBase,
    table: PublicationInput,
    files: Mapping[str, int],
) -> str | None:
    """Return why Iceberg readers cannot read the newest snapshot, or read another one, or None."""
    if not has_manifests(store, base, files):
        path = store.metadata_path(base.version)
        return f"manifest lists or manifests of {path} are missing or damaged"
    newer = [version for version in find_versions(files) if version > table.latest.id]
    if newer:  # readers that do not use the hint take the greatest version
        return f"{store.metadata_path(newer[0])} is newer than LATEST {table.latest.id}"
    return None


def _find_housekeeping(
    publisher: IcebergPublisher, base: PublishedBase, table: PublicationInput
) -> str | None:
    """Return what publishing would change although readers see the newest snapshot, or None."""
    metadata = base.metadata
    # Java Paimon publishes one tag for each snapshot.
    other = table.find_tags(metadata.snapshots).items() ^ metadata.tags.items()
    if other:
        return (
            f"Iceberg readers see other tags: {format_names(sorted({name for name, _ in other}))}"
        )
    if not publisher.is_current(base, table):
        return "the Iceberg metadata lists snapshots that have expired"
    return None
