"""Merges the flushes of a writer in a bucket, so that a commit adds each key only once."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.sort.sort_merge_reader import MergeRun, merge_runs


def merge_flushes(
    factory: FileWriterFactory,
    partition_bucket: PartitionBucket,
    flushes: Sequence[Sequence[DataFileMeta]],
    writer: RollingFileWriter,
) -> None:
    """Merge flushes, oldest first, and write the rows to ``writer``; a flush is one sorted run.

    With ``sequence.snapshot-ordering``, all rows of a commit get the same sequence number, so
    readers could not order two rows with the same key. The flushed files still have the sequence
    numbers of the writer.
    """
    options = {k: v for k, v in factory.schema.options.items() if k != "sequence.snapshot-ordering"}
    schema = replace(factory.schema, options=options)
    sizes = factory.batch_sizes
    reader = FileReader(factory.io, factory.paths, schema, {schema.id: schema}, batch_sizes=sizes)
    engine, fields = create_merge_engine(schema), [*SYSTEM_FIELDS, *schema.fields]
    loads = sizes.plan_merge([sum(file.row_count for file in files) for files in flushes])
    runs = [
        MergeRun(
            (0, batch)
            for file in files
            for batch in reader.read(BucketFile(*partition_bucket, file), fields, batch_rows=load)
        )
        for files, load in zip(flushes, loads, strict=True)
    ]
    for step in merge_runs(runs, schema.trimmed_primary_keys, engine.sequence):
        rows: pa.Table = engine.merge(engine.prepare(step))
        if rows.num_rows:
            writer.write(rows)
