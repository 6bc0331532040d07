"""Parses durations and points in time of commands, components, run configs and Python calls."""

import re
import time
from datetime import UTC, date, datetime, timedelta
from operator import index
from typing import Any, SupportsIndex

from paimon_orch.errors import InputError
from paimon_orch.format.options import value_type

# epoch milliseconds in March 1973 and on the last day of 9999
_MIN_MILLIS, _MAX_MILLIS = 10**11, 253_402_214_400_000
_DURATION = re.compile(r"\s*\d+\s*[A-Za-z]+\s*")

TimeArgument = int | str | date | None
"""Epoch milliseconds, ISO 8601, a date or a datetime; local times without a zone."""


def format_time(millis: int) -> str:
    """Return epoch milliseconds for a message: ``2026-01-31 12:00:00.000 UTC``.

    A number that is no time of the years 1 to 9999, perhaps of a damaged file, is shown as it is.
    """
    try:
        moment = datetime.fromtimestamp(millis / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{millis} ms"
    return f"{moment.replace(tzinfo=None).isoformat(' ', 'milliseconds')} UTC"


def parse_duration(name: str, value: object) -> timedelta:
    """Return a duration, which may be a text such as ``30 d``.

    Raises :class:`InputError` naming ``name`` for a negative duration, and for other values. Unlike
    in table options, where the default unit is milliseconds, the unit is required.
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InputError(f"{name} {value} is negative; a duration is at least 0")
        return value
    try:
        if isinstance(value, str) and _DURATION.fullmatch(value):
            return value_type.parse_duration(name, value)
    except InputError as error:
        if isinstance(error.__cause__, OverflowError):
            raise InputError(f"{name} {value!r} is too long; the limit is 999999999 d") from None
    raise InputError(
        f"{name} {value!r} is not a duration; write a whole number and a unit, for example '3 d', "
        "'12 h' or '30 min', or a timedelta"
    )


def parse_timestamp(name: str, text: str) -> int:
    """Parse epoch milliseconds, or ISO 8601 with the local time zone as its default."""
    if text.isascii() and text.isdigit():
        return int(text)
    import pendulum
    from pendulum.parsing.exceptions import ParserError

    try:
        moment = pendulum.parse(text, tz="local", exact=True)
    except (ParserError, TypeError, ValueError, OverflowError):
        moment = None
    if text == "now":  # known only to pendulum
        moment = None
    if isinstance(moment, pendulum.Date) and not isinstance(moment, pendulum.DateTime):
        moment = pendulum.datetime(moment.year, moment.month, moment.day, tz="local")
    if not isinstance(moment, pendulum.DateTime):
        raise InputError(
            f"{name} {text!r} is not a point in time; write ISO 8601, for example "
            "2026-01-31T12:00:00, or epoch milliseconds"
        )
    return int(moment.timestamp() * 1000)


def to_epoch_millis(name: str, value: Any) -> int:
    """Return epoch milliseconds of a point in time; a time without a zone is a local time.

    Numbers are returned as they are. Raises :class:`InputError` for other types.
    """
    if isinstance(value, str):
        return parse_timestamp(name, value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):  # also of NumPy
        raise InputError(
            f"{name} {value!r} is not a point in time; write epoch milliseconds, ISO 8601, a date or a "
            "datetime"
        )
    return index(value)


def parse_cutoff(name: str, text: object, now_millis: int | None = None) -> int:
    """Return epoch milliseconds of a point in time, or of ``now_millis`` minus a duration.

    Raises :class:`InputError` for texts of times before 1973, because they are probably dates
    without dashes, years or epoch seconds, and for times after 9999.
    """
    if not isinstance(text, str):
        cutoff = to_epoch_millis(name, text)
        if cutoff < 0:
            raise InputError(f"{name} {text!r} is before 1970; write epoch milliseconds")
        return cutoff
    if _DURATION.fullmatch(text):
        now = int(time.time() * 1000) if now_millis is None else now_millis
        return max(0, now - parse_duration(name, text) // timedelta(milliseconds=1))
    try:
        cutoff = parse_timestamp(name, text)
    except InputError:
        cutoff = 0
    if not _MIN_MILLIS <= cutoff <= _MAX_MILLIS:
        raise InputError(
            f"{name} {text!r} is neither a duration, for example '3 d', nor a point in time "
            "between the years 1973 and 9999, for example 2026-01-31 or epoch milliseconds"
        )
    return cutoff
