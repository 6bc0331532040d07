"""Each type of Arrow in each type of column: the same values are stored, or it is refused."""

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_orch.errors import InputError
from paimon_orch.files.arrow_conversion import convert_to_arrow_type
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import parse_columns, parse_type
from paimon_orch.table.write.conform_rows import convert_rows


def _count(number: int, kind: pa.DataType) -> pa.Array:
    """Return a time whose unit is counted from its beginning."""
    return pa.array([number, None], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


DAY = datetime(2024, 1, 1)
DAYS, SECONDS = 19_723, 19_723 * 86_400
INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
NUMBERS = (*INTEGERS, "FLOAT", "DOUBLE", "DECIMAL(20, 2)")
TEXTS, BYTES = ("STRING", "VARCHAR(20)", "CHAR(20)"), ("BYTES", "BINARY(20)", "VARBINARY(20)")
TIMESTAMPS = ("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)")
INSTANTS = ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(9)")
COLUMNS = ("BOOLEAN", *NUMBERS, *TEXTS, *BYTES, "DATE", "TIME(3)", *TIMESTAMPS, *INSTANTS)

Stored = dict[str, Any]
"""The stored value by column; the types that are missing refuse it."""


def _in(columns: tuple[str, ...], value: Any) -> Stored:
    return dict.fromkeys(columns, value)


INSTANT_DAY = pa.scalar(SECONDS, pa.timestamp("s", "UTC")).as_py()
ONE = _in(NUMBERS, 1) | _in(TEXTS, "1")
HALVES = _in(("FLOAT", "DOUBLE", "DECIMAL(20, 2)"), 1.5)
TEXT = _in(TEXTS, "abc") | _in(BYTES, b"abc")
STORED_DAY = {"DATE": date(2024, 1, 1), **_in(TIMESTAMPS, DAY), **_in(INSTANTS, INSTANT_DAY)}
TENTH = {"TIME(3)": time(0, 0, 0, 5000)}
CELLS: dict[str, tuple[pa.Array, Stored]] = {
    "null": (pa.nulls(2), _in(COLUMNS, None)),
    "bool": (pa.array([True, None]), {"BOOLEAN": True, **_in(TEXTS, "true")}),
    "bool8": (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
        {"BOOLEAN": True, **_in(TEXTS, "true")},
    ),
    **{
        str(kind): (pa.array([1, None], kind), ONE)
        for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64())
    },
    "uint64": (
        pa.array([2**64 - 1, None], pa.uint64()),
        _in(TEXTS, str(2**64 - 1)),
    ),
    "int of 300": (
        pa.array([300, None]),
        {**_in(NUMBERS[1:], 300), **_in(TEXTS, "300")},
    ),
    "int of 2 ** 53 + 1": (
        pa.array([2**53 + 1, None]),
        {"BIGINT": 2**53 + 1, "DECIMAL(20, 2)": 2**53 + 1, **_in(TEXTS, str(2**53 + 1))},
    ),
    "halffloat": (pa.array([1.5, None], pa.float16()), _in(("FLOAT", "DOUBLE"), 1.5)),
    "float": (pa.array([1.5, None], pa.float32()), HALVES),
    "double": (pa.array([1.5, None]), HALVES),
    "double of 1.0": (pa.array([1.0, None]), _in(NUMBERS, 1)),
    "double of 1e300": (pa.array([1e300, None]), {"DOUBLE": 1e300}),
    "decimal": (pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)), HALVES),
    "decimal256": (pa.array([Decimal("1.500"), None], pa.decimal256(50, 3)), HALVES),
    "decimal of 1.0": (pa.array([Decimal("1.0"), None]), _in(NUMBERS, 1)),
    "decimal of 1.005": (pa.array([Decimal("1.005"), None]), _in(("FLOAT", "DOUBLE"), None)),
    "string": (pa.array(["abc", None]), TEXT),
    "large_string": (pa.array(["abc", None], pa.large_string()), TEXT),
    "string_view": (pa.array(["abc", None], pa.string_view()), TEXT),
    "dictionary": (pa.array(["abc", None]).dictionary_encode(), TEXT),
    "string of 1": (
        pa.array(["1", None]),
        {"BOOLEAN": True, **ONE, **_in(BYTES, b"1"), "TIME(3)": time(0, 0, 0, 1000)},
    ),
    "string of 0x10": (pa.array(["0x10", None]), _in(TEXTS, "0x10") | _in(BYTES, b"0x10")),
    "string of 1e400": (pa.array(["1e400", None]), _in(TEXTS, "1e400") | _in(BYTES, b"1e400")),
    "large_string of a day": (
        pa.array(["2024-01-01", None], pa.large_string()),
        STORED_DAY | _in(TEXTS, "2024-01-01") | _in(BYTES, b"2024-01-01"),
    ),
    "binary": (pa.array([b"abc", None]), TEXT),
    "binary that is not UTF-8": (pa.array([b"\xff", None]), _in(BYTES, b"\xff")),
    "fixed_size_binary": (pa.array([b"abc", None], pa.binary(3)), TEXT),
    "date32": (_count(DAYS, pa.date32()), STORED_DAY | _in(TEXTS, "2024-01-01")),
    "date64": (_count(SECONDS * 1000, pa.date64()), STORED_DAY | _in(TEXTS, "2024-01-01")),
    "date64 of a moment": (_count(SECONDS * 1000 + 1, pa.date64()), {}),
    "time32": (_count(5, pa.time32("ms")), TENTH),
    "time64": (_count(5_000_000, pa.time64("ns")), TENTH),
    "time64 of a microsecond": (_count(1, pa.time64("us")), {}),
    "timestamp of a day": (_count(SECONDS, pa.timestamp("s")), STORED_DAY),
    "timestamp": (
        _count(SECONDS * 10**6 + 1, pa.timestamp("us")),
        _in(TIMESTAMPS[1:], None) | _in(INSTANTS[1:], None),
    ),
    "instant": (
        _count(SECONDS * 1000 + 1, pa.timestamp("ms", "UTC")),
        _in((*TIMESTAMPS, *INSTANTS), None),
    ),
    "duration": (_count(1, pa.duration("us")), {}),
    "interval": (pa.array([(1, 2, 3), None], pa.month_day_nano_interval()), {}),
    "list": (pa.array([[1], None]), {}),
    "struct": (pa.array([{"x": 1}, None]), {}),
    "map": (pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int64())), {}),
}  # fmt: skip


