"""Selects a snapshot by id, tag, time or watermark.

See docs/format/time-travel.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.times import TimeArgument, format_time, to_epoch_millis
from paimon_orch.table.metadata.snapshot_store import SnapshotStore

NO_WATERMARK = -(2**63)


@dataclass(frozen=True, slots=True)
class SnapshotSelector:
    """Selects one snapshot of a table. At most one field is set; if none is set, the newest."""

    snapshot_id: int | None = None
    tag: str | None = None
    timestamp: int | None = None
    """Epoch milliseconds; selects the newest snapshot that is not later."""

    watermark: int | None = None
    """Selects the oldest snapshot that has reached this watermark."""

    def __post_init__(self) -> None:
        fields = self._list_set_fields()
        if len(fields) > 1:
            raise InputError(f"{' and '.join(fields)} cannot be combined; set only one of them")

    @classmethod
    def of(
        cls,
        snapshot_id: int | None,
        tag: str | None,
        timestamp: TimeArgument,
        watermark: TimeArgument,
    ) -> "SnapshotSelector":
        """Return the selector for the arguments of a call; a time without a zone is local."""
        times = {"timestamp": timestamp, "watermark": watermark}
        millis = {
            name: None if value is None else to_epoch_millis(name, value)
            for name, value in times.items()
        }
        return cls(snapshot_id, tag, millis["timestamp"], millis["watermark"])

    def __bool__(self) -> bool:
        return bool(self._list_set_fields())

    def _list_set_fields(self) -> list[str]:
        return [name for name in self.__slots__ if getattr(self, name) is not None]

    def find(self, snapshots: SnapshotStore) -> Snapshot | None:
        """Read the snapshot; return None if the table is empty and its newest snapshot is selected.

        Raises :class:`NotFoundError` if no snapshot fits.
        """
        if self.snapshot_id is not None:
            return snapshots.get(self.snapshot_id)
        if self.tag is not None:
            return snapshots.tag(self.tag)
        if self.timestamp is not None:
            return find_at_time(snapshots, self.timestamp)
        if self.watermark is not None:
            return _find_at_watermark(snapshots, self.watermark)
        return snapshots.latest()


def find_at_time(snapshots: SnapshotStore, time_millis: int) -> Snapshot:
    """Return the newest snapshot committed at or before a time in epoch milliseconds."""
    existing = "it has none"
    for snapshot in snapshots.walk_back():
        if snapshot.time_millis <= time_millis:
            return snapshot
        existing = f"the oldest, {snapshot.id}, is of {format_time(snapshot.time_millis)}"
    raise NotFoundError(
        f"{snapshots.paths.root} has no snapshot at or before {format_time(time_millis)}; {existing}"
    )


def _find_at_watermark(snapshots: SnapshotStore, watermark: int) -> Snapshot:
    """Return the oldest snapshot that has reached a watermark."""
    reached, newest = None, None
    for snapshot in snapshots.walk_back():
        snapshot_watermark = snapshot.watermark
        if snapshot_watermark is None or snapshot_watermark == NO_WATERMARK:
            continue
        newest = snapshot_watermark if newest is None else newest
        if snapshot_watermark < watermark:
            break
        reached = snapshot
    if reached is None:
        existing = (
            "no snapshot has a watermark" if newest is None else f"the newest watermark is {newest}"
        )
        raise NotFoundError(
            f"{snapshots.paths.root} has no snapshot with a watermark of {watermark} or more; "
            f"{existing}"
        )
    return reached


def find_first_since_time(snapshots: SnapshotStore, time_millis: int) -> Snapshot:
    """Return the first snapshot committed at or after a time; tags of expired ones count.

    Raises :class:`NotFoundError` if there is none.
    """
    found = _find_first_reaching(snapshots, time_millis, attrgetter("time_millis"))
    if found is None:
        raise NotFoundError(
            f"{snapshots.paths.root} has no snapshot or tag at or after {format_time(time_millis)}"
        )
    return found


def find_first_since_watermark(snapshots: SnapshotStore, watermark: int) -> Snapshot:
    """Return the first snapshot with a watermark or a later one; tags of expired ones count.

    Raises :class:`NotFoundError` if there is none.
    """
    found = _find_first_reaching(
        snapshots, watermark, lambda s: None if s.watermark == NO_WATERMARK else s.watermark
    )
    if found is None:
        raise NotFoundError(
            f"{snapshots.paths.root} has no snapshot or tag with a watermark of {watermark} or more"
        )
    return found


def _find_first_reaching(
    snapshots: SnapshotStore, minimum: int, get_value: Callable[[Snapshot], int | None]
) -> Snapshot | None:
    """Return the first snapshot whose value is at least ``minimum``, or the tag of an earlier one.

    Values grow with the ids, except that snapshots may have none.
    """
    first: Snapshot | None = None
    for snapshot in snapshots.walk_back():
        value = get_value(snapshot)
        if value is not None and value < minimum:
            break
        first = first if value is None else snapshot
    tagged = sorted(map(snapshots.tag, snapshots.tags()), key=attrgetter("id"))
    for snapshot in tagged:
        value = get_value(snapshot)
        if value is not None and value >= minimum:
            newer = None if first is None else get_value(first)
            return snapshot if newer is None or value < newer else first
    return first
