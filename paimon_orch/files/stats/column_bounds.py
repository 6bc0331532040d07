"""Statistics of columns for evaluation: trusted bounds as internal values.

See docs/format/statistics.md#use-on-read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.files.stats.stats_evolution import evolve_stats
from paimon_orch.format.arrays import AnyArray, Indices, Mask
from paimon_orch.format.bytes.binary_batch import to_object_array
from paimon_orch.format.row.binary_row_columns import FieldColumn
from paimon_orch.format.row.simple_stats import UNKNOWN_STATS, ColumnStats
from paimon_orch.format.row.trusted_bounds import drop_untrusted_bounds, is_cut_too_low
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

if TYPE_CHECKING:
    import pyarrow.parquet as pq

UNKNOWN_COUNT = -1
"""The null count of a file whose null count is unknown."""

_ALL_ROWS = 2**63 - 1
_FLOAT_TYPES = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_PYTHON_TYPES = {
    TypeRoot.BOOLEAN: bool,
    TypeRoot.FLOAT: float,
    TypeRoot.DOUBLE: float,
    TypeRoot.DECIMAL: Decimal,
    TypeRoot.CHAR: str,
    TypeRoot.VARCHAR: str,
    TypeRoot.BINARY: bytes,
    TypeRoot.VARBINARY: bytes,
    TypeRoot.DATE: date,
    TypeRoot.TIME: time,
    TypeRoot.TIMESTAMP: datetime,
    TypeRoot.TIMESTAMP_LTZ: datetime,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBounds:
    """The statistics of one column in many files.

    Each array has one item per file, or one item that applies to all files.
    """

    low: AnyArray
    """Lower bounds as internal values; undefined where ``has_low`` is false."""

    has_low: Mask

    high: AnyArray
    """Upper bounds as internal values; undefined where ``has_high`` is false."""

    has_high: Mask

    null_counts: Indices
    """Null counts; an unknown count is :data:`UNKNOWN_COUNT`."""

    @classmethod
    def of(cls, stats: Sequence[ColumnStats]) -> "ColumnBounds":
        """Return the statistics of files, one item per file."""
        lows, highs = [column.min for column in stats], [column.max for column in stats]
        return cls(
            low=to_object_array(lows),
            has_low=np.array([bound is not None for bound in lows], bool),
            high=to_object_array(highs),
            has_high=np.array([bound is not None for bound in highs], bool),
            null_counts=encode_null_counts([column.null_count for column in stats]),
        )

    @classmethod
    def unknown(cls, null_counts: Indices | None = None) -> "ColumnBounds":
        """Return statistics without bounds."""
        no_bound, placeholder = np.zeros(1, bool), np.zeros(1, object)
        return cls(
            low=placeholder,
            has_low=no_bound,
            high=placeholder,
            has_high=no_bound,
            null_counts=np.full(1, UNKNOWN_COUNT) if null_counts is None else null_counts,
        )

    @classmethod
    def from_fields(
        cls, low: FieldColumn, high: FieldColumn, null_counts: Indices, data_type: AtomicType
    ) -> "ColumnBounds":
        """Return the bounds that :func:`drop_untrusted_bounds` keeps.

        Rows of an unexpected arity have no bounds.
        """
        has_arity = low.rows & high.rows
        has_low, has_high = low.valid & has_arity, high.valid & has_arity
        if data_type.name in _FLOAT_TYPES:
            is_nan = has_low & np.isnan(low.values) | has_high & np.isnan(high.values)
            has_low, has_high = has_low & ~is_nan, has_high & ~is_nan
        if data_type.name == TypeRoot.VARCHAR:
            upper_bounds = zip(high.values, has_high, strict=True)
            is_cut = [bool(exists) and is_cut_too_low(text) for text, exists in upper_bounds]
            has_high = has_high & ~np.array(is_cut, bool)
        return cls(
            low=low.values,
            has_low=has_low,
            high=high.values,
            has_high=has_high,
            null_counts=np.where(has_arity, null_counts, UNKNOWN_COUNT),
        )

    def take(self, rows: Indices) -> "ColumnBounds":
        """Return the statistics of some files, in any order."""
        return ColumnBounds(
            low=self.low[rows],
            has_low=self.has_low[rows],
            high=self.high[rows],
            has_high=self.has_high[rows],
            null_counts=self.null_counts[rows],
        )


def encode_null_counts(counts: Sequence[int | None]) -> Indices:
    """Return null counts as numbers: :data:`UNKNOWN_COUNT` for None."""
    return np.array([UNKNOWN_COUNT if count is None else count for count in counts], np.int64)


def build_constant_stats(value: object, data_type: DataType) -> ColumnStats:
    """Return the statistics of a column with the same internal value in all rows."""
    stats = ColumnStats(value, value, _ALL_ROWS if value is None else 0)
    return drop_untrusted_bounds(stats, is_orc=False, data_type=data_type)


def convert_footer_stats(
    footer: "pq.Statistics | None", stored_type: DataType, read_type: DataType
) -> ColumnStats:
    """Return the Parquet statistics of a column of one row group, as its read type."""
    if footer is None:
        return UNKNOWN_STATS
    null_count = footer.null_count if footer.has_null_count else None
    try:
        low, high = (footer.min, footer.max) if footer.has_min_max else (None, None)
    except (OverflowError, ValueError):  # a year above 9999, or text that is not UTF-8
        low, high = None, None
    bounds = _convert_footer_value(low, stored_type), _convert_footer_value(high, stored_type)
    stats = ColumnStats(*bounds, null_count)
    stats = drop_untrusted_bounds(stats, is_orc=False, data_type=stored_type)
    return evolve_stats(stats, stored_type, read_type)


def _convert_footer_value(value: Any, data_type: DataType) -> object:
    """Return a value of a footer as an internal value.

    Returns None if the value may not have the column's type.
    """
    if not isinstance(data_type, AtomicType) or type(value) is not _PYTHON_TYPES.get(
        data_type.name, int
    ):
        return None
    try:
        return to_internal_value(pa.scalar(value, to_arrow_type(data_type)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