def _keep(array: pa.Array) -> pa.Array:
    return array


def _into_list(array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays([0, len(array)], array)


def _into_map(array: pa.Array) -> pa.Array:
    keys = pa.array([str(number) for number in range(len(array))])
    return pa.MapArray.from_arrays([0, len(array)], keys, array)


def _into_row(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array], ["x"])


NESTINGS: dict[str, tuple[str, Callable[[pa.Array], pa.Array], Callable[[pa.Array], pa.Array]]] = {
    "simple": ("{}", _keep, _keep),
    "ARRAY": ("ARRAY<{}>", _into_list, lambda lists: lists.values),
    "MAP": ("MAP<STRING, {}>", _into_map, lambda maps: maps.items),
    "large ARRAY": (
        "ARRAY<{}>",
        lambda array: pa.LargeListArray.from_arrays([0, len(array)], array),
        lambda lists: lists.values,
    ),
    "ROW": ("ROW<x {}>", _into_row, lambda rows: rows.field("x")),
    "ARRAY of ROW": (
        "ARRAY<ROW<x {}>>",
        lambda array: _into_list(_into_row(array)),
        lambda lists: lists.values.field("x"),
    ),
}


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("given", CELLS)
def test_values_are_stored_unchanged_or_refused(given: str, nesting: str) -> None:
    array, stored = CELLS[given]
    form, wrap, unwrap = NESTINGS[nesting]
    for column in COLUMNS:
        target = to_arrow_type(parse_type(form.format(column)))
        if column not in stored:
            with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
                convert_to_arrow_type(wrap(array), target)
            continue
        converted = convert_to_arrow_type(wrap(array), target)
        assert converted.type == target
        [value, null] = unwrap(converted)
        assert not null.is_valid
        assert value.is_valid == (given != "null"), column
        if stored[column] is not None:
            assert value.as_py() == stored[column], column


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("INT", pa.array([date(2024, 1, 1)]),
         "the number would depend on a unit; cast the column to int32 yourself"),
        ("BIGINT", pa.array([DAY]), "a timestamp is not stored as an integer"),
        ("DOUBLE", _count(1, pa.duration("us")), "duration[us] is not stored as a number"),
        ("INT", pa.array([True]), "a boolean is not stored as an integer, as in Spark; cast"),
        ("BOOLEAN", pa.array([1]), "an integer is not stored as a boolean, as in Spark; cast"),
        ("TIMESTAMP(3)", pa.array([1]),
         "because the number has no unit; cast the column to timestamp[ms] yourself"),
        ("STRING", pa.array([1.0]), "several forms as text; cast the column to text"),
        ("ARRAY<INT>", pa.array([[date(2024, 1, 1)]]), "a date is not stored as an integer"),
        ("ROW<x INT>", pa.array([[1]]), "it has another nesting than struct<x: int32>"),
        ("ROW<x INT>", pa.StructArray.from_arrays([pa.array([1])] * 2, ["x", "x"]),
         "the row has several fields with one name"),
    ],
)  # fmt: skip
def test_the_error_names_both_types_and_the_cast(
    column: str, values: pa.Array, message: str
) -> None:
    schema = build_table_schema(parse_columns(f"v {column}"))

    with pytest.raises(InputError) as caught:
        convert_rows(pa.table({"v": values}), schema)

    assert f"column 'v' is {values.type} and cannot be stored as {column}" in str(caught.value)
    assert message in str(caught.value)
    assert "Nothing was written" in str(caught.value)


