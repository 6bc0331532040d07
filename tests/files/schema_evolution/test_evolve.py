"""Columns of an old schema are converted to a new one by field id, also nested and sliced."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.schema_evolution.evolve import conform, evolve
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    parse_type,
)

INT, BIGINT, TEXT = parse_type("INT"), parse_type("BIGINT"), parse_type("STRING")
OLD = RowType(
    True,
    (
        Field(id=1, name="a", type=INT),
        Field(id=2, name="b", type=TEXT),
        Field(id=3, name="c", type=INT),
    ),
)
# Column b was renamed, c was dropped and added again, and a was widened and moved to the end.
NEW = RowType(
    True,
    (
        Field(id=2, name="bb", type=TEXT),
        Field(id=4, name="c", type=TEXT),
        Field(id=1, name="a", type=BIGINT),
    ),
)
ROWS = [{"a": 1, "b": "x", "c": 9}, None, {"a": None, "b": None, "c": 8}]
EVOLVED = [{"bb": "x", "c": None, "a": 1}, None, {"bb": None, "c": None, "a": None}]


@pytest.mark.parametrize(
    ("old", "new", "values", "expected"),
    [
        (OLD, NEW, ROWS, EVOLVED),
        (ArrayType(True, OLD), ArrayType(True, NEW), [ROWS, None, []], [EVOLVED, None, []]),
        (
            MapType(True, INT, OLD),
            MapType(True, BIGINT, NEW),
            [[(1, ROWS[0]), (2, None)], None],
            [[(1, EVOLVED[0]), (2, None)], None],
        ),
        (MultisetType(True, INT), MultisetType(True, BIGINT), [[(1, 2)], None], [[(1, 2)], None]),
        (ArrayType(True, INT), TEXT, [[1, None], None], ["[1, null]", None]),
        (
            RowType(True, (Field(id=1, name="r", type=OLD),)),
            RowType(True, (Field(id=1, name="r", type=NEW),)),
            [{"r": ROWS[0]}],
            [{"r": EVOLVED[0]}],
        ),
    ],
)
def test_columns_are_converted_to_the_new_schema(
    old: DataType, new: DataType, values: list[Any], expected: list[Any]
) -> None:
    array = pa.array(values, to_arrow_type(old))
    evolved = evolve(array, old, new)
    evolved.validate(full=True)
    assert evolved.type == to_arrow_type(new)
    assert evolved.to_pylist() == expected
    assert evolve(array.slice(1), old, new).to_pylist() == expected[1:]


def test_a_column_of_the_same_type_is_not_copied() -> None:
    array = pa.array([1, 2], pa.int32())
    assert evolve(array, INT, INT.with_nullable(False)) is array


def test_nested_and_atomic_types_are_not_converted_into_each_other() -> None:
    with pytest.raises(UnsupportedError):
        evolve(pa.array([1], pa.int32()), INT, OLD)
    with pytest.raises(UnsupportedError):
        evolve(pa.array([ROWS[0]], to_arrow_type(OLD)), OLD, INT)


def test_columns_of_files_are_converted_to_the_column_type() -> None:
    fields = (
        Field(id=1, name="t", type=parse_type("TIMESTAMP(3)")),
        Field(id=2, name="gone", type=INT),
        Field(id=3, name="c", type=parse_type("TIME(3)")),
    )
    stored_column = pa.array(
        [{"c": 5, "t": -1}, None], pa.struct([("c", pa.int32()), ("t", pa.timestamp("ns"))])
    )
    conformed = conform(stored_column, RowType(True, fields))
    assert conformed.type == to_arrow_type(RowType(True, fields))
    assert conformed.field("t").cast(pa.int64()).to_pylist()[0] == -1
    assert conformed.field("c").cast(pa.int32()).to_pylist()[0] == 5
    assert conformed.field("gone").null_count == 2
    assert conformed.is_valid().to_pylist() == [True, False]


def test_a_time_zone_of_timestamps_in_files_is_ignored() -> None:
    stored_column = pa.array([1_000_001, None], pa.timestamp("us", tz="UTC"))
    assert conform(stored_column, parse_type("TIMESTAMP(3)")).cast(pa.int64()).to_pylist() == [
        1000,
        None,
    ]
