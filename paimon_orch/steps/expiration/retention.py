"""Retention of snapshots and changelogs: the limits, and the first version that they retain.

The limits are table options, and arguments that override them.

See docs/format/snapshot-expiration.md.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    CHANGELOG_NUM_RETAINED_MAX,
    CHANGELOG_NUM_RETAINED_MIN,
    CHANGELOG_TIME_RETAINED,
    CONSUMER_CHANGELOG_ONLY,
    SNAPSHOT_EXPIRE_LIMIT,
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    SNAPSHOT_TIME_RETAINED,
)
from paimon_orch.format.times import parse_cutoff
from paimon_orch.steps.common.argument import CUTOFF_HELP, TABLE_OPTION, Argument, ParsedRequest
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.table_state import TableState

_SNAPSHOT, _CHANGELOG = "snapshot", "changelog"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRequest(ParsedRequest):
    """Limits that override the table's options; None means the value of the option."""

    retain_max: Annotated[
        int | None, Argument("Maximum number to keep.", minimum=1, default=TABLE_OPTION)
    ] = None
    retain_min: Annotated[
        int | None, Argument("Minimum number to keep.", minimum=1, default=TABLE_OPTION)
    ] = None
    older_than: Annotated[int | None, Argument(CUTOFF_HELP, parse=parse_cutoff, metavar="TIME")] = (
        None
    )
    """The time before which versions expire, in epoch milliseconds."""
    max_deletes: Annotated[
        int | None, Argument("Maximum number to delete.", minimum=0, default=TABLE_OPTION)
    ] = None

    @property
    def replaces_options(self) -> bool:
        """Return whether versions expire by other limits than those of the table's options."""
        return (self.retain_max, self.retain_min, self.older_than) != (None, None, None)


@dataclass(frozen=True, slots=True)
class Retention:
    """The effective limits of an expiration."""

    retain_min: int
    retain_max: int
    older_than: int
    """The time before which versions expire, in epoch milliseconds."""
    limit: int
    """The maximum number of versions to delete."""

    @classmethod
    def of_snapshots(
        cls, options: Options, now_millis: int, limits: RetentionRequest
    ) -> "Retention":
        """Return the limits for snapshots."""
        return cls._of(options, _SNAPSHOT, now_millis, limits)

    @classmethod
    def of_changelogs(
        cls, options: Options, now_millis: int, limits: RetentionRequest
    ) -> "Retention":
        """Return the limits for changelogs; their options default to the options for snapshots."""
        return cls._of(options, _CHANGELOG, now_millis, limits)

    @classmethod
    def _of(
        cls, options: Options, kind: str, now_millis: int, limits: RetentionRequest
    ) -> "Retention":
        retain_min, retain_max = limits.retain_min, limits.retain_max
        older_than, max_deletes = limits.older_than, limits.max_deletes
        option_min, option_max, time_retained = _read_options(options, kind)
        if retain_min is None and retain_max is not None:
            option_min = min(option_min, retain_max)
        if retain_max is None and retain_min is not None:
            option_max = max(option_max, retain_min)
        retention = cls(
            option_min if retain_min is None else retain_min,
            option_max if retain_max is None else retain_max,
            now_millis - int(time_retained.total_seconds() * 1000)
            if older_than is None
            else older_than,
            options.get(SNAPSHOT_EXPIRE_LIMIT) if max_deletes is None else max_deletes,
        )
        retention._check(kind)
        return retention

    def find_ids_to_check(self, latest: int, oldest: int, next_snapshots: Collection[int]) -> range:
        """Return the ids that expire if they are too old.

        All older versions expire. All versions from the end of the range on are retained.
        ``latest`` is a snapshot id, also for changelogs; ``next_snapshots`` are the next
        snapshots of the consumers.
        """
        end = min(latest - self.retain_min + 1, oldest + self.limit, *next_snapshots)
        return range(max(latest - self.retain_max + 1, oldest), end)

    def _check(self, kind: str) -> None:
        for name, number, minimum in (
            ("maximum (retain-max)", self.retain_max, 1),
            ("minimum (retain-min)", self.retain_min, 1),
            ("maximum number to delete (max-deletes)", self.limit, 0),
        ):
            if number < minimum:
                raise InputError(
                    f"the {name} of {kind}s is {number}, but must be at least {minimum}; "
                    "nothing was deleted"
                )
        if self.retain_max < self.retain_min:
            raise InputError(
                f"the maximum (retain-max) of {kind}s is {self.retain_max}, but must be at least "
                f"the minimum (retain-min), {self.retain_min}; nothing was deleted"
            )


