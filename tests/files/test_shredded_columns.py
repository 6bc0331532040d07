"""Parts of shredded VARIANT columns have the values at the paths for which they were read."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.golden import GOLDEN
from support.shredding import MISSING, SHAPES, VALUES, shred

from paimon_orch import Catalog, col, variant_get
from paimon_orch.errors import InputError
from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.files.shredded_columns import (
    assemble_partial_columns,
    find_partial_columns,
    find_variant_bounds,
)
from paimon_orch.files.stats.stats_evaluator import may_match
from paimon_orch.files.variant_text import format_variants
from paimon_orch.format.types.arrow import VARIANT_TYPE, number_batches
from paimon_orch.format.types.predicate import Leaf, Operator, VariantValue
from paimon_orch.format.variant.shredding import assemble_variants
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.filter.row_filter import RowFilter
from paimon_orch.table.table import Table

ROW_GROUP_ROWS = 3
SEGMENTS = st.sampled_from([".a", ".b", ".z", "['é']", "[0]", "[1]"])
PATHS = st.lists(SEGMENTS, max_size=3).map(lambda parts: "$" + "".join(parts))


def write_file(column: pa.StructArray) -> ParquetFileReader:
    """Return a reader of a file with small row groups."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": column}), sink, row_group_size=ROW_GROUP_ROWS)
    return ParquetFileReader(io.BytesIO(sink.getvalue()))


def read_partially(reader: ParquetFileReader, paths: list[str]) -> pa.ChunkedArray:
    """Return the column with the values at some paths."""
    values = [VariantValue(path, "VARIANT") for path in paths]
    partial = find_partial_columns(reader, {"v": values})
    batches = reader.batches(partial.get("v", ["v"]), 100)
    read = [batch for _, batch in assemble_partial_columns(number_batches(0, batches), partial)]
    return pa.chunked_array([batch.column("v") for batch in read])


def texts(column: pa.ChunkedArray, path: str) -> list[Any]:
    values = variant_get(column, path, "VARIANT").combine_chunks()
    formatted: list[Any] = format_variants(values, VARIANT_TYPE).to_pylist()
    return formatted


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(VALUES | st.just(MISSING), min_size=1, max_size=7),
    SHAPES,
    st.lists(PATHS, min_size=1, max_size=2),
)
def test_a_part_of_a_column_has_the_values_at_its_paths(
    values: list[Any], shape: Any, paths: list[str]
) -> None:
    column = shred(values, shape)
    part = read_partially(write_file(column), paths)

    assert part.is_null().to_pylist() == column.is_null().to_pylist()
    for path in paths:
        assert texts(part, path) == texts(pa.chunked_array([column]), path)


LITERALS: dict[str, Any] = {
    "BIGINT": pa.scalar(7),
    "STRING": pa.scalar("n"),
    "DOUBLE": pa.scalar(0.5),
    "DATE": pa.scalar(date(2000, 1, 1)),
}
OPERATORS = [Operator.LESS, Operator.GREATER_OR_EQUAL, Operator.NOT_EQUAL, Operator.IS_NULL]


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(VALUES | st.just(MISSING), min_size=1, max_size=7),
    SHAPES,
    PATHS,
    st.sampled_from(list(LITERALS)),
    st.sampled_from(OPERATORS),
)
def test_row_groups_with_matching_values_are_read(
    values: list[Any], shape: Any, path: str, kind: str, op: Operator
) -> None:
    column, value = shred(values, shape), VariantValue(path, kind)
    literals = () if op is Operator.IS_NULL else (LITERALS[kind],)
    predicate = Leaf("v", op, literals, variant=value)
    bounds = find_variant_bounds(write_file(column), "v", value)
    starts = range(0, len(values), ROW_GROUP_ROWS)
    groups = [column.slice(start, ROW_GROUP_ROWS) for start in starts]

    is_read = may_match(predicate, lambda _: bounds, np.array([len(group) for group in groups]))
    for group, read in zip(groups, is_read.tolist(), strict=True):
        if read:
            continue
        with suppress(InputError):  # for a value of another type
            rows = RowFilter(predicate).select(pa.table({"v": assemble_variants(group)}))
            assert not rows.num_rows


