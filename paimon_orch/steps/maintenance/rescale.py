"""Change the number of buckets.

Rewrites partitions in bounded memory.

See docs/format/procedures.md#rescale.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Annotated

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError, InputError, UnsupportedError
from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.format.arrays import to_arrow_array
from paimon_orch.format.bucket.bucket_function import build_bucket_key_signature
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.manifest_entry import FileKind, build_entries
from paimon_orch.format.options.core_options import ROW_TRACKING_ENABLED
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.sort.sort_merge_reader import MergeRun, merge_runs
from paimon_orch.steps.common.argument import TABLE_OPTION, Argument, ParsedRequest
from paimon_orch.steps.common.bucket_scan import Judgment, scan_latest_buckets
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict, discard_messages
from paimon_orch.steps.common.partition_request import (
    PartitionRequest,
    require_partitions,
    select_partitions,
)
from paimon_orch.steps.common.step import CommittedPlan, Step, WorkUnits, run_step
from paimon_orch.steps.common.step_declaration import CallOnExecutor, declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.steps.compaction.clustering import check_not_clustered
from paimon_orch.table.bucket_readers.append_reader import AppendReader
from paimon_orch.table.bucket_readers.primary_key_reader import PrimaryKeyReader
from paimon_orch.table.chain.chain_branches import refuse_chain_table
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_selection import PartitionSpecs
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.bucket_routing import compute_row_buckets
from paimon_orch.table.write.commit_message import CommitMessage

_MAX_OPEN_WRITERS = 4  # each writer buffers a row group


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleRequest(ParsedRequest):
    """The new number of buckets and the partitions."""

    bucket_num: Annotated[
        int | None, Argument("Buckets of each partition.", minimum=1, default=TABLE_OPTION)
    ] = field(default=None, kw_only=False)
    """The new number of buckets; None means the value of the option ``bucket``."""
    partitions: Annotated[
        PartitionSpecs | None,
        select_partitions("Partitions to rescale.", require_partitions),
    ] = None


@dataclass(frozen=True, slots=True)
class RescaleIo:
    """The reader of old buckets and the writers of new buckets."""

    reader: FileReader
    factory: FileWriterFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleUnit:
    """A few new buckets of one partition, and the old buckets that have their rows.

    The bucket of a row is its hash modulo the number of buckets. So an old and a new bucket can
    only share rows if their numbers are equal modulo ``step``.
    """

    splits: tuple[BucketSplit, ...]
    target_buckets: range
    step: int
    """The greatest common divisor of the old and the new number of buckets."""

    @property
    def partition(self) -> bytes:
        """Return the serialized partition."""
        return self.splits[0].partition


@dataclass(frozen=True, slots=True, kw_only=True)
class RescalePlan(Displayable):
    """The partitions whose number of buckets changes. The plan is falsy if there are none."""

    request: RescaleRequest
    state: TableState = field(repr=False, compare=False)
    io: RescaleIo | None = None
    snapshot_id: int | None = None
    buckets: int = 0
    partitions: tuple[str, ...] = ()
    splits: tuple[BucketSplit, ...] = ()
    units: tuple[RescaleUnit, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any partition is rewritten."""
        return bool(self.units)

    @property
    def bytes(self) -> int:
        """Return the size of the files to rewrite in bytes."""
        return sum(file.file_size for split in self.splits for file in split.files)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "snapshot_id": self.snapshot_id,
            "buckets": self.buckets,
            "partitions": list(self.partitions),
            "rows": sum(split.row_count for split in self.splits),
            "bytes": self.bytes,
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        loss: dict[str, int | Sequence[str]] = {
            "row": sum(split.row_count for split in self.splits),
            "partition": [name for name in self.partitions if name],
        }
        return PlanReport(
            action=f"rewrite {describe_loss(loss)}",
            consequence=f"each partition gets {format_count(self.buckets, 'bucket')}",
            nothing=f"nothing to do: all partitions have {format_count(self.buckets, 'bucket')}",
            asks=bool(self),
            undo="No other job may write to these rows.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleResult(CommittedPlan[RescalePlan]):
    """The result of a rescale."""

    def describe(self) -> list[str]:
        """Return what was rewritten."""
        if self.snapshot is None:
            return []
        partitions = format_count(len(self.plan.partitions), "partition")
        buckets = format_count(self.plan.buckets, "bucket")
        return [f"{partitions} to {buckets}; snapshot {self.snapshot.id}"]


def plan(table: Table, request: RescaleRequest) -> RescalePlan:
    """Find the partitions whose number of buckets differs from the requested one.

    Users must also change the option ``bucket``, because writers refuse partitions with another
    number of buckets. Raises :class:`UnsupportedError` for tables without fixed buckets, and
    :class:`InputError` if level 0 has rows that readers do not see.
    """
    state = table.load()
    state.check_step(StepKind.COMPACT)
    schema = state.schema
    bucket_num = schema.typed_options.bucket if request.bucket_num is None else request.bucket_num
    _check_rescalable(table, schema, bucket_num)
    refuse_chain_table(
        table.identifier, schema, "a rescale", "all partitions of a chain need the same buckets"
    )
    scan = scan_latest_buckets(state, PartitionRequest(partitions=request.partitions))
    if scan is None:
        return RescalePlan(request=request, state=state)
    by_partition: dict[bytes, list[BucketSplit]] = {}
    for split in scan.judge(_RescaleJudge(bucket_num)).chosen.build_splits():
        by_partition.setdefault(split.partition, []).append(split)
    splits = tuple(split for group in by_partition.values() for split in group)
    _check_no_unread_level0(table, schema, splits)
    rescaled = replace(schema, options=dict(schema.options) | {"bucket": str(bucket_num)})
    factory = replace(state.build_writer_factory(), schema=rescaled)
    io = RescaleIo(state.reader(), factory)
    return RescalePlan(
        request=request,
        state=state,
        io=io,
        snapshot_id=scan.snapshot.id,
        buckets=bucket_num,
        partitions=tuple(format_partition(partition, schema) for partition in by_partition),
        splits=splits,
        units=tuple(unit for group in by_partition.values() for unit in _plan_units(io, group)),
    )


@dataclass(frozen=True, slots=True)
class _RescaleJudge:
    """Chooses the buckets of partitions with another number of buckets."""

    bucket_num: int

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        groups = buckets.groups
        totals = groups.files.total_buckets[groups.first_rows]
        is_chosen = (groups.buckets >= 0) & (totals != self.bucket_num)
        return Judgment(chosen=buckets.take(np.flatnonzero(is_chosen)))


def _check_rescalable(table: Table, schema: TableSchema, bucket_num: int) -> None:
    options = schema.typed_options
    if options.bucket < 1 or options.get(ROW_TRACKING_ENABLED):
        raise UnsupportedError(f"{table.identifier} has no fixed buckets to rescale")
    if schema.primary_keys and options.is_pk_clustering_override:
        raise UnsupportedError(
            f"{table.identifier} has 'pk-clustering-override' = true: its files are sorted by "
            "'clustering.columns', but rescale writes files sorted by key. Use Java Paimon to "
            "rescale it. Nothing was changed."
        )
    check_not_clustered(schema, "a rescale")
    if bucket_num < 1:
        raise InputError(f"the number of buckets must be at least 1, got {bucket_num}")


def _check_no_unread_level0(
    table: Table, schema: TableSchema, splits: Sequence[BucketSplit]
) -> None:
    if schema.skips_level_0 and any(file.level == 0 for split in splits for file in split.files):
        raise InputError(
            f"{table.identifier} has rows on level 0 that readers do not see yet; "
            "compact it before rescaling"
        )


def _plan_units(io: RescaleIo, splits: Sequence[BucketSplit]) -> Iterator[RescaleUnit]:
    """Yield the units of one partition."""
    reader = io.reader
    count = io.factory.schema.typed_options.bucket
    step = gcd(count, *(split.total_buckets for split in splits))
    key = build_bucket_key_signature(reader.schema.bucket_key_fields)
    if any(
        build_bucket_key_signature(old.bucket_key_fields) != key for old in reader.schemas.values()
    ):
        step = 1  # the hashes of old rows are of another column type
    for first in range(step):
        sources = tuple(split for split in splits if split.bucket % step == first)
        targets = range(first, count, step)
        for start in range(0, len(targets) if sources else 0, _MAX_OPEN_WRITERS):
            part = targets[start : start + _MAX_OPEN_WRITERS]
            yield RescaleUnit(splits=sources, target_buckets=part, step=step)


def run(shared: RescaleIo | None, unit: RescaleUnit) -> bytes:
    """Write the rows of new buckets; return an encoded :class:`CommitMessage`.

    May run repeatedly.
    """
    assert shared is not None
    schema = shared.factory.schema
    # Each key has only one row, so the files are written to the highest level.
    level = schema.top_level
    for split in unit.splits:
        shared.reader.check_rewritable(split.partition_bucket, split.files)
    with ExitStack() as written:
        writers = {
            bucket: written.enter_context(
                shared.factory.writer(PartitionBucket(unit.partition, bucket), level=level)
            )
            for bucket in unit.target_buckets
        }
        read = _read_merged if schema.primary_keys else _read_appended
        for rows in read(shared.reader, unit):
            _route_rows(shared, unit, rows, writers)
        total_buckets = schema.typed_options.bucket
        entries = tuple(
            entry
            for bucket, writer in writers.items()
            for entry in build_entries(
                FileKind.ADD,
                PartitionBucket(unit.partition, bucket),
                total_buckets,
                writer.close(),
            )
        )
    return CommitMessage(entries=entries).encode()


def _read_merged(reader: FileReader, unit: RescaleUnit) -> Iterator[pa.Table]:
    """Yield the merged rows of all old buckets in key order; a key is in only one bucket."""
    schema = reader.schema
    fields = [*SYSTEM_FIELDS, *schema.fields]

    def batches(split: BucketSplit) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in PrimaryKeyReader(reader, split, fields).read_merged():
            if batch.num_rows:
                yield 0, batch

    runs = [MergeRun(batches(split)) for split in unit.splits]
    for step in merge_runs(runs, schema.trimmed_primary_keys):
        yield step.rows if step.is_single_run else step.rows.take(to_arrow_array(step.order))


def _read_appended(reader: FileReader, unit: RescaleUnit) -> Iterator[pa.Table]:
    for split in unit.splits:
        for batch in AppendReader(reader, split, reader.schema.fields).batches():
            yield pa.Table.from_batches([batch])


def _route_rows(
    shared: RescaleIo, unit: RescaleUnit, rows: pa.Table, writers: Mapping[int, RollingFileWriter]
) -> None:
    schema = shared.factory.schema
    if not rows.num_rows:
        return
    buckets = compute_row_buckets(rows, schema, schema.typed_options.bucket)
    if (buckets % unit.step != unit.target_buckets.start % unit.step).any():
        numbers = ", ".join(str(split.bucket) for split in unit.splits)
        where = format_partition(unit.partition, schema)
        text = f"the buckets {numbers} contain rows of other buckets; nothing was changed"
        raise CorruptFileError(f"{shared.reader.paths.root}/{where}", text)
    for bucket, writer in writers.items():  # other units write the rows of other buckets
        in_bucket = buckets == bucket
        if in_bucket.any():
            writer.write(rows.filter(to_arrow_array(in_bucket)))


def commit(table: Table, plan: RescalePlan, messages: Sequence[CommitMessage]) -> RescaleResult:
    """Replace the partitions with the files of the units, in one snapshot.

    Raises :class:`CommitConflictError`, and deletes the new files, if another commit changed rows
    of the partitions.
    """
    if not plan:
        return RescaleResult(plan=plan)
    assert plan.snapshot_id is not None
    changes = CommitChanges(
        kind=CommitKind.OVERWRITE,
        entries=tuple(entry for message in messages for entry in message.entries),
        read_guard=ReadGuard(plan.snapshot_id, _collect_read_buckets(plan)),
        overwrite=frozenset(split.partition for split in plan.splits).__contains__,
    )
    with discard_files_on_conflict(table, messages):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return RescaleResult(plan=plan, snapshot=snapshot)


def _collect_read_buckets(plan: RescalePlan) -> frozenset[PartitionBucket]:
    return frozenset(
        PartitionBucket(split.partition, bucket)
        for split in plan.splits
        for bucket in range(split.total_buckets)
    )


RESCALE = Step(
    title="rescale",
    planner=plan,
    work=lambda _, plan: WorkUnits(shared=plan.io, units=plan.units, bytes=plan.bytes),
    run=run,
    decode=CommitMessage.decode,
    commit=commit,
    discard=discard_messages,
    max_attempts=1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleCall(CallOnExecutor, RescaleRequest):
    """A call of :func:`rescale`."""


@take_fields(RescaleCall)
def rescale(table: Table, request: RescaleCall) -> Snapshot | None:
    """Change the number of buckets of partitions in one snapshot.

    Returns None if there is nothing to do.
    Raises :class:`CommitConflictError`, and deletes the new files, if another commit changed rows
    of the partitions.
    """
    planned = RESCALE.plan(table, request)
    return run_step(RESCALE, table, planned, request.executor, progress=request.progress).snapshot


DECLARATION = declare_step(
    RESCALE,
    RescaleRequest,
    help="Rewrites the partitions. Also change the table's option 'bucket', which writers use.",
    examples=["/lake db.orders --bucket-num 8 --dry-run"],
    asks=True,
)