def _read_options(options: Options, kind: str) -> tuple[int, int, timedelta]:
    retain_min = options.get(SNAPSHOT_NUM_RETAINED_MIN)
    retain_max = options.get(SNAPSHOT_NUM_RETAINED_MAX)
    time_retained = options.get(SNAPSHOT_TIME_RETAINED)
    if kind == _CHANGELOG:
        retain_min = options.get(CHANGELOG_NUM_RETAINED_MIN, retain_min)
        retain_max = options.get(CHANGELOG_NUM_RETAINED_MAX, retain_max)
        time_retained = options.get(CHANGELOG_TIME_RETAINED, time_retained)
    return retain_min, retain_max, time_retained


def is_changelog_decoupled(options: Options, retention: Retention) -> bool:
    """Return whether changelogs are retained longer than the snapshots."""
    changelog_max = options.get(CHANGELOG_NUM_RETAINED_MAX, retention.retain_max)
    changelog_min = options.get(CHANGELOG_NUM_RETAINED_MIN, retention.retain_min)
    snapshot_time = options.get(SNAPSHOT_TIME_RETAINED)
    return (
        changelog_max > retention.retain_max
        or changelog_min > retention.retain_min
        or options.get(CHANGELOG_TIME_RETAINED, snapshot_time) > snapshot_time
    )


def read_retaining_consumers(state: TableState) -> Mapping[str, int]:
    """Return the next snapshot of each consumer that retains snapshots, by its path."""
    if state.schema.typed_options.get(CONSUMER_CHANGELOG_ONLY):
        return {}
    return state.open_consumers().read_next_snapshots()


def find_first_retained_snapshot(
    store: SnapshotStore, retention: Retention, next_snapshots: Collection[int] = ()
) -> int | None:
    """Return the id of the oldest snapshot that is retained, or None if no snapshot expires.

    A snapshot expires by age only if its successor also exceeds this age.
    """
    latest, ids = store.latest_id(), store.ids()
    if latest is None:
        return None

    def read_times(numbers: Iterable[int]) -> Iterator[int]:
        for snapshot in map_concurrently(store.io, store.get, numbers):
            yield snapshot.time_millis

    return choose_first_retained(latest, ids, read_times, retention, next_snapshots)


def choose_first_retained(
    latest: int,
    ids: Sequence[int],
    read_times: Callable[[Iterable[int]], Iterator[int]],
    retention: Retention,
    next_snapshots: Collection[int] = (),
) -> int | None:
    """Return the first retained one of the snapshots ``ids``, or None if no snapshot expires.

    ``read_times`` yields the commit times of snapshots in epoch milliseconds. It is stopped at the
    first young one, so it should read few more.
    """
    if not ids:
        return None
    # An expiration moves the hint before it deletes the snapshots, so the hint is not used.
    earliest = ids[0]
    to_check = retention.find_ids_to_check(latest, earliest, next_snapshots)
    end = to_check.stop
    successors = [number for number in ids if number - 1 in to_check]  # the ids may have gaps
    for number, time in zip(successors, read_times(successors), strict=False):
        if retention.older_than <= time:
            end = number - 1
            break
    if end <= earliest:
        return None
    return min((number for number in ids if number >= end), default=None)


def find_first_retained_changelog(
    times: Mapping[int, int],
    latest: int,
    retention: Retention,
    next_snapshots: Collection[int],
) -> int:
    """Return the id of the oldest changelog that is retained. The newest one is always retained.

    :param times: commit times in epoch milliseconds, by ascending id
    :param latest: the newest snapshot
    """
    to_check = retention.find_ids_to_check(latest, min(times), next_snapshots)
    young = (
        number
        for number, time in times.items()
        if number >= to_check.start and retention.older_than <= time
    )
    end = min(to_check.stop, max(times), next(young, to_check.stop))
    return min(number for number in times if number >= end)
