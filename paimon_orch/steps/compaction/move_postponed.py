"""Move rows from postpone buckets to real buckets.

Afterwards, readers see the rows.

See docs/format/postpone-buckets.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.live_files import BucketGroups
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, build_entries
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import VALUE_KIND
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict, discard_messages
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import Step, StepOutcome, WorkUnits, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.partition_selection import plan_live_buckets
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.postpone_bucket import (
    PostponeBuckets,
    compute_bucket_count,
    has_postpone_buckets,
    sort_postponed_files,
)
from paimon_orch.table.write.table_write import TableWriter
from paimon_orch.table.write.write_builder import WriteBuilder
from paimon_orch.table.write.write_plan import WritePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePostponedRequest(PartitionRequest):
    """Selects the partitions whose postponed rows are moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostponeUnit:
    """The postponed files of one partition, in row order."""

    partition: bytes
    partition_text: str
    """``k1=v1/k2=v2``, or an empty string."""
    files: tuple[DataFileMeta, ...]
    buckets: int
    """The number of buckets of the partition; for a new partition, from the table's options."""
    first_sequence: Mapping[PartitionBucket, int]
    """The next sequence number of each bucket that has files."""

    @property
    def rows(self) -> int:
        """Return the number of postponed rows."""
        return sum(file.row_count for file in self.files)

    @property
    def bytes(self) -> int:
        """Return the size of the postponed files."""
        return sum(file.file_size for file in self.files)

    def to_dict(self) -> dict[str, object]:
        """Return the unit as JSON values."""
        return {
            "partition": self.partition_text,
            "files": len(self.files),
            "rows": self.rows,
            "bytes": self.bytes,
            "buckets": self.buckets,
        }


