"""Compaction of append tables: small files become large ones, hidden rows go.

See docs/format/append-table-compaction.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    FileSource,
    ManifestEntry,
)
from paimon_orch.format.options.core_options import CLUSTERING_INCREMENTAL, DATA_EVOLUTION_ENABLED
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.append_deletion_vectors import (
    DeletionVectorRewrite,
    is_bucket_unaware,
)
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.merge.tree.append_compaction import (
    AppendCompactStrategy,
    FileGroup,
    collect_deletion_vector_refs,
)
from paimon_orch.steps.common.retry import discard_files_on_conflict
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionResult,
    CompactionStrategy,
    CompactionUnit,
    PartitionSpecs,
    plan_splits,
)
from paimon_orch.steps.expiration.expire_partitions import exclude_expired_partitions
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.scan.scan_planner import BucketSplit
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCompactionUnit(CompactionUnit):
    """Groups of files of one bucket, each to become new files of its own.

    ``live`` are the names of all files of the bucket, ``vectors`` the index files that may have to be written anew,
    ``hidden_left`` the rows that stay hidden in the files that stay.
    """

    groups: tuple[FileGroup, ...]
    live: frozenset[str]
    vectors: tuple[IndexManifestEntry, ...]
    remaining_deleted_rows: int = 0

    @property
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files of all groups."""
        return tuple(file for group in self.groups for file in group)

    @property
    def output_level(self) -> int:
        """Return the level that the result goes to: append tables have no other."""
        return 0

    def run(self) -> bytes:
        """Rewrite the groups and return a :class:`CommitMessage`, encoded. Running it twice is harmless."""
        reader, writers = self.reader, list[RollingFileWriter]()
        index = DeletionVectorRewrite(
            reader=reader,
            partition=self.partition,
            bucket=self.bucket,
            stored=self.vectors,
            live=self.live,
        )
        try:
            vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, self.vectors)
            at = PartitionBucket(self.partition, self.bucket)
            added = [
                file
                for group in self.groups
                for file in copy_rows(
                    reader,
                    at,
                    files=group,
                    hidden=vectors,
                    source=FileSource.COMPACT,
                    writers=writers,
                )
            ]
            index_entries = index.run(drop={file.file_name for file in self.inputs})
        except BaseException:
            for writer in writers:
                writer.abort()
            index.abort()
            raise

        def entries(kind: FileKind, files: Iterable[DataFileMeta]) -> list[ManifestEntry]:
            return [
                ManifestEntry(
                    kind=kind,
                    partition=self.partition,
                    bucket=self.bucket,
                    total_buckets=self.total_buckets,
                    file=file,
                )
                for file in files
            ]

        changed = (*entries(FileKind.DELETE, self.inputs), *entries(FileKind.ADD, added))
        return CommitMessage(entries=changed, index=tuple(index_entries)).encode()


def check_compactable(schema: TableSchema) -> None:
    """Refuse append tables that plain compaction would damage, by the feature's name."""
    options = schema.typed_options
    for option in (DATA_EVOLUTION_ENABLED, CLUSTERING_INCREMENTAL):
        if options.get(option):
            raise UnsupportedError(
                f"compaction of tables with {option.key!r} = true is not supported yet"
            )


def plan(
    table: Table,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
    strategy: CompactionStrategy = "minor",
) -> CompactionPlan:
    """Choose what to compact in the newest snapshot of an append table; see :func:`paimon_orch.steps.compaction.compact.plan`.

    ``minor`` waits until small files are worth a rewrite, or enough of their rows are hidden; ``full`` does not wait.
    """
    table.stores.check_step(StepKind.COMPACT)
    schema = table.schema
    check_compactable(schema)
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return CompactionPlan(None)
    chosen = plan_splits(table, schema, snapshot, partitions=partitions, where=where)
    splits = exclude_expired_partitions(table, chosen)
    schemas = table.stores.schemas.get_all(
        file.schema_id for split in splits for file in split.files
    )
    reader = FileReader(table.io, table.paths, schema, schemas)
    by_split = [plan_bucket_units(reader, split, strategy) for split in splits]
    units = sorted((unit for units in by_split for unit in units), key=lambda unit: -unit.bytes)
    guards = () if is_bucket_unaware(schema) else tuple(map(_build_guard, units))
    return CompactionPlan(snapshot.id, tuple(units), guards, sum(not units for units in by_split))


