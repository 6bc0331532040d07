"""Statistics of a column for ANALYZE.

They are collected batch by batch and merged across tasks, in bounded memory.

A theta sketch of the datasketches package counts distinct values. It needs 0.3 (numbers) to 0.5
(text) of the CPU time of a numpy sketch with the same error (``benchmarks/hand_written_files.py``).
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.schema_evolution.cast_string import to_text
from paimon_orch.format.table_statistics import ColumnStatistics
from paimon_orch.format.text import to_readable_value
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot
from paimon_orch.optional_packages import require_package

if TYPE_CHECKING:
    from datasketches import compact_theta_sketch

MAX_EXACT_DISTINCT = 1 << 16
"""Up to this number of distinct values the count is exact; above it, the error is about 0.4 %."""

_LG_K = 16
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


class DistinctCounter:
    """Counts the distinct values of a column."""

    def __init__(self, serialized: bytes | None = None) -> None:
        require_package("datasketches", "counting distinct values", install="paimon-orch[sketches]")
        from datasketches import compact_theta_sketch, theta_union, update_theta_sketch

        self._added = update_theta_sketch(_LG_K)
        self._merged = theta_union(_LG_K)
        if serialized is not None:
            self._merged.update(compact_theta_sketch.deserialize(serialized))

    def add(self, values: pa.Array) -> None:
        """Count values; they must not be null."""
        update = self._added.update
        for key in _to_sketch_keys(pc.unique(values)):
            update(key)

    def merge(self, other: "DistinctCounter") -> None:
        """Count the values of another counter."""
        self._merged.update(other.to_compact())

    @property
    def count(self) -> int:
        """Return the number of distinct values; above :data:`MAX_EXACT_DISTINCT` an estimate."""
        estimate: float = self.to_compact().get_estimate()
        return round(estimate)

    def serialize(self) -> bytes:
        """Return the state for another process.

        It has at most 8 bytes for each of ``MAX_EXACT_DISTINCT`` values.
        """
        data: bytes = self.to_compact().serialize()
        return data

    def to_compact(self) -> "compact_theta_sketch":
        """Return the sketch of all values."""
        # a later call adds the same values again, which has no effect on a union
        self._merged.update(self._added)
        return self._merged.get_result()


class ColumnStatsBuilder:
    """Collects the statistics of one column."""

    def __init__(self, column: Field) -> None:
        self.column = column
        self.row_count = 0
        self.null_count = 0
        self.total_length = 0
        self.max_length = 0
        self.distinct = DistinctCounter()
        # this array of the column's type contains the lower and the upper bound, or is empty
        self.bounds: pa.Array | None = None

    def add(self, values: pa.Array) -> None:
        """Add the values of some rows."""
        not_null = values.drop_null()
        lengths = _value_lengths(not_null)
        if lengths is not None and len(lengths):
            self.total_length += pc.sum(lengths).as_py()
            self.max_length = max(self.max_length, pc.max(lengths).as_py())
        self.row_count += len(values)
        self.null_count += values.null_count
        self.distinct.add(not_null)
        self.bounds = _compute_bounds([*_as_list(self.bounds), not_null])

    def merge(self, other: "ColumnStatsBuilder") -> None:
        """Add the rows of another builder of the same column."""
        self.row_count += other.row_count
        self.null_count += other.null_count
        self.total_length += other.total_length
        self.max_length = max(self.max_length, other.max_length)
        self.distinct.merge(other.distinct)
        self.bounds = _compute_bounds([*_as_list(self.bounds), *_as_list(other.bounds)])

    @property
    def distinct_count(self) -> int:
        """Return the number of distinct values that are not null; see :class:`DistinctCounter`."""
        return self.distinct.count

    def build(self) -> ColumnStatistics:
        """Return the statistics as a statistics file stores them."""
        data_type, value_count = self.column.type, self.row_count - self.null_count
        assert isinstance(data_type, AtomicType)
        fixed = _FIXED_LENGTHS.get(data_type.name)
        if data_type.name == TypeRoot.DECIMAL:
            fixed = 8 if data_type.params[0] <= 18 else 16
        average = -(-self.total_length // value_count) if value_count else 0
        low, high = None, None
        if self.bounds is not None and len(self.bounds):
            low, high = map(to_readable_value, to_text(self.bounds, data_type))
        return ColumnStatistics(
            column_id=self.column.id,
            distinct_count=self.distinct_count,
            min=low,
            max=high,
            null_count=self.null_count,
            average_length=average if fixed is None else fixed,
            max_length=self.max_length if fixed is None else fixed,
        )

    def encode(self) -> str:
        """Return the state as JSON, for :meth:`decode` in another process."""
        bounds = pa.BufferOutputStream()
        if self.bounds is not None:
            batch = pa.record_batch([self.bounds], names=["bounds"])
            with pa.ipc.new_stream(bounds, batch.schema) as stream:
                stream.write_batch(batch)
        counts = [self.row_count, self.null_count, self.total_length, self.max_length]
        parts = [self.distinct.serialize(), bounds.getvalue().to_pybytes()]
        return json.dumps([*counts, *(b64encode(part).decode() for part in parts)])

    @classmethod
    def decode(cls, column: Field, text: str) -> "ColumnStatsBuilder":
        """Return the builder that :meth:`encode` encoded."""
        *counts, distinct, bounds = json.loads(text)
        builder = cls(column)
        builder.row_count, builder.null_count, builder.total_length, builder.max_length = counts
        builder.distinct = DistinctCounter(b64decode(distinct))
        if encoded_bounds := b64decode(bounds):
            builder.bounds = (
                pa.ipc.open_stream(encoded_bounds).read_all()["bounds"].combine_chunks()
            )
        return builder


def can_collect_stats(column: Field) -> bool:
    """Return whether a column can have statistics: nested columns cannot."""
    return isinstance(column.type, AtomicType)


def _as_list(bounds: pa.Array | None) -> list[pa.Array]:
    return [] if bounds is None else [bounds]


def _value_lengths(values: pa.Array) -> pa.Array | None:
    if pa.types.is_string(values.type):
        return pc.utf8_length(values)
    if pa.types.is_binary(values.type):
        return pc.binary_length(values)
    return None


def _to_sketch_keys(values: pa.Array) -> Iterable[int] | Iterable[float] | Iterable[str]:
    """Return values as keys of a sketch, which are equal if and only if the values are equal."""
    data_type = values.type
    if pa.types.is_binary(data_type) or pa.types.is_string(data_type):
        # latin-1 can decode any bytes; the dot is added because a sketch ignores empty text
        return ("." + value.decode("latin-1") for value in values.cast(pa.binary()).to_pylist())
    if pa.types.is_decimal(data_type):
        values = values.cast(pa.string())
    elif pa.types.is_floating(data_type):
        values = pc.add(values.cast(pa.float64()), 0.0)  # this replaces -0.0 by 0.0
    elif pa.types.is_temporal(data_type):
        values = values.view(pa.int32() if data_type.bit_width == 32 else pa.int64())
    else:
        values = values.cast(pa.int64())
    keys: list[int] | list[float] | list[str] = values.to_pylist()
    return keys


def _compute_bounds(parts: list[pa.Array]) -> pa.Array | None:
    """Return the lower and the upper bound of all values, or None for types without order.

    NaN is the largest number.
    """
    if not parts:
        return None
    values = pa.concat_arrays(parts)
    data_type = values.type
    if pa.types.is_binary(data_type):
        return None
    if not len(values):
        return values
    if pa.types.is_floating(data_type):
        is_nan = pc.is_nan(values)
        not_nan = values.filter(pc.invert(is_nan))
        ends = _compute_min_max(not_nan) if len(not_nan) else [float("nan")] * 2
        return pa.array([ends[0], float("nan") if pc.any(is_nan).as_py() else ends[1]], data_type)
    low, high = _compute_min_max(values)
    return pa.array([low, high], data_type)


def _compute_min_max(values: pa.Array) -> list[object]:
    bounds = pc.min_max(values)
    if pa.types.is_string(values.type):  # as_py fails for text that is not valid UTF-8
        return [bounds["min"], bounds["max"]]
    return [bounds["min"].as_py(), bounds["max"].as_py()]
