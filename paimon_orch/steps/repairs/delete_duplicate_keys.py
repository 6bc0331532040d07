"""Deletes rows of keys that are live several times, in one snapshot.

Readers of tables with deletion vectors do not merge files above level 0, so they see all rows of a
key; such rows get deletion vectors. In tables with dynamic buckets, two writers can also have put a
key into two buckets of a partition, which readers never merge. Without deletion vectors, the files
with such rows are written again. The deleted rows are put into the quarantine. No changelog is
written: its readers have applied the newest row already. See docs/format/invariants.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.bucket.hash_index import decode_hash_index
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.index_manifest import HASH_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    FileSource,
    ManifestEntry,
    build_entries,
)
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict
from paimon_orch.steps.common.step import EmptyRequest, StepOutcome, build_metadata_step
from paimon_orch.steps.inspection.duplicate_keys import (
    ComparedBucket,
    DuplicateKeyFinder,
    DuplicateRows,
)
from paimon_orch.steps.inspection.health import read_live_buckets
from paimon_orch.steps.repairs.replaced_rows import put_rows_aside, read_replaced_rows
from paimon_orch.table.chain.chain_branches import refuse_chain_table
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import HashIndexGuard
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_selection import open_reader
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.dynamic_bucket import write_hash_index


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDuplicates:
    """The duplicate rows of buckets whose keys were compared with each other."""

    splits: tuple[BucketSplit, ...]
    rows: DuplicateRows


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateKeysPlan:
    """The rows of keys with a newer row. The plan is falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    state: TableState = field(repr=False, compare=False)
    snapshot: Snapshot | None = None
    partitions: tuple[PartitionDuplicates, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any key is live several times."""
        return bool(self.partitions)

    @property
    def row_count(self) -> int:
        """Return the number of rows to delete."""
        return sum(partition.rows.row_count for partition in self.partitions)

    @property
    def bucket_count(self) -> int:
        """Return the number of buckets with rows to delete."""
        return sum(len(partition.rows.positions) for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateKeysResult(StepOutcome):
    """The new snapshot, or None if there was nothing to do."""

    plan: DuplicateKeysPlan
    snapshot: Snapshot | None = None


def plan(table: Table, request: EmptyRequest) -> DuplicateKeysPlan:
    """Read the keys of the latest snapshot, and find duplicates.

    With deletion vectors, reads all files above level 0. Raises :class:`CorruptFileError` if files
    of a level overlap: these are merged before.
    """
    state = table.load()
    schema, snapshot = state.schema, state.snapshot
    has_vectors = schema.typed_options.has_deletion_vectors
    if not schema.primary_keys or not (has_vectors or schema.is_bucket_dynamic):
        raise UnsupportedError(
            f"{table.identifier}: readers merge the rows of a key, as the table has neither "
            "deletion vectors nor dynamic buckets; keys in several files are no damage"
        )
    state.check_step(StepKind.COMPACT)
    refuse_chain_table(
        table.identifier, schema, "the repair of duplicate keys", "drop the partitions instead"
    )
    if snapshot is None:
        return DuplicateKeysPlan(request=request, state=state)
    live = read_live_buckets(state.hold(), snapshot)
    splits = [split for split in live.build_splits() if split.bucket >= 0]
    reader = open_reader(state, schema, splits)
    compared = (_find_duplicates(state, reader, group) for group in _group_splits(schema, splits))
    return DuplicateKeysPlan(
        request=request,
        state=state,
        snapshot=snapshot,
        partitions=tuple(duplicates for duplicates in compared if duplicates.rows.keys),
    )


def _group_splits(
    schema: TableSchema, splits: Sequence[BucketSplit]
) -> Iterator[tuple[BucketSplit, ...]]:
    """Yield the buckets that can share keys."""
    if not schema.is_bucket_dynamic:
        yield from ((split,) for split in splits)
        return
    ordered = sorted(splits, key=lambda split: split.partition_bucket)
    for _, group in groupby(ordered, key=lambda split: split.partition):
        yield tuple(group)


def _find_duplicates(
    state: TableState, reader: FileReader, splits: tuple[BucketSplit, ...]
) -> PartitionDuplicates:
    has_vectors = reader.schema.typed_options.has_deletion_vectors
    buckets = [_build_compared_bucket(reader, split) for split in splits]
    runs = sum(len(bucket.runs) for bucket in buckets)
    is_sorted = not reader.schema.typed_options.is_pk_clustering_override
    if (is_sorted and runs < 2) or (not has_vectors and len(buckets) < 2):
        return PartitionDuplicates(splits=splits, rows=DuplicateRows())
    finder = DuplicateKeyFinder(reader, buckets, merges_buckets=not has_vectors)
    rows = finder.find()
    if rows.hashes:
        _check_can_choose_bucket(state, splits)
    return PartitionDuplicates(splits=splits, rows=rows)


def _build_compared_bucket(reader: FileReader, split: BucketSplit) -> ComparedBucket:
    has_vectors = reader.schema.typed_options.has_deletion_vectors
    runs = build_bucket_runs(split.files, reader.schema)
    return ComparedBucket(
        bucket=split.partition_bucket,
        runs=[run.files for run in runs if run.level > 0 or not has_vectors],
        deletions=read_deletion_vectors(reader.io, reader.paths, reader.schema, split.vectors),
    )


def _check_can_choose_bucket(state: TableState, splits: Sequence[BucketSplit]) -> None:
    """Refuse to delete the rows of a key in all buckets but one, if that could lose values."""
    schema = state.schema
    engine = create_merge_engine(schema)
    place = format_partition(splits[0].partition, schema) or "the table"
    if not engine.is_deduplicate and not engine.is_first_row:
        raise UnsupportedError(
            f"{state.identifier}: keys are live in several buckets of {place}, and each bucket "
            f"has a part of their values ('merge-engine' = {schema.typed_options.merge_engine}); "
            "rewrite the partition with an overwrite. Nothing was changed"
        )
    has_level0 = any(file.level == 0 for split in splits for file in split.files)
    if schema.typed_options.has_deletion_vectors and has_level0:
        raise UnsupportedError(
            f"{state.identifier}: keys are live in several buckets of {place}, whose files of "
            "level 0 can have more rows of them; compact the table, and repeat the repair"
        )


def commit(table: Table, plan: DuplicateKeysPlan) -> DuplicateKeysResult:
    """Put the rows aside, and commit the buckets without them in one snapshot."""
    if not plan or plan.snapshot is None:
        return DuplicateKeysResult(plan=plan)
    state = plan.state
    quarantine, writer = Quarantine.of(table, state.schema), _BucketWriter(state, plan.snapshot)
    folder = quarantine.build_folder_name()
    with ExitStack() as open_writers:
        for partition in plan.partitions:
            for split in partition.splits:
                positions = partition.rows.positions.get(split.partition_bucket)
                if positions is not None:
                    rows = read_replaced_rows(
                        writer.reader(split), split.partition_bucket, split.files, positions
                    )
                    directory = state.paths.bucket_dir(state.schema, *split.partition_bucket)
                    name = directory.removeprefix(f"{state.paths.root}/") + "/duplicates.parquet"
                    put_rows_aside(quarantine, folder, name, rows)
                    writer.delete(split, positions, open_writers)
            writer.forget_hashes(partition)
    changes = CommitChanges(
        kind=CommitKind.COMPACT,
        entries=tuple(writer.entries),
        index=tuple(writer.index),
        hash_index_guards=tuple(writer.guards),
        expected_latest=plan.snapshot.id,
    )
    message = CommitMessage(entries=changes.entries, index=changes.index)
    with discard_files_on_conflict(table, [message]):
        snapshot = state.new_commit(StepKind.COMPACT).commit(changes)
    return DuplicateKeysResult(plan=plan, snapshot=snapshot)


class _BucketWriter:
    """Writes the buckets without the replaced rows, and their indexes."""

    def __init__(self, state: TableState, snapshot: Snapshot) -> None:
        self._state, self._schema = state, state.schema
        self._hash_indexes = {
            entry.partition_bucket: entry
            for entry in state.manifests.read_index_entries(snapshot)
            if entry.index_type == HASH_INDEX
        }
        self.entries = list[ManifestEntry]()
        self.index = list[IndexManifestEntry]()
        self.guards = list[HashIndexGuard]()

    def reader(self, *splits: BucketSplit) -> FileReader:
        return open_reader(self._state, self._schema, splits)

    def delete(
        self, split: BucketSplit, positions: Mapping[str, DeletionVector], open_writers: ExitStack
    ) -> None:
        """Delete rows of a bucket by deletion vectors, or write their files again."""
        if not self._schema.typed_options.has_deletion_vectors:
            self._rewrite_files(split, positions, open_writers)
            return
        io, paths = self._state.io, self._state.paths
        stored = read_deletion_vectors(io, paths, self._schema, split.vectors)
        vectors = BucketDeletionVectors(stored)
        vectors.add(positions)
        entry = vectors.write(io, paths, self._schema, *split.partition_bucket)
        assert entry is not None
        self.index.append(entry)

    def _rewrite_files(
        self, split: BucketSplit, positions: Mapping[str, DeletionVector], open_writers: ExitStack
    ) -> None:
        """Write each file again on its level; the other rows keep their sequence numbers."""
        reader, bucket = self.reader(split), split.partition_bucket
        fields = [*SYSTEM_FIELDS, *self._schema.fields]
        factory = FileWriterFactory.for_rewrite(reader, bucket, split.files)
        for file in split.files:
            if file.file_name not in positions:
                continue
            writer = open_writers.enter_context(
                factory.writer(bucket, level=file.level, source=FileSource.COMPACT)
            )
            deleted = positions[file.file_name]
            for batch in reader.read(BucketFile(*bucket, file), fields, deleted):
                writer.write(pa.Table.from_batches([batch]))
            written = [_keep_order(new, file) for new in writer.close()]
            for kind, files in ((FileKind.DELETE, [file]), (FileKind.ADD, written)):
                self.entries += build_entries(kind, bucket, split.total_buckets, files)

    def forget_hashes(self, partition: PartitionDuplicates) -> None:
        """Write the hash indexes without the keys that remain in other buckets.

        Otherwise, writers could put these keys into the bucket again.
        """
        for bucket, hashes in partition.rows.hashes.items():
            entry = self._hash_indexes.get(bucket)
            if entry is None:
                continue
            path = self._state.paths.index_file(self._schema, entry)
            stored = decode_hash_index(self._state.io.read_bytes(path), path)
            remaining = stored[~np.isin(stored, hashes)]
            if len(remaining) < len(stored):
                write_hash_index(self.reader(*partition.splits), bucket, remaining, self.index)
                self.guards.append(HashIndexGuard(bucket, entry.file_name))


def _keep_order(file: DataFileMeta, replaced: DataFileMeta) -> DataFileMeta:
    """Return a file with the time of the replaced one, and on level 0 with its place there.

    The order of level 0 decides between rows with equal sequence numbers.
    """
    kept = replace(file, creation_time=replaced.creation_time)
    if file.level > 0:
        return kept
    return replace(
        kept,
        min_sequence_number=replaced.min_sequence_number,
        max_sequence_number=replaced.max_sequence_number,
    )


DELETE_DUPLICATE_KEYS = build_metadata_step(
    "delete the duplicate keys of", plan, commit, max_attempts=1
)
