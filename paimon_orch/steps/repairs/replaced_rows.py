"""Puts rows aside that a repair replaces by newer rows of their keys, as Parquet files.

The files are in a dated folder of the table's quarantine, which engines ignore.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.steps.cleanup.quarantine import Quarantine

FILE_COLUMN = "_FILE"
"""The column with the name of the data file of a row."""


def read_replaced_rows(
    reader: FileReader,
    bucket: PartitionBucket,
    files: Sequence[DataFileMeta],
    positions: Mapping[str, DeletionVector],
) -> Iterator[pa.Table]:
    """Yield the rows at some positions of data files."""
    fields = [*SYSTEM_FIELDS, *reader.schema.fields]
    for file in files:
        if file.file_name not in positions:
            continue
        rows = positions[file.file_name].positions()
        for batch in reader.read(BucketFile(*bucket, file, rows=rows), fields):
            names = pa.array([file.file_name] * batch.num_rows, pa.string())
            yield pa.Table.from_batches([batch]).append_column(FILE_COLUMN, names)


def put_rows_aside(
    quarantine: Quarantine, folder: str, name: str, parts: Iterator[pa.Table]
) -> int:
    """Write rows to a Parquet file of the quarantine; return their number.

    Writes no file if there are no rows.
    """
    first = next(parts, None)
    if first is None:
        return 0
    count = 0
    with (
        quarantine.open_rows(folder, name) as sink,
        pq.ParquetWriter(sink, first.schema) as writer,
    ):
        for part in (first, *parts):
            writer.write_table(part)
            count += part.num_rows
    return count
