"""Instants and local times, for all time zones that Java and Spark know.

Arrow knows the regions of the time zone database and offsets such as ``+05:30``, but neither
``GMT+05:30`` nor ``PST``. An instant needs no zone: only conversions from or to local times do.
"""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Int64Array, to_arrow_array, to_numpy

_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])"
    r"(?:(\d{1,2})(?::([0-5]?\d)(?::([0-5]\d))?)?|(\d\d)([0-5]\d)([0-5]\d)?)"
)
_LARGEST_OFFSET = 18 * 3600
_ZERO = {"Z", "UTC", "GMT", "UT", "GMT0"}
_EPOCH = datetime(1970, 1, 1)
_FIRST_LATE_QUARTER = int((datetime(2037, 12, 31) - _EPOCH).total_seconds()) // 900
_END_OF_LATE_QUARTERS = int((datetime(9999, 12, 30) - _EPOCH).total_seconds()) // 900
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# the short names of java.time.ZoneId, and names that are links since release 2024b of the time zone
# database, with rules of their own in the databases of some operating systems, such as Debian
_SHORT_NAMES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CET": "Europe/Brussels",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CST6CDT": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EET": "Europe/Athens",
    "EST": "-05:00",
    "EST5EDT": "America/New_York",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MET": "Europe/Brussels",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "MST7MDT": "America/Denver",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "PST8PDT": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "WET": "Europe/Lisbon",
}


def to_local_times(instants: pa.Array) -> pa.Array:
    """Return the local times of instants, in the zone of their type; nulls remain."""
    kind = instants.type
    utc = instants.view(pa.timestamp(kind.unit))
    zone = _SHORT_NAMES.get(kind.tz, kind.tz)
    offset = _parse_offset(zone)
    if offset is not None:
        return pc.add(utc, pa.scalar(offset, pa.duration("s")).cast(pa.duration(kind.unit)))
    offsets = pc.subtract(_find_arrow_times(utc, zone), utc)
    return pc.add(utc, _replace_late_offsets(offsets, utc, zone, is_local=False))


def to_instants(local_times: pa.Array, zone: str) -> pa.Array:
    """Return local times of a zone as instants in UTC, as Java does.

    Of a repeated hour, the first one is meant. A time that a change of the clock leaves out is
    moved by the length of the change.
    """
    unit = local_times.type.unit
    zone = _SHORT_NAMES.get(zone, zone)
    seconds = _parse_offset(zone)
    if seconds is not None:
        offsets = pa.scalar(seconds, pa.duration("s")).cast(pa.duration(unit))
    else:
        try:
            near = pc.assume_timezone(
                local_times, zone, ambiguous="earliest", nonexistent="earliest"
            ).view(pa.timestamp(unit))
        except pa.ArrowInvalid as error:
            raise _unknown_zone_error(zone) from error
        offsets = pc.subtract(_find_arrow_times(near, zone), near)
        offsets = _replace_late_offsets(offsets, local_times, zone, is_local=True)
    return pc.subtract(local_times, offsets).view(pa.timestamp(unit, "UTC"))


def _find_arrow_times(utc: pa.Array, zone: str) -> pa.Array:
    try:
        return pc.local_timestamp(utc.view(pa.timestamp(utc.type.unit, zone)))
    except pa.ArrowInvalid as error:
        raise _unknown_zone_error(zone) from error


def _replace_late_offsets(
    offsets: pa.Array, times: pa.Array, name: str, *, is_local: bool
) -> pa.Array:
    """Return offsets with those after 2037, when Arrow knows no summer time, replaced."""
    per_second = _UNITS_PER_SECOND[times.type.unit]
    quarters: Int64Array = to_numpy(times.view(pa.int64())) // (900 * per_second)
    is_late = (quarters >= _FIRST_LATE_QUARTER) & (quarters < _END_OF_LATE_QUARTERS)
    if not is_late.any():
        return offsets
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise _unknown_zone_error(name) from error
    distinct, positions = np.unique(quarters[is_late], return_inverse=True)
    found = [_find_offset(quarter, zone, is_local=is_local) for quarter in distinct.tolist()]
    values = to_numpy(offsets.view(pa.int64())).copy()
    values[is_late] = np.array(found, np.int64)[positions] * per_second
    is_null = ~to_numpy(times.is_valid())
    return to_arrow_array(values, mask=is_null).view(offsets.type)


def _find_offset(quarter: int, zone: ZoneInfo, *, is_local: bool) -> int:
    time = _EPOCH + timedelta(seconds=900 * quarter)
    zoned = time.replace(tzinfo=zone) if is_local else time.replace(tzinfo=UTC).astimezone(zone)
    offset = zoned.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def parse_zone(name: str) -> ZoneInfo | int:
    """Return the region of a zone, or its offset in seconds if it always has the same.

    Raises ``KeyError``, ``ValueError`` or ``OSError`` for unknown names.
    """
    name = _SHORT_NAMES.get(name, name)
    offset = _parse_offset(name)
    return ZoneInfo(name) if offset is None else offset


def find_offset(instant: int, zone: ZoneInfo) -> int:
    """Return the offset of a zone at an instant; both are in seconds."""
    offset = (_EPOCH.replace(tzinfo=UTC) + timedelta(seconds=instant)).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _parse_offset(zone: str) -> int | None:
    """Return the seconds of an offset from UTC, or None for the name of a region."""
    if zone in _ZERO:
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    groups = match.groups()[1:]
    with_colons, without = groups[:3], groups[3:]
    hours, minutes, seconds = (int(a or b or 0) for a, b in zip(with_colons, without, strict=True))
    total = 3600 * hours + 60 * minutes + seconds
    if total > _LARGEST_OFFSET:
        raise _unknown_zone_error(zone)
    return -total if match[1] == "-" else total


def _unknown_zone_error(zone: str) -> InputError:
    return InputError(
        f"{zone!r} is not a time zone of this machine; use a name such as Europe/Berlin, or an "
        "offset such as +02:00, of at most 18 hours"
    )
