"""Computes the partition and bucket of rows, and splits rows by partition and bucket.

See docs/format/buckets.md.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.format.arrays import Int64Array, SignedIntArray, to_arrow_array, to_numpy
from paimon_orch.format.bucket.bucket_function import compute_buckets
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.options.core_options import BUCKET_FUNCTION_TYPE
from paimon_orch.format.row.binary_row import EMPTY_ROW, serialize_row
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.write.dynamic_bucket import has_dynamic_buckets
from paimon_orch.table.write.postpone_bucket import check_postpone_options, has_postpone_buckets

AssignBuckets = Callable[[bytes, pa.Table], SignedIntArray]
"""A function of a serialized partition and its rows that returns the bucket of each row."""

BUCKET_COLUMN = "__paimon_bucket"
"""The column (int32) with the bucket of each row, if the bucket depends only on the row."""


def check_writable(schema: TableSchema) -> None:
    """Raise :class:`UnsupportedError` for tables whose rows cannot be assigned to buckets."""
    if has_postpone_buckets(schema):
        check_postpone_options(schema)
    has_dynamic_buckets(schema)


def add_bucket_column(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Add the bucket of each row, unless the writer assigns buckets (dynamic, postpone).

    ``rows`` must have the table's types. The bucket is 0 in append tables without buckets.
    """
    if has_dynamic_buckets(schema) or has_postpone_buckets(schema):
        return rows
    count = schema.typed_options.bucket
    if count > 0:
        buckets = compute_row_buckets(rows, schema, count)
    else:
        buckets = np.zeros(rows.num_rows, np.int32)
    return rows.append_column(BUCKET_COLUMN, to_arrow_array(buckets))


def compute_row_buckets(rows: pa.Table, schema: TableSchema, count: int) -> SignedIntArray:
    """Return the bucket of each row by its bucket key, for a table with ``count`` buckets."""
    fields = schema.bucket_key_fields
    keys = [rows.column(field.name).combine_chunks() for field in fields]
    function = schema.typed_options.get(BUCKET_FUNCTION_TYPE)
    return compute_buckets(keys, [field.type for field in fields], count, function)


def split_by_bucket(
    rows: pa.Table, schema: TableSchema, assign: AssignBuckets | None = None
) -> Iterator[tuple[PartitionBucket, pa.Table]]:
    """Yield the rows by partition and bucket; rows without a bucket column require ``assign``."""
    if not rows.num_rows:
        return
    codes = _compute_partition_codes(rows, schema)
    if assign is None:
        buckets = to_numpy(rows.column(BUCKET_COLUMN))
        rows = rows.drop_columns(BUCKET_COLUMN)
        codes = codes * (int(buckets.max()) + 1) + buckets
        for first, group in _group_by_code(rows, codes):
            yield PartitionBucket(serialize_partition(group, schema), int(buckets[first])), group
        return
    for _, partition_rows in _group_by_code(rows, codes):
        partition = serialize_partition(partition_rows, schema)
        buckets = assign(partition, partition_rows)
        for first, group in _group_by_code(partition_rows, buckets):
            yield PartitionBucket(partition, int(buckets[first])), group


def _compute_partition_codes(rows: pa.Table, schema: TableSchema) -> Int64Array:
    """Return a number for each row; rows of the same partition have the same number."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in schema.partition_keys:
        encoded = rows.column(name).combine_chunks().dictionary_encode()
        # Null is a separate partition.
        indices = to_numpy(encoded.indices, null=len(encoded.dictionary))
        codes = codes * (len(encoded.dictionary) + 1) + indices
    return codes


def _group_by_code(rows: pa.Table, codes: SignedIntArray) -> Iterator[tuple[int, pa.Table]]:
    """Yield each code's first position and its rows, in order; leaves out rows with code -1."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        is_only_group = end - start == len(order)
        group = rows if is_only_group else rows.take(to_arrow_array(order[start:end]))
        yield int(order[start]), group


def serialize_partitions(rows: pa.Table, schema: TableSchema) -> set[bytes]:
    """Return the serialized partitions of rows."""
    if not rows.num_rows:
        return set()
    groups = _group_by_code(rows, _compute_partition_codes(rows, schema))
    return {serialize_partition(group, schema) for _, group in groups}


def serialize_partition(rows: pa.Table, schema: TableSchema) -> bytes:
    """Return the serialized partition of rows of the same partition."""
    fields = schema.partition_fields
    if not fields:
        return EMPTY_ROW
    values = [to_internal_value(rows.column(field.name)[0]) for field in fields]
    return serialize_row(values, [field.type for field in fields])
