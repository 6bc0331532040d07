"""Timestamps of ORC files as their writers meant them.

The footer of each stripe names the time zone of its writer, on which two kinds of values depend:

* A TIMESTAMP is stored as an instant of this zone. Within the offset of the zone from 1970-01-01, a
  value with a fraction is one second wrong in pyarrow, which finds out whether it is before 1970
  only after it has added the offset.
* With ``orc.timestamp-ltz.legacy.type``, the default of Java Paimon, a TIMESTAMP_LTZ is stored as
  the instant at which the clocks of the zone show the time in UTC.

See docs/format/data-files.md#orc-and-avro.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int64Array, to_arrow_array, to_numpy
from paimon_orch.format.time_zones import is_utc, to_instants, to_local_times
from paimon_orch.format.types.data_types import AtomicType, TypeRoot

_NANOS_PER_SECOND = 10**9
_NANOS_WITHOUT_BORROW = 999_999
_MAX_OFFSET_SECONDS = 26 * 3600


def find_time_correction(
    zone: str, *, legacy_instants: bool
) -> Callable[[pa.Array, AtomicType, pa.DataType], pa.Array] | None:
    """Return a function for ``map_atoms`` that corrects times, or None if the zone is UTC."""
    if is_utc(zone):
        return None

    def correct(array: pa.Array, data_type: AtomicType, _target: pa.DataType) -> pa.Array:
        if data_type.name not in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
            return array
        kind = array.type
        if kind.tz is None:
            return _move_to_other_second(array, zone)
        if not legacy_instants:
            return array
        in_zone = array.view(pa.timestamp(kind.unit)).view(pa.timestamp(kind.unit, zone))
        return to_local_times(in_zone).view(kind)

    return correct


def _move_to_other_second(array: pa.Array, zone: str) -> pa.Array:
    values: Int64Array = to_numpy(array.view(pa.int64()))
    seconds, nanos = np.divmod(values, _NANOS_PER_SECOND)
    has_fraction = nanos > _NANOS_WITHOUT_BORROW
    # pyarrow has subtracted a second from local times before 1970
    stored = np.where(has_fraction & (seconds < -1), seconds + 1, seconds)
    if not (has_fraction & (np.abs(stored) < _MAX_OFFSET_SECONDS)).any():
        return array
    is_null = ~to_numpy(array.is_valid())
    local = to_arrow_array(stored, mask=is_null).view(pa.timestamp("s"))
    instants = to_numpy(to_instants(local, zone).view(pa.int64()))
    result = (stored - (has_fraction & (instants < 0))) * _NANOS_PER_SECOND + nanos
    return to_arrow_array(result, mask=is_null).view(array.type)
