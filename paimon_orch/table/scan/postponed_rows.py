"""Reads postponed rows with the rows of their buckets, for ``postpone.merge-on-read``.

See docs/format/postpone-buckets.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.arrays import to_arrow_array
from paimon_orch.format.bucket.bucket_function import compute_buckets
from paimon_orch.format.options.core_options import POSTPONE_MERGE_ON_READ
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.engine.merge_engine import MergeEngine
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.write.postpone_bucket import (
    check_postpone_options,
    compute_bucket_count,
    has_postpone_buckets,
    sort_postponed_files,
)

_FIRST_POSTPONED_SEQUENCE = 1 << 62  # every sequence number in a bucket is lower


def should_merge_postponed(schema: TableSchema) -> bool:
    """Return whether batch readers merge postponed rows (``postpone.merge-on-read``)."""
    return schema.typed_options.get(POSTPONE_MERGE_ON_READ) and has_postpone_buckets(schema)


def add_postponed_files(
    splits: Iterable[BucketSplit], live_splits: Iterable[BucketSplit], schema: TableSchema
) -> list[BucketSplit]:
    """Return the splits to read, with postponed files; ``live_splits`` have all live files."""
    by_bucket = {split.partition_bucket: split for split in splits if split.bucket >= 0}
    live_splits = list(live_splits)
    counts = {split.partition: split.total_buckets for split in live_splits if split.bucket >= 0}
    for split in live_splits:
        if split.bucket != POSTPONE_BUCKET:
            continue
        count = counts.get(split.partition) or compute_bucket_count(schema, split.row_count)
        postponed_files = tuple(sort_postponed_files(split.files))
        for bucket in range(count):
            empty = BucketSplit(
                partition=split.partition, bucket=bucket, total_buckets=count, files=()
            )
            split_to_read = by_bucket.get(empty.partition_bucket, empty)
            by_bucket[empty.partition_bucket] = replace(
                split_to_read, postponed_files=postponed_files
            )
    return list(by_bucket.values())


def read_postponed_rows(
    reader: FileReader, split: BucketSplit, engine: MergeEngine, fields: Sequence[Field]
) -> pa.Table:
    """Return the postponed rows of a bucket, with sequence numbers above those of the bucket."""
    check_postpone_options(reader.schema)
    columns, key = [VALUE_KIND, *fields], reader.schema.bucket_key_fields
    parts = []
    for file in split.postponed_files:
        for batch in reader.read(BucketFile(split.partition, POSTPONE_BUCKET, file), columns):
            numbers = compute_buckets(
                [batch.column(field.name) for field in key],
                [field.type for field in key],
                split.total_buckets,
            )
            parts.append(batch.filter(to_arrow_array(numbers == split.bucket)))
    postponed = pa.Table.from_batches(parts) if parts else to_arrow_schema(columns).empty_table()
    rows = engine.drop_ignored_rows(postponed)
    order = np.arange(_FIRST_POSTPONED_SEQUENCE, _FIRST_POSTPONED_SEQUENCE + rows.num_rows)
    return rows.add_column(0, SEQUENCE_NUMBER.name, pa.array(order, pa.int64()))
