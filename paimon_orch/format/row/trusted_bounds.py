"""Stored bounds of columns that enclose all values.

See docs/format/statistics.md#use-on-read.
"""

from math import isnan

from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot


def drop_untrusted_bounds(stats: ColumnStats, *, is_orc: bool, data_type: DataType) -> ColumnStats:
    """Return statistics without the bounds that may not enclose all values."""
    low, high = stats.min, stats.max
    if _is_nan(low) or _is_nan(high):
        return ColumnStats(None, None, stats.null_count)
    if is_orc and isinstance(data_type, AtomicType) and data_type.name == TypeRoot.CHAR:
        # writers of ORC pad CHAR either in the data or in the statistics
        return ColumnStats(None, None, stats.null_count)
    if isinstance(high, str) and is_cut_too_low(high):
        high = None
    return ColumnStats(low, high, stats.null_count)


def _is_nan(bound: object) -> bool:
    return isinstance(bound, float) and isnan(bound)


def is_cut_too_low(text: str) -> bool:
    """Return whether an upper bound may be below a value.

    Java's truncation writes a question mark if the last character should become U+E000.
    """
    return text.endswith(("?", "\ufffd"))
