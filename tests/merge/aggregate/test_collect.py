"""Elements and keys of aggregated arrays and maps are equal if they are equal in Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_orch import Catalog
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import parse_columns

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
