"""Key ranges: the keys of a bucket that one task merges, and predicates on the first key column."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.files.arrow_conversion import build_constant_column
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.binary_row import read_field
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot
from paimon_orch.format.types.predicate import And, Leaf, Operator, Predicate
from paimon_orch.merge.sort.key_order import Key, KeyColumns, decode_key, decode_key_bounds


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``low`` (inclusive) to ``high`` (exclusive), serialized; None is unbounded."""

    low: bytes | None
    high: bytes | None

    def decode(self, key_fields: Sequence[Field]) -> tuple[Key | None, Key | None]:
        """Return ``low`` and ``high`` as comparable tuples."""
        low, high = (
            None if bound is None else decode_key(bound, key_fields)
            for bound in (self.low, self.high)
        )
        return low, high

    def touches(self, file: DataFileMeta, key_fields: Sequence[Field]) -> bool:
        """Return whether a file can contain keys of the range."""
        low, high = decode_key_bounds(file, key_fields)
        return (self.low is None or high >= decode_key(self.low, key_fields)) and (
            self.high is None or low < decode_key(self.high, key_fields)
        )

    def slice_rows(self, rows: pa.RecordBatch, key_fields: Sequence[Field]) -> pa.RecordBatch:
        """Return the rows in the range; the rows are sorted by key."""
        keys = KeyColumns.of(rows, [field.name for field in key_fields])
        start, stop = 0, len(keys)
        if self.low is not None:
            start = keys.count_below(decode_key(self.low, key_fields))
        if self.high is not None:
            stop = keys.count_below(decode_key(self.high, key_fields))
        return rows.slice(start, max(0, stop - start))


def build_first_key_predicate(
    low: bytes | None, high: bytes | None, key: Field
) -> Predicate | None:
    """Return a predicate on the first key column that all keys of the range satisfy, or None."""
    if isinstance(key.type, AtomicType) and key.type.name in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return None  # predicates and keys order -0.0 and NaN differently
    tests = tuple(
        Leaf(key.name, op, (build_constant_column(read_field(bound, 0, key.type), key.type, 1)[0],))
        for op, bound in ((Operator.GREATER_OR_EQUAL, low), (Operator.LESS_OR_EQUAL, high))
        if bound is not None
    )
    return And(tests) if tests else None
