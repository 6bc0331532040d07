"""Writes rows: splits them by bucket, buffers and sorts them, and flushes level-0 files.

See docs/format/data-files.md#order-and-sequence-numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.format.arrays import SignedIntArray
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.options.core_options import WRITE_BUFFER_SIZE
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.sort.sort_merge_reader import build_sorted_batch
from paimon_orch.table.write.bucket_routing import compute_row_buckets, split_by_bucket
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.dynamic_bucket import HashIndexWriter
from paimon_orch.table.write.merge_flushes import merge_flushes
from paimon_orch.table.write.postpone_bucket import PostponeBuckets, build_postpone_writer_factory


@dataclass(slots=True, kw_only=True)
class TableWriter:
    """Buffers rows per bucket and flushes them as sorted level-0 files, in bounded memory.

    Rows become visible when the message of :meth:`close` is committed.
    """

    factory: FileWriterFactory
    first_sequence: Mapping[PartitionBucket, int]
    """The next sequence number of each bucket that has files."""
    index: HashIndexWriter | None = None
    """Assigns the rows of tables with dynamic buckets."""
    is_overwrite: bool = False
    """Whether the rows replace partitions; an overwrite writes no changelog."""
    postponed: PostponeBuckets | None = None
    """The bucket counts of the partitions of tables with postpone buckets."""
    _buffers: dict[PartitionBucket, list[pa.Table]] = field(default_factory=dict)
    _buffered_bytes: int = 0
    _next_sequence: dict[PartitionBucket, int] = field(default_factory=dict)
    _writers: list[RollingFileWriter] = field(default_factory=list)
    _append_writers: dict[PartitionBucket, RollingFileWriter] = field(default_factory=dict)
    _flushes: dict[PartitionBucket, list[RollingFileWriter]] = field(default_factory=dict)
    _entries: list[ManifestEntry] = field(default_factory=list)
    _changelog: list[ManifestEntry] = field(default_factory=list)

    @property
    def _schema(self) -> TableSchema:
        return self.factory.schema

    def write(self, rows: pa.Table) -> None:
        """Write rows in the form of :func:`convert_rows`; the last row of a key wins.

        If the rows are not in their logical order, the column ``_SEQUENCE_NUMBER`` (int64, from 0)
        must define it.
        """
        is_assigned_here = self.index is not None or self.postponed is not None
        assign = self._assign_buckets if is_assigned_here else None
        for partition_bucket, group in split_by_bucket(rows, self._schema, assign):
            self.write_bucket(partition_bucket, group)

    def _assign_buckets(self, partition: bytes, rows: pa.Table) -> SignedIntArray:
        if self.postponed is None:
            assert self.index is not None
            return self.index.assign(partition, rows)
        count = self.postponed.count(partition)
        if count == POSTPONE_BUCKET:
            return np.full(rows.num_rows, POSTPONE_BUCKET)
        return compute_row_buckets(rows, self._schema, count)

    def write_bucket(self, partition_bucket: PartitionBucket, rows: pa.Table) -> None:
        """Write rows of one bucket; see :meth:`write`."""
        if not self._schema.primary_keys:
            self._get_append_writer(partition_bucket).write(rows)
            return
        rows = create_merge_engine(self._schema).drop_ignored_rows(rows)
        if not rows.num_rows:
            return
        if partition_bucket.bucket == POSTPONE_BUCKET:
            self._write_postponed(partition_bucket, rows)
        else:
            self._buffer_rows(partition_bucket, rows)

    def _buffer_rows(self, partition_bucket: PartitionBucket, rows: pa.Table) -> None:
        numbered = self._number_rows(
            partition_bucket, rows, self.first_sequence.get(partition_bucket, 0)
        )
        self._buffers.setdefault(partition_bucket, []).append(numbered)
        self._buffered_bytes += numbered.nbytes - numbered.column(0).nbytes
        if self._buffered_bytes >= self._schema.typed_options.get(WRITE_BUFFER_SIZE):
            self._flush()

    def _number_rows(
        self, partition_bucket: PartitionBucket, rows: pa.Table, first: int
    ) -> pa.Table:
        """Add ``_SEQUENCE_NUMBER``: ``first`` plus the given order, or consecutive numbers."""
        if SEQUENCE_NUMBER.name in rows.column_names:
            numbers = pc.add(rows.column(SEQUENCE_NUMBER.name), first)
            rows = rows.drop_columns(SEQUENCE_NUMBER.name)
        else:
            start = self._next_sequence.get(partition_bucket, first)
            self._next_sequence[partition_bucket] = start + rows.num_rows
            numbers = pa.array(np.arange(start, start + rows.num_rows))
        return rows.add_column(0, SEQUENCE_NUMBER.name, numbers)

    def _write_postponed(self, partition_bucket: PartitionBucket, rows: pa.Table) -> None:
        """Write rows unsorted and unmerged, numbered by their order within this writer."""
        if SEQUENCE_NUMBER.name in rows.column_names:
            raise UnsupportedError(
                "rows that are not in their logical order cannot be written to bucket-postpone: "
                "write them with Table.upsert, or set 'postpone.batch-write-fixed-bucket' = true "
                "and compact the postponed rows"
            )
        if partition_bucket not in self._append_writers:
            writer = build_postpone_writer_factory(self.factory).writer(*partition_bucket)
            self._append_writers[partition_bucket] = writer
            self._writers.append(writer)
        self._append_writers[partition_bucket].write(self._number_rows(partition_bucket, rows, 0))

    def _get_append_writer(self, partition_bucket: PartitionBucket) -> RollingFileWriter:
        if partition_bucket not in self._append_writers:
            first = self.first_sequence.get(partition_bucket, 0)
            self._append_writers[partition_bucket] = self.factory.writer(
                *partition_bucket, first_sequence=first
            )
            self._writers.append(self._append_writers[partition_bucket])
        return self._append_writers[partition_bucket]

    def _flush(self) -> None:
        """Sort and merge the buffered rows, and write them to level-0 files."""
        engine = create_merge_engine(self._schema)
        has_changelog = self._schema.typed_options.changelog_producer == "input"
        for partition_bucket, tables in self._buffers.items():
            rows = pa.concat_tables(tables)
            batch = build_sorted_batch(rows, self._schema.trimmed_primary_keys, engine.sequence)
            batch = engine.prepare(batch)
            self._write_data_file(partition_bucket, engine.merge(batch))
            if has_changelog and not self.is_overwrite:
                self._write_changelog(partition_bucket, batch.rows.take(pa.array(batch.order)))
        self._buffers.clear()
        self._buffered_bytes = 0

    def _write_data_file(self, partition_bucket: PartitionBucket, rows: pa.Table) -> None:
        writer = self.factory.writer(*partition_bucket)
        self._writers.append(writer)
        writer.write(rows)
        if self._schema.typed_options.has_snapshot_ordering:
            writer.close()
            self._flushes.setdefault(partition_bucket, []).append(writer)
        else:
            self._entries += self._close_writer(partition_bucket, writer)

    def _write_changelog(self, partition_bucket: PartitionBucket, rows: pa.Table) -> None:
        writer = self.factory.writer(*partition_bucket, changelog=True)
        self._writers.append(writer)
        writer.write(rows)
        self._changelog += self._close_writer(partition_bucket, writer)

    def _merge_flushes(self) -> None:
        """Add the files of each bucket, for snapshot ordering; merge flushes of the same bucket."""
        for partition_bucket, flushes in self._flushes.items():
            writer = flushes[0]
            if len(flushes) > 1:
                writer = self.factory.writer(*partition_bucket)
                self._writers.append(writer)
                merge_flushes(
                    self.factory, *partition_bucket, [flush.close() for flush in flushes], writer
                )
                for flush in flushes:
                    flush.abort()
            self._entries += self._close_writer(partition_bucket, writer)
        self._flushes.clear()

    def _close_writer(
        self, partition_bucket: PartitionBucket, writer: RollingFileWriter
    ) -> list[ManifestEntry]:
        partition, bucket = partition_bucket
        total = self._schema.typed_options.bucket
        if self.postponed is not None:
            total = self.postponed.count(partition)
        return [
            ManifestEntry(
                kind=FileKind.ADD,
                partition=partition,
                bucket=bucket,
                total_buckets=total,
                file=file,
            )
            for file in writer.close()
        ]

    def close(self) -> CommitMessage:
        """Write the buffered rows and the changed hash indexes; return the files to commit."""
        self._flush()
        self._merge_flushes()
        for partition_bucket, writer in self._append_writers.items():
            self._entries += self._close_writer(partition_bucket, writer)
        return CommitMessage(
            entries=tuple(self._entries),
            index=() if self.index is None else tuple(self.index.close()),
            changelog=tuple(self._changelog),
        )

    def abort(self) -> None:
        """Delete all files that were written."""
        for writer in self._writers:
            writer.abort()
        if self.index is not None:
            self.index.abort()
