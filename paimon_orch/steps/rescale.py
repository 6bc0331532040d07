"""Changing the number of buckets of partitions by rewriting them (maintenance facts 11.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.writer import FileWriterFactory
from paimon_orch.format.manifest import FileKind, ManifestEntry
from paimon_orch.format.row_kind import RowKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.attempts import discarded_if_refused
from paimon_orch.steps.compaction import Partitions
from paimon_orch.steps.executor import Executor, InProcessExecutor, Progress
from paimon_orch.table.commit import Changes
from paimon_orch.table.messages import CommitMessage
from paimon_orch.table.partitions import any_of, parse_spec, partition_text
from paimon_orch.table.plan import BucketSplit
from paimon_orch.table.row_guards import ReadGuard
from paimon_orch.table.scan import Scan
from paimon_orch.table.table import Table
from paimon_orch.table.write import TableWriter, conform_rows

_IN_ONE_RUN = "1 tb"  # all rows of a partition are sorted at once: they become one sorted run


@dataclass(frozen=True, slots=True)
class RescaleUnit:
    """One partition to rewrite; its rows are held in memory."""

    scan: Scan
    splits: tuple[BucketSplit, ...]
    factory: FileWriterFactory

    @property
    def partition_text(self) -> str:
        """Return ``k1=v1/k2=v2``, or an empty text."""
        return partition_text(self.splits[0].partition, self.factory.schema)


@dataclass(frozen=True, slots=True)
class RescalePlan:
    """The partitions whose number of buckets changes; it is false when there are none. Also the dry run."""

    snapshot_id: int | None = None
    buckets: int = 0
    units: tuple[RescaleUnit, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anything is to be rewritten."""
        return bool(self.units)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "snapshot_id": self.snapshot_id,
            "buckets": self.buckets,
            "partitions": [unit.partition_text for unit in self.units],
            "rows": sum(split.row_count for unit in self.units for split in unit.splits),
        }


def plan(
    table: Table, bucket_num: int | None = None, *, partitions: Partitions | None = None
) -> RescalePlan:
    """Find the partitions that have another number of buckets than asked for, by default the table's option.

    Writers go by the option ``bucket``: change it too, or they refuse the partition. Raises :class:`UnsupportedError`
    for tables without fixed buckets, and :class:`InputError` if rows wait on level 0 that readers do not see.
    """
    schema = table.schema
    count = schema.typed_options.bucket if bucket_num is None else bucket_num
    if schema.typed_options.bucket < 1 or schema.typed_options.boolean("row-tracking.enabled"):
        raise UnsupportedError(f"{table.identifier} has no fixed buckets that could be rescaled")
    if count < 1:
        raise InputError(f"a table cannot have {count} buckets; give 1 or more")
    scan = table.scan()
    if scan.snapshot is None:
        return RescalePlan()
    specs = None
    if partitions is not None:
        specs = [parse_spec(spec, schema) if isinstance(spec, str) else spec for spec in partitions]
    chosen = (lambda _: True) if specs is None else any_of(specs, schema)
    groups: dict[bytes, list[BucketSplit]] = {}
    for split in table.files(scan.snapshot):
        if split.bucket >= 0 and split.total_buckets != count and chosen(split.partition):
            groups.setdefault(split.partition, []).append(split)
    _check_visible(table, schema, [split for splits in groups.values() for split in splits])
    options = dict(schema.options) | {"bucket": str(count), "write-buffer-size": _IN_ONE_RUN}
    factory = FileWriterFactory(table.io, table.paths, replace(schema, options=options))
    units = tuple(RescaleUnit(scan, tuple(splits), factory) for splits in groups.values())
    return RescalePlan(scan.snapshot.id, count, units)


def _check_visible(table: Table, schema: TableSchema, splits: Sequence[BucketSplit]) -> None:
    hidden = schema.primary_keys and schema.typed_options.batch_scan_skips_level0
    if hidden and any(file.level == 0 for split in splits for file in split.files):
        raise InputError(
            f"{table.identifier} has rows on level 0 that readers do not see yet; compact it before it is rescaled"
        )


def run(unit: RescaleUnit) -> bytes:
    """Write the rows of a partition into its new buckets and return a :class:`CommitMessage`, encoded."""
    schema = unit.factory.schema
    batches = [batch for split in unit.splits for batch in unit.scan.read_split(split)]
    if not batches:
        return CommitMessage().encode()
    rows = conform_rows(pa.Table.from_batches(batches), schema, row_kind=None, kind=RowKind.INSERT)
    writer = TableWriter(unit.factory, {}, None, overwrites=True)
    try:
        writer.write(rows)
        entries = writer.close()
    except BaseException:
        writer.abort()
        raise
    return CommitMessage(tuple(_at_the_top(entry, schema) for entry in entries)).encode()


def _at_the_top(entry: ManifestEntry, schema: TableSchema) -> ManifestEntry:
    """Put a file where no older version of a key can be below it, and readers need not merge."""
    if not schema.primary_keys:
        return entry
    return replace(entry, file=entry.file.upgraded(schema.typed_options.num_levels - 1))


def rescale(
    table: Table,
    bucket_num: int | None = None,
    executor: Executor | None = None,
    *,
    partitions: Partitions | None = None,
    progress: Progress | None = None,
) -> Snapshot | None:
    """Plan, run and commit in one snapshot; None if there is nothing to do. See :func:`plan`.

    Raises :class:`CommitConflictError` if another commit changed rows of the partitions meanwhile; what was written is
    removed.
    """
    planned = plan(table, bucket_num, partitions=partitions)
    if not planned:
        return None
    label = f"rescale {table.identifier}"
    results = (executor or InProcessExecutor()).map(
        run, planned.units, label=label, progress=progress
    )
    messages = [CommitMessage.decode(result) for result in results]
    splits = [split for unit in planned.units for split in unit.splits]
    assert planned.snapshot_id is not None
    read = {(split.partition, bucket) for split in splits for bucket in range(split.total_buckets)}
    partitions_read = frozenset(split.partition for split in splits)
    changes = Changes(
        CommitKind.OVERWRITE,
        tuple(
            entry for message in messages for entry in message.entries if entry.kind is FileKind.ADD
        ),
        read_guard=ReadGuard(planned.snapshot_id, frozenset(read)),
        overwrite=partitions_read.__contains__,
    )
    with discarded_if_refused(table, messages):
        return table.new_commit().commit(changes)
