"""Compaction of buckets whose files above level 0 are sorted by ``clustering.columns``.

Rows of level 0 are merged by key. The rows that they replace on higher levels are added to the
deletion vectors; in first-row tables the new rows are dropped instead. The remaining rows are
written to level 1, sorted by the clustering columns. Files of level 1 whose ranges overlap are
merged by these columns.

See docs/format/clustered-primary-key-tables.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from paimon_orch.files.data_file_reader import ROW_POSITION, SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.files.uncommitted_files import UncommittedFiles
from paimon_orch.format.arrays import Mask, to_arrow_array, to_numpy
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    COMPACTION_FORCE_REWRITE_ALL_FILES,
    WRITE_BUFFER_SIZE,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.compact.bucket_compaction import BucketCompactionResult, CompactionTask
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.engine.retracts import drop_retracts
from paimon_orch.merge.sort.key_order import Key, KeyColumns, KeyOrderChecker, decode_key_bounds
from paimon_orch.merge.sort.sort_merge_reader import MergeRun, merge_runs
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.merge.tree.compact_strategy import find_files_above_delete_ratio
from paimon_orch.merge.tree.levels import RangedFile, build_level_runs, sort_oldest_first

CLUSTERED_LEVEL = 1
FileGroup = tuple[DataFileMeta, ...]


def has_current_clustering(
    file: DataFileMeta, schema: TableSchema, schemas: Mapping[int, TableSchema]
) -> bool:
    """Return whether a file above level 0 is sorted by the clustering columns of ``schema``."""
    if file.schema_id == schema.id:
        return True
    written, current = (s.order_fields(file.level) for s in (schemas[file.schema_id], schema))
    return [(field.id, field.type) for field in written] == [
        (field.id, field.type) for field in current
    ]


def decode_clustering_range(file: DataFileMeta, schema: TableSchema) -> RangedFile:
    """Return the bounds of the clustering columns of a file above level 0, and the file."""
    return *decode_key_bounds(file, schema.order_fields(file.level)), file


def select_merge_groups(
    files: Iterable[DataFileMeta], schema: TableSchema, schemas: Mapping[int, TableSchema]
) -> list[FileGroup]:
    """Return the groups of level-1 files to merge: files whose ranges overlap, and small neighbors.

    All files are one group if a file is sorted by other columns.
    """
    files = list(files)
    if not all(has_current_clustering(file, schema, schemas) for file in files):
        return [tuple(files)]
    small = schema.target_file_size // 2
    groups: list[FileGroup] = []
    pending: list[DataFileMeta] = []
    for section in _split_by_range(files, schema):
        if len(section) > 1 or section[0].file_size < small:
            pending += section
            continue
        groups.append(tuple(pending))
        pending = []
    return [group for group in [*groups, tuple(pending)] if len(group) > 1]


def plan_clustered_compaction(
    reader: FileReader,
    files: Sequence[DataFileMeta],
    vectors: Sequence[IndexManifestEntry],
    *,
    full: bool,
) -> tuple[list[FileGroup], CompactReason] | None:
    """Return the files above level 0 to merge in a bucket, with the reason, or None.

    Level 0 is always compacted. A full compaction merges all files unless its result would equal
    them.
    """
    options = reader.schema.typed_options
    clustered = [file for file in files if file.level > 0]
    has_level0 = len(clustered) < len(files)
    groups = select_merge_groups(clustered, reader.schema, reader.schemas)
    if full:
        if not (has_level0 or groups or _must_rewrite(clustered, vectors, options)):
            return None
        return [tuple(clustered)] if clustered else [], CompactReason.FULL
    grouped = {file.file_name for group in groups for file in group}
    exceeding = find_files_above_delete_ratio(clustered, vectors, options)
    groups += [(file,) for file in exceeding if file.file_name not in grouped]
    if not (has_level0 or groups):
        return None
    if has_level0:
        return groups, CompactReason.LEVEL_0
    return groups, CompactReason.DELETED_ROWS if exceeding else CompactReason.OVERLAPPING_FILES


def _must_rewrite(
    files: Sequence[DataFileMeta], vectors: Sequence[IndexManifestEntry], options: Options
) -> bool:
    if options.get(COMPACTION_FORCE_REWRITE_ALL_FILES):
        return bool(files)
    with_deleted_rows = {item.data_file for entry in vectors for item in entry.ranges or ()}
    return any(file.delete_row_count or file.file_name in with_deleted_rows for file in files)


def _split_by_range(
    files: Iterable[DataFileMeta], schema: TableSchema
) -> Iterator[list[DataFileMeta]]:
    """Yield groups of files with overlapping ranges, in the order of the ranges."""
    ranges = sorted((decode_clustering_range(f, schema) for f in files), key=lambda item: item[:2])
    section: list[DataFileMeta] = []
    end: Key | None = None
    for low, high, file in ranges:
        if end is not None and low >= end:
            yield section
            section, end = [], None
        section.append(file)
        end = high if end is None else max(end, high)
    if section:
        yield section


class ClusteredCompaction(UncommittedFiles):
    """Runs one task; written files have new names, so a task can be retried.

    ``task.files`` are on level 0. Each of ``task.groups`` is merged separately.
    ``task.higher_level_files`` are not rewritten.
    """

    def __init__(self, reader: FileReader, task: CompactionTask) -> None:
        # the reader also needs the schema of the files that this compaction writes
        schemas = {**reader.schemas, reader.schema.id: reader.schema}
        self._reader, self._task = replace(reader, schemas=schemas), task
        self._schema = reader.schema
        self._fields = [*SYSTEM_FIELDS, *reader.schema.fields]
        self._keys = reader.schema.trimmed_primary_keys
        self._columns = [f.name for f in reader.schema.order_fields(CLUSTERED_LEVEL)]
        self._engine = create_merge_engine(reader.schema)
        self._vectors = BucketDeletionVectors(
            read_deletion_vectors(reader.io, reader.paths, reader.schema, task.vectors)
        )
        self._factory = FileWriterFactory.for_rewrite(
            reader, task.partition_bucket, (*task.inputs, *task.higher_level_files)
        )
        self._writers = list[RollingFileWriter]()

    def run(self) -> BucketCompactionResult:
        """Compact the bucket; on failure the written files are deleted."""
        with self:
            return self._compact()

    def delete_files(self) -> None:
        """Delete all files that were written."""
        for writer in self._writers:
            writer.delete_files()

    def _compact(self) -> BucketCompactionResult:
        task, reader = self._task, self._reader
        outcome = BucketCompactionResult(before=list(task.inputs))
        outcome.after += self._write_clustered_files()
        for file in task.standalone_files:
            self._vectors.drop(file.file_name)
        outcome.index = self._vectors.write(
            reader.io, reader.paths, self._schema, *task.partition_bucket
        )
        return outcome

    def _write_clustered_files(self) -> list[DataFileMeta]:
        groups, new_files = self._task.groups, self._sort_level0()
        if len(groups) != 1 or self._task.higher_level_files or not new_files:
            return [file for group in groups for file in self._merge(group)] + new_files
        # if all clustered files are merged, the new rows are merged with them
        temporary_writers = list(self._writers)
        merged_files = self._merge((*groups[0], *new_files))
        for writer in temporary_writers:
            writer.delete_files()
        return merged_files

    def _bucket_file(self, file: DataFileMeta) -> BucketFile:
        return BucketFile(*self._task.partition_bucket, file)

    def _create_writer(self) -> RollingFileWriter:
        writer = self._factory.writer(
            self._task.partition_bucket, level=CLUSTERED_LEVEL, source=FileSource.COMPACT
        )
        self._writers.append(writer)
        return writer

    def _sort_level0(self) -> list[DataFileMeta]:
        """Merge level 0 by key and sort its rows by the clustering columns, in bounded memory."""
        limit = self._schema.typed_options.get(WRITE_BUFFER_SIZE)
        runs = sort_oldest_first([[file] for file in self._task.files])
        run_rows = [sum(file.row_count for file in files) for files in runs]
        loads = self._reader.batch_sizes.plan_merge(run_rows)
        merging = [
            MergeRun(self._read_level0(files, load))
            for files, load in zip(runs, loads, strict=True)
        ]
        files: list[DataFileMeta] = []
        buffered: list[pa.Table] = []
        size = 0
        for step in merge_runs(merging, self._keys, self._engine.sequence):
            buffered.append(self._engine.merge(self._engine.prepare(step)))
            size += buffered[-1].nbytes
            if size >= limit:
                files += self._write_sorted(pa.concat_tables(buffered))
                buffered, size = [], 0
        return files + self._write_sorted(pa.concat_tables(buffered)) if buffered else files

    def _read_level0(
        self, files: Sequence[DataFileMeta], batch_rows: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        order = KeyOrderChecker(self._keys)
        for file in files:
            for rows in self._reader.read(
                self._bucket_file(file), self._fields, batch_rows=batch_rows
            ):
                order.check(file.file_name, rows)
                yield file.level, rows

    def _write_sorted(self, rows: pa.Table) -> list[DataFileMeta]:
        """Write rows with distinct keys in key order."""
        if rows.num_rows:
            exists_above = self._mark_older_rows(KeyColumns.of(rows, self._keys))
            if self._engine.is_first_row:
                rows = rows.filter(to_arrow_array(~exists_above))
            else:
                # the rows that retracts delete are already marked in deletion vectors
                rows = drop_retracts(rows)
        if not rows.num_rows:
            return []
        writer = self._create_writer()
        order, _ = KeyColumns.of(rows, self._columns).compute_order()
        writer.write(rows.take(to_arrow_array(order)))
        return writer.close()

    def _mark_older_rows(self, keys: KeyColumns) -> Mask:
        """Return which keys have an older row; delete those rows except in first-row tables."""
        exists = np.zeros(len(keys), bool)
        for file in (*self._task.higher_level_files, *self._task.standalone_files):
            vector = self._vectors.vectors.get(file.file_name)
            fields = self._schema.key_fields
            batches = list(
                self._reader.read(self._bucket_file(file), fields, vector, positions=True)
            )
            if not batches:
                continue
            rows = pa.Table.from_batches(batches)
            file_keys = KeyColumns.of(rows, self._keys)
            order, _ = file_keys.compute_order()
            key_indices, row_indices = keys.find(file_keys.take(order))
            exists[key_indices] = True
            if len(key_indices) and not self._engine.is_first_row:
                positions = to_numpy(rows.column(ROW_POSITION))[order[row_indices]]
                self._vectors.add({file.file_name: DeletionVector.of(np.sort(positions))})
        return exists

    def _merge(self, files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
        """Merge the live rows of files by the clustering columns."""
        runs = self._build_runs(files)
        run_rows = [sum(file.row_count for file in run) for run in runs]
        loads = self._reader.batch_sizes.plan_merge(run_rows)
        merging = [
            MergeRun(self._read_clustered(run, load)) for run, load in zip(runs, loads, strict=True)
        ]
        writer = self._create_writer()
        for step in merge_runs(merging, self._columns):
            rows = drop_retracts(step.rows.take(to_arrow_array(step.order)))
            if rows.num_rows:
                writer.write(rows)
        return writer.close()

    def _build_runs(self, files: Sequence[DataFileMeta]) -> list[list[DataFileMeta]]:
        """Return files as few sorted runs; a file with other clustering columns is its own run."""
        ranges, runs = list[RangedFile](), list[list[DataFileMeta]]()
        for file in files:
            if has_current_clustering(file, self._schema, self._reader.schemas):
                ranges.append(decode_clustering_range(file, self._schema))
            else:
                runs.append([file])
        return runs + build_level_runs(sorted(ranges, key=lambda item: item[:2]))

    def _read_clustered(
        self, files: Sequence[DataFileMeta], batch_rows: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        order = KeyOrderChecker(self._columns, ", ".join(self._columns))
        for file in files:
            vector = self._vectors.vectors.get(file.file_name)
            batches = self._reader.read(
                self._bucket_file(file), self._fields, vector, batch_rows=batch_rows
            )
            if not has_current_clustering(file, self._schema, self._reader.schemas):
                batches = self._sort_rows(batches)
            for rows in batches:
                order.check(file.file_name, rows)
                yield file.level, rows

    def _sort_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches)
        if rows.num_rows:
            order, _ = KeyColumns.of(rows, self._columns).compute_order()
            yield from rows.take(to_arrow_array(order)).combine_chunks().to_batches()
