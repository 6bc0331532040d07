"""Partition values and their directory names.

See docs/format/table-layout.md#partition-directories.
"""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import PARTITION_LEGACY_NAME
from paimon_orch.format.text import is_blank, to_readable_text
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

_CHARS_TO_ESCAPE = set("\"#%'*/:=?\\{}[]^\x7f") | {chr(code) for code in range(32)}
_ESCAPE_SEQUENCE = re.compile(r"%([0-9A-Fa-f]{2})")
_JAVA_NUMBER = re.compile(r"-?[0-9]+\.[0-9]+(E-?[0-9]+)?")


def escape_path_name(text: str) -> str:
    """Escape one path component. Raises :class:`InputError` for an empty component."""
    if not text:
        raise InputError("a partition directory name must not be empty")
    return "".join(f"%{ord(char):02X}" if char in _CHARS_TO_ESCAPE else char for char in text)


def unescape_path_name(text: str) -> str:
    """Undo :func:`escape_path_name`; a ``%`` without two hex digits is unchanged."""
    return _ESCAPE_SEQUENCE.sub(lambda match: chr(int(match.group(1), 16)), text)


def build_partition_path(
    values: Sequence[object], fields: Sequence[Field], options: Options
) -> str:
    """Return ``k1=v1/k2=v2/`` for internal values, or "" for an unpartitioned table."""
    names = format_partition_values(values, fields, options)
    return "".join(f"{build_directory_name(*item)}/" for item in names.items())


def build_directory_name(key: str, value: str) -> str:
    """Return the name of the directory of a partition value, which is given as text."""
    return f"{escape_path_name(key)}={escape_path_name(value)}"


def format_partition_values(
    values: Sequence[object], fields: Sequence[Field], options: Options
) -> dict[str, str]:
    """Return the text of every partition value, before escaping."""
    legacy = options.get(PARTITION_LEGACY_NAME)
    names = {}
    for value, field in zip(values, fields, strict=True):
        text = "" if value is None else format_partition_value(value, field, legacy=legacy)
        names[field.name] = options.default_partition_name if is_blank(text) else text
    return names


def format_partition_value(value: object, field: Field, *, legacy: bool) -> str:
    """Return the text of one internal value (see ``binary_row``) as Java formats it."""
    assert isinstance(field.type, AtomicType)
    name, params = field.type.name, field.type.params
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return to_readable_text(value)
        case Decimal():
            return f"{value:f}"
        case float():
            return format_java_double(value, single=name == TypeRoot.FLOAT)
        case int() if name == TypeRoot.DATE and not legacy:
            return _format_date(value)
        case int() if name == TypeRoot.TIME and not legacy:
            return _format_time(value, params[0])
        case int() if name in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
            return format_timestamp(value, params[0], legacy=legacy)
        case bytes():
            raise InputError(
                f"partition column {field.name!r}: BINARY is not supported for partition columns"
            )
    return str(value)


def format_timestamp(value: int, precision: int, *, legacy: bool) -> str:
    """Format a TIMESTAMP in its Arrow unit; ``legacy`` formats as ``LocalDateTime.toString``."""
    nanos = value * {3: 10**6, 6: 10**3, 9: 1}[3 if precision <= 3 else 6 if precision <= 6 else 9]
    seconds, fraction = divmod(nanos, 10**9)
    days, second_of_day = divmod(seconds, 86_400)
    year, month, day = _split_date(days)
    minutes, second = divmod(second_of_day, 60)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}"
    digits = f"{fraction:09d}"
    if not legacy:
        digits = digits[: max(precision, len(digits.rstrip("0")))]
        text = f"{_format_digits(year, 4)}-{month:02d}-{day:02d} {clock}:{second:02d}"
        return text + (f".{digits}" if digits else "")
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    text = f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{clock}"
    if second or fraction:
        text += f":{second:02d}"
    while fraction and digits.endswith("000"):
        digits = digits[:-3]
    return text + (f".{digits}" if fraction else "")


