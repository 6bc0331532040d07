"""The changes of the commits after a cursor, and the decisions for the changed partitions.

They read no data files, and skip snapshots of the kinds COMPACT and ANALYZE, so that a sensor does
not react to the compactions that it requested.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from paimon_orch.errors import MissingFileError, NotFoundError
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.orchestration.cursor import (
    Cursor,
    SnapshotIdentity,
    get_table_identity,
    now_millis,
)
from paimon_orch.orchestration.partition_keys import parse_partition_path
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionPolicy
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_MAX_SNAPSHOTS_BACK = 100
_DATA_COMMIT_KINDS = (CommitKind.APPEND, CommitKind.OVERWRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesSinceCursor:
    """The result of one evaluation of a sensor."""

    cursor: Cursor
    """The next cursor; the sensor requests the partitions in its ``pending``."""
    run_key_suffix: str
    """Identifies this evaluation in the run key of a request for the whole table."""
    data_snapshots: tuple[Snapshot, ...] = ()
    """The new snapshots that changed data."""
    whole_table_reason: str | None = None
    """The reason to evaluate all partitions, or None if only changed ones were evaluated."""
    touched_partitions: frozenset[str] | None = None
    """The paths of the partitions that may have changed since the cursor, or None if unknown."""
    decisions: tuple[CompactionDecision, ...] = ()
    """The decisions of the policy for the partitions that have files."""


@dataclass(frozen=True, slots=True)
class CompactionDecider:
    """A table and the policy that decides about its partitions."""

    table: Table
    state: TableState
    policy: CompactionPolicy
    can_compact_fully: bool = True
    """Whether runs compact single partitions, so that one of them can be rewritten fully."""

    def decide(
        self, paths: Collection[str] | None = None, overdue: Collection[str] | None = ()
    ) -> tuple[CompactionDecision, ...]:
        """Return the decisions for the partitions with these paths, or for all partitions."""
        if paths is not None and not paths:
            return ()
        return self._decide(paths, overdue, state=self.state)

    @repeat_if_expired
    def _decide(
        self,
        paths: Collection[str] | None,
        overdue: Collection[str] | None,
        *,
        state: TableState | None,
    ) -> tuple[CompactionDecision, ...]:
        # definitions of sensors load without the functions of compactions
        from paimon_orch.steps.common.bucket_scan import scan_latest_buckets
        from paimon_orch.steps.common.partition_request import PartitionRequest
        from paimon_orch.steps.compaction.decide import decide

        is_whole_table = paths is None or "" in paths
        specs = None if is_whole_table else [parse_partition_path(p) for p in sorted(paths or ())]
        # partitions may have been dropped since
        scan = scan_latest_buckets(state or self.table.load(), PartitionRequest(partitions=specs))
        if scan is None:
            return ()
        decisions = decide(
            self.table,
            self.policy,
            overdue=overdue,
            may_be_full=self.can_compact_fully,
            scan=scan,
        )
        return tuple(decisions)


def find_next_snapshots(snapshots: SnapshotStore, handled: SnapshotIdentity) -> dict[int, Snapshot]:
    """Read the snapshots with the handled id and the next one, if they exist, at the same time."""
    return snapshots.find_many((handled.snapshot_id, handled.snapshot_id + 1))


def is_latest_snapshot(found: Mapping[int, Snapshot], handled: SnapshotIdentity) -> bool:
    """Return whether a snapshot is still the latest one, by :func:`find_next_snapshots`.

    Unlike the hint LATEST, this detects that the table was recreated and has another snapshot with
    the same id.
    """
    return [SnapshotIdentity.of(snapshot) for snapshot in found.values()] == [handled]


def collect_changes(
    decider: CompactionDecider,
    cursor: Cursor | None,
    limit: int,
    found: Mapping[int, Snapshot] = MappingProxyType({}),
) -> ChangesSinceCursor:
    """Read at most ``limit`` snapshots after the cursor, and evaluate the partitions they changed.

    The table has a snapshot; ``found`` are snapshots that the caller has just read. Evaluates all
    partitions if there is no cursor, if the table was rolled back or recreated, or if snapshots
    after the cursor have expired.
    """
    state, identity = decider.state, get_table_identity(decider.state)
    latest = state.snapshot
    assert latest is not None
    if cursor is None:
        changes = _evaluate_all_partitions(decider, identity, latest, "first evaluation")
        return replace(changes, touched_partitions=frozenset())
    if cursor.table != identity:
        return _evaluate_all_partitions(decider, identity, latest, "the table was recreated")
    if latest.id < cursor.handled.snapshot_id or _is_replaced(state, cursor.handled, found):
        # The sensor may have requested the same partitions for an earlier snapshot with this id.
        suffix = f" after {cursor.handled}"
        reason = "the table was rolled back"
        return _evaluate_all_partitions(decider, identity, latest, reason, suffix=suffix)
    try:
        return _evaluate_changes(decider, cursor, latest, limit)
    except (MissingFileError, NotFoundError):
        reason = f"snapshots after {cursor.handled.snapshot_id} have expired"
        return _evaluate_all_partitions(decider, identity, latest, reason)


def _is_replaced(
    state: TableState, handled: SnapshotIdentity, found: Mapping[int, Snapshot]
) -> bool:
    """Return whether the id now belongs to another snapshot; False if the snapshot has expired."""
    number, latest = handled.snapshot_id, state.snapshot
    if latest is not None and latest.id == number:
        return SnapshotIdentity.of(latest) != handled
    snapshot = found.get(number) or state.snapshots.find(number)
    return snapshot is not None and SnapshotIdentity.of(snapshot) != handled


def _evaluate_changes(
    decider: CompactionDecider, cursor: Cursor, latest: Snapshot, limit: int
) -> ChangesSinceCursor:
    state, previous = decider.state, cursor.handled
    last_id = min(latest.id, previous.snapshot_id + limit)
    snapshots = _read_snapshots(state, latest, range(previous.snapshot_id + 1, last_id + 1))
    data_snapshots = [s for s in snapshots if s.commit_kind in _DATA_COMMIT_KINDS]
    overdue = cursor.find_overdue(decider.policy.wait_millis)
    suffixes = {path: f"{previous} and {cursor.waiting[path]}" for path in overdue}
    suffixes |= cursor.pending
    for snapshot in data_snapshots:
        suffix = str(SnapshotIdentity.of(snapshot))
        schema = state.schemas.get(snapshot.schema_id)
        partitions = {entry.partition for entry in state.manifests.read_delta_entries(snapshot)}
        suffixes |= {format_partition(partition, schema): suffix for partition in partitions}
    handled = SnapshotIdentity.of(snapshots[-1]) if snapshots else previous
    decisions = decider.decide(suffixes, overdue)
    next_cursor = Cursor(
        cursor.table,
        handled,
        {d.partition: suffixes[d.partition] for d in decisions if d.compact},
        {path: since for path, since in cursor.waiting.items() if path not in suffixes}
        | _compute_waiting_since(decisions, cursor.waiting),
    )
    return ChangesSinceCursor(
        cursor=next_cursor,
        run_key_suffix=" ".join([str(handled), *(() if snapshots else suffixes.values())]),
        data_snapshots=tuple(data_snapshots),
        touched_partitions=frozenset(suffixes),
        decisions=decisions,
    )


def _compute_waiting_since(
    decisions: Collection[CompactionDecision], previous: Mapping[str, int]
) -> dict[str, int]:
    """Return the start of waiting by path.

    Partitions to compact also start to wait: if their run fails, the sensor evaluates them again,
    even if no other commit follows. So do partitions that may become idle.
    """
    now = now_millis()
    return {
        d.partition: previous.get(d.partition, now) if d.is_waiting else now
        for d in decisions
        if d.is_waiting or d.compact or d.may_become_idle
    }


def _read_snapshots(state: TableState, latest: Snapshot, ids: range) -> list[Snapshot]:
    """Read snapshots, some at the same time; raises :class:`NotFoundError` for expired ones."""
    found = state.snapshots.find_many(number for number in ids if number != latest.id)
    found[latest.id] = latest
    return [found.get(number) or state.snapshots.get(number) for number in ids]


def _evaluate_all_partitions(
    decider: CompactionDecider, identity: str, latest: Snapshot, reason: str, suffix: str = ""
) -> ChangesSinceCursor:
    handled = SnapshotIdentity.of(latest)
    run_key_suffix, decisions = f"{handled}{suffix}", decider.decide()
    pending = {decision.partition: run_key_suffix for decision in decisions if decision.compact}
    return ChangesSinceCursor(
        cursor=Cursor(identity, handled, pending, _compute_waiting_since(decisions, {})),
        run_key_suffix=run_key_suffix,
        data_snapshots=tuple(_find_latest_data_snapshot(decider.state, latest)),
        whole_table_reason=reason,
        decisions=decisions,
    )


def _find_latest_data_snapshot(state: TableState, latest: Snapshot) -> Iterator[Snapshot]:
    """Yield the newest snapshot that changed data.

    Yields nothing if it is not among the last ``_MAX_SNAPSHOTS_BACK`` snapshots.
    """
    snapshot: Snapshot | None = latest
    for previous_id in range(latest.id - 1, latest.id - _MAX_SNAPSHOTS_BACK, -1):
        if snapshot is None:
            return
        if snapshot.commit_kind in _DATA_COMMIT_KINDS:
            yield snapshot
            return
        snapshot = state.snapshots.find(previous_id) if previous_id >= 1 else None
