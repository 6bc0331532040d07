"""Copies the rows of data files to new files, without deleted rows."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource


def copy_rows(
    reader: FileReader,
    bucket_id: PartitionBucket,
    files: Sequence[DataFileMeta],
    *,
    deletions: Mapping[str, DeletionVector],
    source: FileSource,
    writers: list[RollingFileWriter],
) -> list[DataFileMeta]:
    """Copy the rows that are not deleted to new files, in the same order; return the new files.

    The new files have the same position in the row order of the bucket.

    :param deletions: deletion vectors by file name
    :param writers: receives the writer; the caller must abort it after an error
    """
    factory = FileWriterFactory.for_rewrite(reader, *bucket_id, files)
    first_sequence = files[0].min_sequence_number
    writer = factory.writer(*bucket_id, source=source, first_sequence=first_sequence)
    writers.append(writer)
    tracking = row_tracking_fields(reader.schema) if source is FileSource.COMPACT else ()
    fields = [*reader.schema.fields, *tracking]
    for file in files:
        deleted = deletions.get(file.file_name)
        for batch in reader.read(BucketFile(*bucket_id, file), fields, deleted):
            writer.write(pa.Table.from_batches([batch]))
    return writer.close()