@dataclass(frozen=True, slots=True)
class PostponeIo:
    """The reader of postponed files and the writers of new files."""

    reader: FileReader
    factory: FileWriterFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class PostponePlan(Displayable):
    """The postponed rows to move. The plan is falsy if there are none."""

    request: MovePostponedRequest
    state: TableState
    snapshot_id: int | None = None
    units: tuple[PostponeUnit, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there are postponed rows."""
        return bool(self.units)

    @property
    def rows(self) -> int:
        """Return the number of postponed rows."""
        return sum(unit.rows for unit in self.units)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "snapshot_id": self.snapshot_id,
            "rows": self.rows,
            "units": [unit.to_dict() for unit in self.units],
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        partitions = format_count(len(self.units), "partition")
        return PlanReport(
            action=f"move {format_count(self.rows, 'row')} of {partitions}",
            nothing="no rows in postpone buckets",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePostponedResult(StepOutcome):
    """The result of a move; ``snapshot`` is None if there were no postponed rows."""

    plan: PostponePlan
    snapshot: Snapshot | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the plan and the id of the snapshot as JSON values."""
        snapshot_id = None if self.snapshot is None else self.snapshot.id
        return self.plan.to_dict() | {"snapshot_id": snapshot_id}


def plan(
    table: Table, request: MovePostponedRequest, *, state: TableState | None = None
) -> PostponePlan:
    """Find the postponed files, and the number of buckets of each partition.

    Partitions with buckets keep their number of buckets; new partitions use the table's options.

    ``state`` is the table, if the caller has loaded it. Raises :class:`InputError` for tables
    without postpone buckets.
    """
    state = state or table.load()
    state.check_step(StepKind.COMPACT)
    schema, snapshot = state.schema, state.snapshot
    if not has_postpone_buckets(schema):
        raise InputError(f"{table.identifier} has no postpone buckets: 'bucket' is not -2")
    if snapshot is None:
        return PostponePlan(request=request, state=state)
    buckets = plan_live_buckets(state, schema, snapshot, request)
    counts = _read_bucket_counts(buckets.groups)
    postponed = buckets.build_splits(np.flatnonzero(buckets.groups.buckets == POSTPONE_BUCKET))
    sequences = WriteBuilder(state).read_next_sequences() if postponed else {}
    units = tuple(
        PostponeUnit(
            partition=split.partition,
            partition_text=format_partition(split.partition, schema),
            files=tuple(sort_postponed_files(split.files)),
            buckets=counts.get(split.partition) or compute_bucket_count(schema, split.row_count),
            first_sequence={
                bucket_id: number
                for bucket_id, number in sequences.items()
                if bucket_id[0] == split.partition
            },
        )
        for split in postponed
    )
    return PostponePlan(request=request, state=state, snapshot_id=snapshot.id, units=units)


def _read_bucket_counts(groups: BucketGroups) -> dict[bytes, int]:
    """Return the number of buckets of the partitions that have real buckets."""
    real = groups.take(np.flatnonzero(groups.buckets >= 0))
    codes = real.partition_codes.tolist()
    counts = real.files.total_buckets[real.first_rows].tolist()
    return {real.files.partitions[code]: count for code, count in zip(codes, counts, strict=True)}


def _collect_work(_table: Table, plan: PostponePlan) -> WorkUnits[PostponeIo | None, PostponeUnit]:
    shared = PostponeIo(plan.state.reader(), plan.state.build_writer_factory()) if plan else None
    return WorkUnits(shared=shared, units=plan.units, bytes=sum(unit.bytes for unit in plan.units))


def run(shared: PostponeIo | None, unit: PostponeUnit) -> bytes:
    """Write the rows of a partition to its buckets; return an encoded :class:`CommitMessage`."""
    assert shared is not None
    counts = PostponeBuckets({unit.partition: unit.buckets}, unit.buckets)
    writing = WritePlan(
        factory=shared.factory, first_sequence=unit.first_sequence, postponed=counts
    )
    fields = [VALUE_KIND, *writing.schema.fields]
    shared.reader.check_rewritable(PartitionBucket(unit.partition, POSTPONE_BUCKET), unit.files)
    with TableWriter(writing) as writer:
        for file in unit.files:
            source = BucketFile(unit.partition, POSTPONE_BUCKET, file)
            for batch in shared.reader.read(source, fields):
                writer.write(pa.Table.from_batches([batch]))
        added = writer.close().entries
    postponed = PartitionBucket(unit.partition, POSTPONE_BUCKET)
    removed = build_entries(FileKind.DELETE, postponed, POSTPONE_BUCKET, unit.files)
    return CommitMessage(entries=(*removed, *added)).encode()


def commit(
    table: Table, plan: PostponePlan, messages: Sequence[CommitMessage]
) -> MovePostponedResult:
    """Commit the moved rows of all partitions in one snapshot.

    Raises :class:`CommitConflictError`, and deletes the new files, if another commit moved the same
    files.
    """
    entries = tuple(entry for message in messages for entry in message.entries)
    if not entries:
        return MovePostponedResult(plan=plan)
    changes = CommitChanges(kind=CommitKind.COMPACT, entries=entries)
    with discard_files_on_conflict(table, messages):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return MovePostponedResult(plan=plan, snapshot=snapshot)


MOVE_POSTPONED = Step(
    title="move postponed rows of",
    planner=plan,
    work=_collect_work,
    run=run,
    decode=CommitMessage.decode,
    commit=commit,
    discard=discard_messages,
    max_attempts=1,
)


@take_fields(MovePostponedRequest)
def move_postponed(
    table: Table,
    request: MovePostponedRequest,
    executor: Executor | None,
    progress: Progress | None,
) -> Snapshot | None:
    """Move postponed rows to buckets; return the snapshot, or None if there are no such rows.

    Adds the rows to level 0, so readers of tables with deletion vectors see them after the next
    compaction.
    """
    return plan_and_run(MOVE_POSTPONED, table, request, executor, progress=progress).snapshot


DECLARATION = declare_step(
    MOVE_POSTPONED,
    MovePostponedRequest,
    help="Writers of a table with 'bucket' = -2 may write rows to postpone buckets, which readers do "
    "not see.",
    examples=["/lake db.orders --dry-run"],
)