@pytest.mark.parametrize(
    ("column", "given", "rows", "expected"),
    [
        ("ARRAY<INT>", pa.list_(pa.float64()), [[1.5], [2.0]], [[2]]),
        ("ARRAY<INT>", pa.large_list(pa.float64()), [[1.5], [2.0]], [[2]]),
        ("ARRAY<INT>", pa.list_(pa.float64(), 1), [[1.5], [2.0]], [[2]]),
        ("ARRAY<ARRAY<INT>>", pa.list_(pa.list_(pa.float64())), [[[1.5]], [[2.0], None]],
         [[[2], None]]),
        ("MAP<STRING, INT>", pa.map_(pa.string(), pa.float64()), [[("a", 1.5)], [("b", 2.0)]],
         [[("b", 2)]]),
        ("VECTOR<INT, 1>", pa.list_(pa.float64(), 1), [[1.5], [2.0]], [[2]]),
        ("VECTOR<INT, 1>", pa.list_(pa.float64()), [[1.5], [2.0]], [[2]]),
    ],
)  # fmt: skip
def test_values_outside_of_a_slice_are_not_converted(
    column: str, given: pa.DataType, rows: list[object], expected: list[object]
) -> None:
    target = to_arrow_type(parse_type(column))
    array = pa.array([*rows, None], given)

    converted = convert_to_arrow_type(array.slice(1), target)

    assert converted.to_pylist() == pa.array([*expected, None], target).to_pylist()
    with pytest.raises(pa.ArrowInvalid):
        convert_to_arrow_type(array, target)


@pytest.mark.parametrize("column", ["ARRAY<INT>", "VECTOR<INT, 1>"])
def test_values_below_null_are_not_converted(column: str) -> None:
    values, nulls = pa.array([1.5, 2.0]), pa.array([True, False])
    target = to_arrow_type(parse_type(column))
    arrays = [
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values, mask=nulls),
        pa.LargeListArray.from_arrays(pa.array([0, 1, 2]), values, mask=nulls),
        pa.FixedSizeListArray.from_arrays(values, 1, mask=nulls),
    ]
    assert [convert_to_arrow_type(a, target).to_pylist() for a in arrays] == [[None, [2]]] * 3


