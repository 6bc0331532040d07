"""Following a table: where a stream stands, what comes next, and what is no longer there."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from paimon_orch.errors import InputError, PaimonError
from paimon_orch.format.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from paimon_orch.spark.datasource.datasource_options import SourceOptions
from paimon_orch.table.metadata.consumers import Consumers
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.scan.incremental_scan import kept_changelogs, kept_snapshot
from paimon_orch.table.table import Table

logger = logging.getLogger(__name__)

FULL, LATEST = "latest-full", "latest"
AT_SNAPSHOT, AT_SNAPSHOT_FULL, AT_TIME = "from-snapshot", "from-snapshot-full", "from-timestamp"
MODES = (FULL, LATEST, AT_SNAPSHOT, AT_SNAPSHOT_FULL, AT_TIME)
_ANEW = "begin anew with another checkpoint"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream stands, as checkpoints keep it in JSON.

    ``snapshot`` is the next one to read: all its rows if ``whole``, else what it changed. ``table`` is when the table
    was made and ``after`` when the snapshot before was committed, in epoch milliseconds: by them a table is known again.
    """

    snapshot: int
    whole: bool
    table: int
    after: int | None

    @classmethod
    def of(cls, offset: Mapping[str, object]) -> "Position":
        """Read what :meth:`offset` gave. Raises :class:`InputError` for anything else."""
        try:
            return cls(**offset)  # type: ignore[arg-type] # the names are checked by the call
        except TypeError:
            raise InputError(f"{dict(offset)} is no place in a Paimon table; {_ANEW}") from None

    @property
    def offset(self) -> dict[str, object]:
        """Return the position as Spark's checkpoint keeps it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a stream reads at once: all rows of a snapshot, then what others changed."""

    whole: Snapshot | None
    changes: tuple[Snapshot, ...]


