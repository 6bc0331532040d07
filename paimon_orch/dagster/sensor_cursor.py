"""What outside commits have touched since a sensor last looked. No Dagster in here, and no data file is opened.

Compactions move LATEST too, so snapshots of the kinds COMPACT and ANALYZE are passed over: a sensor that reacted to
its own work would never come to rest.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter

from paimon_orch.dagster.partitions import parse_path
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.compaction.policy import CompactionPolicy, Decision, decide
from paimon_orch.table.filter.partition_spec import partition_text
from paimon_orch.table.table import Table

VERSION = 1
FIRST_LOOK = "first look"
_LOOK_BACK = 100
_CHANGES_DATA = (CommitKind.APPEND, CommitKind.OVERWRITE)


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot by id and commit time: a rollback gives an id away a second time."""

    snapshot_id: int
    time_millis: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Version":
        """Return the version of a snapshot."""
        return cls(snapshot.id, snapshot.time_millis)

    def __str__(self) -> str:
        return f"{self.snapshot_id}@{self.time_millis}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a table was looked at.

    :ivar table: the table's identity, see :func:`identity`
    :ivar handled: the newest snapshot whose partitions were all taken up, or wait in ``pending``
    :ivar pending: partition paths whose work is still to be requested, and what touched each: a text that is another
        one for each occasion
    :ivar waiting: partition paths whose work was not worth it yet, or was requested, and since when, in epoch
        milliseconds: they are looked at again without any commit
    """

    table: str
    handled: Version
    pending: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)

    def overdue(self, longest_millis: int) -> set[str]:
        """Return the paths that have waited longer than that."""
        before = _now() - longest_millis
        return {path for path, since in self.waiting.items() if since <= before}

    def to_json(self) -> str:
        """Encode, with the version of this form."""
        return json.dumps({"v": VERSION, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor | None":
        """Decode; None for anything that this version did not write."""
        try:
            if json.loads(text or "")["v"] != VERSION:
                return None
            found = _CURSOR.validate_json(text or "", strict=True)
            for path in {*found.pending, *found.waiting} - {""}:
                parse_path(path)
        except (ValueError, TypeError, KeyError, RecursionError, InputError):
            return None
        return found


_CURSOR = TypeAdapter(Cursor)


@dataclass(frozen=True, slots=True)
class Changes:
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
    occasion: str
    data: tuple[Snapshot, ...] = ()
    snapshots: int = 0
    whole_table: str | None = None
    touched: frozenset[str] = frozenset()
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class Watch:
    """What is watched: a table, and the policy by which its partitions are compacted.

    :ivar may_be_full: whether partitions are compacted by themselves, so that one of them may be rewritten
    """

    table: Table
    policy: CompactionPolicy
    may_be_full: bool = True

    def decide(
        self, paths: Collection[str] | None = None, overdue: Collection[str] | None = ()
    ) -> tuple[Decision, ...]:
        """Return what the policy says of these partitions, of all without ``paths``."""
        if paths is not None and not paths:
            return ()
        whole = paths is None or "" in paths
        specs = None if whole else [parse_path(path) for path in sorted(paths or ())]
        found = decide(
            self.table,
            self.policy,
            partitions=specs,
            overdue=overdue,
            may_be_full=self.may_be_full,
        )
        return tuple(found)


def identity(table: Table) -> str:
    """Return what tells a table from another that was later created at the same place."""
    first = table.schemas.get(min(table.schemas.ids()))
    return f"{table.paths.branch_root}@{first.time_millis}"


def is_newest(table: Table, handled: Version) -> bool:
    """Tell whether there is nothing new since a snapshot, by reading that one alone.

    The hint would say as much of new commits, but not that a table created anew has the same id.
    """
    try:
        same = Version.of(table.snapshots.get(handled.snapshot_id)) == handled
    except NotFoundError:
        return False
    return same and not table.snapshots.exists(handled.snapshot_id + 1)


def changes_since(watch: Watch, cursor: Cursor | None, latest: Snapshot, limit: int) -> Changes:
    """Walk the snapshots after the cursor, at most ``limit``, and collect the partitions they touched.

    Where there is nothing to walk from (a first look, a rollback, a table created anew, expired snapshots) all
    partitions count as touched by ``latest``.
    """
    name = identity(watch.table)
    if cursor is None:
        return _whole_table(watch, name, latest, FIRST_LOOK)
    if cursor.table != name:
        return _whole_table(watch, name, latest, "the table was created anew")
    if latest.id < cursor.handled.snapshot_id or _replaced(watch.table, cursor.handled):
        # What is touched now may have been requested before, under the same snapshot.
        return _whole_table(
            watch, name, latest, "the table was rolled back", f" after {cursor.handled}"
        )
    try:
        return _walk(watch, cursor, latest, limit)
    except NotFoundError:
        reason = f"snapshots after {cursor.handled.snapshot_id} have expired"
        return _whole_table(watch, name, latest, reason)


def _replaced(table: Table, handled: Version) -> bool:
    """Tell whether the id now belongs to another snapshot; one that has expired proves nothing."""
    try:
        return Version.of(table.snapshots.get(handled.snapshot_id)) != handled
    except NotFoundError:
        return False


def _walk(watch: Watch, cursor: Cursor, latest: Snapshot, limit: int) -> Changes:
    first = cursor.handled.snapshot_id + 1
    last = min(latest.id, cursor.handled.snapshot_id + limit)
    overdue, data, handled = cursor.overdue(watch.policy.wait_millis), [], cursor.handled
    touched = {path: f"{handled} and {cursor.waiting[path]}" for path in overdue} | cursor.pending
    for snapshot_id in range(first, last + 1):
        snapshot = watch.table.snapshots.get(snapshot_id)
        handled = Version.of(snapshot)
        if snapshot.commit_kind in _CHANGES_DATA:
            data.append(snapshot)
            touched |= dict.fromkeys(_touched(watch.table, snapshot), str(handled))
    decisions = watch.decide(touched, overdue)
    following = Cursor(
        cursor.table,
        handled,
        {found.partition: touched[found.partition] for found in decisions if found.compact},
        {path: since for path, since in cursor.waiting.items() if path not in touched}
        | _waiting(decisions, cursor.waiting),
    )
    snapshots = last - first + 1
    occasion = str(handled) if snapshots else " ".join([str(handled), *touched.values()])
    return Changes(following, occasion, tuple(data), snapshots, None, frozenset(touched), decisions)


def _waiting(decisions: Collection[Decision], before: Mapping[str, int]) -> dict[str, int]:
    """Return since when those wait that a threshold holds back, and from now on those that are to be compacted.

    If the run of one of these fails there may be no commit that would make the sensor look again.
    """
    now = _now()
    return {
        d.partition: before.get(d.partition, now) if d.waits else now
        for d in decisions
        if d.waits or d.compact
    }


def _touched(table: Table, snapshot: Snapshot) -> set[str]:
    schema = table.schemas.get(snapshot.schema_id)
    partitions = {entry.partition for entry in table.manifests.delta_entries(snapshot)}
    return {partition_text(partition, schema) for partition in partitions}


def _whole_table(
    watch: Watch, name: str, latest: Snapshot, reason: str, suffix: str = ""
) -> Changes:
    version = Version.of(latest)
    occasion, decisions = f"{version}{suffix}", watch.decide()
    pending = {found.partition: occasion for found in decisions if found.compact}
    return Changes(
        Cursor(name, version, pending, _waiting(decisions, {})),
        occasion,
        tuple(_newest_data(watch.table, latest)),
        whole_table=reason,
        decisions=decisions,
    )


def _newest_data(table: Table, latest: Snapshot) -> Iterator[Snapshot]:
    """Yield the newest snapshot that changed data, if it is among the last ones that are kept."""
    snapshot = latest
    for earlier in range(latest.id - 1, latest.id - _LOOK_BACK, -1):
        if snapshot.commit_kind in _CHANGES_DATA:
            yield snapshot
            return
        if earlier < 1 or not table.snapshots.exists(earlier):
            return
        snapshot = table.snapshots.get(earlier)


def _now() -> int:
    return int(time.time() * 1000)
