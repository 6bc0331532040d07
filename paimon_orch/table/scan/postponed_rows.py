"""Reads the postponed rows of a bucket, for ``postpone.merge-on-read``."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.bucket.bucket_function import compute_buckets
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.engine.merge_engine import MergeEngine
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.write.postpone_bucket import check_postpone_options

_FIRST_POSTPONED_SEQUENCE = 1 << 62  # above every sequence number in a bucket


def read_postponed_rows(
    reader: FileReader, split: BucketSplit, engine: MergeEngine, fields: Sequence[Field]
) -> pa.Table:
    """Return the postponed rows of a bucket in order, numbered after all its rows."""
    check_postpone_options(reader.schema)
    columns, key = [VALUE_KIND, *fields], reader.schema.bucket_key_fields
    parts = []
    for file in split.waiting:
        for batch in reader.read(BucketFile(split.partition, POSTPONE_BUCKET, file), columns):
            numbers = compute_buckets(
                [batch.column(field.name) for field in key],
                [field.type for field in key],
                split.total_buckets,
            )
            parts.append(batch.filter(pa.array(numbers == split.bucket)))
    stored = pa.Table.from_batches(parts) if parts else to_arrow_schema(columns).empty_table()
    rows = engine.accepted(stored)
    order = np.arange(_FIRST_POSTPONED_SEQUENCE, _FIRST_POSTPONED_SEQUENCE + rows.num_rows)
    return rows.add_column(0, SEQUENCE_NUMBER.name, pa.array(order, pa.int64()))
