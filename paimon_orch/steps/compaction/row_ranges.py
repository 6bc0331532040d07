"""Compacts data-evolution tables: joins column groups and adjacent files; row ids stay the same.

See docs/format/row-tracking.md#compaction.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.arrays import Indices
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import EMPTY_DELETION_VECTOR, DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.paths import is_blob_file
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import is_blob
from paimon_orch.merge.compact.append_deletion_vectors import DeletionVectorRewrite
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.merge.tree.row_range_strategy import RowRangeStrategy, find_blob_files
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactionUnit
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.data_evolution import (
    DataEvolutionReader,
    find_anchor_file,
    group_files_by_rows,
)
from paimon_orch.table.write.commit_message import CommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRangeCompactionUnit(CompactionUnit):
    """Files of adjacent row ids; writes one file with all columns of these rows.

    The new file also has the deleted rows, because their ids remain. BLOB columns remain in their
    files, which are not inputs.
    """

    files_by_row_id: tuple[DataFileMeta, ...]

    @property
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files of all rows."""
        return self.files_by_row_id

    @property
    def rows(self) -> int:
        """Return the number of physical rows; a row in several files counts once."""
        return sum({file.first_row_id: file.row_count for file in self.inputs}.values())

    def run(self, reader: FileReader) -> bytes:
        """Write the new file and return an encoded :class:`CommitMessage`; may run repeatedly."""
        bucket, files = self.partition_bucket, self.inputs
        factory = FileWriterFactory.for_rewrite(reader, bucket, files)
        fields = [field for field in reader.schema.fields if not is_blob(field.type)]
        names = tuple(field.name for field in fields)
        columns = None if len(fields) == len(reader.schema.fields) else names
        with factory.writer(bucket, rolls=False, columns=columns) as writer:
            for group in group_files_by_rows(files):
                rows = DataEvolutionReader(reader, self.partition, self.bucket, group)
                for batch in rows.batches(fields, {}):
                    writer.write(pa.Table.from_batches([batch]))
            [file] = writer.close()
            added = replace(
                file,
                write_cols=file.write_cols if columns is None else columns,
                first_row_id=min(file.first_row_id or 0 for file in files),
                min_sequence_number=min(file.min_sequence_number for file in files),
                max_sequence_number=max(file.max_sequence_number for file in files),
            )
            entries = (
                *self.build_entries(FileKind.DELETE, files),
                *self.build_entries(FileKind.ADD, [added]),
            )
            return CommitMessage(entries=entries).encode()


def select_candidates(buckets: LiveBuckets, strategy: CompactionStrategy) -> LiveBuckets:
    """Return the buckets that have files to compact, with all their files."""
    files, groups = buckets.groups.files, buckets.groups
    bins = RowRangeStrategy.of(buckets.schema.typed_options).select(
        files, groups.rows, full=strategy == "full"
    )
    is_selected = np.zeros(len(files), np.int64)
    for rows in bins:
        is_selected[rows] = 1
    return buckets.take(np.flatnonzero(groups.sum(is_selected)))


def plan_units(
    buckets: LiveBuckets, schemas: Mapping[int, TableSchema], strategy: CompactionStrategy
) -> list[RowRangeCompactionUnit]:
    """Return the units of all partitions; reads only metadata."""
    select = RowRangeStrategy.of(buckets.schema.typed_options).select
    files = buckets.groups.files
    bins = select(files, buckets.groups.rows, full=strategy == "full")
    reason = CompactReason.FULL if strategy == "full" else CompactReason.SMALL_FILES
    units, counted = list[RowRangeCompactionUnit](), set[PartitionBucket]()
    for of_bin in _split_by_blobs(buckets, bins, schemas, strategy):
        bucket = of_bin[0].partition_bucket
        vectors = () if bucket in counted else buckets.vectors.get(bucket, ())
        counted.add(bucket)
        units.append(
            RowRangeCompactionUnit(
                partition=bucket.partition,
                bucket=bucket.bucket,
                total_buckets=of_bin[0].total_buckets,
                partition_text=format_partition(bucket.partition, buckets.schema),
                reason=reason,
                files_by_row_id=tuple(entry.file for entry in of_bin),
                remaining_deleted_rows=sum(
                    item.cardinality or 0 for entry in vectors for item in entry.ranges or ()
                ),
            )
        )
    return units