def test_lists_of_lists_of_nulls_are_stored() -> None:
    array = pa.array([[[None]], [[None, None], []]], pa.large_list(pa.large_list(pa.null())))
    target = to_arrow_type(parse_type("ARRAY<ARRAY<INT>>"))

    assert convert_to_arrow_type(array, target).to_pylist() == array.to_pylist()


def test_lists_of_a_fixed_length_of_zero_are_stored() -> None:
    array = pa.array([[], None], pa.list_(pa.float64(), 0))
    assert convert_to_arrow_type(array, pa.list_(pa.int32())).to_pylist() == [[], None]


@pytest.mark.parametrize("zone", ["", "Z", "+00:00", "+02:00", "-0530"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_timestamp_without_a_zone_stores_the_local_time_of_text(unit: str, zone: str) -> None:
    text = pa.array([f"2024-01-01T10:00:00{zone}", f"0001-01-01 10:00:00.123{zone}", None])
    local = pa.array(["2024-01-01T10:00:00", "0001-01-01T10:00:00.123", None])
    kind = pa.timestamp(unit)
    if unit == "ns":  # they begin in 1677
        text, local = text.take([0, 2]), local.take([0, 2])

    assert convert_to_arrow_type(text, kind).equals(local.cast(kind))


@pytest.mark.parametrize("zone", ["", "Z", "-05:30"])
def test_zeros_at_the_end_of_a_fraction_of_text_are_not_too_many_digits(zone: str) -> None:
    texts = [f"2024-01-01 10:00:00.{digits}{zone}" for digits in ("500000", "000000000", "1050")]
    kind = pa.timestamp("ms", "UTC")
    exact = [f"2024-01-01 10:00:00{digits}{zone}" for digits in (".5", "", ".105")]

    assert convert_to_arrow_type(pa.array(texts), kind).equals(
        convert_to_arrow_type(pa.array(exact), kind)
    )
    for digits in ("500500", "0000001"):
        with pytest.raises(pa.ArrowInvalid, match="Failed to parse"):
            convert_to_arrow_type(pa.array([f"2024-01-01 10:00:00.{digits}{zone}"]), kind)


def test_text_with_a_zone_that_does_not_exist_is_refused() -> None:
    for kind in (pa.timestamp("ms"), pa.timestamp("ms", "UTC")):
        with pytest.raises(pa.ArrowInvalid, match="99:00"):
            convert_to_arrow_type(pa.array(["2024-01-01T10:00:00+99:00"]), kind)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_a_time_of_day_stores_text_in_the_forms_that_java_casts(kind: pa.DataType) -> None:
    hours = {
        "10": time(0, 0, 0, 10_000),  # digits only are milliseconds
        "10 ": time(10),
        "10:30": time(10, 30),
        "7:8:9": time(7, 8, 9),
        " 07:08:09.5": time(7, 8, 9, 500_000),
        "07:08:09.123000": time(7, 8, 9, 123_000),
        "23:59:59.999": time(23, 59, 59, 999_000),
    }
    texts = pa.array([*hours, None], kind)
    assert convert_to_arrow_type(texts, pa.time32("ms")).to_pylist() == [*hours.values(), None]
    for text in (
        "", "noon", "24:00", "10:60", "10:00:60", "10:00.5", "10:00:00.1234", "10:00Z",
        "2024-01-01 10:00", "86400000", "-1",
    ):  # fmt: skip
        with pytest.raises(pa.ArrowInvalid, match=f"'{text}' is not a"):
            convert_to_arrow_type(pa.array(["10:00", text], kind), pa.time32("ms"))


def test_text_below_null_is_not_converted() -> None:
    days = pa.array(["2024-01-01", "", "no date"])
    rows = pa.StructArray.from_arrays([days], names=["d"], mask=pa.array([False, True, True]))
    target = pa.struct([pa.field("d", pa.date32(), nullable=False)])

    assert convert_to_arrow_type(rows, target).to_pylist() == [{"d": date(2024, 1, 1)}, None, None]