def _split_date(days: int) -> tuple[int, int, int]:
    """Return year, month and day; the year 0 is before the year 1. Python's dates have no such."""
    date = np.datetime64(days, "D")
    first_of_month, year = date.astype("datetime64[M]"), date.astype("datetime64[Y]")
    months = int(first_of_month.astype(np.int64)) - 12 * int(year.astype(np.int64))
    day = int((date - first_of_month).astype(np.int64))
    return int(year.astype(np.int64)) + 1970, months + 1, day + 1


def _format_digits(number: int, count: int) -> str:
    """Return the last digits of a number as Java does: below zero, they are other characters."""
    powers = [10**power for power in reversed(range(count))]
    return "".join(chr(48 + _remainder(_divide(number, power), 10)) for power in powers)


def _divide(number: int, divisor: int) -> int:
    """Divide as Java does, which rounds towards zero."""
    return abs(number) // divisor * (-1 if number < 0 else 1)


def _remainder(number: int, divisor: int) -> int:
    return number - _divide(number, divisor) * divisor


def _format_date(days: int) -> str:
    """Format a date as Java's cast to text; before the year -4800 this is not a date."""
    number = days + 2_472_632  # since the 1st of March of the year -4800
    era, day_of_era = _divide(number, 146_097), _remainder(number, 146_097)
    century = _divide((_divide(day_of_era, 36_524) + 1) * 3, 4)
    day_of_century = day_of_era - century * 36_524
    leap, day_of_leap = _divide(day_of_century, 1461), _remainder(day_of_century, 1461)
    year_of_leap = _divide((_divide(day_of_leap, 365) + 1) * 3, 4)
    day_of_year = day_of_leap - year_of_leap * 365
    month = _divide(day_of_year * 5 + 308, 153) - 2  # of a year that starts in March
    day = day_of_year - _divide((month + 4) * 153, 5) + 123
    year = era * 400 + century * 100 + leap * 4 + year_of_leap - 4800 + _divide(month + 2, 12)
    month = _remainder(month + 2, 12) + 1
    return f"{_format_digits(year, 4)}-{_format_digits(month, 2)}-{_format_digits(day, 2)}"


def _format_time(millis: int, precision: int) -> str:
    """Format a TIME as Java's cast to text: a fraction has at least one digit."""
    seconds, fraction = divmod(millis, 1000)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    digits = f"{fraction:03d}"[:precision].rstrip("0") or "0"
    return text if precision == 0 else f"{text}.{digits}"


def format_java_double(value: float, *, single: bool = False) -> str:
    """Format a floating-point number as ``Double.toString`` or ``Float.toString`` does."""
    if math.isnan(value):
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if single else np.float64(value)
    text = str(number)
    two_digits = f"{value:.1e}"  # Java prints at least two, which may be closer than one
    if type(number)(two_digits) == number and Decimal(two_digits) != Decimal(text):
        text = two_digits
    magnitude = abs(value)
    if value == 0 or 1e-3 <= magnitude < 1e7:
        decimal_text = format(Decimal(text), "f")
        return decimal_text if "." in decimal_text else decimal_text + ".0"
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    mantissa = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + exponent
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{power}"


def has_floating_type(field: Field) -> bool:
    """Return whether the values of a partition column are FLOAT or DOUBLE."""
    assert isinstance(field.type, AtomicType)
    return field.type.name in (TypeRoot.FLOAT, TypeRoot.DOUBLE)


def normalize_directory_name(name: str, field: Field) -> str:
    """Return the name that this library gives to the directory of a FLOAT or DOUBLE value.

    Java before 19 writes more digits for some values. Other names are not changed.
    """
    key, _, text = name.partition("=")
    if not has_floating_type(field) or not _JAVA_NUMBER.fullmatch(text):
        return name
    assert isinstance(field.type, AtomicType)
    single = field.type.name == TypeRoot.FLOAT
    with np.errstate(over="ignore"):
        value = float(np.float32(text) if single else text)
    return f"{key}={format_java_double(value, single=single)}"
