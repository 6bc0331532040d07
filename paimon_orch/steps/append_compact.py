"""Compaction of append tables: small files become large ones, hidden rows go (merge-tree facts 8.1, 8.2)."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import pyarrow as pa

from paimon_orch.errors import CommitConflictError, UnsupportedError
from paimon_orch.files.reader import BucketFile, FileReader
from paimon_orch.files.row_tracking import tracking_fields
from paimon_orch.files.writer import FileWriterFactory, RollingFileWriter
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest import DataFileMeta, FileKind, FileSource, ManifestEntry
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.append import AppendPicker, Group, marks_of
from paimon_orch.merge.append_vectors import VectorRewrite, is_unaware
from paimon_orch.merge.vectors import read_vectors
from paimon_orch.steps.attempts import replanned
from paimon_orch.steps.compact import (
    CompactionPlan,
    CompactionResult,
    CompactionUnit,
    Partitions,
    Strategy,
    chosen_splits,
)
from paimon_orch.steps.executor import Executor, Progress
from paimon_orch.table.commit import Changes
from paimon_orch.table.conflicts import BucketGuard
from paimon_orch.table.dynamic_bucket import BucketId
from paimon_orch.table.messages import CommitMessage, discard
from paimon_orch.table.partitions import partition_text
from paimon_orch.table.plan import BucketSplit
from paimon_orch.table.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppendCompactionUnit:
    """Groups of files of one bucket, each to become new files of its own.

    ``live`` are the names of all files of the bucket, ``vectors`` the index files that may have to be written anew,
    ``hidden_left`` the rows that stay hidden in the files that stay.
    """

    reader: FileReader
    partition: bytes
    bucket: int
    total_buckets: int
    groups: tuple[Group, ...]
    live: frozenset[str]
    vectors: tuple[IndexManifestEntry, ...]
    reason: str
    hidden_left: int = 0

    @property
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files of all groups."""
        return tuple(file for group in self.groups for file in group)

    @property
    def partition_text(self) -> str:
        """Return ``k1=v1/k2=v2``, or an empty text."""
        return partition_text(self.partition, self.reader.schema)

    @property
    def files(self) -> int:
        """Return the number of files to compact."""
        return len(self.inputs)

    @property
    def bytes(self) -> int:
        """Return the size of the files to compact."""
        return sum(file.file_size for file in self.inputs)

    @property
    def rows(self) -> int:
        """Return the physical rows of the files to compact."""
        return sum(file.row_count for file in self.inputs)

    @property
    def level0_files(self) -> int:
        """Return how many of the files are on level 0: all, as append tables have no other."""
        return self.files

    @property
    def output_level(self) -> int:
        """Return the level that the result goes to."""
        return 0


def check_compactable(schema: TableSchema) -> None:
    """Refuse append tables that plain compaction would damage, by the feature's name."""
    options = schema.typed_options
    for key in ("data-evolution.enabled", "clustering.incremental"):
        if options.boolean(key):
            raise UnsupportedError(f"compaction of tables with '{key}' = true is not supported yet")


def plan(
    table: Table,
    *,
    partitions: Partitions | None = None,
    where: str | None = None,
    strategy: Strategy = "minor",
) -> CompactionPlan:
    """Choose what to compact in the newest snapshot of an append table; see :func:`paimon_orch.steps.compact.plan`.

    ``minor`` waits until small files are worth a rewrite, or enough of their rows are hidden; ``full`` does not wait.
    """
    schema = table.schema
    check_compactable(schema)
    snapshot = table.snapshots.latest()
    if snapshot is None:
        return CompactionPlan(None)
    splits = chosen_splits(table, schema, snapshot, partitions, where)
    schemas = table.schemas.get_all(file.schema_id for split in splits for file in split.files)
    reader = FileReader(table.io, table.paths, schema, schemas)
    by_split = [_units(reader, split, strategy) for split in splits]
    units = sorted((unit for units in by_split for unit in units), key=lambda unit: -unit.bytes)
    guards = () if is_unaware(schema) else tuple(map(_guard, units))
    return plan_of(snapshot.id, units, guards, sum(not units for units in by_split))


def _units(
    reader: FileReader, split: BucketSplit, strategy: Strategy
) -> list[AppendCompactionUnit]:
    """Return the work in a bucket: one unit a group where groups share no index file, else one in all."""
    picker, marks = AppendPicker.of(reader.schema.typed_options), marks_of(split.vectors)
    unaware, is_full = is_unaware(reader.schema), strategy == "full"
    pick = picker.unaware if unaware else picker.bucketed
    groups = pick(split.files, marks, full=is_full)
    picked = {file.file_name for group in groups for file in group}
    live = frozenset(file.file_name for file in split.files)
    left = sum(marks[name].cardinality or 0 for name in (live - picked) & set(marks))
    units = list[AppendCompactionUnit]()
    for part in [(group,) for group in groups] if unaware else [tuple(groups)] if groups else []:
        names = {file.file_name for group in part for file in group}
        touched = {marks[name].index_file for name in names & set(marks)}
        unit = AppendCompactionUnit(
            reader,
            split.partition,
            split.bucket,
            split.total_buckets,
            part,
            live,
            tuple(v for v in split.vectors if not unaware or v.file_name in touched),
            "full" if is_full else "hidden rows" if touched else "small files",
            0 if units else left,
        )
        units.append(unit)
    return units


def _guard(unit: AppendCompactionUnit) -> BucketGuard:
    return BucketGuard.of(unit.partition, unit.bucket, (), unit.vectors)


