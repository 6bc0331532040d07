"""Moving rows that wait in ``bucket-postpone`` into real buckets, where readers see them.

See docs/format/postpone-buckets.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import VALUE_KIND
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.retry import discard_files_on_conflict, discard_results
from paimon_orch.steps.compaction.plan import PartitionSpecs, plan_splits
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.postpone_bucket import (
    PostponeBuckets,
    compute_bucket_count,
    has_postpone_buckets,
    sort_postponed_files,
)
from paimon_orch.table.write.table_write import TableWriter
from paimon_orch.table.write.write_builder import WriteBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class PostponeUnit:
    """The files that wait in one partition, in the order of their rows, and the buckets that it has.

    ``first_sequence`` numbers the rows of each bucket behind those that are there.
    """

    reader: FileReader
    factory: FileWriterFactory
    partition: bytes
    files: tuple[DataFileMeta, ...]
    buckets: int
    first_sequence: Mapping[PartitionBucket, int]

    @property
    def partition_text(self) -> str:
        """Return ``k1=v1/k2=v2``, or an empty text."""
        return format_partition(self.partition, self.factory.schema)


@dataclass(frozen=True, slots=True)
class PostponePlan:
    """What would be moved; it is false when nothing waits. Also the dry run."""

    snapshot_id: int | None
    units: tuple[PostponeUnit, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anything waits."""
        return bool(self.units)

    def to_dict(self) -> dict[str, object]:
        """Return the plan for people and machines."""
        return {
            "snapshot_id": self.snapshot_id,
            "units": [
                {
                    "partition": unit.partition_text,
                    "files": len(unit.files),
                    "rows": sum(file.row_count for file in unit.files),
                    "bytes": sum(file.file_size for file in unit.files),
                    "buckets": unit.buckets,
                }
                for unit in self.units
            ],
        }


def plan(
    table: Table, *, partitions: PartitionSpecs | None = None, where: str | None = None
) -> PostponePlan:
    """Find the files that wait. A partition with buckets keeps their number, a new one gets what the options ask for.

    ``partitions`` and ``where`` choose as in :func:`paimon_orch.steps.compaction.compact.plan`. Raises :class:`InputError` for
    tables without postpone buckets.
    """
    table.stores.check_step(StepKind.COMPACT)
    schema = table.schema
    if not has_postpone_buckets(schema):
        raise InputError(f"{table.identifier} has no postpone buckets ('bucket' = -2)")
    snapshot = table.snapshot()
    if snapshot is None:
        return PostponePlan(None)
    splits = plan_splits(table, schema, snapshot=snapshot, partitions=partitions, where=where)
    counts = {split.partition: split.total_buckets for split in splits if split.bucket >= 0}
    sequences = WriteBuilder(table.stores).read_next_sequences()
    units = tuple(
        PostponeUnit(
            reader=table.stores.reader(),
            factory=table.stores.build_writer_factory(),
            partition=split.partition,
            files=tuple(sort_postponed_files(split.files)),
            buckets=counts.get(split.partition) or compute_bucket_count(schema, split.row_count),
            first_sequence={
                at: number for at, number in sequences.items() if at[0] == split.partition
            },
        )
        for split in splits
        if split.bucket == POSTPONE_BUCKET
    )
    return PostponePlan(snapshot.id, units)


def run(unit: PostponeUnit) -> bytes:
    """Write the rows of one partition into its buckets and return an encoded :class:`CommitMessage`."""
    counts = PostponeBuckets({unit.partition: unit.buckets}, unit.buckets)
    writer = TableWriter(factory=unit.factory, first_sequence=unit.first_sequence, postponed=counts)
    fields = [VALUE_KIND, *unit.factory.schema.fields]
    try:
        for file in unit.files:
            at = BucketFile(unit.partition, POSTPONE_BUCKET, file)
            for batch in unit.reader.read(at, fields):
                writer.write(pa.Table.from_batches([batch]))
        added = writer.close()
    except BaseException:
        writer.abort()
        raise
    removed = (
        ManifestEntry(
            kind=FileKind.DELETE,
            partition=unit.partition,
            bucket=POSTPONE_BUCKET,
            total_buckets=POSTPONE_BUCKET,
            file=file,
        )
        for file in unit.files
    )
    return CommitMessage(entries=(*removed, *added)).encode()


def commit(table: Table, messages: Sequence[CommitMessage]) -> Snapshot | None:
    """Commit the moved rows of all partitions in one snapshot; None if there are none.

    Raises :class:`CommitConflictError` if another commit moved the same files; what was written is removed.
    """
    entries = tuple(entry for message in messages for entry in message.entries)
    if not entries:
        return None
    with discard_files_on_conflict(table, messages):
        return table.stores.new_commit(StepKind.COMPACT).commit(
            CommitChanges(kind=CommitKind.COMPACT, entries=entries)
        )


def move_postponed(
    table: Table,
    executor: Executor,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
    progress: Progress | None = None,
) -> Snapshot | None:
    """Plan, run and commit; return the snapshot, None if nothing waits.

    The rows arrive on level 0: tables with deletion vectors show them after their next compaction.
    """
    planned = plan(table, partitions=partitions, where=where)
    results = executor.map(
        run,
        planned.units,
        label=f"move postponed rows of {table.identifier}",
        progress=progress,
        undo=partial(discard_results, table),
    )
    return commit(table, [CommitMessage.decode(result) for result in results])
