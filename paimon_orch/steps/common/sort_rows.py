"""Sorts the rows of data files into new files of one level, without deleted rows."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.format.options.core_options import LOCAL_SORT_MAX_FILES, WRITE_BUFFER_SIZE
from paimon_orch.merge.sort.cluster_order import ClusterOrder
from paimon_orch.merge.sort.external_sort import ExternalSort

# With 32 MB, a worker process needs 400 MB, which LocalExecutor allows; with 256 MB, 900 MB. The
# CPU time is the same.
_MAX_BUFFER_SIZE = 32 << 20


def sort_rows(
    reader: FileReader,
    bucket_id: PartitionBucket,
    files: Sequence[DataFileMeta],
    *,
    order: ClusterOrder,
    level: int,
    deletions: Mapping[str, DeletionVector],
    written: ExitStack,
) -> list[DataFileMeta]:
    """Write the rows that are not deleted to new files of a level, sorted; return the new files.

    Rows of more than 32 MB, or ``write-buffer-size`` if this is less, are sorted with temporary
    files.

    :param deletions: deletion vectors by file name
    :param written: receives the writer, which deletes the files if the caller fails
    """
    factory = FileWriterFactory.for_rewrite(reader, bucket_id, files)
    writer = written.enter_context(
        factory.writer(
            bucket_id,
            level=level,
            source=FileSource.COMPACT,
            first_sequence=min(file.min_sequence_number for file in files),
        )
    )
    fields = [*reader.schema.fields, *row_tracking_fields(reader.schema)]
    options = reader.schema.typed_options
    with ExternalSort(
        order.key_names,
        memory=min(_MAX_BUFFER_SIZE, options.get(WRITE_BUFFER_SIZE)),
        total_rows=sum(file.row_count for file in files),
        max_runs=options.get(LOCAL_SORT_MAX_FILES),
    ) as sort:
        for file in files:
            deleted = deletions.get(file.file_name)
            for batch in reader.read(BucketFile(*bucket_id, file), fields, deleted):
                sort.add(order.add_keys(pa.Table.from_batches([batch])))
        for rows in sort.read():
            writer.write(order.drop_keys(rows))
    return writer.close()
