"""Deletes Iceberg metadata that the newest version does not need.

See docs/format/iceberg-metadata.md#expiration-of-metadata.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.table.iceberg.iceberg_settings import IcebergSettings
from paimon_orch.table.iceberg.metadata_store import (
    IcebergMetadataStore,
    find_versions,
    get_file_name,
)
from paimon_orch.table.metadata.snapshot_store import SnapshotStore

logger = get_logger(__name__)


def find_obsolete_versions(
    settings: IcebergSettings,
    versions: Sequence[int],
    current: int,
    snapshots: SnapshotStore,
    *,
    is_restart: bool,
) -> list[int]:
    """Return the versions to delete after ``current`` was published.

    Versions above it are obsolete if the table has no such snapshot: a rollback has removed it.
    With ``is_restart`` all older versions are, because they may name files that are lost or belong
    to another table.
    """
    oldest = current - settings.previous_versions
    return [
        version
        for version in versions
        if (version < oldest and settings.deletes_old_versions)
        or (version < current and is_restart)
        or (version > current and not snapshots.exists(version))
    ]


def delete_obsolete_files(
    store: IcebergMetadataStore,
    published: IcebergMetadata,
    files: Collection[str],
    obsolete: Sequence[int],
    *,
    dropped: Sequence[IcebergSnapshot] = (),
    is_repair: bool = False,
) -> None:
    """Delete obsolete versions, then the manifest lists and manifests that only they name.

    ``files`` are the names of the files before ``published`` was written. ``dropped`` are snapshots
    of a replaced version, and new ones that have expired already. With ``is_repair``, kept versions
    are read although nothing is deleted, because another writer may have deleted manifest lists.
    """
    if not obsolete and not dropped and not is_repair:
        return
    current = published.current.id
    versions = (v for v in find_versions(files) if v not in obsolete and v != current)
    kept, lost = _repair_versions(store, _read_versions(store, versions), files, current)
    removed = [*_read_versions(store, obsolete).values(), *lost]
    for version in obsolete:
        store.delete_metadata(version)
    snapshots_of_removed = [item for metadata in removed for item in metadata.snapshots]
    _delete_manifests(store, [*snapshots_of_removed, *dropped], [published, *kept])


def _read_versions(
    store: IcebergMetadataStore, versions: Iterable[int]
) -> dict[int, IcebergMetadata]:
    found = ((version, store.find_metadata(version)) for version in versions)
    return {version: metadata for version, metadata in found if metadata is not None}


def _repair_versions(
    store: IcebergMetadataStore,
    versions: Mapping[int, IcebergMetadata],
    files: Collection[str],
    current: int,
) -> tuple[list[IcebergMetadata], list[IcebergMetadata]]:
    """Remove snapshots without a manifest list from older versions; return these and deleted ones.

    Java Paimon deletes manifest lists that older versions name, and up to 2.0 its next rebuild
    fails on them. A version whose current snapshot is lost is deleted.
    """
    kept, lost = [], []
    for version, metadata in versions.items():
        present = [s for s in metadata.snapshots if get_file_name(s.manifest_list) in files]
        if version > current or len(present) == len(metadata.snapshots):
            kept.append(metadata)
        elif metadata.current in present and metadata.current.id == version:
            ids = {snapshot.id for snapshot in present}
            tags = {name: number for name, number in metadata.tags.items() if number in ids}
            repaired = replace(metadata, snapshots=present, tags=tags)
            store.write_metadata(repaired, metadata)
            kept.append(repaired)
        else:
            store.delete_metadata(version)
            lost.append(metadata)
    return kept, lost


def _delete_manifests(
    store: IcebergMetadataStore,
    removed: Sequence[IcebergSnapshot],
    kept: Sequence[IcebergMetadata],
) -> None:
    needed = {item.manifest_list: item for metadata in kept for item in metadata.snapshots}
    lists = {item.manifest_list: item for item in removed}
    obsolete = [item for path, item in lists.items() if path not in needed]
    if not obsolete:
        return
    manifests = _list_manifests(store, obsolete)
    neighbors = list(needed.values())
    ids = {item.manifest_list: item.id for item in (*removed, *neighbors)}
    if len(ids) == len(set(ids.values())):  # not after a rollback, which repeats ids
        neighbors = _find_neighbors(obsolete, neighbors)
    used = _list_manifests(store, neighbors)
    for item in obsolete:
        store.delete(item.manifest_list)
    for path in manifests - used:
        store.delete(path)


def _find_neighbors(
    obsolete: Sequence[IcebergSnapshot], kept: Sequence[IcebergSnapshot]
) -> list[IcebergSnapshot]:
    """Return the kept snapshots that may share manifests with obsolete ones.

    Successive snapshots of one timeline share a manifest until one of them drops it for good. So a
    manifest of an obsolete snapshot that no kept snapshot nearest to it has is in no kept snapshot.
    """
    neighbors = {}
    for item in obsolete:
        before = [k for k in kept if k.id < item.id]
        after = [k for k in kept if k.id >= item.id]
        for near in ([max(before, key=lambda k: k.id)] if before else []) + (
            [k for k in after if k.id == min(a.id for a in after)] if after else []
        ):
            neighbors[near.manifest_list] = near
    return list(neighbors.values())


def _list_manifests(store: IcebergMetadataStore, snapshots: Iterable[IcebergSnapshot]) -> set[str]:
    paths: set[str] = set()
    for snapshot in snapshots:
        try:
            paths.update(manifest.path for manifest in store.read_manifests(snapshot))
        except (FileNotFoundError, CorruptFileError) as error:
            logger.warning("an Iceberg manifest list is ignored: %s", error)
    return paths
