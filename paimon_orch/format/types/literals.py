"""Constants of filters: those of all libraries, cast to the type of a column without a change.

Arrow alone would drop the nanoseconds of pandas, the zone of a time and the multiples of a unit of
NumPy, and round decimals.
"""

import math
from datetime import datetime, time, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

_WIDE = Context(prec=100, Emin=-1000, Emax=1000)
"""For numbers of 38 digits that are compared with longer ones."""


def to_exact_scalar(value: object) -> "pa.Scalar[pa.DataType]":
    """Return a constant of Python, NumPy, pandas, Polars or Arrow as an Arrow scalar.

    Raises ``ValueError``, ``TypeError``, ``OverflowError`` or an Arrow error for other objects.
    """
    if isinstance(value, pa.Scalar):
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return pa.scalar(Decimal(value))
    if isinstance(value, time) and value.tzinfo is not None:
        raise ValueError("a time of day with a zone")
    numpy_value = getattr(value, "asm8", value)  # of a timestamp or duration of pandas
    if isinstance(numpy_value, np.datetime64):
        is_zoned = getattr(value, "tzinfo", None) is not None
        return _from_numpy_time(numpy_value, is_zoned=is_zoned)
    if isinstance(value, datetime) and (offset := value.utcoffset()) is not None:
        local_time = pa.scalar(value.replace(tzinfo=None), pa.timestamp("us"))
        micros = local_time.value - offset // timedelta(microseconds=1)
        return pa.scalar(micros, pa.timestamp("us", "UTC"))
    return pa.scalar(value)


def _from_numpy_time(value: np.datetime64, *, is_zoned: bool) -> "pa.Scalar[pa.DataType]":
    unit, count = np.datetime_data(value)
    if unit in ("generic", "Y", "M", "W", "D", "h", "m"):
        value = _convert_exactly(value, "s")
    elif unit in ("ps", "fs", "as"):
        value = _convert_exactly(value, "ns")
    elif count != 1:  # pyarrow takes 5 units of 10 ms for 5 ms
        value = _convert_exactly(value, unit)
    scalar = pa.scalar(value)
    return scalar.cast(pa.timestamp(scalar.type.unit, "UTC")) if is_zoned else scalar


def _convert_exactly(value: np.datetime64, unit: str) -> np.datetime64:
    converted = value.astype(f"datetime64[{unit}]")
    if np.isnat(converted) or converted.astype(value.dtype) != value:
        raise ValueError(f"{value} has no value in {unit}")
    result: np.datetime64 = converted
    return result


def describe_literal(value: "pa.Scalar[pa.DataType]") -> str:
    """Return a constant as text; a time that Python cannot hold as the number of its units."""
    try:
        return repr(value.as_py())
    except (KeyError, OverflowError, ValueError):  # KeyError: a time zone of another library
        return f"{value.cast(pa.int64()).as_py()} ({value.type})"


def cast_exactly(value: "pa.Scalar[pa.DataType]", target: pa.DataType) -> "pa.Scalar[pa.DataType]":
    """Return a constant in the type of a column.

    A number stands for the FLOAT or DOUBLE that is printed with its digits, such as 0.1. Raises
    ``ValueError`` or an Arrow error if the type has no such value.
    """
    if value.type == target:
        return value
    value = _unwrap(value, target)
    is_text = pa.types.is_string(value.type)
    if not is_text and not _is_comparable_type(value.type, target):
        raise ValueError(f"{value.type} is not comparable with {target}")
    if pa.types.is_floating(target):
        return _cast_to_float(value, target)
    if is_text:
        return parse_literal(value.as_py(), target)
    if pa.types.is_decimal(target) and not pa.types.is_decimal(value.type):
        return parse_literal(_write_number(value), target)  # Arrow would round
    literal = value.cast(target)
    if pa.types.is_date(target) or pa.types.is_boolean(target):
        _check_exactness(literal.cast(value.type) == value, target)
    return literal


def find_neighbor(number: Decimal, kind: pa.DataType) -> "tuple[pa.Scalar[Any], bool] | None":
    """Return the next smaller number of an integer or decimal type that has no such number.

    The flag is true; if all numbers of the type are larger, the result is the least one and false.
    Returns None for a number that the type has, for other types and for too many digits.
    """
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)) or not number.is_finite():
        return None
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    try:
        floor = number.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR, _WIDE)
    except InvalidOperation:
        return None
    least, largest = _find_range(kind)
    neighbor = max(least, min(floor, largest))
    if neighbor == number:
        return None
    value = neighbor if pa.types.is_decimal(kind) else int(neighbor)
    return pa.scalar(value, kind), floor >= least


