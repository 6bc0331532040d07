"""Drop partitions older than a given age.

Their files are deleted when older snapshots expire.

See docs/format/partition-expiration.md.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

import numpy as np

from paimon_orch.errors import InputError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.live_files import NO_TIME, LiveFiles, collect_live_files
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    COMPACTION_SKIP_EXPIRED_PARTITIONS,
    PARTITION_EXPIRATION_BATCH_SIZE,
    PARTITION_EXPIRATION_MAX_NUM,
    PARTITION_EXPIRATION_STRATEGY,
    PARTITION_EXPIRATION_TIME,
)
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.partition_time import PartitionTimes
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.times import parse_duration
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.argument import TABLE_OPTION, Argument, ParsedRequest
from paimon_orch.steps.common.step import PlanOutcome, build_metadata_step, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import KEPT_ROWS, PlanReport, describe_loss
from paimon_orch.table.chain.chain_branches import refuse_chain_table
from paimon_orch.table.commit.partition_statistics import format_partition_row
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

logger = get_logger(__name__)

_PartitionTimeReader = Callable[[bytes], datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirePartitionsRequest(ParsedRequest):
    """The rules of an expiration of partitions; None means the value of the table's options."""

    expiration_time: Annotated[
        timedelta | None,
        Argument(
            "Age of partitions, e.g. '30 d'.",
            parse=parse_duration,
            metavar="DURATION",
            default=TABLE_OPTION,
        ),
    ] = None
    strategy: Annotated[
        str | None,
        Argument(
            "How to compute the age: by the partition's values, or by its last write.",
            option="--expire-strategy",
            metavar="values-time|update-time",
            default=TABLE_OPTION,
        ),
    ] = None
    """``values-time`` uses the partition's values, ``update-time`` the time of its newest file."""
    timestamp_formatter: Annotated[
        str | None,
        Argument(
            "Format of partition values, e.g. yyyyMMdd.", metavar="PATTERN", default=TABLE_OPTION
        ),
    ] = None
    timestamp_pattern: Annotated[
        str | None,
        Argument(
            "How to build a time from partition columns, e.g. '$dt $hour:00:00'.",
            metavar="PATTERN",
            default=TABLE_OPTION,
        ),
    ] = None
    max_expires: Annotated[
        int | None,
        Argument("Maximum number of partitions to drop.", minimum=0, default=TABLE_OPTION),
    ] = None
    now: datetime | None = None
    """The local wall clock time to compute ages from; None means the current time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpirationPlan(Displayable):
    """The partitions to drop. The plan is falsy if there are none."""

    request: ExpirePartitionsRequest
    state: TableState = field(repr=False, compare=False)
    batches: tuple[tuple[bytes, ...], ...] = ()
    """The partitions of each commit, ordered by name."""
    names: tuple[str, ...] = ()
    rows: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        """Return whether any partition expires."""
        return bool(self.names)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {"partitions": list(self.names), "rows": self.rows, "bytes": self.bytes}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"drop {self.describe_partitions()}",
            columns={"partition": "string"},
            items=[{"partition": name} for name in self.names],
            asks=bool(self),
            undo=KEPT_ROWS,
        )

    def describe_partitions(self) -> str:
        """Return the partitions and their number of rows."""
        partitions = describe_loss({"partition": self.names})
        return f"{partitions} with {format_count(self.rows, 'row')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpirationResult(PlanOutcome[PartitionExpirationPlan]):
    """The result of an expiration of partitions."""

    def describe(self) -> list[str]:
        """Return what was dropped."""
        return [f"dropped {self.plan.describe_partitions()}"]


def plan(table: Table, request: ExpirePartitionsRequest) -> PartitionExpirationPlan:
    """Find the partitions that are older than the expiration time.

    A partition whose time cannot be read never expires.
    """
    state = table.load()
    state.check_step(StepKind.DELETE)
    schema, snapshot = state.schema, state.snapshot
    refuse_chain_table(
        table.identifier,
        schema,
        "the expiration of partitions",
        "drop partitions of the delta branch, then those of the snapshot branch",
    )
    overrides = {
        "partition.expiration-strategy": request.strategy,
        "partition.timestamp-formatter": request.timestamp_formatter,
        "partition.timestamp-pattern": request.timestamp_pattern,
    }
    given = {key: value for key, value in overrides.items() if value is not None}
    options = Options({**schema.typed_options.values, **given})
    max_age = _resolve_expiration_time(table.identifier, schema, options, request.expiration_time)
    current_time = datetime.now() if request.now is None else request.now
    if snapshot is None:
        files = collect_live_files((), ())
    else:
        files = state.manifests.read_live_files(snapshot)
    expired = _list_expired_partitions(
        table.identifier,
        schema,
        files.partitions,
        current_time=current_time,
        max_age=max_age,
        time_of=_build_time_reader(schema, options, files),
    )
    batches = _build_batches(expired, options, request.max_expires)
    selected = [partition for batch in batches for partition in batch]
    chosen = frozenset(selected)
    is_selected = np.array([partition in chosen for partition in files.partitions], bool)
    rows = is_selected[files.partition_codes]
    return PartitionExpirationPlan(
        request=request,
        state=state,
        batches=batches,
        names=tuple(format_partition(partition, schema) for partition in selected),
        rows=int(files.row_counts[rows].sum()),
        bytes=int(files.file_sizes[rows].sum()),
    )


def _build_batches(
    expired: Sequence[bytes], options: Options, max_expires: int | None
) -> tuple[tuple[bytes, ...], ...]:
    """Return the partitions of each snapshot; together, they have at most ``max_expires``."""
    most = options.get(PARTITION_EXPIRATION_MAX_NUM) if max_expires is None else max_expires
    selected = expired[: max(0, most)]
    size = options.get(PARTITION_EXPIRATION_BATCH_SIZE, max(1, len(selected)))
    if most < 0 or size < 1:
        raise InputError(
            f"cannot expire at most {most} partitions in batches of {size}: the number of "
            "partitions must not be negative, and 'partition.expiration-batch-size' must be 1 or "
            "more"
        )
    return tuple(tuple(selected[start : start + size]) for start in range(0, len(selected), size))


def exclude_expired_partitions(
    identifier: str, buckets: LiveBuckets, current_time: datetime
) -> LiveBuckets:
    """Exclude expired partitions if ``compaction.skip-expired-partitions`` is true.

    ``current_time`` is the local wall clock time of the caller; a unit may run in another zone.
    """
    # As in Java Paimon, the option requires an expiration time and the strategy values-time.
    options = buckets.schema.typed_options
    by_values = options.get(PARTITION_EXPIRATION_STRATEGY) == "values-time"
    if not (options.get(COMPACTION_SKIP_EXPIRED_PARTITIONS) and by_values):
        return buckets
    expired = find_expired_partitions(identifier, buckets, current_time)
    is_current = np.array([each not in expired for each in buckets.groups.files.partitions], bool)
    return buckets.take(np.flatnonzero(is_current[buckets.groups.partition_codes]))


def find_expired_partitions(
    identifier: str, buckets: LiveBuckets, current_time: datetime
) -> set[bytes]:
    """Return the partitions that have expired at a local wall clock time by the table's options.

    Returns none if the options do not define an expiration.
    """
    schema = buckets.schema
    options = schema.typed_options
    if not schema.partition_keys or options.get(PARTITION_EXPIRATION_TIME) is None:
        return set()
    return set(
        _list_expired_partitions(
            identifier,
            schema,
            buckets.partitions,
            current_time=current_time,
            max_age=_resolve_expiration_time(identifier, schema, options, None),
            time_of=_build_time_reader(schema, options, buckets.groups.files),
        )
    )


def _list_expired_partitions(
    identifier: str,
    schema: TableSchema,
    partitions: Iterable[bytes],
    *,
    current_time: datetime,
    max_age: timedelta,
    time_of: _PartitionTimeReader,
) -> list[bytes]:
    """Return the expired partitions, ordered by their values as strings."""
    expired = []
    for partition in partitions:
        time = time_of(partition)
        if time is None:
            text = format_partition(partition, schema)
            logger.warning(
                "%s: partition %s does not expire: its values have no valid time",
                identifier,
                text,
            )
        elif current_time - time > max_age:
            expired.append(partition)
    return sorted(expired, key=lambda p: ",".join(map(str, schema.decode_partition(p))))


def _resolve_expiration_time(
    identifier: str, schema: TableSchema, options: Options, requested: timedelta | None
) -> timedelta:
    if not schema.partition_keys:
        raise InputError(f"{identifier} has no partition columns, so no partition can expire")
    expiration_time = options.get(PARTITION_EXPIRATION_TIME) if requested is None else requested
    if expiration_time is None:
        raise InputError(
            f"{identifier}: no expiration time; "
            "set the option 'partition.expiration-time' or pass an expiration time"
        )
    return expiration_time


def _build_time_reader(
    schema: TableSchema, options: Options, files: LiveFiles
) -> _PartitionTimeReader:
    strategy = options.get(PARTITION_EXPIRATION_STRATEGY)
    if strategy == "update-time":
        return _find_update_times(files).get
    if strategy != "values-time":
        raise InputError(
            f"'partition.expiration-strategy' = {strategy!r} is unknown; use values-time or "
            "update-time"
        )
    times = PartitionTimes.of(schema.partition_fields, options)
    return lambda partition: times.read_values(schema.decode_partition(partition))


def _find_update_times(files: LiveFiles) -> dict[bytes, datetime]:
    """Return the creation time of the newest file of each partition.

    It is the local wall clock time of the writer. Leaves out partitions with an unknown time.
    """
    newest, oldest = (np.full(len(files.partitions), NO_TIME) for _ in range(2))
    np.maximum.at(newest, files.partition_codes, files.creation_times)
    oldest[files.partition_codes] = files.creation_times
    np.minimum.at(oldest, files.partition_codes, files.creation_times)
    return {
        partition: datetime(1970, 1, 1) + timedelta(milliseconds=last)
        for partition, first, last in zip(
            files.partitions, oldest.tolist(), newest.tolist(), strict=True
        )
        if first != NO_TIME
    }


def commit(_table: Table, plan: PartitionExpirationPlan) -> PartitionExpirationResult:
    """Drop the partitions of a plan, one snapshot per batch."""
    state = plan.state
    for batch in plan.batches:
        names = []
        if state.environment.partitions is not None:
            names = [format_partition_row(partition, state.schema) for partition in batch]
        state.drop_partitions(StepKind.DELETE, frozenset(batch).__contains__, names)
        if names:
            state.build_catalog_reports().drop_marks(names)
    return PartitionExpirationResult(plan=plan)


EXPIRE_PARTITIONS = build_metadata_step("expire partitions of", plan, commit, max_attempts=1)


@take_fields(ExpirePartitionsRequest)
def expire_partitions(table: Table, request: ExpirePartitionsRequest) -> PartitionExpirationPlan:
    """Drop expired partitions, one snapshot per batch; arguments override the table's options."""
    return plan_and_run(EXPIRE_PARTITIONS, table, request).plan


DECLARATION = declare_step(
    EXPIRE_PARTITIONS,
    ExpirePartitionsRequest,
    help="Asks first, because readers see the rows. Their files are deleted when the snapshots that "
    "reference them expire.",
    examples=["/lake db.orders --expiration-time '30 d'"],
    asks=True,
)
