"""Converts data of callers, and internal values, to the Arrow types of columns."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.nested_arrays import (
    build_map_entries,
    contains_type,
    map_key_value_fields,
    with_fields,
    with_values,
)
from paimon_orch.files.schema_evolution.cast import truncate_timestamps
from paimon_orch.files.schema_evolution.cast_string import parse_text
from paimon_orch.files.store_assignment import check_store_assignment, find_kind
from paimon_orch.files.variant_text import has_variants, parse_variants
from paimon_orch.format.arrays import build_nulls, to_arrow_array, to_numpy
from paimon_orch.format.text import encode_text
from paimon_orch.format.time_zones import to_local_times
from paimon_orch.format.types.arrow import VARIANT_TYPE, is_variant, to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot
from paimon_orch.format.variant.shredding import assemble_variants, check_variants

_LIST_TYPES = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_ZONE_PATTERN = r"(Z|[+-]\d{2}:?\d{2})$"
_TIME_PATTERN = r"^(\d+|\s*\d{1,2}(:[0-5]?\d(:[0-5]?\d(\.\d{1,3}0*)?)?)?\s*)$"
_TIME_OF_DAY = AtomicType(name=TypeRoot.TIME, params=(3,))
_ZEROS_OF_FRACTION = r"((\.\d*?[1-9])|\.)0+(Z|[+-]\d{2}:?\d{2}|)$"


def build_constant_column(value: object, data_type: DataType, length: int) -> pa.Array:
    """Return a column of one internal value."""
    target = to_arrow_type(data_type)
    if value is None:
        return build_nulls(length, target)
    if isinstance(data_type, AtomicType) and data_type.name in (TypeRoot.DATE, TypeRoot.TIME):
        return to_arrow_array(np.full(length, value, np.int32)).view(target)
    if isinstance(target, pa.TimestampType):
        return to_arrow_array(np.full(length, value, np.int64)).view(target)
    if pa.types.is_integer(target):
        return to_arrow_array(np.full(length, value, target.to_pandas_dtype()))
    if isinstance(value, str):
        return _repeat_text(value, length).view(target)
    return pa.repeat(pa.scalar(value, target), length)


def _repeat_text(text: str, length: int) -> pa.Array:
    """Return text as binary values; unlike ``pyarrow.scalar``, this does not import pandas."""
    data = encode_text(text)
    offsets = np.array([0, len(data)], np.int32)
    value = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.repeat(value[0], length)


def convert_to_arrow_type(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert data from a caller to a column's Arrow type.

    Raises ``pyarrow.ArrowInvalid`` or ``ArrowNotImplementedError`` for a value that the type cannot
    hold, such as microseconds in TIMESTAMP(3), and for a kind of values that the column does not
    store, such as dates in INT. A number may become the nearest FLOAT or DOUBLE.
    """
    array = _decode(array)
    if is_variant(target):
        return _convert_to_variants(array)
    if array.type == target:
        return array
    if pa.types.is_nested(target):
        return _convert_nested(array, target)
    if isinstance(array, pa.UuidArray) and pa.types.is_string(target):
        raise pa.ArrowInvalid("a UUID has 16 bytes, and is not text; convert it with str")
    check_store_assignment(array.type, target)
    if find_kind(array.type) == "text":
        return _parse_text(array, target)
    if isinstance(array.type, pa.TimestampType) and isinstance(target, pa.TimestampType):
        converted = convert_timestamps(array, target)
        _refuse_changes(array, converted, _find_lost_fractions(array, converted))
        return converted
    if pa.types.is_decimal(target) and pa.types.is_integer(array.type):
        # A direct cast fails if the largest number of the integer type does not fit. These casts
        # fail only if one of the values does not fit.
        wide = pa.decimal256(20 + target.scale, target.scale)
        return array.cast(wide).cast(target)
    return _cast_unchanged(array, target)


