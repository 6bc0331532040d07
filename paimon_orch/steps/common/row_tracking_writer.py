"""Writes rows with and without row ids to separate files, for tables with row tracking.

See docs/format/row-tracking.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.files.row_tracking import ROW_ID, ROW_SEQUENCE_NUMBER
from paimon_orch.files.uncommitted_files import UncommittedFiles
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import (
    FileKind,
    FileSource,
    ManifestEntry,
    build_entries,
)
from paimon_orch.table.write.bucket_routing import split_by_bucket
from paimon_orch.table.write.commit_message import CommitMessage


@dataclass(slots=True)
class RowTrackingWriter(UncommittedFiles):
    """Writes rows with an id to files with a row id column, and other rows to plain files.

    An error in the ``with`` block deletes the files.
    """

    factory: FileWriterFactory
    _writers: dict[tuple[PartitionBucket, FileSource], RollingFileWriter] = field(
        default_factory=dict
    )

    def write(self, rows: pa.Table) -> None:
        """Write converted rows with the column ``_ROW_ID``, which is null for new rows.

        Rows without the column ``_SEQUENCE_NUMBER`` count as changed.
        """
        schema = self.factory.schema
        for column in (ROW_ID, ROW_SEQUENCE_NUMBER):
            if column.name not in rows.column_names:
                rows = rows.append_column(column.name, pa.nulls(rows.num_rows, pa.int64()))
        has_id = pc.is_valid(rows.column(ROW_ID.name))
        for bucket_id, rewritten in split_by_bucket(rows.filter(has_id), schema):
            self._get_writer(bucket_id, FileSource.COMPACT).write(rewritten)
        for bucket_id, added in split_by_bucket(rows.filter(pc.invert(has_id)), schema):
            self._get_writer(bucket_id, FileSource.APPEND).write(added.select(schema.names))

    def _get_writer(self, bucket_id: PartitionBucket, source: FileSource) -> RollingFileWriter:
        key = (bucket_id, source)
        if key not in self._writers:
            self._writers[key] = self.factory.writer(bucket_id, source=source)
        return self._writers[key]

    def close(self) -> list[ManifestEntry]:
        """Finish the files and return an ADD entry for each file."""
        total = self.factory.schema.typed_options.bucket
        return [
            entry
            for (bucket_id, _), writer in self._writers.items()
            for entry in build_entries(FileKind.ADD, bucket_id, total, writer.close())
        ]

    def delete_files(self) -> None:
        """Delete all files that were written."""
        for writer in self._writers.values():
            writer.delete_files()


def write_tracked_rows(factory: FileWriterFactory, parts: Iterable[pa.Table]) -> CommitMessage:
    """Write converted rows; after an error, delete the new files."""
    with RowTrackingWriter(factory) as writer:
        for rows in parts:
            writer.write(rows)
        return CommitMessage(entries=tuple(writer.close()))
