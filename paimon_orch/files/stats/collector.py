"""Statistics of a data file, collected while it is written.

See docs/format/statistics.md.
"""

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    FIELD_STATS_MODE,
    METADATA_STATS_DENSE_STORE,
    METADATA_STATS_KEEP_FIRST_N_COLUMNS,
    METADATA_STATS_MODE,
    METADATA_STATS_MODE_PER_LEVEL,
)
from paimon_orch.format.row.simple_stats import ColumnStats, SimpleStats
from paimon_orch.format.row.stats_mode import StatsMode, has_bounds
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.text import to_python_value
from paimon_orch.format.types.data_types import AtomicType, Field

_KEY_STATS_MODE = StatsMode.parse("truncate(128)")


def to_internal_value(scalar: "pa.Scalar[pa.DataType]") -> Any:
    """Return the internal value (see ``format.row.binary_row``) of an Arrow scalar."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.Date32Scalar | pa.Time32Scalar | pa.TimestampScalar):
        return scalar.value
    return to_python_value(scalar)


class StatsCollector:
    """Collects the bounds and null counts of some columns.

    The rows are sorted by the column ``sorted_by``, whose bounds are its first and last value.
    """

    def __init__(self, fields: Sequence[Field], sorted_by: str | None = None) -> None:
        self._fields, self._sorted_by = list(fields), sorted_by
        self._null_counts = [0] * len(self._fields)
        self._bounds: list[tuple[Any, Any] | None] = [None] * len(self._fields)
        self._is_unbounded = [False] * len(self._fields)

    def update(self, table: pa.Table, without_bounds: Collection[str] = ()) -> None:
        """Add the rows of a table; :meth:`add_bounds` adds the bounds of some columns later."""
        for index, field in enumerate(self._fields):
            column = table.column(field.name)
            self._null_counts[index] += column.null_count
            if not has_bounds(field.type) or column.null_count == len(column):
                continue
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self._is_unbounded[index] = True  # a column with NaN has no bounds
                continue
            if field.name in without_bounds:
                continue
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if field.name == self._sorted_by:
                lowest, highest = column[0], column[-1]
            else:
                lowest, highest = pc.min_max(column).values()
            self._extend(index, to_internal_value(lowest), to_internal_value(highest))

    def add_bounds(self, name: str, low: object, high: object) -> None:
        """Add the bounds of some values of a column, as internal values; other columns are ignored.

        They are not the bounds of a column of which :meth:`update` has seen a NaN.
        """
        for index, field in enumerate(self._fields):
            if field.name == name and has_bounds(field.type):
                self._extend(index, low, high)

    def merge(self, stats: Sequence[ColumnStats], rows: int) -> None:
        """Add the rows of a file by the statistics of all columns.

        The bounds may be truncated, which does not change the truncated bounds of all rows. Columns
        without bounds have none in the result, unless all their values are null.
        """
        for index, column in enumerate(stats):
            self._null_counts[index] += column.null_count or 0
            if column.min is not None and column.max is not None:
                self._extend(index, column.min, column.max)
            elif column.null_count != rows:
                self._is_unbounded[index] = True

    def _extend(self, index: int, low: Any, high: Any) -> None:
        if (bounds := self._bounds[index]) is not None:
            low, high = min(low, bounds[0]), max(high, bounds[1])
        self._bounds[index] = (low, high)

    def column(self, name: str) -> ColumnStats:
        """Return the untruncated statistics of a column."""
        index = [field.name for field in self._fields].index(name)
        bounds = self._bounds[index]
        if bounds is None or self._is_unbounded[index]:
            return ColumnStats(None, None, self._null_counts[index])
        low, high = bounds
        # some readers order -0.0 before 0.0; for them, the bounds must include both zeros
        return ColumnStats(
            -0.0 if low == 0 and isinstance(low, float) else low,
            0.0 if high == 0 and isinstance(high, float) else high,
            self._null_counts[index],
        )


def build_key_stats(collector: StatsCollector, fields: Sequence[Field]) -> SimpleStats:
    """Return ``_KEY_STATS``: every column of the trimmed primary key, never dense."""
    columns = [_KEY_STATS_MODE.apply(collector.column(field.name)) for field in fields]
    return SimpleStats.of(columns, [field.type for field in fields])


def build_value_stats(
    collector: StatsCollector, schema: TableSchema, level: int
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """Return ``_VALUE_STATS`` as the options require, and its columns, or None for all columns."""
    modes = resolve_stats_modes(schema, level)
    columns = [
        # Nested columns have no statistics, as in Java Paimon.
        modes[field.name].apply(
            collector.column(field.name) if isinstance(field.type, AtomicType) else ColumnStats()
        )
        for field in schema.fields
    ]
    types = [field.type for field in schema.fields]
    if not schema.typed_options.get(METADATA_STATS_DENSE_STORE):
        return SimpleStats.of(columns, types), None
    dense = [index for index, column in enumerate(columns) if column != ColumnStats()]
    stats = SimpleStats.of([columns[i] for i in dense], [types[i] for i in dense])
    names = tuple(schema.fields[i].name for i in dense)
    return stats, None if len(names) == len(columns) else names


def resolve_stats_modes(schema: TableSchema, level: int) -> dict[str, StatsMode]:
    """Return the statistics mode of every column.

    See docs/format/statistics.md#modes.
    """
    options: Options = schema.typed_options
    text = options.get(METADATA_STATS_MODE_PER_LEVEL).get(level, options.get(METADATA_STATS_MODE))
    keep_first = options.get(METADATA_STATS_KEEP_FIRST_N_COLUMNS)
    modes = {}
    for number, name in enumerate(schema.names):
        default = text if keep_first < 0 or number < keep_first else "none"
        modes[name] = StatsMode.parse(options.get(FIELD_STATS_MODE.named(name), default))
    return modes
