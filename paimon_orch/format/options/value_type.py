"""Types of option values, and how their text is parsed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite
from typing import Generic, TypeVar

from paimon_orch.errors import InputError

T = TypeVar("T")

_MEMORY_UNITS = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "kibibytes": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "mebibytes": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
    "gibibytes": 1 << 30,
    "t": 1 << 40,
    "tb": 1 << 40,
    "tebibytes": 1 << 40,
}
_DURATION_UNITS = {
    "ms": 1,
    "milli": 1,
    "millis": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "": 1,
    "s": 1000,
    "sec": 1000,
    "secs": 1000,
    "second": 1000,
    "seconds": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}
_QUANTITY = re.compile(r"(\d{1,19})\s*([A-Za-z]*)")
_MAX_SHOWN_CHARACTERS = 200
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """A type of option values: its name in messages, and its parser.

    The parser takes the key (for the message) and the value, and raises :class:`InputError`.
    """

    name: str
    parse: Callable[[str, str], T]


@dataclass(frozen=True, slots=True)
class CollectionType(ValueType[T]):
    """A type whose options are empty, not None, if they are not set and have no default."""

    empty: T


def parse_memory(key: str, text: object) -> int:
    """Return a size in bytes, for example of ``128 mb``; error messages contain ``key``.

    A whole number is a size already.
    """
    if not isinstance(text, str):
        if isinstance(text, int) and text >= 0:
            return text
        raise InputError(f"{key} is {text!r}, but must be a text such as '128 mb'")
    return _parse_quantity(key, text, _MEMORY_UNITS, "128 mb")


def parse_duration(key: str, text: str) -> timedelta:
    """Return a duration, for example of ``500 ms``; error messages contain ``key``."""
    try:
        return timedelta(milliseconds=_parse_quantity(key, text, _DURATION_UNITS, "1 h"))
    except OverflowError as error:
        raise InputError(
            f"option {key!r} = {_quote(text)} is too long; the limit is {timedelta.max.days} d"
        ) from error


def _quote(text: str) -> str:
    """Return a text for a message, without the end of a long one."""
    return (
        repr(text) if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]!r}..."
    )


def _parse_quantity(key: str, text: str, units: Mapping[str, int], example: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match.group(2).lower() not in units:
        raise InputError(
            f"option {key!r} = {_quote(text)} cannot be parsed; expected for example {example!r}"
        )
    return int(match.group(1)) * units[match.group(2).lower()]


def _parse_boolean(key: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise InputError(f"option {key!r} = {_quote(text)} must be true or false")
    return text.strip().lower() == "true"


def _parse_integer(key: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise InputError(f"option {key!r} = {_quote(text)} must be a whole number") from error
    if not -_MAX_LONG <= number <= _MAX_LONG:
        raise InputError(
            f"option {key!r} = {_quote(text)} must be between {-_MAX_LONG} and {_MAX_LONG}"
        )
    return number


def _parse_number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise InputError(f"option {key!r} = {_quote(text)} must be a number") from error
    if not isfinite(number):  # no size or ratio can be computed from it
        raise InputError(f"option {key!r} = {_quote(text)} must be a finite number")
    return number


def _parse_names(_key: str, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parse_per_level(key: str, text: str) -> dict[int, str]:
    pairs = (item.split(":", 1) for item in _parse_names(key, text))
    try:
        return {int(level): value.strip() for level, value in pairs}
    except ValueError as error:
        raise InputError(f"option {key!r} must look like '0:avro,5:parquet'") from error


BOOLEAN = ValueType("true or false", _parse_boolean)
INTEGER = ValueType("whole number", _parse_integer)
NUMBER = ValueType("number", _parse_number)
MEMORY = ValueType("size", parse_memory)
DURATION = ValueType("duration", parse_duration)
TEXT = ValueType("text", lambda _key, text: text)
KEYWORD = ValueType("text", lambda _key, text: text.strip().lower())
"""Strings whose case does not matter."""
NAMES: CollectionType[tuple[str, ...]] = CollectionType("text", _parse_names, ())
"""Comma-separated names."""
PER_LEVEL: CollectionType[dict[int, str]] = CollectionType("level:value, ...", _parse_per_level, {})
