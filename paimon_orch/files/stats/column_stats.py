"""Figures of a column's values, gathered batch by batch and merged across tasks, in bounded memory."""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.schema_evolution.cast_string import to_text
from paimon_orch.format.arrays import UInt64Array
from paimon_orch.format.table_statistics import ColumnStatistics
from paimon_orch.format.text import to_readable_value
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

MAX_HASHES = 1 << 16  # up to so many different values are counted one by one
_FIXED_LENGTHS = {
    TypeRoot.BOOLEAN: 1,
    TypeRoot.TINYINT: 1,
    TypeRoot.SMALLINT: 2,
    TypeRoot.INT: 4,
    TypeRoot.BIGINT: 8,
    TypeRoot.FLOAT: 4,
    TypeRoot.DOUBLE: 8,
    TypeRoot.DATE: 4,
    TypeRoot.TIME: 4,
    TypeRoot.TIMESTAMP: 8,
    TypeRoot.TIMESTAMP_LTZ: 8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatsBuilder:
    """What is known of a column after some of its rows.

    ``hashes`` are the smallest 64-bit hashes of its values: all of them while they are few; else how densely they lie
    tells how many there are, to 0.4 %. ``bounds`` is an Arrow array of the column's type: none, or smallest and largest.
    """

    column: Field
    rows: int = 0
    nulls: int = 0
    length: int = 0
    max_length: int = 0
    hashes: UInt64Array = field(default_factory=lambda: np.empty(0, np.uint64))
    bounds: pa.Array | None = None

    def add(self, values: pa.Array) -> "ColumnStatsBuilder":
        """Return the figures with further values."""
        known = values.drop_null()
        lengths = _value_lengths(known)
        return replace(
            self,
            rows=self.rows + len(values),
            nulls=self.nulls + values.null_count,
            length=self.length + (0 if lengths is None else pc.sum(lengths).as_py() or 0),
            max_length=max(self.max_length, 0 if lengths is None else pc.max(lengths).as_py() or 0),
            hashes=_merge_hashes(self.hashes, _hash_distinct(known)),
            bounds=_compute_bounds([*_as_list(self.bounds), known]),
        )

    def merged(self, other: "ColumnStatsBuilder") -> "ColumnStatsBuilder":
        """Return the figures of both parts."""
        return replace(
            self,
            rows=self.rows + other.rows,
            nulls=self.nulls + other.nulls,
            length=self.length + other.length,
            max_length=max(self.max_length, other.max_length),
            hashes=_merge_hashes(self.hashes, other.hashes),
            bounds=_compute_bounds([*_as_list(self.bounds), *_as_list(other.bounds)]),
        )

    @property
    def distinct_count(self) -> int:
        """Return how many different values there are; an estimate when they are many."""
        if len(self.hashes) < MAX_HASHES:
            return len(self.hashes)
        return round((MAX_HASHES - 1) * 2.0**64 / float(self.hashes[-1]))

    def figures(self) -> ColumnStatistics:
        """Return what a statistics file says of the column."""
        kind, known = self.column.type, self.rows - self.nulls
        assert isinstance(kind, AtomicType)
        fixed = _fixed_length(kind)
        average = fixed if fixed is not None else -(-self.length // known) if known else 0
        low, high = None, None
        if self.bounds is not None and len(self.bounds):
            low, high = map(to_readable_value, to_text(self.bounds, kind))
        return ColumnStatistics(
            column_id=self.column.id,
            distinct_count=self.distinct_count,
            min=low,
            max=high,
            null_count=self.nulls,
            average_length=average,
            max_length=self.max_length if fixed is None else fixed,
        )

    def encode(self) -> str:
        """Return the figures as JSON, for :meth:`decode` in another process."""
        bounds = pa.BufferOutputStream()
        if self.bounds is not None:
            batch = pa.record_batch([self.bounds], names=["bounds"])
            with pa.ipc.new_stream(bounds, batch.schema) as stream:
                stream.write_batch(batch)
        numbers = [self.rows, self.nulls, self.length, self.max_length]
        parts = [self.hashes.tobytes(), bounds.getvalue().to_pybytes()]
        return json.dumps([*numbers, *(b64encode(part).decode() for part in parts)])

    @classmethod
    def decode(cls, column: Field, text: str) -> "ColumnStatsBuilder":
        """Undo :meth:`encode`."""
        rows, nulls, length, max_length, hashes, bounds = json.loads(text)
        stored = b64decode(bounds)
        return cls(
            column=column,
            rows=rows,
            nulls=nulls,
            length=length,
            max_length=max_length,
            hashes=np.frombuffer(b64decode(hashes), np.uint64),
            bounds=pa.ipc.open_stream(stored).read_all()["bounds"].combine_chunks()
            if stored
            else None,
        )


def can_collect_stats(column: Field) -> bool:
    """Tell whether a column has figures: nested ones have none."""
    return isinstance(column.type, AtomicType)


def _as_list(bounds: pa.Array | None) -> list[pa.Array]:
    return [] if bounds is None else [bounds]


def _fixed_length(kind: AtomicType) -> int | None:
    """Return the bytes of every value; None where values differ in length."""
    if kind.name == TypeRoot.DECIMAL:
        return 8 if kind.params[0] <= 18 else 16
    return _FIXED_LENGTHS.get(kind.name)


def _value_lengths(values: pa.Array) -> pa.Array | None:
    if pa.types.is_string(values.type):
        return pc.utf8_length(values)
    if pa.types.is_binary(values.type):
        return pc.binary_length(values)
    return None


def _merge_hashes(known: UInt64Array, more: UInt64Array) -> UInt64Array:
    """Return the smallest hashes of both, sorted; ``known`` is what this returned before."""
    if len(known) == MAX_HASHES:
        more = more[more < known[-1]]
        if not len(more):
            return known
    return np.unique(np.concatenate([known, more]))[:MAX_HASHES]


def _hash_distinct(values: pa.Array) -> UInt64Array:
    """Return a 64-bit hash of each different value, the same in every process."""
    different = pc.unique(values)
    kind = different.type
    if pa.types.is_decimal(kind):
        different = different.cast(pa.string())
    elif pa.types.is_floating(kind):
        different = pc.add(different.cast(pa.float64()), 0.0)  # -0.0 equals 0.0
    elif pa.types.is_boolean(kind):
        different = different.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        different = different.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_string(kind):
        different = different.cast(pa.binary())  # it may not be UTF-8
    import pandas as pd

    plain = different.to_numpy(zero_copy_only=False)
    hashed: UInt64Array = pd.util.hash_array(plain, categorize=False)
    return hashed


def _compute_bounds(parts: list[pa.Array]) -> pa.Array | None:
    """Return the smallest and the largest of all values (NaN is the largest); None where they have no order."""
    if not parts:
        return None
    values = pa.concat_arrays(parts)
    kind = values.type
    if pa.types.is_binary(kind):
        return None
    if not len(values):
        return values
    if pa.types.is_floating(kind):
        nan = pc.is_nan(values)
        numbers = values.filter(pc.invert(nan))
        ends = _compute_min_max(numbers) if len(numbers) else [float("nan")] * 2
        return pa.array([ends[0], float("nan") if pc.any(nan).as_py() else ends[1]], kind)
    low, high = _compute_min_max(values)
    return pa.array([low, high], kind)


def _compute_min_max(values: pa.Array) -> list[object]:
    found = pc.min_max(values)
    if pa.types.is_string(values.type):  # it may not be UTF-8
        return [found["min"], found["max"]]
    return [found["min"].as_py(), found["max"].as_py()]