def _find_range(kind: pa.DataType) -> tuple[Decimal, Decimal]:
    """Return the least and the largest number of an integer or decimal type."""
    if pa.types.is_decimal(kind):
        largest = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _WIDE)
        return largest.copy_negate(), largest
    bits = kind.bit_width - 1
    return Decimal(-(2**bits)), Decimal(2**bits - 1)


def to_decimal(value: "pa.Scalar[pa.DataType]") -> Decimal | None:
    """Return the number that the digits of a constant write, or None for other constants."""
    if _find_family(value.type) != "number" or not value.is_valid:
        return None
    return Decimal(_write_number(value))


def _unwrap(value: "pa.Scalar[pa.DataType]", target: pa.DataType) -> "pa.Scalar[pa.DataType]":
    """Return a value of a dictionary, and text or bytes in another layout, in its simple type."""
    kind = value.type
    if isinstance(value, pa.UuidScalar) and pa.types.is_string(target):
        raise ValueError("a UUID has 16 bytes, and is not text; use str(value)")
    if isinstance(value, pa.DictionaryScalar | pa.ExtensionScalar | pa.RunEndEncodedScalar):
        inner = value.value if hasattr(value, "value") else pa.scalar(value.as_py())
        return _unwrap(inner, target)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return value.cast(pa.string())
    is_bytes = pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return value.cast(pa.binary()) if is_bytes or pa.types.is_fixed_size_binary(kind) else value


def _cast_to_float(
    value: "pa.Scalar[pa.DataType]", target: pa.DataType
) -> "pa.Scalar[pa.DataType]":
    """Return the nearest number; refuse one that is neither equal nor printed with these digits."""
    number = value.as_py()
    nearest = pa.scalar(float(number)).cast(target)
    if pa.types.is_string(value.type):
        nearest = pa.scalar(number).cast(target)  # unlike Python, refuses blanks and underscores
        number = _parse_decimal(number)
    rounded = nearest.as_py()
    is_exact = rounded == number or (math.isnan(rounded) and math.isnan(number))
    if not is_exact:
        digits = nearest.cast(pa.string()).as_py()
        is_printed = _parse_decimal(_write_number(value)) == _parse_decimal(digits)
        _check_exactness(is_printed, target, nearest=digits)
    return nearest


def _write_number(value: "pa.Scalar[pa.DataType]") -> str:
    """Return the digits of a number; those of a short floating-point number are all its digits."""
    number = value.as_py()
    is_short = pa.types.is_float16(value.type) or pa.types.is_float32(value.type)
    return str(Decimal(number) if is_short else number)


def _parse_decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation as error:
        raise ValueError(f"{digits!r} is not a number") from error


def _check_exactness(is_exact: bool, target: pa.DataType, *, nearest: str = "") -> None:  # noqa: FBT001
    if not is_exact:
        raise ValueError(
            f"{target} has no such value" + (f"; the nearest is {nearest}" if nearest else "")
        )


def _is_comparable_type(literal_type: pa.DataType, column_type: pa.DataType) -> bool:
    """Return whether a constant of this type may be cast to a column's type.

    Arrow would also cast numbers to text, dates to numbers, times of a zone to those without one,
    and timestamps to times.
    """
    literal, column = _find_family(literal_type), _find_family(column_type)
    return literal == column or (literal, column) in _COMPARABLE_FAMILIES


def _find_family(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "instant" if kind.tz is not None else "timestamp"
    families = {
        "text": (pa.types.is_string, pa.types.is_binary),
        "boolean": (pa.types.is_boolean,),
        "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        "date": (pa.types.is_date,),
        "time": (pa.types.is_time,),
    }
    return next(
        (name for name, tests in families.items() if any(test(kind) for test in tests)), str(kind)
    )


_COMPARABLE_FAMILIES = {
    ("number", "boolean"),
    ("date", "timestamp"),
    ("date", "instant"),
    ("timestamp", "date"),
    ("timestamp", "instant"),
}
"""Families of types whose values are equal or not: times without a zone are in UTC."""


def parse_literal(text: str, target: pa.DataType) -> "pa.Scalar[pa.DataType]":
    """Parse a constant; timestamps without a zone are in UTC.

    Raises ``ValueError`` or ``pyarrow.ArrowInvalid`` if the type has no such value.
    """
    if pa.types.is_binary(target):
        return pa.scalar(text.encode(), target)
    if pa.types.is_time(target):  # of a day: Python would drop a zone, and the seventh digit
        return pa.scalar(f"1970-01-01T{text}").cast(pa.timestamp("ns")).cast(target)
    if pa.types.is_timestamp(target) and target.tz is not None:
        try:
            return pa.scalar(text).cast(target)
        except pa.ArrowInvalid:
            return pa.scalar(text).cast(pa.timestamp(target.unit)).cast(target)
    return pa.scalar(text).cast(target)
