"""Finds the published metadata that new snapshots extend, and compares it with the table.

See docs/format/iceberg-metadata.md#publishing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_orch.format.iceberg.iceberg_metadata import (
    COMMIT_IDENTITY,
    IcebergMetadata,
    IcebergSnapshot,
    build_commit_identity,
)
from paimon_orch.format.iceberg.iceberg_schema import build_iceberg_schema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.iceberg.metadata_store import (
    UNREADABLE,
    IcebergMetadataStore,
    get_file_name,
    normalize_path,
)
from paimon_orch.table.iceberg.publication_input import PublicationInput
from paimon_orch.table.iceberg.visible_files import VISIBLE_LEVELS, describe_visible_levels
from paimon_orch.table.metadata.snapshot_store import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBase:
    """Published metadata, reduced to the snapshots that the table still has."""

    version: int
    """The version of the file that it was read from."""
    metadata: IcebergMetadata
    is_truncated: bool
    """Whether the table does not have all snapshots of the file, as after a rollback."""
    is_verified: bool
    """Whether the table still has the newest snapshot.

    If it has expired, the metadata may belong to another timeline.
    """


def find_base(
    store: IcebergMetadataStore,
    versions: Sequence[int],
    table: PublicationInput,
    snapshots: SnapshotStore,
) -> PublishedBase | None:
    """Return the published metadata that covers the newest snapshot of the present timeline."""
    best: PublishedBase | None = None
    for version in reversed(versions):
        if best is not None and best.is_verified and version <= best.metadata.current.id:
            break  # older files only have older snapshots
        metadata = store.find_metadata(version)
        base = (
            None if metadata is None else match_timeline(version, metadata, table.latest, snapshots)
        )
        if base is not None and (best is None or _rank(base) > _rank(best)):
            best = base
    return best


def match_timeline(
    version: int, metadata: IcebergMetadata, latest: Snapshot, snapshots: SnapshotStore
) -> PublishedBase | None:
    """Reduce metadata to the snapshots up to the newest one of the present timeline.

    A rollback starts a new timeline, whose snapshots reuse ids. Java Paimon before 2.1 can add
    a snapshot of the new timeline to those of an old one. All snapshots before one that names
    its commit belong to its timeline. Returns None if the metadata has other timelines only.
    """
    newest, is_verified = None, False
    for published in reversed(metadata.snapshots):
        if published.id > latest.id:
            continue
        snapshot = latest if published.id == latest.id else snapshots.find(published.id)
        if snapshot is None:
            newest = newest or published.id
        elif not matches_commit(published, snapshot):
            newest, is_verified = None, False
        else:
            if not is_verified:
                newest, is_verified = published.id, True
            if COMMIT_IDENTITY in published.summary:
                break
    if newest is None:
        return None
    kept = [snapshot for snapshot in metadata.snapshots if snapshot.id <= newest]
    return PublishedBase(
        version=version,
        metadata=replace(metadata, snapshots=kept),
        is_truncated=len(kept) < len(metadata.snapshots),
        is_verified=is_verified,
    )


def _rank(base: PublishedBase) -> tuple[bool, int]:
    return base.is_verified, base.metadata.current.id


def matches_commit(published: IcebergSnapshot, snapshot: Snapshot) -> bool:
    """Return whether a published snapshot was made from a snapshot of the table.

    Java Paimon before 2.1 writes no identity, but the time of publication, which is later than
    the commit.
    """
    identity = published.summary.get(COMMIT_IDENTITY)
    if identity is None:
        return published.time_millis >= snapshot.time_millis
    return identity == build_commit_identity(snapshot)


def has_manifests(
    store: IcebergMetadataStore, base: PublishedBase, files: Mapping[str, int]
) -> bool:
    """Return whether all manifest lists, and the newest one's manifests, exist."""
    names = (get_file_name(path) for path in base.metadata.manifest_lists)
    if not all(name in files for name in names):
        return False
    try:
        manifests = store.read_manifests(base.metadata.current)
    except UNREADABLE:
        return False
    return all(files.get(get_file_name(item.path)) == item.length for item in manifests)


def has_columns(metadata: IcebergMetadata, table: PublicationInput) -> bool:
    """Return whether the current schema has the table's columns; a branch may have replaced it."""
    schema = build_iceberg_schema(table.schema, metadata.format_version)
    schemas = {item["schema-id"]: item for item in metadata.schemas}
    current = schemas.get(metadata.current_schema_id)
    if current is None:
        return False
    columns, published = (
        [(field["id"], field["name"], field["type"]) for field in fields["fields"]]
        for fields in (schema, current)
    )
    return columns == published


def is_compatible(metadata: IcebergMetadata, table: PublicationInput) -> bool:
    """Return whether new snapshots can extend published ones with the present settings."""
    levels = describe_visible_levels(table.schema)
    published = metadata.current.summary.get(VISIBLE_LEVELS, levels)
    return metadata.format_version == table.settings.format_version and published == levels


def find_location(root: str, previous: IcebergMetadata | None) -> str:
    """Return the table directory; paths keep the spelling of earlier metadata."""
    if previous is not None and normalize_path(previous.location) == normalize_path(root):
        return previous.location
    return root
