"""Copies the rows of data files to new files, without deleted rows."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.files.row_group_copier import RowGroupCopier
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.storage.recent_inputs import iterate_ahead


def copy_rows(
    reader: FileReader,
    bucket_id: PartitionBucket,
    files: Sequence[DataFileMeta],
    *,
    deletions: Mapping[str, DeletionVector],
    source: FileSource,
    written: ExitStack,
) -> list[DataFileMeta]:
    """Copy the rows that are not deleted to new files, in the same order; return the new files.

    The new files have the same position in the row order of the bucket. Files without deleted rows
    are not decoded if their row groups can be copied.

    :param deletions: deletion vectors by file name
    :param written: receives the writer, which deletes the files if the caller fails
    """
    factory = FileWriterFactory.for_rewrite(reader, bucket_id, files)
    first_sequence = files[0].min_sequence_number
    writer = written.enter_context(
        factory.writer(bucket_id, source=source, first_sequence=first_sequence)
    )
    tracking = row_tracking_fields(reader.schema) if source is FileSource.COMPACT else ()
    fields = [*reader.schema.fields, *tracking]
    copier = RowGroupCopier(reader, writer)
    bucket_files = [BucketFile(*bucket_id, file) for file in files]
    for bucket_file in iterate_ahead(bucket_files, reader.open_ahead):
        deleted = deletions.get(bucket_file.file.file_name)
        if copier.copy(bucket_file, deleted):
            continue
        for batch in reader.read(bucket_file, fields, deleted):
            writer.write(pa.Table.from_batches([batch]))
    return writer.close()