def _cast_unchanged(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast values, and refuse the changes that Arrow's safe casts allow."""
    if isinstance(array.type, pa.TimestampType) and array.type.tz is not None:
        array = to_local_times(array)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(target):
        return array.cast(pa.string()).cast(target)  # Arrow's cast is not to the nearest number
    converted = array.cast(target)
    if pa.types.is_floating(array.type) and pa.types.is_floating(target):
        lost = pc.and_(pc.is_inf(converted), pc.invert(pc.is_inf(array)))
        _refuse_changes(array, converted, lost)
    elif pa.types.is_floating(array.type) and pa.types.is_decimal(target):
        _refuse_changes(array, converted, _find_lost_digits(array, converted))
    elif pa.types.is_date(target) and isinstance(array.type, pa.TimestampType):
        _refuse_changes(array, converted, pc.not_equal(converted.cast(array.type), array))
    return converted


def _find_lost_fractions(array: pa.Array, converted: pa.Array) -> pa.Array:
    """Return a mask of the timestamps that a coarser unit truncates."""
    if array.type.tz is not None and converted.type.tz is None:
        array = to_local_times(array)
    unit = pa.timestamp(array.type.unit)
    times = converted.view(pa.timestamp(converted.type.unit))
    if times.type == unit:
        return pa.repeat(pa.scalar(value=False), len(array))
    # a finer unit holds all values, or the conversion would have failed
    return pc.not_equal(times.cast(unit, safe=False), array.view(unit))


def _find_lost_digits(array: pa.Array, converted: pa.Array) -> pa.Array:
    """Return a mask of the numbers that a scale rounds: not 0.1, which no float holds exactly."""
    numbers = to_numpy(array.fill_null(0))
    stored = to_numpy(converted.cast(array.type).fill_null(0))
    tolerance = 4 * np.finfo(numbers.dtype).eps * np.abs(numbers)
    return to_arrow_array(np.abs(stored - numbers) > tolerance)


def _refuse_changes(array: pa.Array, converted: pa.Array, changed: pa.Array) -> None:
    if pc.any(changed).as_py():
        value, stored = (x.filter(changed)[0].cast(pa.string()) for x in (array, converted))
        raise pa.ArrowInvalid(f"the value {value} would become {stored}")


def _decode(array: pa.Array) -> pa.Array:
    """Return an array without dictionary or run-end encoding, and with lists in their usual layout.

    Arrow's casts do not support all of them, for example dictionaries of Polars.
    """
    kind = array.type
    if isinstance(kind, pa.DictionaryType):
        return _decode(array.dictionary).take(array.indices)
    if isinstance(kind, pa.RunEndEncodedType):
        return _decode(pc.run_end_decode(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    if isinstance(kind, pa.Bool8Type):
        return array.cast(pa.bool_())
    if pa.types.is_date64(kind):
        return array.cast(pa.date32())
    if isinstance(kind, pa.ListViewType | pa.LargeListViewType):
        offsets = np.concatenate(([0], np.cumsum(to_numpy(array.value_lengths()))))
        lists = pa.LargeListArray.from_arrays(to_arrow_array(offsets), array.flatten())
        return pc.if_else(array.is_valid(), lists, None) if array.null_count else lists
    return array


def _convert_nested(array: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.StructType) and isinstance(target, pa.StructType):
        return with_fields(array, target, _convert_fields(array, target))
    if isinstance(array.type, pa.MapType) and isinstance(target, pa.MapType):
        array = _drop_hidden_values(array)
        entries = array.values
        parts = [
            convert_to_arrow_type(entries.field(i), f.type)
            for i, f in enumerate(map_key_value_fields(target))
        ]
        return with_values(array, target, build_map_entries(target, parts))
    if isinstance(target, _LIST_TYPES) and isinstance(array.type, _LIST_TYPES):
        lists, values = _open_lists(array, target)
        return with_values(lists, target, convert_to_arrow_type(values, target.value_type))
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    raise pa.ArrowInvalid(f"it has another nesting than {target}")


def _open_lists(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return lists with 32-bit offsets or the length of a vector, and their values."""
    items, size = array.type.value_type, -1
    array = _drop_hidden_values(array)
    if isinstance(target, pa.FixedSizeListType):
        size = target.list_size
    elif not isinstance(array.type, pa.FixedSizeListType):
        mask = array.is_null() if array.null_count else None
        offsets = array.offsets.cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, array.values, mask=mask), array.values
    if pa.types.is_null(items):  # Arrow casts them to one value for each list
        lists = array.cast(pa.list_(pa.int8(), size))
        return lists, pa.nulls(len(lists.values))
    lists = array.cast(pa.list_(_make_nullable(items), size))
    return lists, lists.values


def _drop_hidden_values(array: pa.Array) -> pa.Array:
    """Return lists or maps without the values of no row: those outside of a slice, or below null.

    Such values may be any, so they are not converted.
    """
    nulls = to_numpy(array.is_null())
    if isinstance(array, pa.FixedSizeListArray):
        size = array.type.list_size
        if size == 0:  # Arrow crashes when it builds such an array
            return array
        values = array.values.slice(array.offset * size, len(array) * size)
        if not array.null_count:
            return pa.FixedSizeListArray.from_arrays(values, type=array.type)
        values = pc.if_else(to_arrow_array(np.repeat(nulls, size)), None, values)
        return pa.FixedSizeListArray.from_arrays(values, size, mask=array.is_null())
    offsets = to_numpy(array.offsets)
    has_hidden = len(array.values) != offsets[-1] - offsets[0] or np.diff(offsets)[nulls].any()
    return array.take(to_arrow_array(np.arange(len(array)))) if has_hidden else array


def _make_nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type without NOT NULL, because casts refuse NOT NULL fields of null rows."""
    if isinstance(kind, pa.StructType):
        return pa.struct([(field.name, _make_nullable(field.type)) for field in kind])
    if isinstance(kind, pa.MapType):
        return pa.map_(_make_nullable(kind.key_type), _make_nullable(kind.item_type))
    if isinstance(kind, _LIST_TYPES):
        size = kind.list_size if isinstance(kind, pa.FixedSizeListType) else -1
        items = _make_nullable(kind.value_type)
        return pa.large_list(items) if isinstance(kind, pa.LargeListType) else pa.list_(items, size)
    return kind


def _convert_to_variants(array: pa.Array) -> pa.Array:
    """Convert JSON text, or a struct of ``value`` and ``metadata``, to VARIANT."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    try:
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            return parse_variants(array)
        if isinstance(array.type, pa.StructType):
            variants = assemble_variants(array)
            check_variants(variants)
            return variants
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), VARIANT_TYPE)
    raise pa.ArrowInvalid("VARIANT needs JSON text, or a struct of value and metadata")


def _convert_fields(array: pa.Array, target: pa.StructType) -> list[pa.Array]:
    """Convert the fields of a row.

    Arrow's cast drops unknown fields, and fails for fields of null rows.
    """
    names = {field.name for field in array.type}
    if len(names) < array.type.num_fields:
        raise pa.ArrowInvalid(f"the row has several fields with one name: {array.type}")
    if unknown := sorted(names - {field.name for field in target}):
        raise pa.ArrowInvalid(f"the type of the row has no field {', '.join(unknown)}: {target}")
    # flatten makes the text of null rows null, because it may be no value of another type
    visible = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    fields = []
    for field in target:
        if field.name not in names:
            fields.append(pa.nulls(len(array), field.type))
            continue
        is_parsed = has_variants(field.type) or contains_type(visible[field.name].type, _is_text)
        values = visible[field.name] if is_parsed else array.field(field.name)
        fields.append(convert_to_arrow_type(values, field.type))
    return fields


def _is_text(kind: pa.DataType) -> bool:
    return find_kind(kind) == "text"


def _parse_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse text; refuse forms that only Arrow reads as an integer, and numbers beyond the range."""
    if isinstance(target, pa.TimestampType):
        return _parse_timestamps(array.cast(pa.string()), target)
    if pa.types.is_time(target):
        return _parse_times(array, target)
    if pa.types.is_integer(target):
        is_misread = pc.match_substring(array, "x", ignore_case=True)  # hexadecimal digits
        if pc.any(is_misread).as_py():
            text = array.filter(is_misread)[0].as_py()
            raise pa.ArrowInvalid(f"{text!r} is not a decimal number")
    converted = array.cast(target)
    if pa.types.is_floating(target):
        digits = pc.match_substring_regex(array, r"\d")  # the word of infinity has none
        _refuse_changes(array, converted, pc.and_(pc.is_inf(converted), digits))
    return converted


def _parse_times(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse times of a day in the forms that Java Paimon casts, of which it stores each part."""
    is_refused = pc.invert(pc.match_substring_regex(array, _TIME_PATTERN))
    if pc.any(is_refused).as_py():
        text = array.filter(is_refused)[0].as_py()
        raise pa.ArrowInvalid(f"{text!r} is not a time of a day, such as 10:30 or 10:30:59.999")
    try:
        return parse_text(array, _TIME_OF_DAY, target)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error


def _parse_timestamps(array: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Parse ISO 8601 strings; a string without a zone is in UTC.

    In a column without a zone, a string has the local time of its zone, as an instant does.
    """
    # Arrow refuses more digits than the unit has, also zeros
    array = pc.replace_substring_regex(array, _ZEROS_OF_FRACTION, r"\2\3")
    zoned = pc.match_substring_regex(array, _ZONE_PATTERN)
    nothing = pa.scalar(None, array.type)
    instants = pc.if_else(zoned, array, nothing).cast(pa.timestamp(target.unit, tz="UTC"))
    if target.tz is None:
        return pc.replace_substring_regex(array, _ZONE_PATTERN, "").cast(target)
    local = pc.if_else(zoned, nothing, array).cast(pa.timestamp(target.unit))
    return pc.coalesce(instants.view(local.type), local).view(target)


def convert_timestamps(array: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Return timestamps in another unit, truncated.

    In a column without a zone, instants become local times of their zone, as in Spark; times
    without a zone are in UTC.
    """
    if array.type.tz is not None and target.tz is None:
        array = to_local_times(array)
    times = array.view(pa.timestamp(array.type.unit))
    return truncate_timestamps(times, target.unit).cast(pa.timestamp(target.unit)).view(target)
