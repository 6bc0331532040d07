"""Timestamps of ORC files as their writers meant them.

The footer of each stripe names the time zone of its writer, on which two kinds of values depend:

* A TIMESTAMP is stored as an instant of this zone, in seconds since it showed 2015-01-01.
* With ``orc.timestamp-ltz.legacy.type``, the default of Java Paimon, a TIMESTAMP_LTZ is stored as
  the instant at which the clocks of the zone show the time in UTC.

Java computes both with ``java.util.TimeZone``, the ORC library with other rules: for times before
1900, and for those within the offset of the zone from 1970. So the ORC library reads all files as
if they were written in UTC, and this module does the rest.

See docs/format/data-files.md#orc-and-avro.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import Int64Array, to_arrow_array, to_numpy
from paimon_orch.format.time_zones import find_offset, parse_zone
from paimon_orch.format.types.data_types import AtomicType, TypeRoot

READ_ZONE = "GMT"
"""The zone of writers with which the ORC library changes no time."""

_NANOS_PER_SECOND = 10**9
_NANOS_WITHOUT_BORROW = 999_999
_YEAR_1900, _YEAR_1970, _YEAR_2262 = -2_208_988_800, 0, 9_214_646_400
_YEAR_2037, _YEAR_2038 = 2_114_380_800, 2_145_916_800
_YEAR_2015, _SUMMER_2030, _WINTER_2030 = 1_420_070_400, 1_909_000_000, 1_894_000_000
_WEEK = 7 * 86_400
_CALENDAR_CYCLE = 146_097 * 86_400
"""400 years, after which all dates have the same weekdays again."""
_STANDARD_OFFSETS = {"Africa/Windhoek": 3600}
"""Offsets of Java before 1900 and from 2037, where they are not those of the database: in Namibia,
the time until 2017 was the standard time in winter, which Java has kept."""
_LAST_SATURDAYS = {"Asia/Gaza", "Asia/Hebron"}
"""Zones that change clocks on the last Saturday up to the 30th; Java omits the limit from 2037."""


def find_time_correction(
    zone: str, *, legacy_instants: bool
) -> Callable[[pa.Array, AtomicType, pa.DataType], pa.Array] | None:
    """Return a function for ``map_atoms`` that corrects times that were read in :data:`READ_ZONE`.

    It is None if the zone is UTC. Raises :class:`UnsupportedError` for an unknown zone.
    """
    starts, offsets = _load_offsets(zone)
    if not offsets.any():
        return None
    base = int(_find_offsets(np.array([_YEAR_2015]), starts, offsets)[0])
    base = int(_find_offsets(np.array([_YEAR_2015 - base]), starts, offsets)[0])

    def correct(array: pa.Array, data_type: AtomicType, _target: pa.DataType) -> pa.Array:
        kind = array.type
        if data_type.name not in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
            return array
        if not isinstance(kind, pa.TimestampType) or (kind.tz is not None and not legacy_instants):
            return array
        values: Int64Array = to_numpy(array.view(pa.int64()))
        seconds, nanos = np.divmod(values, _NANOS_PER_SECOND)
        if kind.tz is None:
            has_fraction = nanos > _NANOS_WITHOUT_BORROW
            # the library has subtracted a second from times before 1970
            seconds = np.where(has_fraction & (seconds < -1), seconds + 1, seconds) - base
            seconds -= has_fraction & (seconds < 0)
        seconds = seconds + _find_offsets(seconds, starts, offsets)
        is_null = ~to_numpy(array.is_valid())
        return to_arrow_array(seconds * _NANOS_PER_SECOND + nanos, mask=is_null).view(kind)

    return correct


def _find_offsets(instants: Int64Array, starts: Int64Array, offsets: Int64Array) -> Int64Array:
    return offsets[np.searchsorted(starts, instants, "right")]


@cache
def _load_offsets(name: str) -> tuple[Int64Array, Int64Array]:
    """Return the instants at which the offset of a zone changes, and the offsets between them.

    Both are in seconds. As in ``java.util.TimeZone``, the standard offset of today is that of all
    times before 1900, and changes after 2037 follow one rule for all years: those of the database
    for single years, such as the summer times without Ramadan of Morocco, are left out.
    """
    try:
        zone = parse_zone(name or READ_ZONE)
    except (KeyError, ValueError, OSError) as error:
        raise UnsupportedError(
            f"the timestamps of this ORC file were written in the time zone {name!r}, which the "
            "time zone database of this machine does not have; read the file with Java, or rewrite "
            "it there as Parquet"
        ) from error
    if isinstance(zone, int):
        return np.array([], np.int64), np.array([zone])
    assert zone.key is not None
    old = _load_merged_zone(zone)
    standard = min(find_offset(instant, zone) for instant in (_SUMMER_2030, _WINTER_2030))
    standard = _STANDARD_OFFSETS.get(zone.key, standard)
    is_last_saturday = zone.key in _LAST_SATURDAYS
    first_ruled = _YEAR_2037 if is_last_saturday else _YEAR_2038
    starts, offsets = [_YEAR_1900], [standard, find_offset(_YEAR_1900, old)]
    for week in range(_YEAR_1900, _YEAR_2262, _WEEK):
        rules = old if week < _YEAR_1970 else zone
        shift = _CALENDAR_CYCLE if week >= first_ruled else 0  # to years without exceptions
        start, end = week + shift, week + shift + _WEEK
        while (change := _find_change(start, end, offsets[-1], rules)) is not None:
            offset = find_offset(change, rules)
            is_early = is_last_saturday and shift and _is_same_month(change + offset, _WEEK)
            starts.append(change - shift + (_WEEK if is_early else 0))
            offsets.append(offset)
            start = change
    if zone.key in _STANDARD_OFFSETS:
        starts.append(_YEAR_2037 - standard)
        offsets.append(standard)
    return np.array(starts), np.array(offsets)


def _is_same_month(time: int, later: int) -> bool:
    """Return whether a time is in the same month some seconds later."""
    return (
        datetime.fromtimestamp(time, UTC).month == datetime.fromtimestamp(time + later, UTC).month
    )


def _find_change(low: int, high: int, offset: int, zone: ZoneInfo) -> int | None:
    """Return the first instant with another offset, or None if ``high`` has this offset."""
    if find_offset(high, zone) == offset:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if find_offset(middle, zone) == offset else (low, middle)
    return high


def _load_merged_zone(zone: ZoneInfo) -> ZoneInfo:
    """Return a zone with the offsets before 1970 that Java has.

    Java, like the package ``tzdata``, has the same offsets for zones that agree since 1970. Some
    operating systems, such as Debian, have others.
    """
    assert zone.key is not None
    try:
        file = resources.files("tzdata.zoneinfo").joinpath(*zone.key.split("/"))
        with file.open("rb") as source:
            return ZoneInfo.from_file(source, zone.key)
    except (ImportError, OSError):
        return zone
