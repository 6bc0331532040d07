"""Formats values as text and parses them, in the forms of Java Paimon.

See docs/format/schema-evolution.md#casts.
"""

import calendar
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.nested_arrays import flatten_values, map_key_value_types
from paimon_orch.format.partition_path import format_java_double
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

_TRUE_WORDS, _FALSE_WORDS = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_INTEGER = re.compile(r"([+-]?)(\d*)(?:\.\d*)?", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_FLOAT = re.compile(rf"({_DECIMAL.pattern})[dDfF]?|[+-]?(?:NaN|Infinity)", re.ASCII)
_DATE = re.compile(r"\s*(\d{1,4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?(?:\s.*)?", re.ASCII)
_TIME = re.compile(r"\s*(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?\s*", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII
)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_UNIT_DIGITS = {"ms": 3, "us": 6, "ns": 9}


def fit_text_to_length(text: pa.Array, new: AtomicType) -> pa.Array:
    """Truncate text to the length of its type; CHAR is also padded with spaces."""
    (length,) = new.params
    if length < MAX_LENGTH:
        text = pc.utf8_slice_codeunits(text, 0, length)
    return pc.utf8_rpad(text, length, " ") if new.name == TypeRoot.CHAR else text


def to_text(array: pa.Array, data_type: DataType) -> pa.Array:
    """Return a column of any type as text; null remains null."""
    match data_type:
        case AtomicType(name=TypeRoot.CHAR | TypeRoot.VARCHAR):
            return array
        case AtomicType(name=TypeRoot.FLOAT | TypeRoot.DOUBLE as name):
            return _format_each(
                array, lambda value: format_java_double(value, single=name == TypeRoot.FLOAT)
            )
        case AtomicType(name=TypeRoot.DECIMAL):
            return _format_each(array, lambda value: format(value, "f"))
        case AtomicType(name=TypeRoot.BINARY | TypeRoot.VARBINARY):
            return _format_each(array, lambda value: value.decode(errors="replace"))
        case AtomicType(name=TypeRoot.TIME, params=(precision,)):
            millis = array.view(pa.int32())
            return _format_each(millis, lambda value: _format_time(value, precision))
        case AtomicType(name=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, params=(precision,)):
            return _format_timestamps(array, precision)
        case AtomicType():
            return array.cast(pa.string())
    return pa.array(_format_nested(array, data_type), pa.string())


def _format_each(array: pa.Array, form: Callable[[Any], str]) -> pa.Array:
    values = array.to_pylist()
    return pa.array([None if value is None else form(value) for value in values], pa.string())


def _format_time(millis: int, precision: int) -> str:
    seconds, fraction = divmod(millis, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    digits = f"{fraction:03d}".rstrip("0")
    return f"{text}.{digits or '0'}" if precision > 0 else text


def _format_timestamps(array: pa.Array, precision: int) -> pa.Array:
    """Return ``yyyy-MM-dd HH:mm:ss`` with the fraction digits of the type."""
    assert isinstance(array.type, pa.TimestampType)
    text = array.view(pa.timestamp(array.type.unit)).cast(pa.string())
    surplus = _UNIT_DIGITS[array.type.unit] - precision + (precision == 0)
    return pc.utf8_slice_codeunits(text, 0, -surplus) if surplus else text


def _format_nested(array: pa.Array, data_type: DataType) -> list[str | None]:
    match data_type:
        case ArrayType(element=element):
            flat, starts = flatten_values(array)
            elements = _format_elements(flat, element)
            values = [f"[{', '.join(elements[a:b])}]" for a, b in pairwise(starts)]
        case MapType() | MultisetType():
            flat, starts = flatten_values(array)
            key_type, value_type = map_key_value_types(data_type)
            keys, items = (
                _format_elements(flat.field(0), key_type),
                _format_elements(flat.field(1), value_type),
            )
            pairs = [f"{key} -> {item}" for key, item in zip(keys, items, strict=True)]
            values = ["{" + ", ".join(pairs[a:b]) + "}" for a, b in pairwise(starts)]
        case RowType(fields=fields):
            columns = [_format_elements(array.field(field.name), field.type) for field in fields]
            values = ["{" + ", ".join(row) + "}" for row in zip(*columns, strict=True)]
        case _:
            raise TypeError(data_type)
    valid = array.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


def _format_elements(array: pa.Array, data_type: DataType) -> list[str]:
    return ["null" if text is None else text for text in to_text(array, data_type).to_pylist()]


def parse_text(array: pa.Array, new: AtomicType, target: pa.DataType) -> pa.Array:
    """Return text as values of a type, stored as ``target``; every distinct text is parsed once.

    Raises ``ValueError`` for text that Java Paimon refuses, and for times and numbers out of range.
    """
    encoded = array.dictionary_encode()
    values = [_parse_value(text, new) for text in encoded.dictionary.to_pylist()]
    if pa.types.is_temporal(target):
        storage = pa.int32() if new.name in (TypeRoot.DATE, TypeRoot.TIME) else pa.int64()
        parsed = pa.array(values, storage).view(target)
    else:
        parsed = pa.array(values, target)
    return parsed.take(encoded.indices)


def _parse_value(text: str, new: AtomicType) -> object:
    parse = _PARSERS.get(new.name, _parse_integer)
    value = parse(text, new)
    if value is None:
        raise ValueError(f"{text!r} is not a {new.name}")
    return value


def _parse_boolean(text: str, _new: AtomicType) -> bool | None:
    word = text.lower()
    return True if word in _TRUE_WORDS else False if word in _FALSE_WORDS else None


def _parse_integer(text: str, new: AtomicType) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None or not any(char.isdigit() for char in text):
        return None
    value = int(f"{match[1]}{match[2] or '0'}")
    bits = to_arrow_type(new).bit_width
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _parse_float(text: str, _new: AtomicType) -> float | None:
    match = _FLOAT.fullmatch(text.strip())
    return None if match is None else float(match[1] or match[0])


def _parse_date(text: str, _new: AtomicType) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text)
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = (int(part or 1) for part in match.groups())
    return date(year, month, day).toordinal() - _EPOCH_ORDINAL


def _parse_time(text: str, _new: AtomicType) -> int | None:
    if text.isascii() and text.isdigit():
        millis = int(text)
    else:
        match = _TIME.fullmatch(text)
        if match is None:
            return None
        hour, minute, second = (int(part or 0) for part in match.groups()[:3])
        millis = (
            (hour * 60 + minute) * 60_000 + second * 1000 + int((match[4] or "").ljust(3, "0")[:3])
        )
    return millis if millis < 86_400_000 else None


def _parse_timestamp(text: str, new: AtomicType) -> int | None:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if day <= 31:  # Java replaces such a day by the last day of a shorter month
        day = min(day, calendar.monthrange(year, month)[1])
    next_day = 86_400 if (hour, minute, second) == (24, 0, 0) else 0
    moment = datetime(year, month, day, 0 if next_day else hour, minute, second, tzinfo=UTC)
    (precision,) = new.params
    digits = (match[7] or "")[:precision].ljust(9, "0")
    seconds = int(moment.timestamp()) + next_day
    unit = _UNIT_DIGITS[to_arrow_type(new).unit]
    return int(seconds * 10**unit + int(digits) // 10 ** (9 - unit))


_PARSERS: dict[str, Callable[[str, AtomicType], object]] = {
    TypeRoot.BOOLEAN: _parse_boolean,
    TypeRoot.DECIMAL: lambda text, _new: text if _DECIMAL.fullmatch(text) else None,
    TypeRoot.FLOAT: _parse_float,
    TypeRoot.DOUBLE: _parse_float,
    TypeRoot.DATE: _parse_date,
    TypeRoot.TIME: _parse_time,
    TypeRoot.TIMESTAMP: _parse_timestamp,
    TypeRoot.TIMESTAMP_LTZ: _parse_timestamp,
}
