"""Writing rows that keep their ids: rewritten files beside new ones.

See docs/format/row-tracking.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.files.row_tracking import ROW_ID, ROW_SEQUENCE_NUMBER
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import FileKind, FileSource, ManifestEntry
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.table_write import conform_rows, split_by_bucket


@dataclass(slots=True)
class RowTrackingWriter:
    """Writes rows of a table with row tracking: those with an id into files that hold it, others into new files."""

    factory: FileWriterFactory
    _writers: dict[tuple[PartitionBucket, FileSource], RollingFileWriter] = field(
        default_factory=dict
    )

    def write(self, rows: pa.Table) -> None:
        """Take rows with ``_ROW_ID``, null for new rows; without ``_SEQUENCE_NUMBER`` they count as changed.

        Rows that are not even changed keep their nulls where columns have defaults by now.
        """
        schema = self.factory.schema
        are_new = ROW_SEQUENCE_NUMBER.name not in rows.column_names
        conformed = conform_rows(rows.select(schema.names), schema, are_new=are_new)
        unknown = pa.nulls(rows.num_rows, pa.int64())
        for column in (ROW_ID, ROW_SEQUENCE_NUMBER):
            given = column.name in rows.column_names
            values = rows.column(column.name) if given else unknown
            conformed = conformed.append_column(column.name, values)
        known = pc.is_valid(conformed.column(ROW_ID.name))
        for at, kept in split_by_bucket(conformed.filter(known), schema):
            self._writer(at, FileSource.COMPACT).write(kept)
        new = conformed.filter(pc.invert(known)).select(schema.names)
        for at, added in split_by_bucket(new, schema):
            self._writer(at, FileSource.APPEND).write(added)

    def _writer(self, at: PartitionBucket, source: FileSource) -> RollingFileWriter:
        if (at, source) not in self._writers:
            self._writers[at, source] = self.factory.writer(*at, source=source)
        return self._writers[at, source]

    def close(self) -> list[ManifestEntry]:
        """Finish the files and return an ADD entry for each."""
        total = self.factory.schema.typed_options.bucket
        return [
            ManifestEntry(
                kind=FileKind.ADD,
                partition=partition,
                bucket=bucket,
                total_buckets=total,
                file=file,
            )
            for ((partition, bucket), _), writer in self._writers.items()
            for file in writer.close()
        ]

    def abort(self) -> None:
        """Remove every file that was written."""
        for writer in self._writers.values():
            writer.abort()


def write_tracked_rows(factory: FileWriterFactory, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Write a task's rows and return an encoded :class:`CommitMessage`."""
    writer = RowTrackingWriter(factory)
    try:
        for batch in batches:
            writer.write(pa.Table.from_batches([batch]))
        return CommitMessage(entries=tuple(writer.close())).encode()
    except BaseException:
        writer.abort()
        raise
