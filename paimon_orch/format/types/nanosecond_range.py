"""The range of times with nanoseconds: Arrow has 64 bits for them, Java Paimon more.

See docs/format/data-types.md#times-with-nanoseconds.
"""

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import ValueRangeError

_FIRST_MILLIS, _LAST_MILLIS = -(2**63) // 10**6, (2**63 - 1) // 10**6


def build_range_error(column: str = "a column") -> ValueRangeError:
    """Return the error of a time that Arrow's nanoseconds cannot hold."""
    return ValueRangeError(
        f"{column} has a time outside of the years 1677 to 2262, which cannot be read with "
        "nanoseconds; Java Paimon reads it"
    )


def has_times_out_of_range(array: pa.Array) -> bool:
    """Return whether times in milliseconds, at any depth, are beyond 64-bit nanoseconds."""
    if isinstance(array, pa.TimestampArray):
        bounds = pc.min_max(array.view(pa.int64()))
        first, last = bounds["min"].as_py(), bounds["max"].as_py()
        return first is not None and not _FIRST_MILLIS <= first <= last <= _LAST_MILLIS
    if isinstance(array, pa.StructArray):
        return any(map(has_times_out_of_range, array.flatten()))
    if isinstance(array, pa.MapArray):
        return has_times_out_of_range(array.keys) or has_times_out_of_range(array.items)
    if isinstance(array, pa.ListArray | pa.FixedSizeListArray):
        return has_times_out_of_range(array.flatten())
    return False