def plan_of(
    snapshot_id: int,
    units: Sequence[AppendCompactionUnit],
    guards: tuple[BucketGuard, ...] = (),
    skipped: int = 0,
) -> CompactionPlan:
    """Return a plan of units for an append table, which look to others like those of merge trees."""
    alike = cast("tuple[CompactionUnit, ...]", tuple(units))
    return CompactionPlan(snapshot_id, alike, guards, skipped)


def units_of(planned: CompactionPlan) -> tuple[AppendCompactionUnit, ...]:
    """Return the units of a plan for an append table."""
    return cast("tuple[AppendCompactionUnit, ...]", planned.units)


def run(unit: AppendCompactionUnit) -> bytes:
    """Rewrite the groups of one bucket and return a :class:`CommitMessage`, encoded. Running it twice is harmless."""
    reader, writers = unit.reader, list[RollingFileWriter]()
    index = VectorRewrite(reader, unit.partition, unit.bucket, unit.vectors, unit.live)
    try:
        vectors = read_vectors(reader.io, reader.paths, reader.schema, unit.vectors)
        at = unit.partition, unit.bucket
        added = [
            file
            for group in unit.groups
            for file in copy_rows(reader, at, group, vectors, FileSource.COMPACT, writers)
        ]
        index_entries = index.run(drop={file.file_name for file in unit.inputs})
    except BaseException:
        for writer in writers:
            writer.abort()
        index.abort()
        raise

    def entries(kind: FileKind, files: Iterable[DataFileMeta]) -> list[ManifestEntry]:
        return [ManifestEntry(kind, *at, unit.total_buckets, file) for file in files]

    changed = (*entries(FileKind.DELETE, unit.inputs), *entries(FileKind.ADD, added))
    return CommitMessage(changed, tuple(index_entries)).encode()


def commit(table: Table, planned: CompactionPlan, messages: Sequence[CommitMessage]) -> Snapshot:
    """Commit the results of all units in one snapshot.

    Raises :class:`CommitConflictError` if a file is gone or got newly deleted rows; what was written is removed then.
    """
    entries = tuple(entry for message in messages for entry in message.entries)
    index = tuple(item for message in messages for item in message.index)
    changes = Changes(CommitKind.COMPACT, entries, index=index, guards=planned.guards)
    try:
        return table.new_commit().commit(changes)
    except CommitConflictError:
        discard(table.reader(), messages)
        raise


def copy_rows(
    reader: FileReader,
    at: BucketId,
    files: Sequence[DataFileMeta],
    hidden: Mapping[str, DeletionVector],
    source: FileSource,
    writers: list[RollingFileWriter],
) -> list[DataFileMeta]:
    """Copy the rows of files that are not hidden into new files, in order, a batch at a time.

    The new files take the place of the old ones in the order of the bucket. The writer is added to ``writers``, for the
    caller to abort if anything fails.
    """
    factory = FileWriterFactory(reader.io, reader.paths, reader.schema)
    writer = factory.writer(*at, source=source, first_sequence=files[0].min_sequence_number)
    writers.append(writer)
    kept = tracking_fields(reader.schema) if source is FileSource.COMPACT else ()
    fields = [*reader.schema.fields, *kept]
    for file in files:
        vector = hidden.get(file.file_name)
        for batch in reader.read(BucketFile(*at, file), fields, vector):
            writer.write(pa.Table.from_batches([batch]))
    return writer.close()


def compact(
    table: Table,
    executor: Executor,
    *,
    partitions: Partitions | None = None,
    where: str | None = None,
    strategy: Strategy = "minor",
    progress: Progress | None = None,
) -> CompactionResult:
    """Plan, run and commit a compaction of an append table; see :func:`paimon_orch.steps.compact.compact`."""
    started, label = time.monotonic(), f"compact {table.identifier}"

    def attempt(number: int) -> CompactionResult:
        planned = plan(table, partitions=partitions, where=where, strategy=strategy)
        if not planned:
            logger.info("%s: nothing to compact", table.identifier)
            seconds = time.monotonic() - started
            return CompactionResult(planned, duration_seconds=seconds, attempts=number)
        undo = partial(_discard, table)
        results = executor.map(run, units_of(planned), label=label, progress=progress, undo=undo)
        messages = [CommitMessage.decode(result) for result in results]
        snapshot = commit(table, planned, messages)
        return result_of(planned, messages, snapshot, time.monotonic() - started, number)

    return replanned(label, attempt)


def _discard(table: Table, results: Sequence[bytes]) -> None:
    discard(table.reader(), [CommitMessage.decode(result) for result in results])


def result_of(
    planned: CompactionPlan,
    messages: Sequence[CommitMessage],
    snapshot: Snapshot | None,
    seconds: float,
    attempts: int,
) -> CompactionResult:
    """Return the figures of a plan whose files were all replaced by those of the messages."""
    deleted = [file for unit in units_of(planned) for file in unit.inputs]
    added = [entry.file for message in messages for entry in message.added]
    return CompactionResult(
        planned,
        None if snapshot is None else snapshot.id,
        len({(unit.partition, unit.bucket) for unit in units_of(planned)}),
        len(deleted),
        len(added),
        sum(file.file_size for file in deleted),
        sum(file.file_size for file in added),
        sum(file.row_count for file in added),
        sum(unit.hidden_left for unit in units_of(planned)),
        len(deleted),
        len(added),
        seconds,
        attempts,
    )
