"""The order of keys is the same for columns, single values and keys in manifests."""

from __future__ import annotations

import struct
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.merge.sort.key_order import KeyColumns, decode_key

NAN = float("nan")
INFINITY = float("inf")

# These are values of each type, in the order of the format.
ORDERED: dict[str, list[Any]] = {
    "BOOLEAN": [None, False, True],
    "TINYINT": [None, -128, -1, 0, 127],
    "SMALLINT": [None, -32768, 0, 300],
    "INT": [None, -(2**31), -1, 0, 2**31 - 1],
    "BIGINT": [None, -(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1],
    "FLOAT": [None, -INFINITY, -1.5, -0.0, 0.0, 1e-45, 1.5, INFINITY, NAN],
    "DOUBLE": [None, -INFINITY, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, INFINITY, NAN],
    "DECIMAL(10, 2)": [None, Decimal("-9.99"), Decimal("-0.01"), Decimal(0), Decimal("10.00")],
    "DECIMAL(38, 4)": [None, Decimal(-(10**33)), Decimal(0), Decimal(10**33)],
    # U+FFFF is less than U+1F600 in code points and UTF-8 bytes, but greater in UTF-16 units.
    "STRING": [None, "", "\0", "A", "a", "a\0", "aa", "ä", "\uffff", "\U0001f600"],
    "CHAR(3)": [None, "a", "b"],
    "BYTES": [None, b"", b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\0"],
    "DATE": [None, date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    "TIME(3)": [None, time(0), time(0, 0, 0, 1000), time(23, 59, 59, 999000)],
    "TIMESTAMP(3)": [None, datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(1970, 1, 1)],
    "TIMESTAMP(6)": [None, datetime(1, 1, 1), datetime(1970, 1, 1, microsecond=1)],
    "TIMESTAMP(9)": [None, datetime(1900, 1, 1), datetime(2200, 1, 1)],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [None, datetime(1969, 1, 1), datetime(2026, 1, 1)],
}
TYPES = list(ORDERED)


def column_of(name: str, values: list[Any]) -> pa.Table:
    return pa.table({"k": pa.array(values, to_arrow_type(parse_type(name)))})


@pytest.mark.parametrize("name", TYPES)
def test_columns_are_sorted_in_the_order_of_the_format(name: str) -> None:
    expected = ORDERED[name]
    order, random = list(range(len(expected))), Random(0)  # noqa: S311 - the same each time
    for _ in range(20):
        random.shuffle(order)
        shuffled = KeyColumns.of(column_of(name, [expected[position] for position in order]), ["k"])
        assert [order[position] for position in shuffled.compute_order()[0]] == list(
            range(len(expected))
        )


@pytest.mark.parametrize("name", TYPES)
def test_single_keys_have_the_same_order_as_columns(name: str) -> None:
    columns = KeyColumns.of(column_of(name, ORDERED[name]), ["k"])
    keys = [columns.at(position) for position in range(len(columns))]

    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    for position, key in enumerate(keys):
        assert (columns.count_below(key), columns.count_up_to(key)) == (position, position + 1)
        up_to_key = [number <= position for number in range(len(columns))]
        assert columns.find_between(keys[0], key).tolist() == up_to_key


@pytest.mark.parametrize("name", TYPES)
def test_manifest_keys_have_the_same_order_as_row_keys(name: str) -> None:
    kind, table = parse_type(name), column_of(name, ORDERED[name])
    columns = KeyColumns.of(table, ["k"])
    for position, scalar in enumerate(table["k"]):
        manifest_key = serialize_row([to_internal_value(scalar)], [kind])
        assert decode_key(manifest_key, [Field(id=0, name="k", type=kind)]) == columns.at(position)


@pytest.mark.parametrize("name", TYPES)
def test_different_keys_are_not_equal(name: str) -> None:
    values = ORDERED[name]
    doubled = KeyColumns.of(column_of(name, [v for v in values for _ in range(2)]), ["k"])

    assert doubled.compute_order()[1].tolist() == [True, False] * (len(values) - 1) + [True]


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (np.float32, [0x7FC00000, 0xFFC00000, 0x7F800001]),
        (np.float64, [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001]),
    ],
)
def test_all_nan_values_are_the_same_key(kind: type[np.floating], raw: list[int]) -> None:
    form = "<I" if kind is np.float32 else "<Q"
    values = np.frombuffer(b"".join(struct.pack(form, bits) for bits in raw), kind)
    columns = KeyColumns.of(pa.table({"k": values}), ["k"])

    assert columns.compute_order()[1].tolist() == [True, True]


@given(st.lists(st.text(max_size=4)))
def test_text_is_ordered_by_its_bytes(texts: list[str]) -> None:
    texts = [text for text in texts if not any(0xD800 <= ord(char) < 0xE000 for char in text)]
    columns = KeyColumns.of(column_of("STRING", texts), ["k"])
    ordered = [texts[position] for position in columns.compute_order()[0]]

    assert ordered == sorted(texts, key=str.encode)


@pytest.mark.parametrize("last", ["c", "ccc"])
def test_texts_with_the_same_first_eight_bytes_are_ordered_by_the_others(last: str) -> None:
    texts = ["order-2026-b", f"order-2026-{last}", "order-2026-a", "order-2026-b"]
    order, equals_next = KeyColumns.of(column_of("STRING", texts), ["k"]).compute_order()

    assert order.tolist() == [2, 0, 3, 1]
    assert equals_next.tolist() == [False, True, False]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(-3, 3) | st.none(), st.sampled_from(["", "a", "b", None]))))
