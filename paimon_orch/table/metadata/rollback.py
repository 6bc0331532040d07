"""Rollback: make an older snapshot the newest by deleting later snapshots, changelogs and tags.

Also repairs the hint of the earliest snapshot.

See docs/format/rollback.md.
"""

from dataclasses import dataclass

from paimon_orch.errors import CommitConflictError, InputError, NotFoundError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.safe_text import format_names
from paimon_orch.storage.concurrency import map_concurrently
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """The target of a rollback, and what is deleted."""

    target: Snapshot
    tag: str | None
    """The tag that selects the target, if one does."""
    snapshots: list[int]
    """The ids of the later snapshots, which are deleted."""
    tags: list[str]
    """The names of the tags of later snapshots, which are deleted, too."""

    def check_tags(self, *, delete_tags: bool) -> None:
        """Raise :class:`InputError` if the rollback deletes tags without ``delete_tags``."""
        if self.tags and not delete_tags:
            raise InputError(
                f"a rollback to snapshot {self.target.id} deletes the tags {format_names(self.tags)}; "
                "to delete them, add --delete-tags (in Python delete_tags=True), and to keep them, "
                "use --as-latest (in Python rollback_as_latest). Nothing was changed"
            )


def plan_rollback(store: SnapshotStore, selector: SnapshotSelector) -> RollbackPlan:
    """Find the target of a rollback, and the later snapshots and tags.

    Raises :class:`NotFoundError` if the snapshot does not exist or is being expired.
    """
    target, tags = find_rollback_target(store, selector), store.tags()
    tagged = map_concurrently(store.io, store.tag, tags)
    return RollbackPlan(
        target=target,
        tag=selector.tag,
        snapshots=_find_later_snapshots(store, target),
        tags=[name for name, each in zip(tags, tagged, strict=True) if each.id > target.id],
    )


def _find_later_snapshots(store: SnapshotStore, target: Snapshot) -> list[int]:
    return [number for number in store.ids() if number > target.id]


def rollback(store: SnapshotStore, plan: RollbackPlan) -> None:
    """Make an older snapshot the newest one: delete later snapshots, changelogs and tags.

    No other process may write to the table during the call. Schemas are kept. Orphan file removal
    deletes the unreferenced data files later. An expired snapshot is restored from its tag. Raises
    :class:`CommitConflictError` if snapshots were created since the plan; the table is then
    unchanged. If the call failed, repeat it to complete the rollback.
    """
    target = plan.target
    if new := sorted({*_find_later_snapshots(store, target)} - {*plan.snapshots}):
        raise CommitConflictError(
            f"{store.paths.root}: the rollback to snapshot {target.id} would also delete the "
            f"snapshots {', '.join(map(str, new))}, which were created after it was planned; stop "
            "the writers, and repeat it. Nothing was changed"
        )
    if store.catalog is not None:
        store.catalog.rollback(target, plan.tag)
        return
    if plan.tag is not None and not store.exists(target.id):
        path = Tags(store).path(plan.tag)
        store.io.create(store.path(target.id), extract_snapshot(store.io.read_bytes(path), path))
        store.write_hint(EARLIEST, target.id)
    elif target.id < (store.earliest_id() or 0):
        store.write_hint(EARLIEST, target.id)
    store.write_hint(LATEST, target.id)
    # The newest snapshot is deleted first, so that an interrupted rollback leaves no gap in the ids.
    for snapshot_id in reversed(plan.snapshots):
        store.io.delete(store.path(snapshot_id))
    ChangelogStore(store.io, store.paths).delete_after(target.id)
    for name in plan.tags:
        store.io.delete(f"{store.paths.tag_dir}/tag-{name}")


def check_can_repair_earliest(store: SnapshotStore, snapshot_id: int) -> int:
    """Return the earliest snapshot id, if a snapshot can be made the earliest one.

    Raises :class:`InputError` unless all snapshots from it to the newest one exist, and the one
    before it is missing or it is the earliest one already.
    """
    earliest, latest = store.earliest_id(), store.latest_id()
    if earliest is None or latest is None:
        raise InputError(f"{store.paths.root} has no snapshot")
    if not earliest <= snapshot_id <= latest:
        raise InputError(
            f"snapshot {snapshot_id} is not one of the snapshots {earliest} to {latest} of "
            f"{store.paths.root}"
        )
    existing = set(store.ids())
    newest_missing = latest
    while newest_missing in existing:
        newest_missing -= 1
    if newest_missing >= snapshot_id:
        raise InputError(
            f"{store.paths.root} has no snapshot {newest_missing}, so the earliest snapshot must be "
            "a later one"
        )
    if snapshot_id != earliest and snapshot_id - 1 in existing:
        raise InputError(
            f"snapshot {snapshot_id} of {store.paths.root} does not follow a missing snapshot: "
            f"{snapshot_id - 1} exists. To delete older snapshots, expire them"
        )
    return earliest


def repair_earliest_snapshot(store: SnapshotStore, snapshot_id: int) -> int:
    """Make a snapshot after a gap the earliest one, and return the previous earliest id.

    The older snapshots are then treated as expired. Raises the errors of
    :func:`check_can_repair_earliest`; the table is then unchanged.
    """
    previous = check_can_repair_earliest(store, snapshot_id)
    store.write_hint(EARLIEST, snapshot_id)
    return previous
