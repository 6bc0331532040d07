"""Writes rows: splits them by bucket, buffers and sorts them, and flushes level-0 files.

See docs/format/data-files.md#order-and-sequence-numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.blob.blob_writer import BlobRowWriter, open_blob_row_writer
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.files.uncommitted_files import UncommittedFiles
from paimon_orch.format.arrays import SignedIntArray, to_arrow_array
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry, build_entries
from paimon_orch.format.options.core_options import WRITE_BUFFER_SIZE
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.format.types.data_types import is_blob
from paimon_orch.merge.engine.merge_engine import MergeEngine, create_merge_engine
from paimon_orch.merge.sort.sort_merge_reader import build_sorted_batch
from paimon_orch.table.write.bucket_routing import (
    compute_row_buckets,
    serialize_partitions,
    split_by_bucket,
)
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.dynamic_bucket import HashIndexWriter
from paimon_orch.table.write.merge_flushes import merge_flushes
from paimon_orch.table.write.next_sequences import PartitionSequences
from paimon_orch.table.write.postpone_bucket import build_postpone_writer_factory
from paimon_orch.table.write.write_plan import WritePlan

RowWriter = RollingFileWriter | BlobRowWriter


def write_rows(plan: WritePlan, parts: Iterable[pa.Table]) -> CommitMessage:
    """Write converted rows; after an error, delete the new files.

    In a table with dynamic or postpone buckets, one call must receive all rows of a partition.
    """
    with TableWriter(plan) as writer:
        for rows in parts:
            writer.write(rows)
        return writer.close()


@dataclass(slots=True)
class TableWriter(UncommittedFiles):
    """Buffers rows per bucket and flushes them as sorted level-0 files, in bounded memory.

    Rows become visible when the message of :meth:`close` is committed. An error in the ``with``
    block deletes the files.
    """

    plan: WritePlan
    _index: HashIndexWriter | None = field(init=False)
    """Assigns the rows of tables with dynamic buckets."""
    _engine: MergeEngine = field(init=False)
    _buffers: dict[PartitionBucket, list[pa.Table]] = field(default_factory=dict)
    _buffered_bytes: int = 0
    _next_sequence: dict[PartitionBucket, int] = field(default_factory=dict)
    _writers: list[RowWriter] = field(default_factory=list)
    _append_writers: dict[PartitionBucket, RowWriter] = field(default_factory=dict)
    _flushes: dict[PartitionBucket, list[RollingFileWriter]] = field(default_factory=dict)
    _entries: list[ManifestEntry] = field(default_factory=list)
    _changelog: list[ManifestEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._index = None if self.plan.hashes is None else HashIndexWriter(self.plan.hashes)
        self._engine = create_merge_engine(self._schema)

    @property
    def _schema(self) -> TableSchema:
        return self.plan.schema

    def write(self, rows: pa.Table) -> None:
        """Write rows in the form of :func:`convert_rows`; the last row of a key wins.

        If the rows are not in their logical order, the column ``_SEQUENCE_NUMBER`` (int64, from 0)
        must define it.
        """
        sequences = self.plan.first_sequence
        if isinstance(sequences, PartitionSequences):
            sequences.read(serialize_partitions(rows, self._schema))
        is_assigned_here = self._index is not None or self.plan.postponed is not None
        assign = self._assign_buckets if is_assigned_here else None
        for partition_bucket, group in split_by_bucket(rows, self._schema, assign):
            self.write_bucket(partition_bucket, group)

    def _assign_buckets(self, partition: bytes, rows: pa.Table) -> SignedIntArray:
        if self.plan.postponed is None:
            assert self._index is not None
            return self._index.assign(partition, rows)
        count = self.plan.postponed.count(partition)
        if count == POSTPONE_BUCKET:
            return np.full(rows.num_rows, POSTPONE_BUCKET)
        return compute_row_buckets(rows, self._schema, count)

    def write_bucket(self, partition_bucket: PartitionBucket, rows: pa.Table) -> None:
        """Write rows of one bucket; see :meth:`write`."""
        if not self._schema.primary_keys:
            self._get_append_writer(partition_bucket).write(rows)
            return
        rows = self._engine.drop_ignored_rows(rows)
        if not rows.num_rows:
            return
        numbered = self._number_rows(partition_bucket, rows)
        if partition_bucket.bucket == POSTPONE_BUCKET:  # these rows are neither sorted nor merged
            self._get_append_writer(partition_bucket).write(numbered)
            return
        self._buffers.setdefault(partition_bucket, []).append(numbered)
        self._buffered_bytes += numbered.nbytes - numbered.column(0).nbytes
        if self._buffered_bytes >= self._schema.typed_options.get(WRITE_BUFFER_SIZE):
            self._flush()

    def _number_rows(self, partition_bucket: PartitionBucket, rows: pa.Table) -> pa.Table:
        """Add ``_SEQUENCE_NUMBER``: the bucket's first number plus the given order, or consecutive.

        In a postpone bucket, numbers start at 0 in each writer.
        """
        is_postponed = partition_bucket.bucket == POSTPONE_BUCKET
        first = 0 if is_postponed else self.plan.first_sequence.get(partition_bucket, 0)
        if SEQUENCE_NUMBER.name in rows.column_names:
            if is_postponed:
                raise UnsupportedError(
                    "rows that are not in their logical order cannot be written to "
                    "bucket-postpone: write them with Table.upsert, or set "
                    "'postpone.batch-write-fixed-bucket' = true and compact the postponed rows"
                )
            numbers = pc.add(rows.column(SEQUENCE_NUMBER.name), first)
            rows = rows.drop_columns(SEQUENCE_NUMBER.name)
        else:
            start = self._next_sequence.get(partition_bucket, first)
            self._next_sequence[partition_bucket] = start + rows.num_rows
            numbers = to_arrow_array(np.arange(start, start + rows.num_rows))
        return rows.add_column(0, SEQUENCE_NUMBER.name, numbers)

    def _get_append_writer(self, partition_bucket: PartitionBucket) -> RowWriter:
        if partition_bucket not in self._append_writers:
            if any(is_blob(field.type) for field in self._schema.fields):
                blob_writer = open_blob_row_writer(self.plan.factory, partition_bucket)
                self._writers.append(blob_writer)
                self._append_writers[partition_bucket] = blob_writer
                return blob_writer
            factory, first = self.plan.factory, self.plan.first_sequence.get(partition_bucket, 0)
            if partition_bucket.bucket == POSTPONE_BUCKET:
                factory = build_postpone_writer_factory(factory)
            self._append_writers[partition_bucket] = self._open_writer(
                partition_bucket, factory, first_sequence=first
            )
        return self._append_writers[partition_bucket]

    def _open_writer(
        self,
        partition_bucket: PartitionBucket,
        factory: FileWriterFactory | None = None,
        *,
        first_sequence: int = 0,
        changelog: bool = False,
    ) -> RollingFileWriter:
        writer = (factory or self.plan.factory).writer(
            partition_bucket, first_sequence=first_sequence, changelog=changelog
        )
        self._writers.append(writer)
        return writer

    def _flush(self) -> None:
        """Sort and merge the buffered rows, and write level-0 files, usually one per bucket."""
        engine, options = self._engine, self._schema.typed_options
        has_changelog = options.changelog_producer == "input" and not self.plan.is_overwrite
        for partition_bucket, tables in self._buffers.items():
            rows = pa.concat_tables(tables)
            batch = build_sorted_batch(rows, self._schema.trimmed_primary_keys, engine.sequence)
            writer = self._open_writer(partition_bucket)
            # No call of prepare is needed, because all rows are new and accepted.
            writer.write(engine.merge(batch))
            if options.has_snapshot_ordering:
                writer.close()
                self._flushes.setdefault(partition_bucket, []).append(writer)
            else:
                self._entries += self._close_writer(partition_bucket, writer)
            if has_changelog:
                writer = self._open_writer(partition_bucket, changelog=True)
                writer.write(batch.rows.take(to_arrow_array(batch.order)))
                self._changelog += self._close_writer(partition_bucket, writer)
        self._buffers.clear()
        self._buffered_bytes = 0

    def _merge_flushes(self) -> None:
        """Add the files of each bucket, for snapshot ordering; merge flushes of the same bucket."""
        for partition_bucket, flushes in self._flushes.items():
            writer = flushes[0]
            if len(flushes) > 1:
                writer = self._open_writer(partition_bucket)
                files = [flush.close() for flush in flushes]
                merge_flushes(self.plan.factory, partition_bucket, files, writer)
                for flush in flushes:
                    flush.delete_files()
            self._entries += self._close_writer(partition_bucket, writer)
        self._flushes.clear()

    def _close_writer(
        self, partition_bucket: PartitionBucket, writer: RowWriter
    ) -> Iterable[ManifestEntry]:
        total = self._schema.typed_options.bucket
        if self.plan.postponed is not None:
            total = self.plan.postponed.count(partition_bucket.partition)
        return build_entries(FileKind.ADD, partition_bucket, total, writer.close())

    def close(self) -> CommitMessage:
        """Write the buffered rows and the changed hash indexes; return the files to commit."""
        self._flush()
        self._merge_flushes()
        for partition_bucket, writer in self._append_writers.items():
            self._entries += self._close_writer(partition_bucket, writer)
        return CommitMessage(
            entries=tuple(self._entries),
            index=() if self._index is None else tuple(self._index.close()),
            changelog=tuple(self._changelog),
        )

    def delete_files(self) -> None:
        """Delete all files that were written."""
        for writer in self._writers:
            writer.delete_files()
        if self._index is not None:
            self._index.delete_files()