def test_composite_keys_are_ordered_column_by_column(
    rows: list[tuple[int | None, str | None]],
) -> None:
    table = pa.table(
        {
            "a": pa.array([row[0] for row in rows], pa.int32()),
            "b": pa.array([row[1] for row in rows], pa.string()),
        }
    )
    columns = KeyColumns.of(table, ["a", "b"])
    order, same = columns.compute_order()
    expected = sorted(rows, key=lambda row: [(value is not None, value) for value in row])

    assert [rows[position] for position in order] == expected
    assert same.tolist() == [key == next_key for key, next_key in pairwise(expected)]
    keys = [columns.at(position) for position in range(len(rows))]
    for low, high in pairwise(keys):
        between = [low <= key <= high for key in keys]
        assert columns.find_between(low, high).tolist() == between


def test_chunked_and_sliced_columns_are_sorted() -> None:
    chunked = pa.chunked_array([[3, 1], [], [2]], pa.int64())
    columns = KeyColumns.of(pa.table({"k": chunked}), ["k"])

    assert columns.compute_order()[0].tolist() == [1, 2, 0]
    assert columns.slice(1, 2).at(1) == ((True, 2),)
    assert len(KeyColumns.of(pa.table({"k": chunked}).slice(0, 0), ["k"])) == 0


Row = tuple[str, int, bytes]
ROWS = st.tuples(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["a", "a\0", ""]),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    st.binary(min_size=5, max_size=5),
)


@given(st.lists(ROWS), st.permutations([0, 1, 2]), st.integers(1, 3))
def test_packed_and_plain_keys_have_the_same_order(
    rows: list[Row], order: list[int], count: int
) -> None:
    arrays = [
        pa.array([row[0] for row in rows], pa.string()),
        pa.array([row[1] for row in rows], pa.int64()),
        pa.array([row[2] for row in rows], pa.binary()),
    ]
    positions = order[:count]
    keys = [
        tuple(row[0].encode() if position == 0 else row[position] for position in positions)
        for row in rows
    ]
    sorted_positions, same = KeyColumns(
        tuple(arrays[position] for position in positions)
    ).compute_order()

    # Equal keys keep their order, as in Python's stable sort.
    assert sorted_positions.tolist() == sorted(
        range(len(keys)), key=lambda position: keys[position]
    )
    assert same.tolist() == [key == next_key for key, next_key in pairwise(sorted(keys))]


@pytest.mark.slow
@given(st.sets(ROWS), st.sets(ROWS))
def test_keys_are_searched_in_sorted_keys(own: set[Row], searched: set[Row]) -> None:
    def columns(rows: set[Row]) -> tuple[list[Row], KeyColumns]:
        ordered = sorted(rows, key=lambda row: (row[0].encode(), *row[1:]))
        arrays = zip(*ordered, strict=True) if ordered else ((), (), ())
        kinds = (pa.string(), pa.int64(), pa.binary())
        return ordered, KeyColumns(
            tuple(pa.array(a, kind) for a, kind in zip(arrays, kinds, strict=True))
        )

    (own_rows, own_columns), (searched_rows, searched_columns) = columns(own), columns(searched)
    rows, others = own_columns.find(searched_columns)

    assert [own_rows[position] for position in rows] == [
        searched_rows[position] for position in others
    ]
    assert {own_rows[position] for position in rows} == own & searched
