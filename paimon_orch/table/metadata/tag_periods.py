"""The periods of automatic tags, and the times that assign snapshots to them.

See docs/format/tags-branches-consumers.md#automatic-tags.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    SINK_PROCESS_TIME_ZONE,
    SINK_WATERMARK_TIME_ZONE,
    TAG_CREATION_PERIOD,
    TAG_CREATION_PERIOD_DURATION,
    TAG_PERIOD_FORMATTER,
)
from paimon_orch.table.metadata.time_travel import NO_WATERMARK

_PERIOD_LENGTHS = {
    "daily": timedelta(days=1),
    "hourly": timedelta(hours=1),
    "two-hours": timedelta(hours=2),
}
_DATE_FORMATS = {"with_dashes": "%Y-%m-%d", "without_dashes": "%Y%m%d", "without_dashes_and_spaces": "%Y%m%d"}  # fmt: skip
_HOUR_FORMATS = {"with_dashes": " %H", "without_dashes": " %H", "without_dashes_and_spaces": "%H"}
_EPOCH = datetime(1970, 1, 1)
_ZONE_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?([0-5]\d))?(?::?([0-5]\d))?")


@dataclass(frozen=True, slots=True)
class TagPeriods:
    """The periods of a table's automatic tags."""

    length: timedelta
    name: str
    """The ``strftime`` format of a tag's name."""

    @classmethod
    def of(cls, options: Options) -> "TagPeriods":
        """Return the periods that the options of a table define."""
        length = options.get(TAG_CREATION_PERIOD_DURATION)
        if length is not None:
            if not length:
                raise InputError(f"option {TAG_CREATION_PERIOD_DURATION.key!r} must not be 0")
            return cls(length, "%Y%m%d%H%M")
        period, style = options.get(TAG_CREATION_PERIOD), options.get(TAG_PERIOD_FORMATTER)
        if period not in _PERIOD_LENGTHS or style not in _DATE_FORMATS:
            raise InputError(
                f"'tag.creation-period' = {period!r} must be one of {', '.join(_PERIOD_LENGTHS)}, "
                f"and 'tag.period-formatter' = {style!r} one of {', '.join(_DATE_FORMATS)}"
            )
        hours = "" if period == "daily" else _HOUR_FORMATS[style]
        return cls(_PERIOD_LENGTHS[period], _DATE_FORMATS[style] + hours)

    def before(self, time: datetime) -> datetime:
        """Return the start of the last period that ended at or before a time."""
        return time - (time - _EPOCH) % self.length - self.length

    def current(self, time: datetime) -> datetime:
        """Return the start of the period of a time."""
        return self.before(time) + self.length

    def parse_name(self, name: str) -> datetime | None:
        """Return the start of the period in a tag's name, or None for other names."""
        try:
            time = datetime.strptime(name, self.name)  # noqa: DTZ007 - local wall clock
        except ValueError:
            return None
        return time if time.strftime(self.name) == name else None


def compute_tag_time(millis: int | None, zone: tzinfo | None) -> datetime | None:
    """Return a time or watermark as wall clock time in ``zone``, or None without a watermark."""
    if millis is None or millis == NO_WATERMARK:
        return None
    try:
        return datetime.fromtimestamp(millis / 1000, zone).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError) as error:
        raise UnsupportedError(
            f"the time of a snapshot, {millis} ms, is not in the years 1 to 9999"
        ) from error


def parse_tag_time_zone(options: Options, mode: str) -> tzinfo | None:
    """Return the time zone of tag names; None means the time zone of this process."""
    option = SINK_PROCESS_TIME_ZONE if mode == "process-time" else SINK_WATERMARK_TIME_ZONE
    text = (options.get(option) or "").strip()
    if not text:
        return None
    offset = _ZONE_OFFSET.fullmatch(text)
    try:
        if offset is None:
            return ZoneInfo("UTC" if text in ("Z", "UT") else text)
        hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
        shift = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-shift if offset[1] == "-" else shift)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(
            f"option {option.key!r} = {text!r} is not a time zone; use a value such as "
            "'Europe/Paris' or 'GMT+08:00'"
        ) from error
