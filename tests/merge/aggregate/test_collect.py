"""Elements and keys of aggregated arrays and maps are equal if they are equal in Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.tables import new_table

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.merge.aggregate.python_aggregator import to_internal_type

NAN = float("nan")
ROWS = "ARRAY<ROW<a DOUBLE>>"
TIMES = "MAP<DOUBLE, ROW<v INT, ts STRING>>"
DISTINCT = {"fields.v.distinct": "true"}
# (type, function, values, result); a value in a tuple with "-D" is retracted
CASES: list[tuple[str, str, list[Any], Any]] = [
    ("MAP<DOUBLE, INT>", "merge_map", [[(NAN, 1)], [(NAN, 2)], [(NAN, 3)]], [(NAN, 3)]),
    ("MAP<DOUBLE, INT>", "merge_map", [[(0.0, 1)], [(-0.0, 2)]], [(0.0, 1), (-0.0, 2)]),
    ("MAP<FLOAT, INT>", "merge_map", [[(NAN, 1), (0.0, 5)], ("-D", [(NAN, 1), (-0.0, 5)])], [(0.0, 5)]),
    ("MAP<ROW<a INT>, INT>", "merge_map", [[({"a": 1}, 1)], [({"a": 1}, 2)]], [({"a": 1}, 2)]),
    ("MAP<ARRAY<INT>, INT>", "merge_map", [[([1], 1)], ("-D", [([1], 2)])], []),
    ("MAP<MAP<INT, INT>, INT>", "merge_map", [[([(1, 1), (2, 2)], 1)], [([(2, 2), (1, 1)], 2)]], [([(2, 2), (1, 1)], 2)]),
    (TIMES, "merge_map_with_keytime", [[(NAN, {"v": 1, "ts": "1"})], [(NAN, {"v": 2, "ts": "2"})]], [(NAN, {"v": 2, "ts": "2"})]),
    (TIMES, "merge_map_with_keytime", [[(NAN, {"v": 1, "ts": "1"})], [(NAN, None), (0.0, None)]], []),
    ("ARRAY<DOUBLE>", "collect", [[NAN, 1.0, NAN], ("-D", [NAN])], [1.0, NAN]),
    ("ARRAY<DOUBLE>", "collect", [[0.0, -0.0], ("-D", [-0.0])], [0.0]),
    (ROWS, "collect", [[{"a": NAN}, None, None], ("-D", [{"a": NAN}, None])], [None]),
    (ROWS, "distinct", [[{"a": NAN}], [{"a": NAN}, {"a": 0.0}, {"a": -0.0}, {"a": 0.0}]], [{"a": NAN}, {"a": 0.0}, {"a": -0.0}]),
    (ROWS, "nested_update", [[{"a": NAN}], ("-D", [{"a": NAN}])], []),
    (ROWS, "nested_update", [[{"a": 0.0}], ("-D", [{"a": -0.0}])], [{"a": 0.0}]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "function", "values", "expected"), CASES)
def test_elements_are_compared_as_in_java(
    tmp_path: Path, sql: str, function: str, values: list[Any], expected: Any
) -> None:
    distinct = function == "distinct"
    options = {
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "collect" if distinct else function,
        **(DISTINCT if distinct else {}),
    }
    table = Catalog(str(tmp_path)).create_table(
        "db.t", f"id INT, v {sql}", primary_key=["id"], options=options
    )
    (_, field) = parse_columns(f"id INT, v {sql}")
    for value in values:
        kind, rows = value if isinstance(value, tuple) else ("+I", value)
        columns = {
            "id": pa.array([1], pa.int32()),
            "v": pa.array([rows], to_arrow_type(field.type)),
        }
        table.upsert(pa.table({**columns, "kind": [kind]}), row_kind="kind")

    (result,) = table.scan().to_arrow()["v"].to_pylist()
    assert repr(result) == repr(expected)


@pytest.mark.parametrize(
    ("sql", "key", "other"),
    [
        ("DATE", 19723, 3000000),
        ("TIME(3)", 3600000, 1),
        ("TIMESTAMP(3)", 1704067200000, 253402300800000),
        ("TIMESTAMP(6)", 1704067200000001, 1704067200000002),
        ("TIMESTAMP(9)", 1704067200000000001, 1704067200000000002),
        ("TIMESTAMP_LTZ(6)", 1704067200000001, -62135596800000001),
        ("ROW<a STRING, b DATE>", {"a": "x", "b": 1}, {"a": "x", "b": 2}),
        ("ARRAY<ROW<a TIMESTAMP(3)>>", [{"a": 1}], [{"a": 2}, None]),
        ("MAP<STRING, ROW<a DATE>>", [("x", {"a": 1})], [("x", {"a": 2})]),
    ],
)
def test_nested_tables_have_keys_of_all_types(
    tmp_path: Path, sql: str, key: object, other: object
) -> None:
    [column] = parse_columns(f"v ARRAY<ROW<k {sql}, x INT>>")
    target = to_arrow_type(column.type)
    table = new_table(
        tmp_path,
        f"k BIGINT, v ARRAY<ROW<k {sql}, x INT>>",
        merge_engine="aggregation",
        fields__v__aggregate_function="nested_update",
        fields__v__nested_key="k",
    )
    for rows in ([{"k": key, "x": 1}, {"k": other, "x": 2}], [{"k": key, "x": 3}]):
        values = pa.array([rows], to_internal_type(target)).view(target)
        table.upsert(pa.table({"k": pa.array([1], pa.int64()), "v": values}))

    merged = table.scan().to_arrow()["v"].combine_chunks()
    [rows] = merged.view(to_internal_type(target)).to_pylist()
    assert sorted(row["x"] for row in rows) == [2, 3]


def test_nested_tables_are_not_ordered_by_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be ordered by 's', whose type is ROW<a INT>"):
        new_table(
            tmp_path,
            "k BIGINT, v ARRAY<ROW<k INT, s ROW<a INT>>>",
            merge_engine="aggregation",
            fields__v__aggregate_function="nested_update",
            fields__v__nested_key="k",
            fields__v__nested_sequence_field="s",
        )


def test_times_that_python_does_not_have_are_collected(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "k BIGINT, v ARRAY<TIMESTAMP(3)>",
        merge_engine="aggregation",
        fields__v__aggregate_function="collect",
    )
    for millis in (253402300800000, -(10**14)):
        values = pa.array([[millis]], pa.list_(pa.timestamp("ms")))
        table.upsert(pa.table({"k": pa.array([1], pa.int64()), "v": values}))

    collected = table.scan().to_arrow()["v"].combine_chunks().flatten()
    assert collected.cast(pa.int64()).to_pylist() == [253402300800000, -(10**14)]
