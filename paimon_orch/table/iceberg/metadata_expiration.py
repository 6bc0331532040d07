"""Deletes Iceberg metadata that the newest version does not need.

See docs/format/iceberg-metadata.md#expiration-of-metadata.
"""

import logging
from collections.abc import Iterable, Sequence

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata, IcebergSnapshot
from paimon_orch.table.iceberg.iceberg_settings import IcebergSettings
from paimon_orch.table.iceberg.metadata_store import IcebergMetadataStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore

logger = logging.getLogger(__name__)


def delete_obsolete_files(
    store: IcebergMetadataStore,
    settings: IcebergSettings,
    published: IcebergMetadata,
    versions: Sequence[int],
    snapshots: SnapshotStore,
    *,
    dropped: Sequence[IcebergSnapshot] = (),
    is_restart: bool = False,
) -> None:
    """Delete old versions, then the manifest lists and manifests that only they name.

    ``versions`` are the versions before ``published`` was written. Versions above it are deleted
    if the table has no such snapshot: a rollback has removed it. ``dropped`` are snapshots of a
    replaced version, and new ones that have expired already. With ``is_restart`` all older versions
    are deleted, because they may name files that are lost or belong to another table.
    """
    current = published.current.id
    oldest = current - settings.previous_versions
    obsolete = [
        version
        for version in versions
        if (version < oldest and settings.deletes_old_versions)
        or (version < current and is_restart)
        or (version > current and not snapshots.exists(version))
    ]
    if not obsolete and not dropped:
        return
    kept = [published]
    kept += _read_versions(store, (v for v in versions if v not in obsolete and v != current))
    removed = [item for m in _read_versions(store, obsolete) for item in m.snapshots]
    for version in obsolete:
        store.delete_metadata(version)
    _delete_manifests(store, [*removed, *dropped], kept)


def _read_versions(store: IcebergMetadataStore, versions: Iterable[int]) -> list[IcebergMetadata]:
    metadata = []
    for version in versions:
        try:
            metadata.append(store.read_metadata(version))
        except (FileNotFoundError, CorruptFileError) as error:
            logger.warning("Iceberg metadata is ignored: %s", error)
    return metadata


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
    used = _list_manifests(store, _find_neighbors(obsolete, list(needed.values())))
    for item in obsolete:
        store.delete(item.manifest_list)
    for path in manifests - used:
        store.delete(path)


def _find_neighbors(
    obsolete: Sequence[IcebergSnapshot], kept: Sequence[IcebergSnapshot]
) -> list[IcebergSnapshot]:
    """Return the kept snapshots that may share manifests with obsolete ones.

    Successive snapshots share a manifest until one of them drops it for good. So a manifest of an
    obsolete snapshot that no kept snapshot nearest to it has is in no kept snapshot.
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
