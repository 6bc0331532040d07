"""Partition specs: by text or by value, complete or partial."""

from __future__ import annotations

import math
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import new_table, rows_of

from paimon_orch.errors import CorruptFileError, InputError, NotFoundError
from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.steps import compact
from paimon_orch.steps.compaction.decide import decide
from paimon_orch.table.filter.partition_spec import (
    build_any_partition_matcher,
    build_partition_matcher,
    format_partition,
    parse_partition_spec,
    parse_partition_specs,
)


def schema_of(columns: str, **options: str) -> TableSchema:
    fields = parse_columns(columns)
    names = [field.name for field in fields]
    return build_table_schema(
        [*fields, *parse_columns("k INT")], partition_by=names, options=options
    )


def partition(schema: TableSchema, *values: object) -> bytes:
    internal = [
        value if isinstance(value, str) or value is None else to_internal_value(pa.scalar(value))
        for value in values
    ]
    return serialize_row(internal, [field.type for field in schema.partition_fields])


TWO = schema_of("dt STRING, n INT")
DAY = schema_of("day DATE")


@pytest.mark.parametrize("text", ["dt=a/n=1", "dt=a,n=1", "/dt=a/n=1/", "n=1/dt=a", " dt=a/ n=1"])
def test_a_spec_is_parsed_in_any_order(text: str) -> None:
    matches = build_partition_matcher(parse_partition_spec(text, TWO), TWO)

    assert matches(partition(TWO, "a", 1))
    assert not matches(partition(TWO, "a", 2))
    assert not matches(partition(TWO, "b", 1))
    assert not matches(partition(TWO, None, 1))


def test_a_partial_spec_matches_all_partitions_with_its_values() -> None:
    matches = build_partition_matcher({"n": 1}, TWO)

    assert matches(partition(TWO, "a", 1))
    assert matches(partition(TWO, None, 1))
    assert not matches(partition(TWO, "a", None))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("dt", InputError),
        ("", InputError),
        ("dt=a/garbage", InputError),
        ("x=1", NotFoundError),
        ("=a", NotFoundError),
    ],
)
def test_invalid_specs_are_refused(text: str, error: type[InputError]) -> None:
    with pytest.raises(error):
        parse_partition_spec(text, TWO)


