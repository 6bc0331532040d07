"""Determines the positions of a stream in the snapshots of a table."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

from paimon_orch.errors import InputError, PaimonError
from paimon_orch.format.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.scan.incremental_scan import read_snapshot_or_changelog
from paimon_orch.table.table import Table

logger = get_logger(__name__)

LATEST_FULL, LATEST = "latest-full", "latest"
FROM_SNAPSHOT, FROM_SNAPSHOT_FULL, FROM_TIMESTAMP = (
    "from-snapshot",
    "from-snapshot-full",
    "from-timestamp",
)
SCAN_MODES = (LATEST_FULL, LATEST, FROM_SNAPSHOT, FROM_SNAPSHOT_FULL, FROM_TIMESTAMP)
_DEFAULT_MODE, _FULL = "default", "full"  # Java Paimon's names
_MAX_UNCHECKED_RANGE = 1_000  # a listing is not needed for fewer snapshots
_NEW_CHECKPOINT_ADVICE = "start the query again with a new checkpoint"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The position of a stream, which Spark stores as JSON in the checkpoint."""

    snapshot: int
    """The id of the next snapshot to read."""
    whole: bool
    """Whether to read all rows of that snapshot, or only its changes."""
    table: int
    """The creation time of the table, in epoch milliseconds; identifies the table."""
    after: int | None
    """The commit time of the previous snapshot, in epoch milliseconds; detects a rollback."""

    @classmethod
    def of(cls, offset: Mapping[str, object]) -> "StreamOffset":
        """Parse an :attr:`offset`; raises :class:`InputError` for invalid values."""
        try:
            return cls(**offset)  # type: ignore[arg-type] # the names are checked by the call
        except TypeError:
            raise InputError(
                f"{dict(offset)} is not a position in a Paimon table; {_NEW_CHECKPOINT_ADVICE}"
            ) from None

    @property
    def offset(self) -> dict[str, object]:
        """Return the position as Spark stores it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """The snapshots that one batch of a stream reads."""

    whole: Snapshot | None
    """The snapshot from which all rows are read, before the changes, or None."""
    changes: tuple[Snapshot, ...]
    """The snapshots from which only the changes are read."""


@dataclass(frozen=True, slots=True)
class StreamFollower:
    """Follows the snapshots of one table according to the options of a stream."""

    table: Table
    options: DataSourceOptions

    @property
    def _store(self) -> SnapshotStore:
        return self.table.stores.snapshots

    @property
    def mode(self) -> str:
        """Return the scan mode: the option, or the mode that other options imply."""
        values = self.options.values
        implied = (
            FROM_SNAPSHOT
            if FROM_SNAPSHOT in values
            else FROM_TIMESTAMP
            if FROM_TIMESTAMP in values
            else LATEST_FULL
        )
        spelled_mode = values.get("scan-mode", _DEFAULT_MODE)
        mode = {_DEFAULT_MODE: implied, _FULL: LATEST_FULL}.get(spelled_mode, spelled_mode)
        if mode not in SCAN_MODES:
            raise InputError(
                f"paimon: option {self.options.spell('scan-mode')} of a stream must be one of "
                f"{', '.join(SCAN_MODES)}, not {mode!r}"
            )
        needed = FROM_SNAPSHOT if mode == FROM_SNAPSHOT_FULL else mode
        start_options = {FROM_SNAPSHOT, FROM_TIMESTAMP} & set(values)
        if start_options != {needed} & {FROM_SNAPSHOT, FROM_TIMESTAMP}:
            option_names = ", ".join(map(self.options.spell, sorted(start_options)))
            raise InputError(
                f"paimon: scan-mode {mode} does not match the options {FROM_SNAPSHOT} and "
                f"{FROM_TIMESTAMP}: {option_names or 'neither of them'} is set"
            )
        return mode

    def start(self) -> StreamOffset:
        """Return the start of a query without a checkpoint: that of its consumer or scan mode."""
        mode, consumer = self.mode, self.options.values.get("consumer-id")
        if consumer is not None:
            next_snapshot = self.table.stores.open_consumers().read_next_snapshot(consumer)
            if next_snapshot is not None:
                return self._build_position(next_snapshot)
        position = self._find_start(mode)
        self.record(position)
        return position

    def _find_start(self, mode: str) -> StreamOffset:
        latest = self.newest()
        if mode == LATEST:
            return self._build_position(latest + 1)
        if mode == LATEST_FULL:
            return replace(self._build_position(latest or FIRST_SNAPSHOT_ID), whole=True)
        if mode == FROM_TIMESTAMP:
            return self._build_position(
                self._find_first_since(self.options.epoch_millis(FROM_TIMESTAMP))
            )
        number = self.options.number(FROM_SNAPSHOT)
        if number is None or not FIRST_SNAPSHOT_ID <= number <= latest + 1:
            raise InputError(
                f"paimon: option {self.options.spell(FROM_SNAPSHOT)} must be from {FIRST_SNAPSHOT_ID} to {latest + 1} "
                f"(the next snapshot), not {number}"
            )
        return replace(self._build_position(number), whole=mode == FROM_SNAPSHOT_FULL)

    def _find_first_since(self, millis: int | None) -> int:
        """Return the first snapshot that was committed at or after a time."""
        first = self.newest() + 1
        for snapshot in self._store.walk_back():
            if millis is not None and snapshot.time_millis < millis:
                break
            first = snapshot.id
        return first

    def _build_position(self, snapshot_id: int) -> StreamOffset:
        return StreamOffset(
            snapshot_id, False, self._read_creation_time(), self._read_commit_time(snapshot_id - 1)
        )

    def _read_creation_time(self) -> int:
        schemas = self.table.stores.schemas
        return schemas.get(schemas.ids()[0]).time_millis

    def _read_commit_time(self, snapshot_id: int) -> int | None:
        """Return the commit time of a snapshot, or None if it does not exist."""
        if not self._store.exists(snapshot_id):
            return None
        return self._store.get(snapshot_id).time_millis

    def newest(self) -> int:
        """Return the id of the newest snapshot, or 0 if there is none."""
        return self._store.latest_id() or 0

    def latest(
        self, start: StreamOffset | None, max_snapshots: int | None, end_snapshot_id: int | None
    ) -> StreamOffset:
        """Return the position after the newest snapshot; ``start`` if there is no new snapshot.

        ``max_snapshots`` limits the batch, and ``end_snapshot_id`` limits the query.
        """
        last = self.newest() if end_snapshot_id is None else end_snapshot_id
        if start is None:
            return self._build_position(last + 1)
        self.check(start)
        if last < start.snapshot:
            return start
        if max_snapshots is not None:
            last = min(last, start.snapshot + max_snapshots - 1)
        return self._build_position(last + 1)

    def check(self, position: StreamOffset) -> None:
        """Raise an error if the table was recreated, or rolled back to before the position."""
        name = self.table.identifier
        if self._read_creation_time() != position.table:
            raise PaimonError(
                f"{name} was dropped and created again since the stream read it; "
                f"{_NEW_CHECKPOINT_ADVICE}"
            )
        latest = self.newest()
        before = self._read_commit_time(position.snapshot - 1)
        is_replaced = None not in (before, position.after) and before != position.after
        if is_replaced or latest + 1 < position.snapshot:
            raise PaimonError(
                f"{name} was rolled back to before snapshot {position.snapshot - 1}, which the "
                f"stream has read; {_NEW_CHECKPOINT_ADVICE}"
            )

    def batch(self, start: StreamOffset, end: StreamOffset) -> StreamBatch:
        """Return the snapshots to read between two positions.

        Raises :class:`PaimonError` for expired snapshots, unless ``fail-on-data-loss`` is false.
        """
        self.check(start)
        self.check(end)
        earliest = self._store.earliest_id() or end.snapshot
        retained = range(max(start.snapshot, min(earliest, end.snapshot)), end.snapshot)
        expired = range(start.snapshot, retained.start)
        # The changes of expired snapshots can be read while their changelogs exist.
        store = ChangelogStore(self._store.io, self._store.paths)
        changelogs = [] if start.whole else [i for i in store.ids() if i in expired]
        ids = [*changelogs, *self._check_gap(retained)]
        # A later snapshot also contains all rows, so the stream can start with it, unless the
        # options select the first snapshot.
        can_start_later = start.whole and ids and self.mode != FROM_SNAPSHOT_FULL
        if len(expired) > len(changelogs) and not can_start_later:
            self._report_expired(expired, changelogs)
        whole = self._store.get(ids.pop(0)) if start.whole and ids else None
        return StreamBatch(
            whole, tuple(read_snapshot_or_changelog(self._store, number) for number in ids)
        )

    def _check_gap(self, retained: range) -> range:
        """Return a range of snapshots; raises :class:`NotFoundError` if a gap makes it longer."""
        if len(retained) > _MAX_UNCHECKED_RANGE:
            existing = set(self._store.ids())
            if len(retained) > len(existing) + 1:  # a catalog may have the newest snapshot
                self._store.get(next(number for number in retained if number not in existing))
        return retained

    def _report_expired(self, expired: range, changelogs: Collection[int]) -> None:
        missing = [number for number in expired[: len(changelogs) + 1] if number not in changelogs]
        last = next(number for number in reversed(expired) if number not in changelogs)
        text = (
            f"{self.table.identifier}: the stream must read snapshots {missing[0]} to "
            f"{last} next, but {len(expired) - len(changelogs)} of them are expired"
        )
        if not self.options.flag("fail-on-data-loss", default=True):
            logger.warning("%s; the stream continues without them", text)
            return
        raise PaimonError(
            f"{text}. To continue without them, set fail-on-data-loss = false. To read the whole "
            f"table again, {_NEW_CHECKPOINT_ADVICE}. To keep snapshots until they are read, set "
            "a consumer-id, or a longer snapshot.time-retained of the table"
        )

    def record(self, position: StreamOffset) -> None:
        """Record the position of the consumer, so that its unread snapshots do not expire."""
        consumer = self.options.values.get("consumer-id")
        if consumer is not None:
            self.table.stores.open_consumers().record(consumer, position.snapshot)
