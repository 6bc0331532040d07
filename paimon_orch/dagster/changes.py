"""What outside commits have touched since a sensor last looked. No Dagster in here, and no data file is opened.

Compactions move LATEST too, so snapshots of the kinds COMPACT and ANALYZE are passed over: a sensor that reacted to
its own work would never come to rest.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from paimon_orch.dagster.partitions import parse_path
from paimon_orch.errors import NotFoundError
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps import compact
from paimon_orch.table.partitions import partition_text
from paimon_orch.table.table import Table

VERSION = 1
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
    """

    table: str
    handled: Version
    pending: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Encode, with the version of this form."""
        return json.dumps({"v": VERSION, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor | None":
        """Decode; None for anything that this version did not write."""
        try:
            value: Any = json.loads(text or "")
            if value["v"] != VERSION:
                return None
            return cls(value["table"], Version(**value["handled"]), dict(value["pending"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Changes:
    """What to take up now.

    :ivar cursor: where the next look begins; what is in its ``pending`` is to be requested
    :ivar occasion: a text for all of it together, another one each time
    :ivar newest: the newest snapshot of the walk that changed data, if any
    :ivar snapshots: how many snapshots were looked at
    :ivar whole_table: why all partitions were looked at instead of those touched, if so
    :ivar touched: paths of the partitions that the walk touched
    """

    cursor: Cursor
    occasion: str
    newest: Snapshot | None = None
    snapshots: int = 0
    whole_table: str | None = None
    touched: frozenset[str] = frozenset()


def identity(table: Table) -> str:
    """Return what tells a table from another that was later created at the same place."""
    first = table.schemas.get(min(table.schemas.ids()))
    return f"{table.paths.branch_root}@{first.time_millis}"


def changes_since(table: Table, cursor: Cursor | None, latest: Snapshot, limit: int) -> Changes:
    """Walk the snapshots after the cursor, at most ``limit``, and collect the partitions they touched.

    Where there is nothing to walk from (a first look, a rollback, a table created anew, expired snapshots) all
    partitions count as touched by ``latest``.
    """
    name = identity(table)
    if cursor is None:
        return _whole_table(table, name, latest, "first look")
    if cursor.table != name:
        return _whole_table(table, name, latest, "the table was created anew")
    if latest.id < cursor.handled.snapshot_id or _replaced(table, cursor.handled):
        # What is touched now may have been requested before, under the same snapshot.
        return _whole_table(
            table, name, latest, "the table was rolled back", f" after {cursor.handled}"
        )
    try:
        return _walk(table, cursor, latest, limit)
    except NotFoundError:
        reason = f"snapshots after {cursor.handled.snapshot_id} have expired"
        return _whole_table(table, name, latest, reason)


def _replaced(table: Table, handled: Version) -> bool:
    """Tell whether the id now belongs to another snapshot; one that has expired proves nothing."""
    try:
        return Version.of(table.snapshots.get(handled.snapshot_id)) != handled
    except NotFoundError:
        return False


def _walk(table: Table, cursor: Cursor, latest: Snapshot, limit: int) -> Changes:
    first = cursor.handled.snapshot_id + 1
    last = min(latest.id, cursor.handled.snapshot_id + limit)
    touched, newest, handled = dict(cursor.pending), None, cursor.handled
    for snapshot_id in range(first, last + 1):
        snapshot = table.snapshots.get(snapshot_id)
        handled = Version.of(snapshot)
        if snapshot.commit_kind in _CHANGES_DATA:
            newest = snapshot
            touched |= dict.fromkeys(_touched(table, snapshot), str(handled))
    work = needs_work(table, touched)
    pending = {path: touched[path] for path in sorted(work)}
    following = replace(cursor, handled=handled, pending=pending)
    return Changes(following, str(handled), newest, last - first + 1, touched=frozenset(touched))


def _touched(table: Table, snapshot: Snapshot) -> set[str]:
    schema = table.schemas.get(snapshot.schema_id)
    partitions = {entry.partition for entry in table.manifests.delta_entries(snapshot)}
    return {partition_text(partition, schema) for partition in partitions}


def _whole_table(
    table: Table, name: str, latest: Snapshot, reason: str, suffix: str = ""
) -> Changes:
    version = Version.of(latest)
    occasion = f"{version}{suffix}"
    pending = dict.fromkeys(sorted(needs_work(table)), occasion)
    newest = latest if latest.commit_kind in _CHANGES_DATA else None
    return Changes(Cursor(name, version, pending), occasion, newest, whole_table=reason)


def partition_paths(table: Table, snapshot: Snapshot) -> set[str]:
    """Return the paths of all partitions that have files."""
    schema = table.schema
    return {partition_text(split.partition, schema) for split in table.files(snapshot)}


def needs_work(table: Table, paths: Collection[str] | None = None) -> set[str]:
    """Return which of these partitions (of all) a compaction would change, by the compaction's own plan."""
    if paths is not None and not paths:
        return set()
    whole = paths is None or "" in paths
    specs = None if whole else [parse_path(path) for path in paths or ()]
    return {unit.partition_text for unit in compact.plan(table, partitions=specs).units}