@dataclass(frozen=True, slots=True)
class Follower:
    """Follows the snapshots of one table as the options of a stream say."""

    table: Table
    options: SourceOptions

    @property
    def _store(self) -> SnapshotStore:
        return self.table.snapshots

    @property
    def mode(self) -> str:
        """Return where the stream begins, by an option or by what else is said."""
        values = self.options.values
        implied = AT_SNAPSHOT if AT_SNAPSHOT in values else AT_TIME if AT_TIME in values else FULL
        mode = values.get("scan-mode", implied)
        if mode not in MODES:
            raise InputError(f"paimon: option scan-mode is one of {', '.join(MODES)}, not {mode!r}")
        needed = AT_SNAPSHOT if mode == AT_SNAPSHOT_FULL else mode
        given = {AT_SNAPSHOT, AT_TIME} & set(values)
        if given != {needed} & {AT_SNAPSHOT, AT_TIME}:
            found = ", ".join(sorted(given)) or "neither of the two"
            raise InputError(
                f"paimon: a stream with scan-mode {mode} and the options {AT_SNAPSHOT} and {AT_TIME} do not agree: "
                f"there is {found}"
            )
        return mode

    def start(self) -> Position:
        """Return where a query without checkpoint begins: where its consumer stands, or by the mode."""
        mode, consumer = self.mode, self.options.values.get("consumer-id")
        recorded = None if consumer is None else self._consumers().next_of(consumer)
        if recorded is not None:
            return self._position(recorded)
        position = self._begin(mode)
        self.record(position)
        return position

    def _begin(self, mode: str) -> Position:
        latest = self.newest()
        if mode == LATEST:
            return self._position(latest + 1)
        if mode == FULL:
            return replace(self._position(latest or FIRST_SNAPSHOT_ID), whole=True)
        if mode == AT_TIME:
            return self._position(self._first_since(self.options.moment(AT_TIME)))
        number = self.options.number(AT_SNAPSHOT)
        if number is None or not FIRST_SNAPSHOT_ID <= number <= latest + 1:
            raise InputError(
                f"paimon: option {AT_SNAPSHOT} is from {FIRST_SNAPSHOT_ID} to {latest + 1}, the one to come next, "
                f"not {number}"
            )
        return replace(self._position(number), whole=mode == AT_SNAPSHOT_FULL)

    def _first_since(self, moment: int | None) -> int:
        """Return the first snapshot that was committed at a time or after it."""
        first = (self.newest()) + 1
        for snapshot in self._store.walk_back():
            if moment is not None and snapshot.time_millis < moment:
                break
            first = snapshot.id
        return first

    def _position(self, snapshot_id: int) -> Position:
        return Position(snapshot_id, False, self._created(), self._committed(snapshot_id - 1))

    def _created(self) -> int:
        schemas = self.table.schemas
        return schemas.get(schemas.ids()[0]).time_millis

    def _committed(self, snapshot_id: int) -> int | None:
        """Return when a snapshot was committed; None if it is not there."""
        if not self._store.exists(snapshot_id):
            return None
        return self._store.get(snapshot_id).time_millis

    def newest(self) -> int:
        """Return the newest snapshot, 0 if there is none."""
        return self._store.latest_id() or 0

    def latest(self, start: Position | None, most: int | None, upto: int | None) -> Position:
        """Return the position behind the newest snapshot, or ``start`` if there is none new.

        ``most`` is how many snapshots are read at once, ``upto`` the last one to read at all.
        """
        last = self.newest() if upto is None else upto
        if start is None:
            return self._position(last + 1)
        self.check(start)
        if last < start.snapshot:
            return start
        if most is not None:
            last = min(last, start.snapshot + most - 1)
        return self._position(last + 1)

    def check(self, position: Position) -> None:
        """Refuse a position in another table of that name, or in a past that was rolled back."""
        name = self.table.identifier
        if self._created() != position.table:
            raise PaimonError(
                f"{name} was dropped and created again since the stream read it; {_ANEW}"
            )
        latest = self.newest()
        before = self._committed(position.snapshot - 1)
        others = before is not None and position.after is not None and before != position.after
        if others or latest + 1 < position.snapshot:
            raise PaimonError(
                f"{name} was rolled back to before snapshot {position.snapshot - 1}, which the stream has read; {_ANEW}"
            )

    def batch(self, start: Position, end: Position) -> Batch:
        """Return what to read between two positions.

        Raises :class:`PaimonError` if some of it is expired and the stream is not told to go on without.
        """
        self.check(start)
        self.check(end)
        lost = self._lost(start, end)
        ids = [i for i in range(start.snapshot, end.snapshot) if i not in lost]
        # a query that has read nothing yet finds all rows in a later snapshot too, if it did not name that one
        begins = start.whole and ids and self.mode != AT_SNAPSHOT_FULL
        if lost and not begins:
            self._report(lost)
        whole = self._store.get(ids.pop(0)) if start.whole and ids else None
        return Batch(whole, tuple(kept_snapshot(self._store, number) for number in ids))

    def _lost(self, start: Position, end: Position) -> set[int]:
        """Return the snapshots that are expired, and their changes with them."""
        earliest = self._store.earliest_id() or end.snapshot
        expired = set(range(start.snapshot, min(end.snapshot, earliest)))
        return expired.difference([] if start.whole else kept_changelogs(self._store))

    def _report(self, lost: set[int]) -> None:
        text = (
            f"{self.table.identifier}: the stream was to read snapshots {min(lost)} to {max(lost)} next, but "
            f"{len(lost)} of them are expired"
        )
        if not self.options.flag("fail-on-data-loss", default=True):
            logger.warning("%s; it goes on without them", text)
            return
        raise PaimonError(
            f"{text}. To go on without them set fail-on-data-loss = false; to read the whole table again {_ANEW}. A "
            "consumer-id, or a longer snapshot.time-retained of the table, keeps snapshots until they are read"
        )

    def record(self, position: Position) -> None:
        """Let expiration keep what the consumer has not read."""
        consumer = self.options.values.get("consumer-id")
        if consumer is not None:
            self._consumers().record(consumer, position.snapshot)

    def _consumers(self) -> Consumers:
        return Consumers(self.table.io, self.table.paths, self.table.options)