def test_the_error_names_a_column_that_is_not_a_partition_column() -> None:
    with pytest.raises(NotFoundError, match=r"'k' is not a partition column.* dt, n"):
        build_partition_matcher({"k": 1}, TWO)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (date(2024, 5, 14), True),
        ("2024-05-14", True),
        ("19857", True),  # old writers name the directory by the day number
        ("2024-05-15", False),
        ("garbage", False),
        (None, False),
        (object(), False),
    ],
)
def test_days_are_matched_by_date_text_and_number(value: object, expected: bool) -> None:
    assert (
        build_partition_matcher({"day": value}, DAY)(partition(DAY, date(2024, 5, 14))) is expected
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("column_type", ["DOUBLE", "FLOAT"])
def test_each_spec_of_a_number_matches_one_partition(tmp_path: Path, column_type: str) -> None:
    table = new_table(tmp_path, f"k INT, p {column_type}", key=(), partition_by=["p"], bucket="-1")
    values: list[float] = [0.0, -0.0, math.nan, 1.5]
    rows = pa.table({"k": pa.array(range(4), pa.int32()), "p": values})
    for number, value in enumerate(values):
        table.overwrite(rows)
        for spec in ({"p": value}, {"p": str(value).replace("nan", "NaN")}):
            table.overwrite(rows.slice(number, 1), spec)
        assert sorted(table.scan().to_arrow()["k"].to_pylist()) == [0, 1, 2, 3]
        table.drop_partitions([{"p": value}])
        left = sorted(table.scan().to_arrow()["k"].to_pylist())
        assert left == [other for other in range(4) if other != number]


@pytest.mark.parametrize("data", [b"", b"\0\0\0\x7f", b"\xff" * 40])
def test_a_damaged_partition_is_named_by_its_bytes(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match=f"partition {data[:32].hex()} in a manifest"):
        format_partition(data, TWO)


def test_a_string_is_one_spec() -> None:
    assert parse_partition_specs("dt=a/n=1", TWO) == [{"dt": "a", "n": "1"}]


def test_null_and_empty_text_are_different() -> None:
    null, empty = partition(TWO, None, 1), partition(TWO, "", 1)
    assert [build_partition_matcher({"dt": None}, TWO)(p) for p in (null, empty)] == [True, False]
    assert [build_partition_matcher({"dt": ""}, TWO)(p) for p in (null, empty)] == [False, True]
    default = {"dt": "__DEFAULT_PARTITION__"}  # null and empty text have this directory
    assert [build_partition_matcher(default, TWO)(p) for p in (null, empty)] == [True, True]


def test_an_empty_list_of_specs_matches_no_partition() -> None:
    assert not build_any_partition_matcher([], TWO)(partition(TWO, "a", 1))
    assert build_any_partition_matcher([{"dt": "b"}, {"n": 1}], TWO)(partition(TWO, "a", 1))


@given(st.text(min_size=1, max_size=6), st.none() | st.integers(-5, 5))
def test_a_formatted_partition_is_a_spec_that_matches_it(name: str, number: int | None) -> None:
    if any(0xD800 <= ord(char) < 0xE000 for char in name):
        return
    data = partition(TWO, name, number)

    spec = parse_partition_spec(format_partition(data, TWO), TWO)

    assert build_partition_matcher(spec, TWO)(data)
    if name.strip():
        assert not build_partition_matcher(spec, TWO)(partition(TWO, name + "x", number))


@pytest.mark.parametrize(
    ("kind", "values", "legacy", "modern"),
    [
        ("DATE", date(2024, 5, 14), "19857", "2024-05-14"),
        ("BOOLEAN", True, "true", "true"),
        ("DOUBLE", 1.5, "1.5", "1.5"),
        ("DOUBLE", 1e10, "1.0E10", "1.0E10"),
        ("BIGINT", -7, "-7", "-7"),
    ],
)
def test_directories_have_the_names_that_the_format_defines(
    tmp_path: Path, kind: str, values: Any, legacy: str, modern: str
) -> None:
    for text, expected in (("true", legacy), ("false", modern)):
        table = new_table(
            tmp_path / text,
            f"p {kind}, k INT",
            key=(),
            partition_by=["p"],
            bucket="-1",
            partition__legacy_name=text,
        )
        table.append(pa.table({"p": [values], "k": [1]}))
        assert (Path(table.paths.root) / f"p={expected}" / "bucket-0").is_dir()
        assert rows_of(table) == [(values, 1)]


@pytest.mark.parametrize("text", ["dt=a,dt=b", "dt=a/dt=a", "dt=a/hour=1/dt=b"])
def test_a_column_with_two_values_is_refused(text: str) -> None:
    schema = schema_of("dt STRING, hour INT")

    with pytest.raises(InputError, match="has two values of 'dt'; a semicolon separates"):
        parse_partition_spec(text, schema)


@pytest.mark.parametrize("partitions", [5, [5], [None], b"dt=a", [b"dt=a"]])
def test_partitions_of_another_type_are_refused(tmp_path: Path, partitions: Any) -> None:
    table = new_table(tmp_path, "dt STRING, k INT", key=(), partition_by=["dt"], bucket="-1")
    table.append(pa.table({"dt": ["a"], "k": [1]}))
    error = "of type (int|bytes|NoneType) does not select partitions; write a list|must be a list"
    for call in (table.drop_partitions, partial(compact, table), partial(decide, table)):
        with pytest.raises(InputError, match=error):
            call(partitions=partitions)
    with pytest.raises(InputError, match=error):
        table.overwrite(pa.table({"dt": ["a"], "k": [2]}), partitions)
    assert rows_of(table) == [("a", 1)]


def test_a_mapping_is_one_spec(tmp_path: Path) -> None:
    table = new_table(tmp_path, "dt STRING, k INT", key=(), partition_by=["dt"], bucket="-1")
    table.append(pa.table({"dt": ["a", "b"], "k": [1, 2]}))
    table.drop_partitions({"dt": "a"})
    assert rows_of(table) == [("b", 2)]
