"""Bucket functions: murmur3 over BinaryRow bytes, mod and hive.

All functions take whole Arrow columns.

See docs/format/buckets.md.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Int32Array, Int64Array, to_numpy
from paimon_orch.format.bucket.bucket_key_encoder import VariableLengthRows, encode_rows
from paimon_orch.format.bucket.hive_hash import hash_rows_hive
from paimon_orch.format.bytes.murmur3 import hash_fixed_rows, hash_variable_rows
from paimon_orch.format.types.data_types import AtomicType, DataType, Field, TypeRoot

_CHUNK = 32_768  # rows per step; the data of larger steps does not fit the processor cache


def hash_rows(columns: Sequence[pa.Array], types: Sequence[DataType]) -> Int32Array:
    """Return the murmur hash of each row's BinaryRow, for columns of equal length."""
    if not columns:
        raise InputError("a bucket needs at least one key column")
    length = len(columns[0])
    parts = [
        _hash_chunk([column.slice(start, _CHUNK) for column in columns], types)
        for start in range(0, length, _CHUNK)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def compute_default_buckets(hashes: Int32Array, count: int) -> Int32Array:
    """Return ``abs(hash % count)`` with Java's truncated remainder."""
    return np.abs(np.fmod(hashes.astype(np.int64), count)).astype(np.int32)


def compute_buckets(
    columns: Sequence[pa.Array], types: Sequence[DataType], count: int, function: str = "default"
) -> Int32Array:
    """Return the bucket of each row by ``bucket-function.type``: default, mod or hive."""
    if function == "default":
        return compute_default_buckets(hash_rows(columns, types), count)
    if function == "mod":
        (column,), (kind,) = columns, types
        if not isinstance(kind, AtomicType) or kind.name not in (TypeRoot.INT, TypeRoot.BIGINT):
            raise InputError(
                "'bucket-function.type' = 'mod' needs one bucket key of type INT or BIGINT"
            )
        if column.null_count:
            raise InputError("'bucket-function.type' = 'mod' does not support null bucket keys")
        values: Int64Array = to_numpy(column.cast(pa.int64()))
        return np.mod(values, count).astype(np.int32)
    if function == "hive":
        positive = hash_rows_hive(columns, types) & np.uint32(0x7FFFFFFF)
        return (positive % np.uint32(count)).astype(np.int32)
    raise InputError(
        f"option 'bucket-function.type' = {function!r} is unknown; use default, mod or hive"
    )


def build_bucket_key_signature(fields: Sequence[Field]) -> list[tuple[int, object]]:
    """Return a signature; bucket keys with equal signatures hash equal values equally."""
    return [(field.id, _build_type_signature(field.type)) for field in fields]


def _build_type_signature(data_type: DataType) -> object:
    if isinstance(data_type, AtomicType) and data_type.name in (
        TypeRoot.VARCHAR,
        TypeRoot.VARBINARY,
    ):
        return data_type.name  # the length of the type does not change the hash
    return data_type.with_nullable(True)


def _hash_chunk(columns: Sequence[pa.Array], types: Sequence[DataType]) -> Int32Array:
    rows = encode_rows(columns, types)
    if isinstance(rows, VariableLengthRows):
        return hash_variable_rows(*rows).view(np.int32)
    return hash_fixed_rows(rows).view(np.int32)
