"""Selects manifest entries by bucket, if equality conditions determine the bucket key.

See docs/format/scan.md.
"""

from collections.abc import Sequence
from itertools import product

import pyarrow as pa

from paimon_orch.errors import CorruptFileError, InputError
from paimon_orch.files.stats.file_stats import SchemaLookup
from paimon_orch.format.bucket.bucket_function import build_bucket_key_signature, compute_buckets
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options.core_options import BUCKET_FUNCTION_TYPE
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot
from paimon_orch.format.types.predicate import And, Leaf, Operator, Or, Predicate

_MAX_BUCKET_KEYS = 1_000  # above this number, hashing costs more than it saves
_MAX_HASHABLE_PRECISIONS = {TypeRoot.DECIMAL: 18, TypeRoot.TIMESTAMP: 6, TypeRoot.TIMESTAMP_LTZ: 6}

_BucketKey = tuple["pa.Scalar[pa.DataType]", ...]


class BucketPruner:
    """Selects entries by their bucket."""

    def __init__(self, schema: TableSchema, predicate: Predicate, schema_of: SchemaLookup) -> None:
        self._schema, self._schema_of = schema, schema_of
        self._fields = schema.bucket_key_fields if schema.has_hashed_buckets else []
        self._keys = self._list_bucket_keys(predicate)
        self._buckets_by_count: dict[int, set[int] | None] = {}
        self._has_same_hash_by_schema: dict[int, bool] = {}

    def _list_bucket_keys(self, predicate: Predicate) -> list[_BucketKey] | None:
        """Return all bucket keys of matching rows, or None if equalities do not determine them."""
        if not self._fields or not all(_has_stable_hash(field.type) for field in self._fields):
            return None
        count, values_by_column = 1, []
        for field in self._fields:
            values = find_equality_values(predicate, field.name)
            if values is None:
                return None
            values_by_column.append(values)
            count *= len(values)
        return list(product(*values_by_column)) if count <= _MAX_BUCKET_KEYS else None

    def select_entries(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Return the entries whose buckets may have matching rows."""
        keys = self._keys
        if keys is None:
            return list(entries)
        return [entry for entry in entries if self._may_match(entry, keys)]

    def _may_match(self, entry: ManifestEntry, keys: Sequence[_BucketKey]) -> bool:
        count = entry.total_buckets  # the bucket count at the time of the write
        if count <= 0 or not self._has_same_hash(entry.file.schema_id):
            return True
        if count not in self._buckets_by_count:
            self._buckets_by_count[count] = self._compute_buckets(keys, count)
        buckets = self._buckets_by_count[count]
        return buckets is None or entry.bucket in buckets

    def _compute_buckets(self, keys: Sequence[_BucketKey], count: int) -> set[int] | None:
        types = [field.type for field in self._fields]
        columns = [
            pa.array([key[index] for key in keys], to_arrow_type(data_type))
            for index, data_type in enumerate(types)
        ]
        function = self._schema.typed_options.get(BUCKET_FUNCTION_TYPE)
        try:
            return set(compute_buckets(columns, types, count, function).tolist())
        except InputError:  # the bucket function is not supported
            return None

    def _has_same_hash(self, schema_id: int) -> bool:
        """Return whether the bucket key had the same columns and types when rows were written.

        A compacted file may have rows of older schemas. The types of a primary key never change.
        """
        if schema_id not in self._has_same_hash_by_schema:
            oldest = schema_id if self._schema.primary_keys else 0
            writers = range(schema_id, oldest - 1, -1)
            self._has_same_hash_by_schema[schema_id] = all(map(self._has_same_bucket_key, writers))
        return self._has_same_hash_by_schema[schema_id]

    def _has_same_bucket_key(self, schema_id: int) -> bool:
        try:
            schema = self._schema_of(schema_id)
        except CorruptFileError:  # the schema was deleted, so its bucket key is unknown
            return False
        return build_bucket_key_signature(schema.bucket_key_fields) == build_bucket_key_signature(
            self._fields
        )


def _has_stable_hash(data_type: DataType) -> bool:
    """Return whether all writers compute the same hash for equal values.

    They do not for -0.0 and 0.0, for CHAR with and without padding, and for the bytes of long
    decimals and of nanoseconds.
    """
    if not isinstance(data_type, AtomicType) or data_type.name in (
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.CHAR,
    ):
        return False
    limit = _MAX_HASHABLE_PRECISIONS.get(data_type.name)
    return limit is None or data_type.params[0] <= limit


def find_equality_values(
    predicate: Predicate, column: str
) -> "list[pa.Scalar[pa.DataType]] | None":
    """Return all values of a column that can match the predicate, or None if they are unknown."""
    match predicate:
        case Leaf(column=name, op=Operator.EQUAL | Operator.IN, values=values, key=None) if (
            name == column
        ):
            return list(values)
        case And(children=children):
            value_lists = [find_equality_values(child, column) for child in children]
            return min((v for v in value_lists if v is not None), key=len, default=None)
        case Or(children=children):
            listed = [find_equality_values(child, column) for child in children]
            if any(values is None for values in listed):
                return None
            return [value for values in listed for value in values or ()]
    return None