def plan_bucket_units(
    reader: FileReader, split: BucketSplit, strategy: CompactionStrategy
) -> list[AppendCompactionUnit]:
    """Return the work in a bucket: one unit a group where groups share no index file, else one in all.

    No data file is opened.
    """
    picker, marks = (
        AppendCompactStrategy.of(reader.schema.typed_options),
        collect_deletion_vector_refs(split.vectors),
    )
    unaware, is_full = is_bucket_unaware(reader.schema), strategy == "full"
    pick = picker.select_bucket_unaware if unaware else picker.bucketed
    groups = pick(split.files, marks, full=is_full)
    picked = {file.file_name for group in groups for file in group}
    live = frozenset(file.file_name for file in split.files)
    left = sum(marks[name].cardinality or 0 for name in (live - picked) & set(marks))
    units = list[AppendCompactionUnit]()
    for part in [(group,) for group in groups] if unaware else [tuple(groups)] if groups else []:
        names = {file.file_name for group in part for file in group}
        touched = {marks[name].index_file for name in names & set(marks)}
        unit = AppendCompactionUnit(
            reader=reader,
            partition=split.partition,
            bucket=split.bucket,
            total_buckets=split.total_buckets,
            reason="full" if is_full else "hidden rows" if touched else "small files",
            groups=part,
            live=live,
            vectors=tuple(v for v in split.vectors if not unaware or v.file_name in touched),
            remaining_deleted_rows=0 if units else left,
        )
        units.append(unit)
    return units


def _build_guard(unit: AppendCompactionUnit) -> BucketGuard:
    return BucketGuard.of(PartitionBucket(unit.partition, unit.bucket), (), unit.vectors)


def select_append_units(planned: CompactionPlan) -> tuple[AppendCompactionUnit, ...]:
    """Return the units of a plan for an append table."""
    return tuple(unit for unit in planned.units if isinstance(unit, AppendCompactionUnit))


def commit(
    table: Table, planned: CompactionPlan, messages: Sequence[CommitMessage]
) -> CompactionResult:
    """Commit the results of all units in one snapshot.

    Raises :class:`CommitConflictError` if a file is gone or got newly deleted rows; what was written is removed then.
    """
    entries = tuple(entry for message in messages for entry in message.entries)
    index = tuple(item for message in messages for item in message.index)
    changes = CommitChanges(
        kind=CommitKind.COMPACT, entries=entries, index=index, guards=planned.guards
    )
    with discard_files_on_conflict(table, messages):
        snapshot = table.stores.new_commit(StepKind.COMPACT).commit(changes)
    return build_append_result(planned, messages, snapshot)


def copy_rows(
    reader: FileReader,
    at: PartitionBucket,
    files: Sequence[DataFileMeta],
    hidden: Mapping[str, DeletionVector],
    source: FileSource,
    writers: list[RollingFileWriter],
) -> list[DataFileMeta]:
    """Copy the rows of files that are not hidden into new files, in order, a batch at a time.

    The new files take the place of the old ones in the order of the bucket. The writer is added to ``writers``, for the
    caller to abort if anything fails.
    """
    factory = FileWriterFactory.for_rewrite(reader, *at, files)
    writer = factory.writer(*at, source=source, first_sequence=files[0].min_sequence_number)
    writers.append(writer)
    kept = row_tracking_fields(reader.schema) if source is FileSource.COMPACT else ()
    fields = [*reader.schema.fields, *kept]
    for file in files:
        vector = hidden.get(file.file_name)
        for batch in reader.read(BucketFile(*at, file), fields, vector):
            writer.write(pa.Table.from_batches([batch]))
    return writer.close()


def build_append_result(
    planned: CompactionPlan,
    messages: Sequence[CommitMessage],
    snapshot: Snapshot,
) -> CompactionResult:
    """Return the figures of a plan whose files were all replaced by those of the messages."""
    deleted = [file for unit in select_append_units(planned) for file in unit.inputs]
    added = [entry.file for message in messages for entry in message.added]
    return CompactionResult(
        plan=planned,
        snapshot_id=snapshot.id,
        buckets=planned.buckets,
        files_before=len(deleted),
        files_after=len(added),
        bytes_read=sum(file.file_size for file in deleted),
        bytes_written=sum(file.file_size for file in added),
        rows_written=sum(file.row_count for file in added),
        deleted_rows=sum(unit.remaining_deleted_rows for unit in select_append_units(planned)),
        level0_before=len(deleted),
        level0_after=len(added),
    )
