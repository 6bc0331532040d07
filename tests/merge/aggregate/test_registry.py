"""Aggregate functions, applied to the sequence of values of one key."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap

from paimon_orch.errors import InputError
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.sort.sort_merge_reader import build_sorted_batch

NUMBER_MAP = "MAP<INT, ROW<v INT, t STRING>>"
TABLE = "ARRAY<ROW<x INT, y STRING, s INT>>"


def aggregate_values(data_type: str, function: str, *values: Any, **options: str) -> Any:
    """Merge values of one key; an item is a value to add or a pair of a row kind and a value."""
    named = {f"fields.v.{key.replace('_', '-')}": value for key, value in options.items()}
    named |= {"merge-engine": "aggregation", "fields.v.aggregate-function": function}
    schema = build_table_schema(
        parse_columns(f"k INT, v {data_type}"),
        primary_key=["k"],
        partition_by=[],
        options=named | {"bucket": "1"},
    )
    rows = [value if _has_kind(value) else ("+I", value) for value in values]
    step = build_sorted_batch(
        pa.table(
            {
                "_SEQUENCE_NUMBER": pa.array(range(len(rows)), pa.int64()),
                "_VALUE_KIND": pa.array(
                    [ROW_KIND_SYMBOLS.index(kind) for kind, _ in rows], pa.int8()
                ),
                "k": pa.array([1] * len(rows), pa.int32()),
                "v": pa.array([v for _, v in rows], to_arrow_type(schema.field("v").type)),
            }
        ),
        ["k"],
    )
    (row,) = create_merge_engine(schema).merge(step).to_pylist()
    return row["v"]


def _has_kind(value: Any) -> bool:
    return isinstance(value, tuple) and value[0] in ROW_KIND_SYMBOLS


def retract(value: Any) -> tuple[str, Any]:
    return "-U", value


SIMPLE: list[tuple[str, str, tuple[Any, ...], Any]] = [
    ("sum", "INT", (1, None, 4), 5),
    ("sum", "INT", (None, None), None),
    ("sum", "BIGINT", (2**62, 2**62 - 1), 2**63 - 1),
    ("sum", "INT", (5, retract(2), retract(None)), 3),
    ("sum", "INT", (None, retract(7)), -7),
    ("sum", "DECIMAL(3, 1)", (Decimal("99.9"), Decimal("0.1"), Decimal("2.5")), Decimal("2.5")),
    (
        "sum",
        "DECIMAL(30, 2)",
        (Decimal("1e20"), retract(Decimal("0.25"))),
        Decimal("1e20") - Decimal("0.25"),
    ),
    ("sum", "DOUBLE", (0.5, 0.25, retract(1.0)), -0.25),
    ("product", "INT", (6, 7, None), 42),
    ("product", "TINYINT", (-7, 3, retract(2)), -10),
    ("product", "BIGINT", (2**40, -(2**23)), -(2**63)),
    ("product", "DECIMAL(6, 2)", (Decimal("1.15"), Decimal("1.10"), Decimal(2)), Decimal("2.54")),
    ("product", "DECIMAL(6, 2)", (Decimal("-2.00"), retract(Decimal("3.00"))), Decimal("-0.67")),
    ("product", "DECIMAL(3, 1)", (Decimal(50), Decimal(2), Decimal("1.5")), Decimal("1.5")),
    ("product", "DOUBLE", (3.0, retract(0.0)), float("inf")),
    ("product", "INT", (None, retract(3)), None),
    ("product", "INT", (None, retract(3), 4), 4),
    ("max", "STRING", ("b", None, "ä", "a"), "ä"),
    ("min", "STRING", ("b", None, "a", "ba"), "a"),
    ("max", "DOUBLE", (-0.0, 0.0, float("-inf")), 0.0),
    ("min", "DATE", (None, None), None),
    ("last_value", "INT", (1, 2, None), None),
    ("last_value", "INT", (1, 2, retract(2)), None),
    ("last_non_null_value", "INT", (1, 2, None), 2),
    ("last_non_null_value", "INT", (1, retract(None)), 1),
    ("last_non_null_value", "INT", (1, retract(9)), None),
    ("first_value", "INT", (None, 1), None),
    ("first_non_null_value", "INT", (None, 1, 2), 1),
    ("first_not_null_value", "INT", (None, 1, 2), 1),
    ("bool_and", "BOOLEAN", (True, None, True), True),
    ("bool_and", "BOOLEAN", (True, False), False),
    ("bool_or", "BOOLEAN", (False, None), False),
    ("bool_or", "BOOLEAN", (False, True, False), True),
    ("listagg", "STRING", ("a", " \t", None, "b", "a"), "a,b,a"),
    ("listagg", "STRING", ("\u2003", "a", "\u00a0"), "a,\u00a0"),
    ("collect", "ARRAY<INT>", ([1, 2], None, [2, None]), [1, 2, 2, None]),
    ("collect", "ARRAY<INT>", ([1, 2, 2, 3], retract([2, 3, 4])), [1, 2]),
    ("collect", "ARRAY<INT>", (None, retract([2])), None),
    ("merge_map", "MAP<INT, INT>", ([(1, 1), (2, 2)], [(2, 3)], None), [(1, 1), (2, 3)]),
    ("merge_map", "MAP<INT, INT>", ([(1, 1), (2, 2)], retract([(2, 9)])), [(1, 1)]),
]


@pytest.mark.parametrize(("function", "data_type", "values", "expected"), SIMPLE)
def test_values_are_aggregated_in_order(
    function: str, data_type: str, values: tuple[Any, ...], expected: Any
) -> None:
    assert aggregate_values(data_type, function, *values) == expected


@pytest.mark.parametrize(
    ("function", "data_type", "values"),
    [
        ("sum", "TINYINT", (100, 100, retract(90))),
        ("sum", "BIGINT", (2**63 - 1, 1)),
        ("sum", "SMALLINT", (None, retract(-(2**15)))),
        ("product", "INT", (2**20, 2**20)),
        ("product", "BIGINT", (2**40, 2**40)),
        ("product", "BIGINT", (-(2**63), retract(-1))),
        ("product", "TINYINT", (-128, retract(-1))),
    ],
)
def test_an_integer_overflow_in_an_intermediate_sum_is_an_error(
    function: str, data_type: str, values: tuple[Any, ...]
) -> None:
    with pytest.raises(InputError, match="does not fit"):
        aggregate_values(data_type, function, *values)


def test_a_product_cannot_retract_from_null(tmp_path: object) -> None:
    with pytest.raises(InputError, match="factor of 0"):
        aggregate_values("INT", "product", 3, retract(0))


@pytest.mark.parametrize(
    ("function", "data_type", "value"),
    [
        ("max", "INT", 1),
        ("min", "STRING", "a"),
        ("first_value", "INT", 1),
        ("first_non_null_value", "INT", 1),
        ("bool_and", "BOOLEAN", True),
        ("bool_or", "BOOLEAN", True),
        ("listagg", "STRING", "a"),
        ("rbm32", "BYTES", BitMap([1]).serialize()),
        ("theta_sketch", "BYTES", b""),
        ("hll_sketch", "BYTES", b""),
        ("merge_map_with_keytime", NUMBER_MAP, [(1, {"v": 1, "t": "a"})]),
    ],
)
def test_functions_without_retract_raise_unless_retracts_are_ignored(
    function: str, data_type: str, value: Any
) -> None:
    with pytest.raises(InputError, match=r"'fields\.v\.ignore-retract' = 'true'"):
        aggregate_values(data_type, function, value, retract(value))
    assert (
        aggregate_values(data_type, function, value, retract(value), ignore_retract="true") == value
    )


def test_collect_distinct_keeps_each_value_once() -> None:
    assert aggregate_values("ARRAY<INT>", "collect", None, [3, 3, 1], distinct="true") == [1, 3]
    assert aggregate_values("ARRAY<INT>", "collect", [2, 1], [1, 3], distinct="true") == [1, 2, 3]
    assert aggregate_values("STRING", "listagg", "a,b", "b, ,c,c", distinct="true") == "a,b,c"
    assert aggregate_values("STRING", "listagg", "a", "b", list_agg_delimiter="; ") == "a; b"
    assert (
        aggregate_values("STRING", "listagg", "a b", "b c", distinct="true", list_agg_delimiter="")
        == "a bc"
    )


def test_distinct_numbers_are_compared_by_their_bits() -> None:
    result = aggregate_values(
        "ARRAY<DOUBLE>", "collect", [0.0, float("nan")], [-0.0, float("nan")], distinct="true"
    )

    assert sorted(map(str, result)) == ["-0.0", "0.0", "nan"]


def test_distinct_rows_are_compared_with_earlier_rows_only() -> None:
    row_type = "ARRAY<ROW<x INT>>"
    first, second = {"x": 1}, {"x": 2}

    assert aggregate_values(
        row_type, "collect", [first, first], [second, first, second], distinct="true"
    ) == [
        first,
        second,
    ]
    removing = {"distinct": "true"}
    assert aggregate_values(row_type, "collect", None, [second, second], **removing) == [second]


def test_a_map_with_timestamps_keeps_newer_values_and_removes_nulls() -> None:
    old = [(1, {"v": 1, "t": "05"}), (2, {"v": 2, "t": "05"}), (3, {"v": 3, "t": None})]
    new = [
        (1, {"v": 10, "t": "04"}),
        (2, None),
        (3, {"v": 30, "t": "00"}),
        (4, {"v": 40, "t": None}),
        (5, {"v": 50, "t": "01"}),
    ]

    result = dict(
        aggregate_values(NUMBER_MAP, "merge_map_with_keytime", old, new, [(1, {"v": 9, "t": "06"})])
    )

    assert {key: row["v"] for key, row in result.items()} == {1: 9, 3: 30, 5: 50}


def test_a_map_with_timestamps_reads_the_timestamp_from_the_named_field() -> None:
    kind = "MAP<INT, ROW<t STRING, v STRING>>"
    old, new = [(1, {"t": "2", "v": "a"})], [(1, {"t": "1", "v": "z"})]

    assert dict(aggregate_values(kind, "merge_map_with_keytime", old, new, ts_field="t")) == dict(
        old
    )
    assert dict(aggregate_values(kind, "merge_map_with_keytime", old, new)) == dict(new)


def test_timestamps_of_a_map_are_compared_as_java_compares_strings() -> None:
    old, new = [(1, {"v": 1, "t": "\uffff"})], [(1, {"v": 2, "t": "\U0001f389"})]

    assert dict(aggregate_values(NUMBER_MAP, "merge_map_with_keytime", old, new)) == dict(old)
    with pytest.raises(InputError, match="as text"):
        aggregate_values("MAP<INT, ROW<v INT, t BIGINT>>", "merge_map_with_keytime", None)


def row(x: int | None, y: str | None, s: int | None = None) -> dict[str, Any]:
    return {"x": x, "y": y, "s": s}


def xs(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    return {row["x"]: row["y"] for row in rows}


def test_a_nested_table_without_key_appends_up_to_its_limit_and_removes_equal_rows() -> None:
    first, second, third = row(1, "a"), row(2, "b"), row(3, "c")

    assert aggregate_values(TABLE, "nested_update", [first], [second, third], count_limit="2") == [
        first,
        second,
    ]
    assert aggregate_values(
        TABLE, "nested_update", None, [first, second, third], count_limit="2"
    ) == [
        first,
        second,
    ]
    assert aggregate_values(TABLE, "nested_update", [first, second, first], retract([first])) == [
        second
    ]
    assert aggregate_values(
        TABLE, "nested_update", None, [None, first, None, second], count_limit="1"
    ) == [first]
    assert aggregate_values(TABLE, "nested_update", [first, None], [second], count_limit="2") == [
        first,
        second,
    ]
    assert aggregate_values(TABLE, "nested_update", [first, second], retract([None, first])) == [
        second
    ]


def test_a_nested_table_with_key_replaces_and_removes_rows_up_to_its_limit() -> None:
    def table(*values: Any, **options: str) -> dict[Any, Any]:
        return xs(aggregate_values(TABLE, "nested_update", *values, nested_key="x", **options))

    old = [row(1, "a"), row(2, "b")]
    assert table(old, [row(2, "c"), row(3, "d")]) == {1: "a", 2: "c", 3: "d"}
    assert table(old, [row(2, "c"), row(3, "d")], count_limit="2") == {1: "a", 2: "c"}
    assert table(old, retract([row(2, "?"), row(9, "?")])) == {1: "a"}


def test_a_nested_row_with_a_lower_sequence_is_ignored() -> None:
    def after(*new: dict[str, Any]) -> str:
        result = aggregate_values(
            TABLE,
            "nested_update",
            [row(1, "old", 5)],
            list(new),
            nested_key="x",
            nested_sequence_field="s",
        )
        return str(xs(result)[1])

    assert after(row(1, "older", 4)) == "old"
    assert after(row(1, "as old", 5)) == "as old"
    assert after(row(1, "newer", 6)) == "newer"
    assert after(row(1, "without", None)) == "old"


def test_null_keys_of_a_nested_table_are_kept_ignored_or_refused() -> None:
    old, new = [row(1, "a")], [row(None, "b"), row(None, "c")]

    def table(**options: str) -> dict[Any, Any]:
        return xs(aggregate_values(TABLE, "nested_update", old, new, nested_key="x", **options))

    assert table() == {1: "a", None: "c"}
    assert table(nested_key_null_strategy="ignore") == {1: "a"}
    with pytest.raises(InputError, match="nested-key-null-strategy"):
        table(nested_key_null_strategy="error")


def test_a_nested_partial_update_overwrites_columns_with_values_that_are_not_null() -> None:
    result = aggregate_values(
        TABLE,
        "nested_partial_update",
        [row(1, "a", 1), row(2, "b")],
        None,
        [row(1, None, 7), row(3, "c"), row(1, "z")],
        nested_key="x",
    )

    assert sorted((r["x"], r["y"], r["s"]) for r in result) == [
        (1, "z", 7),
        (2, "b", None),
        (3, "c", None),
    ]


def test_32_bit_bitmaps_are_merged() -> None:
    first, second = BitMap([1]).serialize(), BitMap([1, 70000]).serialize()

    assert list(BitMap.deserialize(aggregate_values("BYTES", "rbm32", first, None, second))) == [
        1,
        70000,
    ]


def test_64_bit_bitmaps_are_merged_in_the_java_format() -> None:
    # These are the sets {1}, {-1} and {1, -1}, as serialized by Java's Roaring64Bitmap.
    first = bytes.fromhex(
        "01010000000000000004000000000000000000000000000000000001000000fe01000000010201000000010001000000000000000000000000000000"
    )
    minus_one = bytes.fromhex(
        "01010000000000000004000000ffffffffffff000000000000000001000000fe01000000010201000000ffff01000000000000000000000000000000"
    )

    assert (
        aggregate_values("BYTES", "rbm64", first, None, minus_one).hex()
        == "010200000000000000000200000000ff0004000000000000000000000000000000000004000000ffffffffffff010000000000000001000000fe020000000102010000000100010201000000ffff02000000000000000000000001000000"
    )


# These are two sketches and their union, as serialized by the Java library DataSketches 6.2.
SKETCHES = [
    (
        "hll_sketch",
        "0201070c03080100cbd7c204",
        "0201070c03080100cbd7c204",
        "0201070c03080100cbd7c204",
    ),
    (
        "theta_sketch",
        "01030300003acc93e56b61eec8804420",
        "01030300003acc93e56b61eec8804420",
        "01030300003acc93e56b61eec8804420",
    ),
    (
        "hll_sketch",
        "0201070c03080100cbd7c204",
        "0201070c030801002bf2fb06",
        "0201070c030802002bf2fb06cbd7c204",
    ),
    (
        "theta_sketch",
        "01030300003acc93e56b61eec8804420",
        "01030300003acc9315f97dcbbd86a105",
        "02030300001acc93020000000000803f15f97dcbbd86a105e56b61eec8804420",
    ),
    (
        "hll_sketch",
        "0201070c03080500cbd7c2042bf2fb06862ff90d7581660781bc5d06",
        "0201070c030806007581660781bc5d067b65e608fc2d420ac1e91705d2167307",
        "0301070c050800010900000081bc5d06862ff90dcbd7c2042bf2fb06c1e91705d2167307758166077b65e608fc2d420a",
    ),
    (
        "hll_sketch",
        "0201070c030c0000",
        "0201070c03080300cbd7c2042bf2fb06862ff90d",
        "0201070c03080300cbd7c2042bf2fb06862ff90d",
    ),
    (
        "theta_sketch",
        "01030300001e0000",
        "02030300001acc93030000000000803f15f97dcbbd86a105c397fc1281709d1ee56b61eec8804420",
        "02030300001acc93030000000000803f15f97dcbbd86a105c397fc1281709d1ee56b61eec8804420",
    ),
    ("hll_sketch", "0201070c030c0000", "0201070c030c0000", "0201070c030c0000"),
    ("theta_sketch", "01030300001e0000", "01030300001e0000", "01030300001e0000"),
]


@pytest.mark.parametrize(("function", "first", "second", "union"), SKETCHES)
def test_merged_sketches_equal_those_of_java_byte_for_byte(
    function: str, first: str, second: str, union: str
) -> None:
    result = aggregate_values("BYTES", function, bytes.fromhex(first), None, bytes.fromhex(second))

    assert result.hex() == union


@pytest.mark.parametrize("function", ["rbm32", "rbm64", "theta_sketch", "hll_sketch"])
@pytest.mark.parametrize("junk", [b"", b"x", b"no sketch and no bitmap"])
def test_bytes_that_are_not_a_serialized_set_are_refused(function: str, junk: bytes) -> None:
    with pytest.raises(InputError, match="is not a serialized"):
        aggregate_values("BYTES", function, junk, junk)