def _split_by_blobs(
    buckets: LiveBuckets,
    bins: Sequence[Indices],
    schemas: Mapping[int, TableSchema],
    strategy: CompactionStrategy,
) -> Iterator[list[ManifestEntry]]:
    """Yield the entries of the files to compact together.

    All rows of a new file have BLOB files of the same columns: Java Paimon does not read files with
    BLOB values of only a part of their rows.
    """
    files, rows = buckets.groups.files, buckets.groups.rows
    blob_rows = rows[find_blob_files(files, rows)]
    if not len(blob_rows):
        yield from build_entries_of_bins(buckets, bins)
        return
    ranges = RowRangeStrategy.of(buckets.schema.typed_options)
    min_files = ranges.get_min_files(full=strategy == "full")
    assert files.first_row_ids is not None
    with_blobs = []
    for of_bin in bins:
        first_ids = files.first_row_ids[of_bin]
        end = (first_ids + files.row_counts[of_bin]).max()
        starts = files.first_row_ids[blob_rows]
        is_inside = (starts >= first_ids.min()) & (starts < end)
        is_inside &= files.partition_codes[blob_rows] == files.partition_codes[of_bin[0]]
        with_blobs.append(np.concatenate([of_bin, blob_rows[is_inside]]))
    for entries in build_entries_of_bins(buckets, with_blobs):
        by_name = {entry.file.file_name: entry for entry in entries}
        groups = group_files_by_rows([entry.file for entry in entries])
        for _, run in groupby(groups, partial(_list_blob_columns, schemas)):
            names = [file.file_name for group in run for file in group]
            of_run = [by_name[name] for name in names if not is_blob_file(name)]
            if len(of_run) >= min_files:
                yield of_run


def _list_blob_columns(
    schemas: Mapping[int, TableSchema], group: Sequence[DataFileMeta]
) -> frozenset[int]:
    """Return the ids of the columns that rows have BLOB files of."""
    return frozenset(
        schemas[file.schema_id].field(name).id
        for file in group
        if is_blob_file(file.file_name)
        for name in file.write_cols or ()
    )


def build_entries_of_bins(
    buckets: LiveBuckets, bins: Sequence[Indices]
) -> Iterator[list[ManifestEntry]]:
    """Yield the entries of the files of each bin; reads the manifests of the files once."""
    rows = np.concatenate([np.zeros(0, np.int64), *bins])
    entries = iter(buckets.manifests.build_entries(buckets.groups.files.take(rows)))
    for files_of_bin in bins:
        yield [next(entries) for _ in range(len(files_of_bin))]


def add_moved_vectors(plan: CompactionPlan, buckets: LiveBuckets) -> CompactionPlan:
    """Return the plan with the index files that have deletion vectors of its input files."""
    inputs = {file.file_name for unit in plan.units for file in unit.inputs}
    moved = tuple(
        entry
        for entries in buckets.vectors.values()
        for entry in entries
        if any(item.data_file in inputs for item in entry.ranges or ())
    )
    if not moved:
        return plan
    live_names = buckets.groups.files.names
    assert live_names is not None
    names = pa.array([item.data_file for e in moved for item in e.ranges or ()], pa.string())
    live = live_names.filter(pc.is_in(live_names, value_set=names)).to_pylist()
    return replace(plan, vectors=moved, live_names=frozenset(live))


def move_deletion_vectors(
    reader: FileReader, plan: CompactionPlan, messages: Sequence[CommitMessage]
) -> list[CommitMessage]:
    """Write index files with the deletion vectors of the new files; return their messages.

    The deletion vectors of a unit's files become one of its new file. Runs once for all units,
    because an index file may have deletion vectors of files of several units.
    """
    new_files, old_files = defaultdict[PartitionBucket, dict[str, DeletionVector]](dict), set[str]()
    old_vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, plan.vectors)
    for unit, message in zip(plan.units, messages, strict=True):
        vector = _join_deletion_vectors(unit.inputs, old_vectors)
        old_files |= {file.file_name for file in unit.inputs}
        if vector.bitmaps:
            [added] = message.added
            new_files[unit.partition_bucket][added.file.file_name] = vector
    return rewrite_index_files(reader, plan, drop=old_files, add=new_files)


def rewrite_index_files(
    reader: FileReader,
    plan: CompactionPlan,
    *,
    drop: Collection[str],
    add: Mapping[PartitionBucket, Mapping[str, DeletionVector]],
) -> list[CommitMessage]:
    """Drop deletion vectors of some data files and add others, in all index files of a plan."""
    messages = list[CommitMessage]()
    with ExitStack() as written:
        for bucket in dict.fromkeys(entry.partition_bucket for entry in plan.vectors):
            rewrite = DeletionVectorRewrite(
                reader=reader,
                partition=bucket.partition,
                bucket=bucket.bucket,
                index_files=tuple(e for e in plan.vectors if e.partition_bucket == bucket),
                live=plan.live_names,
            )
            written.enter_context(rewrite)
            index = rewrite.run(drop=drop, add=add.get(bucket, {}))
            messages.append(CommitMessage(index=tuple(index)))
    return messages


def _join_deletion_vectors(
    files: Sequence[DataFileMeta], vectors: dict[str, DeletionVector]
) -> DeletionVector:
    """Return the deleted rows of all files as positions in one file with all rows."""
    first_row_id = min(file.first_row_id or 0 for file in files)
    joined = EMPTY_DELETION_VECTOR
    for group in group_files_by_rows(files):
        anchor = find_anchor_file(group)
        vector = vectors.get(anchor.file_name)
        if vector is not None:
            vector.check_rows(anchor.row_count, anchor.file_name)
            offset = (anchor.first_row_id or 0) - first_row_id
            moved = DeletionVector.of(vector.positions() + offset) if offset else vector
            joined |= moved
    return joined
