"""Rollback: make an older snapshot the newest by deleting later snapshots, changelogs and tags.

See docs/format/rollback.md.
"""

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST, LATEST, SnapshotStore
from paimon_orch.table.metadata.tags import Tags, extract_snapshot
from paimon_orch.table.metadata.time_travel import SnapshotSelector


def find_rollback_target(store: SnapshotStore, selector: SnapshotSelector) -> Snapshot:
    """Return the target snapshot of a rollback.

    Raises :class:`NotFoundError` for a snapshot before the hint EARLIEST, whose expiration is
    running or was interrupted, unless a tag has kept its files.
    """
    if not selector:
        raise InputError("a rollback needs a snapshot, a tag or a time")
    target = selector.find(store)
    assert target is not None
    earliest = store.earliest_id() or 0
    if target.id < earliest and all(store.tag(name).id != target.id for name in store.tags()):
        raise NotFoundError(
            f"{store.paths.root}: snapshot {target.id} is being expired, and some of its files may "
            f"be deleted; the oldest snapshot to roll back to is {earliest}"
        )
    return target


def rollback(store: SnapshotStore, selector: SnapshotSelector) -> Snapshot:
    """Make an older snapshot the newest one: delete later snapshots, changelogs and tags.

    No other process may write to the table during the call. Schemas are kept. Orphan file removal
    deletes the unreferenced data files later. An expired snapshot is restored from its tag. Raises
    :class:`NotFoundError` if the snapshot does not exist or is being expired; the table is then
    unchanged. If the call failed, repeat it to complete the rollback.
    """
    target = find_rollback_target(store, selector)
    if store.catalog is not None:
        store.catalog.rollback(target, selector.tag)
        return target
    later_tags = [name for name in store.tags() if store.tag(name).id > target.id]
    if selector.tag is not None and not store.exists(target.id):
        path = Tags(store).path(selector.tag)
        store.io.create(store.path(target.id), extract_snapshot(store.io.read_bytes(path), path))
        store.write_hint(EARLIEST, target.id)
    elif target.id < (store.earliest_id() or 0):
        store.write_hint(EARLIEST, target.id)
    store.write_hint(LATEST, target.id)
    # The newest snapshot is deleted first, so that an interrupted rollback leaves no gap in the ids.
    for snapshot_id in reversed(store.ids()):
        if snapshot_id > target.id:
            store.io.delete(store.path(snapshot_id))
    ChangelogStore(store.io, store.paths).delete_after(target.id)
    for name in later_tags:
        store.io.delete(f"{store.paths.tag_dir}/tag-{name}")
    return target
