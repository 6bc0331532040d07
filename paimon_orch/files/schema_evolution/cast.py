"""Casts columns after a change of their type by ALTER TABLE.

The results are those of Java Paimon, with its rules for rounding and overflow. Java Paimon converts
between timestamps with and without zone in the time zone of its machine; this module always uses
UTC, so results do not depend on the machine.

See docs/format/schema-evolution.md#casts.
"""

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.schema_evolution.cast_string import fit_text_to_length, parse_text, to_text
from paimon_orch.format.arrays import AnyArray, to_arrow_array, to_numpy
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot, type_to_sql

CastRule = Callable[[pa.Array, AtomicType, AtomicType], pa.Array]

_WIDE_CONTEXT = Context(prec=400)  # a double has up to 309 digits before the point
_MILLIS_PER_DAY = 86_400_000
_UNITS_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_FAMILIES = {
    "integer": (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
    "float": (TypeRoot.FLOAT, TypeRoot.DOUBLE),
    "text": (TypeRoot.CHAR, TypeRoot.VARCHAR),
    "binary": (TypeRoot.BINARY, TypeRoot.VARBINARY),
    "timestamp": (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ),
}
_FAMILY_BY_TYPE = {name: family for family, names in _FAMILIES.items() for name in names}


def cast(array: pa.Array, old: DataType, new: AtomicType) -> pa.Array:
    """Return a column as another simple type. A value that overflows a decimal becomes null.

    Raises :class:`InputError` for a value that cannot be converted, :class:`UnsupportedError` for
    types that have no cast.
    """
    try:
        if type_family(new) == "text":
            return _cast_to_text(array, old, new)
        rule = isinstance(old, AtomicType) and _CAST_RULES.get((type_family(old), type_family(new)))
        if isinstance(old, AtomicType) and rule:
            return rule(array, old, new)
    except (ValueError, ArithmeticError) as error:
        raise InputError(
            f"a column was changed from {type_to_sql(old)} to {type_to_sql(new)}, and a value in "
            f"an old file cannot be converted: {error}"
        ) from error
    raise UnsupportedError(
        f"a column of type {type_to_sql(old)} cannot be read as {type_to_sql(new)}"
    )


def type_family(data_type: AtomicType) -> str:
    """Return the group of types with the same casts."""
    return _FAMILY_BY_TYPE.get(data_type.name, data_type.name)


def truncate_timestamps(array: pa.Array, unit: str) -> pa.Array:
    """Round timestamps down to a unit, so that a cast to it is exact."""
    names = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
    return pc.floor_temporal(array, unit=names[unit])


def _cast_to_text(array: pa.Array, old: DataType, new: AtomicType) -> pa.Array:
    text = to_text(array, old)
    is_binary = isinstance(old, AtomicType) and type_family(old) == "binary"
    # Java Paimon does not truncate or pad bytes that it casts to text
    return text if is_binary else fit_text_to_length(text, new)


def _to_numpy(array: pa.Array, dtype: type) -> AnyArray:
    values: AnyArray = to_numpy(array).astype(dtype, copy=False)
    return values


def _with_nulls_of(values: AnyArray, like: pa.Array) -> pa.Array:
    return to_arrow_array(values, mask=to_numpy(like.is_null()))


def _cast_unchecked(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    """Convert as Arrow does: integers wrap around, floating-point numbers are rounded."""
    return array.cast(to_arrow_type(new), safe=False)


def _boolean_to_number(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    return array.cast(pa.int8()).cast(to_arrow_type(new))


def _integer_to_boolean(array: pa.Array, _old: AtomicType, _new: AtomicType) -> pa.Array:
    return pc.not_equal(array.cast(pa.int32(), safe=False), 0)  # Java uses the lower 32 bits


def _float_to_integer(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    """Truncate and saturate as Java does: smaller types get the wrapped 32-bit number."""
    kind: type = np.int64 if new.name == TypeRoot.BIGINT else np.int32
    limits, values = np.iinfo(kind), np.nan_to_num(_to_numpy(array, np.float64), nan=0.0)
    low, high = float(limits.min), float(limits.max)  # the 64-bit maximum rounds up to 2**63
    is_in_range = (values > low) & (values < high)
    integers: AnyArray = np.where(is_in_range, values, 0).astype(kind)
    integers = np.where(values >= high, limits.max, np.where(values <= low, limits.min, integers))
    return _with_nulls_of(integers, array).cast(to_arrow_type(new), safe=False)


def _to_decimal(array: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    precision, scale = new.params
    if old.name == TypeRoot.DECIMAL:
        old_precision, old_scale = old.params
        if scale >= old_scale and precision - scale >= old_precision - old_scale:
            return array.cast(to_arrow_type(new))
    if type_family(old) == "float":
        # repr returns the shortest decimal form of the double, as BigDecimal.valueOf does
        numbers = [None if value is None else Decimal(repr(value)) for value in array.to_pylist()]
    else:
        numbers = [None if value is None else Decimal(value) for value in array.to_pylist()]
    return pa.array(
        [round_decimal(number, precision, scale) for number in numbers], to_arrow_type(new)
    )


def round_decimal(number: Decimal | None, precision: int, scale: int) -> Decimal | None:
    """Round half up to a scale; return None if the result exceeds the precision."""
    if number is None:
        return None
    if not number.is_finite():
        raise ValueError(f"{number} is not a decimal number")
    result = number.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, _WIDE_CONTEXT)
    return result if len(result.as_tuple().digits) <= precision or not result else None


def _decimal_to_integer(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    """Truncate the fraction and keep the lower 64 bits."""
    integers = [
        None if value is None else ((int(value) + (1 << 63)) % (1 << 64) - (1 << 63))
        for value in array.to_pylist()
    ]
    return pa.array(integers, pa.int64()).cast(to_arrow_type(new), safe=False)


def _decimal_to_float(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    values = [None if value is None else float(value) for value in array.to_pylist()]
    return pa.array(values, pa.float64()).cast(to_arrow_type(new))


def _to_binary(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    """Truncate to the length; BINARY is also padded with zero bytes."""
    (length,) = new.params
    values = pc.binary_slice(array.cast(pa.binary()), 0, length)
    if new.name == TypeRoot.VARBINARY:
        return values
    padded = [None if value is None else value.ljust(length, b"\0") for value in values.to_pylist()]
    return pa.array(padded, pa.binary())


def _parse_text(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    if new.name == TypeRoot.DECIMAL:
        numbers = parse_text(array, new, pa.string())
        return _to_decimal(numbers, AtomicType(name=TypeRoot.VARCHAR), new)
    return parse_text(array, new, to_arrow_type(new))


def _count_units(array: pa.Array, unit: str) -> AnyArray:
    """Return timestamps as numbers of a unit, rounded down; the unit must not be finer."""
    assert isinstance(array.type, pa.TimestampType)
    factor = _UNITS_PER_SECOND[array.type.unit] // _UNITS_PER_SECOND[unit]
    return _to_numpy(array.view(pa.int64()), np.int64) // factor


def _divide_toward_zero(values: AnyArray, step: int) -> AnyArray:
    """Divide as Java does, rounding toward zero."""
    return np.where(values < 0, -(-values // step), values // step)


def _date_to_timestamp(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    target = to_arrow_type(new)
    assert isinstance(target, pa.TimestampType)
    return array.cast(pa.timestamp("s")).cast(pa.timestamp(target.unit)).view(target)


def _time_to_timestamp(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    target = to_arrow_type(new)
    assert isinstance(target, pa.TimestampType)
    millis = array.view(pa.int32()).cast(pa.int64()).view(pa.timestamp("ms"))
    return millis.cast(pa.timestamp(target.unit)).view(target)


def _integer_to_timestamp(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    target = to_arrow_type(new)
    assert isinstance(target, pa.TimestampType)
    return (
        array.cast(pa.int64()).view(pa.timestamp("s")).cast(pa.timestamp(target.unit)).view(target)
    )


def _timestamp_to_integer(array: pa.Array, _old: AtomicType, new: AtomicType) -> pa.Array:
    """Return seconds since the epoch, rounded up before 1970 as Java does."""
    seconds = _divide_toward_zero(_count_units(array, "ms"), 1000)
    return _with_nulls_of(seconds, array).cast(to_arrow_type(new), safe=False)


def _timestamp_to_date(array: pa.Array, _old: AtomicType, _new: AtomicType) -> pa.Array:
    """Return the day.

    Java Paimon 0.9 returns the next day for times before 1970 without zone; newer versions do not.
    """
    days = _count_units(array, "ms") // _MILLIS_PER_DAY
    return _with_nulls_of(days.astype(np.int32), array).view(pa.date32())


def _timestamp_to_time(array: pa.Array, _old: AtomicType, _new: AtomicType) -> pa.Array:
    millis = _count_units(array, "ms") % _MILLIS_PER_DAY
    return _with_nulls_of(millis.astype(np.int32), array).view(pa.time32("ms"))


def _timestamp_to_timestamp(array: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    """Truncate as Java does.

    Digits below milliseconds are rounded down, digits of milliseconds towards zero.
    """
    target, (old_precision,), (precision,) = to_arrow_type(new), old.params, new.params
    assert isinstance(target, pa.TimestampType)
    counts = truncate_timestamps(array, target.unit).cast(
        pa.timestamp(target.unit, tz=array.type.tz)
    )
    if precision >= old_precision:
        return counts.view(target)
    values = _to_numpy(counts.view(pa.int64()), np.int64)
    step = _UNITS_PER_SECOND[target.unit] // 10**precision
    truncated = _divide_toward_zero(values, step) if precision < 3 else values // step
    return _with_nulls_of(truncated * step, array).view(target)


_CAST_RULES: Mapping[tuple[str, str], CastRule] = {
    (TypeRoot.BOOLEAN, "integer"): _boolean_to_number,
    (TypeRoot.BOOLEAN, "float"): _boolean_to_number,
    (TypeRoot.BOOLEAN, TypeRoot.DECIMAL): _to_decimal,
    ("integer", TypeRoot.BOOLEAN): _integer_to_boolean,
    ("integer", "integer"): _cast_unchecked,
    ("integer", "float"): _cast_unchecked,
    ("integer", TypeRoot.DECIMAL): _to_decimal,
    ("integer", "timestamp"): _integer_to_timestamp,
    ("float", "integer"): _float_to_integer,
    ("float", "float"): _cast_unchecked,
    ("float", TypeRoot.DECIMAL): _to_decimal,
    (TypeRoot.DECIMAL, "integer"): _decimal_to_integer,
    (TypeRoot.DECIMAL, "float"): _decimal_to_float,
    (TypeRoot.DECIMAL, TypeRoot.DECIMAL): _to_decimal,
    ("text", TypeRoot.BOOLEAN): _parse_text,
    ("text", "integer"): _parse_text,
    ("text", "float"): _parse_text,
    ("text", TypeRoot.DECIMAL): _parse_text,
    ("text", "binary"): _to_binary,
    ("text", TypeRoot.DATE): _parse_text,
    ("text", TypeRoot.TIME): _parse_text,
    ("text", "timestamp"): _parse_text,
    ("binary", "binary"): _to_binary,
    (TypeRoot.DATE, "timestamp"): _date_to_timestamp,
    (TypeRoot.TIME, TypeRoot.TIME): lambda array, _old, _new: array,
    (TypeRoot.TIME, "timestamp"): _time_to_timestamp,
    ("timestamp", "integer"): _timestamp_to_integer,
    ("timestamp", TypeRoot.DATE): _timestamp_to_date,
    ("timestamp", TypeRoot.TIME): _timestamp_to_time,
    ("timestamp", "timestamp"): _timestamp_to_timestamp,
}
