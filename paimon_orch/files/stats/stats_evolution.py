"""Statistics of columns after a cast to the read type.

See docs/format/statistics.md#use-on-read and docs/format/schema-evolution.md.
"""

from paimon_orch.format.row.simple_stats import UNKNOWN_STATS, ColumnStats
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

_INTEGER_TYPES = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
# the keys stand for the units of timestamps: milliseconds, microseconds, nanoseconds
_UNITS_PER_MILLI = {0: 1, 1: 1_000, 2: 1_000_000}


def evolve_stats(stats: ColumnStats, old: DataType, new: DataType) -> ColumnStats:
    """Return the statistics of a column after a cast of its values.

    They are unknown if the cast changes the order of values.
    """
    if old.with_nullable(True) == new.with_nullable(True):
        return stats
    if not isinstance(old, AtomicType) or not isinstance(new, AtomicType):
        return UNKNOWN_STATS
    if TypeRoot.TIMESTAMP in old.name and old.name == new.name and old.params[0] <= new.params[0]:
        factor = _units_per_milli(new) // _units_per_milli(old)
        low, high = (
            bound * factor if isinstance(bound, int) else None for bound in (stats.min, stats.max)
        )
        return ColumnStats(low, high, stats.null_count)
    return stats if _is_value_preserving(old, new) else UNKNOWN_STATS


def _units_per_milli(data_type: AtomicType) -> int:
    return _UNITS_PER_MILLI[max(0, data_type.params[0] - 1) // 3]


def _is_value_preserving(old: AtomicType, new: AtomicType) -> bool:
    """Return whether a cast leaves the internal form of every value unchanged."""
    if old.name in _INTEGER_TYPES and new.name in _INTEGER_TYPES:
        return _INTEGER_TYPES.index(old.name) <= _INTEGER_TYPES.index(new.name)
    if (old.name, new.name) in (
        (TypeRoot.FLOAT, TypeRoot.DOUBLE),
        (TypeRoot.VARBINARY, TypeRoot.VARBINARY),
    ):
        return new.name == TypeRoot.DOUBLE or old.params[0] <= new.params[0]
    if (old.name, new.name) == (TypeRoot.VARCHAR, TypeRoot.VARCHAR):
        return old.params[0] <= new.params[0]
    if old.name == new.name == TypeRoot.DECIMAL:
        (precision, scale), (new_precision, new_scale) = old.params, new.params
        return scale <= new_scale and precision - scale <= new_precision - new_scale
    return False
