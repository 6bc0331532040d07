"""Following a table: where a stream stands, what comes next, and what is no longer there."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from paimon_orch.errors import InputError, PaimonError
from paimon_orch.format.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.table.metadata.consumers import ConsumerStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.scan.incremental_scan import list_changelog_ids, read_snapshot_or_changelog
from paimon_orch.table.table import Table

logger = logging.getLogger(__name__)

LATEST_FULL, LATEST = "latest-full", "latest"
FROM_SNAPSHOT, FROM_SNAPSHOT_FULL, FROM_TIMESTAMP = (
    "from-snapshot",
    "from-snapshot-full",
    "from-timestamp",
)
SCAN_MODES = (LATEST_FULL, LATEST, FROM_SNAPSHOT, FROM_SNAPSHOT_FULL, FROM_TIMESTAMP)
_NEW_CHECKPOINT_ADVICE = "begin anew with another checkpoint"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where a stream stands, as checkpoints keep it in JSON.

    ``snapshot`` is the next one to read: all its rows if ``whole``, else what it changed. ``table`` is when the table
    was made and ``after`` when the snapshot before was committed, in epoch milliseconds: by them a table is known again.
    """

    snapshot: int
    whole: bool
    table: int
    after: int | None

    @classmethod
    def of(cls, offset: Mapping[str, object]) -> "StreamOffset":
        """Read what :meth:`offset` gave. Raises :class:`InputError` for anything else."""
        try:
            return cls(**offset)  # type: ignore[arg-type] # the names are checked by the call
        except TypeError:
            raise InputError(
                f"{dict(offset)} is no place in a Paimon table; {_NEW_CHECKPOINT_ADVICE}"
            ) from None

    @property
    def offset(self) -> dict[str, object]:
        """Return the position as Spark's checkpoint keeps it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """What a stream reads at once: all rows of a snapshot, then what others changed."""

    whole: Snapshot | None
    changes: tuple[Snapshot, ...]


@dataclass(frozen=True, slots=True)
class StreamFollower:
    """Follows the snapshots of one table as the options of a stream say."""

    table: Table
    options: DataSourceOptions

    @property
    def _store(self) -> SnapshotStore:
        return self.table.stores.snapshots

    @property
    def mode(self) -> str:
        """Return where the stream begins, by an option or by what else is said."""
        values = self.options.values
        implied = (
            FROM_SNAPSHOT
            if FROM_SNAPSHOT in values
            else FROM_TIMESTAMP
            if FROM_TIMESTAMP in values
            else LATEST_FULL
        )
        mode = values.get("scan-mode", implied)
        if mode not in SCAN_MODES:
            raise InputError(
                f"paimon: option scan-mode is one of {', '.join(SCAN_MODES)}, not {mode!r}"
            )
        needed = FROM_SNAPSHOT if mode == FROM_SNAPSHOT_FULL else mode
        given = {FROM_SNAPSHOT, FROM_TIMESTAMP} & set(values)
        if given != {needed} & {FROM_SNAPSHOT, FROM_TIMESTAMP}:
            found = ", ".join(sorted(given)) or "neither of the two"
            raise InputError(
                f"paimon: a stream with scan-mode {mode} and the options {FROM_SNAPSHOT} and {FROM_TIMESTAMP} do not agree: "
                f"there is {found}"
            )
        return mode

    def start(self) -> StreamOffset:
        """Return where a query without checkpoint begins: where its consumer stands, or by the mode."""
        mode, consumer = self.mode, self.options.values.get("consumer-id")
        recorded = None if consumer is None else self._consumers().read_next_snapshot(consumer)
        if recorded is not None:
            return self._position(recorded)
        position = self._begin(mode)
        self.record(position)
        return position

    def _begin(self, mode: str) -> StreamOffset:
        latest = self.newest()
        if mode == LATEST:
            return self._position(latest + 1)
        if mode == LATEST_FULL:
            return replace(self._position(latest or FIRST_SNAPSHOT_ID), whole=True)
        if mode == FROM_TIMESTAMP:
            return self._position(self._find_first_since(self.options.moment(FROM_TIMESTAMP)))
        number = self.options.number(FROM_SNAPSHOT)
        if number is None or not FIRST_SNAPSHOT_ID <= number <= latest + 1:
            raise InputError(
                f"paimon: option {FROM_SNAPSHOT} is from {FIRST_SNAPSHOT_ID} to {latest + 1}, the one to come next, "
                f"not {number}"
            )
        return replace(self._position(number), whole=mode == FROM_SNAPSHOT_FULL)

    def _find_first_since(self, moment: int | None) -> int:
        """Return the first snapshot that was committed at a time or after it."""
        first = (self.newest()) + 1
        for snapshot in self._store.walk_back():
            if moment is not None and snapshot.time_millis < moment:
                break
            first = snapshot.id
        return first

    def _position(self, snapshot_id: int) -> StreamOffset:
        return StreamOffset(
            snapshot_id, False, self._read_creation_time(), self._read_commit_time(snapshot_id - 1)
        )

    def _read_creation_time(self) -> int:
        schemas = self.table.stores.schemas
        return schemas.get(schemas.ids()[0]).time_millis

    def _read_commit_time(self, snapshot_id: int) -> int | None:
        """Return when a snapshot was committed; None if it is not there."""
        if not self._store.exists(snapshot_id):
            return None
        return self._store.get(snapshot_id).time_millis

    def newest(self) -> int:
        """Return the newest snapshot, 0 if there is none."""
        return self._store.latest_id() or 0

    def latest(
        self, start: StreamOffset | None, most: int | None, upto: int | None
    ) -> StreamOffset:
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

    def check(self, position: StreamOffset) -> None:
        """Refuse a position in another table of that name, or in a past that was rolled back."""
        name = self.table.identifier
        if self._read_creation_time() != position.table:
            raise PaimonError(
                f"{name} was dropped and created again since the stream read it; {_NEW_CHECKPOINT_ADVICE}"
            )
        latest = self.newest()
        before = self._read_commit_time(position.snapshot - 1)
        others = before is not None and position.after is not None and before != position.after
        if others or latest + 1 < position.snapshot:
            raise PaimonError(
                f"{name} was rolled back to before snapshot {position.snapshot - 1}, which the stream has read; {_NEW_CHECKPOINT_ADVICE}"
            )

    def batch(self, start: StreamOffset, end: StreamOffset) -> StreamBatch:
        """Return what to read between two positions.

        Raises :class:`PaimonError` if some of it is expired and the stream is not told to go on without.
        """
        self.check(start)
        self.check(end)
        lost = self._lost(start, end)
        ids = [i for i in range(start.snapshot, end.snapshot) if i not in lost]
        # a query that has read nothing yet finds all rows in a later snapshot too, if it did not name that one
        begins = start.whole and ids and self.mode != FROM_SNAPSHOT_FULL
        if lost and not begins:
            self._report_lost(lost)
        whole = self._store.get(ids.pop(0)) if start.whole and ids else None
        return StreamBatch(
            whole, tuple(read_snapshot_or_changelog(self._store, number) for number in ids)
        )

    def _lost(self, start: StreamOffset, end: StreamOffset) -> set[int]:
        """Return the snapshots that are expired, and their changes with them."""
        earliest = self._store.earliest_id() or end.snapshot
        expired = set(range(start.snapshot, min(end.snapshot, earliest)))
        return expired.difference([] if start.whole else list_changelog_ids(self._store))

    def _report_lost(self, lost: set[int]) -> None:
        text = (
            f"{self.table.identifier}: the stream was to read snapshots {min(lost)} to {max(lost)} next, but "
            f"{len(lost)} of them are expired"
        )
        if not self.options.flag("fail-on-data-loss", default=True):
            logger.warning("%s; it goes on without them", text)
            return
        raise PaimonError(
            f"{text}. To go on without them set fail-on-data-loss = false; to read the whole table again {_NEW_CHECKPOINT_ADVICE}. A "
            "consumer-id, or a longer snapshot.time-retained of the table, keeps snapshots until they are read"
        )

    def record(self, position: StreamOffset) -> None:
        """Let expiration keep what the consumer has not read."""
        consumer = self.options.values.get("consumer-id")
        if consumer is not None:
            self._consumers().record(consumer, position.snapshot)

    def _consumers(self) -> ConsumerStore:
        return ConsumerStore(self.table.io, self.table.paths, self.table.options)