def test_a_part_of_a_column_is_a_variant_again() -> None:
    values = [{"a": 1, "b": "x"}, {"a": "y"}, {"b": "z"}, None]
    part = read_partially(write_file(shred(values, {"a": int, "b": str})), ["$.a"])

    assert part.type == VARIANT_TYPE
    assert texts(part, "$.a") == ["1", '"y"', None, None]


def test_row_groups_without_a_value_are_skipped() -> None:
    values = [{"a": number, "b": {"c": "x"}} for number in range(6)]
    reader = write_file(shred([*values, {"a": "6"}], {"a": int, "b": {"c": str}}))

    def find_groups(path: str, kind: str, op: Operator, literal: object) -> list[int]:
        value = VariantValue(path, kind)
        leaf = Leaf("v", op, (pa.scalar(literal),), variant=value)
        bounds = find_variant_bounds(reader, "v", value)
        return np.flatnonzero(may_match(leaf, lambda _: bounds, np.array([3, 3, 1]))).tolist()

    assert find_groups("$.a", "INT", Operator.GREATER, 3) == [1, 2]  # 2 has a value of another type
    assert find_groups("$.a", "STRING", Operator.GREATER, "3") == [0, 1, 2]
    assert find_groups("$.b.c", "STRING", Operator.EQUAL, "y") == []
    assert find_groups("$.c", "INT", Operator.GREATER, 3) == [0, 1, 2]


@pytest.fixture(scope="module")
def golden() -> Table:
    return Catalog(str(GOLDEN / "java-2.0" / "variant" / "warehouse")).table("db.t_shredded")


PARTS = {
    "$.a": "va.typed_value.a",
    "$.c.d": "va.typed_value.c.typed_value.d",
    "$.odd[1]": "va.typed_value.odd",
    "$.c.missing": "va.typed_value.c.value",
    "$.missing": "va.value",
}
"""Paths, and the columns of the file in addition to the metadata that are read."""


@pytest.fixture
def columns_read(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Return the list of columns of each read of a Parquet file."""
    read: list[Sequence[str]] = []
    batches = ParquetFileReader.batches

    def record(
        reader: ParquetFileReader, columns: Sequence[str], *arguments: Any
    ) -> Iterator[pa.RecordBatch]:
        read.append(tuple(columns))
        return batches(reader, columns, *arguments)

    monkeypatch.setattr(ParquetFileReader, "batches", record)
    return read


@pytest.mark.sampled(1)
@pytest.mark.parametrize("path", PARTS)
def test_filters_on_a_shredded_table_read_only_the_columns_of_their_paths(
    golden: Table, path: str, columns_read: list[Sequence[str]]
) -> None:
    full = golden.scan(["id", "va"]).to_arrow()
    columns_read.clear()
    for kind, literal in [("DOUBLE", 4.5), ("STRING", "two"), ("STRING", "4.5")]:
        value = col("va").variant_get(path, kind)
        for test in (value == literal, value > literal, value.is_null()):
            with suppress(InputError):
                predicate = bind_filter(test, golden.load().schema)
                assert predicate is not None
                expected = RowFilter(predicate).select(full)["id"].to_pylist()
                assert golden.scan(["id"], test).to_arrow()["id"].to_pylist() == expected
    assert set(columns_read) == {("id", "va.metadata", PARTS[path])}


@pytest.mark.parametrize(("bound", "rows"), [(97, 1), (98, 0)])
def test_filters_on_a_shredded_table_skip_row_groups(
    golden: Table, bound: int, rows: int, columns_read: list[Sequence[str]]
) -> None:
    scan = golden.scan(["id"], f"variant_get(va, '$.a', 'INT') > {bound}")
    assert scan.to_arrow().num_rows == rows
    assert len(columns_read) == rows  # 98 is the largest value of the only row group
