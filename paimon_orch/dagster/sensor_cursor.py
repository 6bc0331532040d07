"""What outside commits have touched since a sensor last looked. No Dagster in here, and no data file is opened.

Compactions move LATEST too, so snapshots of the kinds COMPACT and ANALYZE are passed over: a sensor that reacted to
its own work would never come to rest.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter

from paimon_orch.dagster.partitions import parse_partition_path
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionPolicy, decide
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.table import Table

CURSOR_VERSION = 1
FIRST_EVALUATION = "first look"
_MAX_SNAPSHOTS_BACK = 100
_DATA_COMMIT_KINDS = (CommitKind.APPEND, CommitKind.OVERWRITE)


@dataclass(frozen=True, slots=True)
class SnapshotIdentity:
    """A snapshot by id and commit time: a rollback gives an id away a second time."""

    snapshot_id: int
    time_millis: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> "SnapshotIdentity":
        """Return the version of a snapshot."""
        return cls(snapshot.id, snapshot.time_millis)

    def __str__(self) -> str:
        return f"{self.snapshot_id}@{self.time_millis}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a table was looked at.

    :ivar table: the table's identity, see :func:`get_table_identity`
    :ivar handled: the newest snapshot whose partitions were all taken up, or wait in ``pending``
    :ivar pending: partition paths whose work is still to be requested, and what touched each: a text that is another
        one for each occasion
    :ivar waiting: partition paths whose work was not worth it yet, or was requested, and since when, in epoch
        milliseconds: they are looked at again without any commit
    """

    table: str
    handled: SnapshotIdentity
    pending: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)

    def overdue(self, longest_millis: int) -> set[str]:
        """Return the paths that have waited longer than that."""
        before = _now_millis() - longest_millis
        return {path for path, since in self.waiting.items() if since <= before}

    def to_json(self) -> str:
        """Encode, with the version of this form."""
        return json.dumps({"v": CURSOR_VERSION, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor | None":
        """Decode; None for anything that this version did not write."""
        try:
            if json.loads(text or "")["v"] != CURSOR_VERSION:
                return None
            found = _CURSOR_ADAPTER.validate_json(text or "", strict=True)
            for path in {*found.pending, *found.waiting} - {""}:
                parse_partition_path(path)
        except (ValueError, TypeError, KeyError, RecursionError, InputError):
            return None
        return found


_CURSOR_ADAPTER = TypeAdapter(Cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesSinceCursor:
    """What to take up now.

    :ivar cursor: where the next look begins; what is in its ``pending`` is to be requested
    :ivar occasion: a text for all of it together, another one each time
    :ivar data: the snapshots of the walk that changed data
    :ivar snapshots: how many snapshots were looked at
    :ivar whole_table: why all partitions were looked at instead of those touched, if so
    :ivar touched: paths of the partitions that the walk touched
    :ivar decisions: what the policy says of those that have files
    """

    cursor: Cursor
    run_key_suffix: str
    data: tuple[Snapshot, ...] = ()
    snapshots: int = 0
    whole_table_reason: str | None = None
    touched_partitions: frozenset[str] = frozenset()
    decisions: tuple[CompactionDecision, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionDecider:
    """What is watched: a table, and the policy by which its partitions are compacted.

    :ivar may_be_full: whether partitions are compacted by themselves, so that one of them may be rewritten
    """

    table: Table
    policy: CompactionPolicy
    may_be_full: bool = True

    def decide(
        self, paths: Collection[str] | None = None, overdue: Collection[str] | None = ()
    ) -> tuple[CompactionDecision, ...]:
        """Return what the policy says of these partitions, of all without ``paths``."""
        if paths is not None and not paths:
            return ()
        whole = paths is None or "" in paths
        specs = None if whole else [parse_partition_path(path) for path in sorted(paths or ())]
        found = decide(
            self.table,
            self.policy,
            partitions=specs,
            overdue=overdue,
            may_be_full=self.may_be_full,
        )
        return tuple(found)


def get_table_identity(table: Table) -> str:
    """Return what tells a table from another that was later created at the same place."""
    first = table.stores.schemas.get(min(table.stores.schemas.ids()))
    return f"{table.paths.branch_root}@{first.time_millis}"


def is_latest_snapshot(table: Table, handled: SnapshotIdentity) -> bool:
    """Tell whether there is nothing new since a snapshot, by reading that one alone.

    The hint would say as much of new commits, but not that a table created anew has the same id.
    """
    try:
        same = SnapshotIdentity.of(table.stores.snapshots.get(handled.snapshot_id)) == handled
    except NotFoundError:
        return False
    return same and not table.stores.snapshots.exists(handled.snapshot_id + 1)


def collect_changes(
    watch: CompactionDecider, cursor: Cursor | None, latest: Snapshot, limit: int
) -> ChangesSinceCursor:
    """Walk the snapshots after the cursor, at most ``limit``, and collect the partitions they touched.

    Where there is nothing to walk from (a first look, a rollback, a table created anew, expired snapshots) all
    partitions count as touched by ``latest``.
    """
    name = get_table_identity(watch.table)
    if cursor is None:
        return _collect_all_partitions(watch, name, latest, FIRST_EVALUATION)
    if cursor.table != name:
        return _collect_all_partitions(watch, name, latest, "the table was created anew")
    if latest.id < cursor.handled.snapshot_id or _is_replaced(watch.table, cursor.handled):
        # What is touched now may have been requested before, under the same snapshot.
        return _collect_all_partitions(
            watch,
            name,
            latest=latest,
            reason="the table was rolled back",
            suffix=f" after {cursor.handled}",
        )
    try:
        return _collect_snapshot_changes(watch, cursor, latest, limit)
    except NotFoundError:
        reason = f"snapshots after {cursor.handled.snapshot_id} have expired"
        return _collect_all_partitions(watch, name, latest, reason)


def _is_replaced(table: Table, handled: SnapshotIdentity) -> bool:
    """Tell whether the id now belongs to another snapshot; one that has expired proves nothing."""
    try:
        return SnapshotIdentity.of(table.stores.snapshots.get(handled.snapshot_id)) != handled
    except NotFoundError:
        return False


def _collect_snapshot_changes(
    watch: CompactionDecider, cursor: Cursor, latest: Snapshot, limit: int
) -> ChangesSinceCursor:
    first = cursor.handled.snapshot_id + 1
    last = min(latest.id, cursor.handled.snapshot_id + limit)
    overdue, data, handled = cursor.overdue(watch.policy.wait_millis), [], cursor.handled
    touched = {path: f"{handled} and {cursor.waiting[path]}" for path in overdue} | cursor.pending
    for snapshot_id in range(first, last + 1):
        snapshot = watch.table.stores.snapshots.get(snapshot_id)
        handled = SnapshotIdentity.of(snapshot)
        if snapshot.commit_kind in _DATA_COMMIT_KINDS:
            data.append(snapshot)
            touched |= dict.fromkeys(_find_touched_partitions(watch.table, snapshot), str(handled))
    decisions = watch.decide(touched, overdue)
    following = Cursor(
        cursor.table,
        handled,
        {found.partition: touched[found.partition] for found in decisions if found.compact},
        {path: since for path, since in cursor.waiting.items() if path not in touched}
        | _compute_waiting_since(decisions, cursor.waiting),
    )
    snapshots = last - first + 1
    occasion = str(handled) if snapshots else " ".join([str(handled), *touched.values()])
    return ChangesSinceCursor(
        cursor=following,
        run_key_suffix=occasion,
        data=tuple(data),
        snapshots=snapshots,
        whole_table_reason=None,
        touched_partitions=frozenset(touched),
        decisions=decisions,
    )


def _compute_waiting_since(
    decisions: Collection[CompactionDecision], before: Mapping[str, int]
) -> dict[str, int]:
    """Return since when those wait that a threshold holds back, and from now on those that are to be compacted.

    If the run of one of these fails there may be no commit that would make the sensor look again.
    """
    now = _now_millis()
    return {
        d.partition: before.get(d.partition, now) if d.is_waiting else now
        for d in decisions
        if d.is_waiting or d.compact
    }


def _find_touched_partitions(table: Table, snapshot: Snapshot) -> set[str]:
    schema = table.stores.schemas.get(snapshot.schema_id)
    partitions = {entry.partition for entry in table.stores.manifests.read_delta_entries(snapshot)}
    return {format_partition(partition, schema) for partition in partitions}


def _collect_all_partitions(
    watch: CompactionDecider, name: str, latest: Snapshot, reason: str, suffix: str = ""
) -> ChangesSinceCursor:
    version = SnapshotIdentity.of(latest)
    occasion, decisions = f"{version}{suffix}", watch.decide()
    pending = {found.partition: occasion for found in decisions if found.compact}
    return ChangesSinceCursor(
        cursor=Cursor(name, version, pending, _compute_waiting_since(decisions, {})),
        run_key_suffix=occasion,
        data=tuple(_find_latest_data_snapshot(watch.table, latest)),
        whole_table_reason=reason,
        decisions=decisions,
    )


def _find_latest_data_snapshot(table: Table, latest: Snapshot) -> Iterator[Snapshot]:
    """Yield the newest snapshot that changed data, if it is among the last ones that are kept."""
    snapshot = latest
    for earlier in range(latest.id - 1, latest.id - _MAX_SNAPSHOTS_BACK, -1):
        if snapshot.commit_kind in _DATA_COMMIT_KINDS:
            yield snapshot
            return
        if earlier < 1 or not table.stores.snapshots.exists(earlier):
            return
        snapshot = table.stores.snapshots.get(earlier)


def _now_millis() -> int:
    return int(time.time() * 1000)
