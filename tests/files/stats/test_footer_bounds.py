"""Bounds that the writer takes from the Parquet footer are the bounds of the values."""

from __future__ import annotations

import io
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.files.parquet.parquet import ParquetFileWriter
from paimon_orch.files.stats.collector import StatsCollector
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import AtomicType, Field, RowType, TypeRoot

TYPES = {
    "text": (AtomicType(True, TypeRoot.VARCHAR, (2**31 - 1,)), st.text(max_size=5)),
    "real": (AtomicType(True, TypeRoot.DOUBLE, ()), st.floats()),
    "float": (AtomicType(True, TypeRoot.FLOAT, ()), st.floats(width=32)),
    "price": (
        AtomicType(True, TypeRoot.DECIMAL, (9, 2)),
        st.decimals(-1_000_000, 1_000_000, places=2),
    ),
    "total": (
        AtomicType(True, TypeRoot.DECIMAL, (18, 4)),
        st.decimals(-(10**13), 10**13, places=4),
    ),
    "number": (AtomicType(True, TypeRoot.INT, ()), st.integers(-5, 5)),
    "day": (AtomicType(True, TypeRoot.DATE, ()), st.dates()),
}
FIELDS = [
    Field(id=number, name=name, type=kind) for number, (name, (kind, _)) in enumerate(TYPES.items())
]
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in TYPES.items()}),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(groups=st.lists(ROWS, min_size=1, max_size=3))
def test_footer_bounds_are_the_bounds_of_the_values(groups: list[list[dict[str, Any]]]) -> None:
    expected, actual = StatsCollector(FIELDS), StatsCollector(FIELDS)
    writer = ParquetFileWriter(io.BytesIO(), FIELDS, "zstd", 1)
    for rows in groups:
        table = pa.Table.from_pylist(rows, schema=to_arrow_schema(FIELDS))
        in_footer = writer.find_footer_bounds(table)
        assert in_footer == ["text", "real", "float", "price", "total"]
        expected.update(table)
        actual.update(table, in_footer)
        writer.write(table)
    writer.close()
    for bounds in writer.footer_bounds():
        actual.add_bounds(*bounds)
    for field in FIELDS:
        assert repr(actual.column(field.name)) == repr(expected.column(field.name))


@pytest.mark.parametrize("length", [4_096, 4_097])
def test_bounds_of_long_text_are_never_missing(length: int) -> None:
    fields = [Field(id=0, name="text", type=TYPES["text"][0])]
    collector = StatsCollector(fields)
    writer = ParquetFileWriter(io.BytesIO(), fields, "zstd", 1)
    for text in ("a" * length, "b"):
        table = pa.table({"text": ["0", text]})
        collector.update(table, writer.find_footer_bounds(table))
        writer.write(table)
    writer.close()
    for bounds in writer.footer_bounds():
        collector.add_bounds(*bounds)
    stats = collector.column("text")
    assert (stats.min, stats.max) == ("0", "b")


def test_a_nested_leaf_does_not_change_the_bounds_of_a_column_with_its_path() -> None:
    """The path of the leaf ``b`` in the row ``a`` is the name of the column ``a.b``."""
    text = TYPES["text"][0]
    schema = pa.schema([("a", pa.struct([("b", pa.string())])), ("a.b", pa.string())])
    fields = [Field(id=0, name="a", type=_row_of(text)), Field(id=1, name="a.b", type=text)]
    writer = ParquetFileWriter(io.BytesIO(), fields, "zstd", 1)
    writer.write(pa.table({"a": [{"b": "z"}], "a.b": ["m"]}, schema=schema))
    writer.close()
    assert list(writer.footer_bounds()) == [("a.b", "m", "m")]


def _row_of(kind: AtomicType) -> RowType:
    return RowType(True, (Field(id=2, name="b", type=kind),))


def test_float_bounds_ignore_nan_only_if_the_collector_saw_it() -> None:
    fields = [Field(id=0, name="real", type=TYPES["real"][0])]
    collector = StatsCollector(fields)
    writer = ParquetFileWriter(io.BytesIO(), fields, "zstd", 1)
    table = pa.table({"real": [math.nan, 1.0]})
    collector.update(table, writer.find_footer_bounds(table))
    writer.write(table)
    writer.close()
    assert list(writer.footer_bounds()) == [("real", 1.0, 1.0)]
    for bounds in writer.footer_bounds():
        collector.add_bounds(*bounds)
    assert collector.column("real").max is None


def test_decimal_bounds_are_exact() -> None:
    fields = [Field(id=0, name="total", type=TYPES["total"][0])]
    low, high = Decimal("-99999999999999.9999"), Decimal("99999999999999.9999")
    writer = ParquetFileWriter(io.BytesIO(), fields, "zstd", 1)
    writer.write(pa.table({"total": pa.array([low, high], pa.decimal128(18, 4))}))
    writer.close()
    assert list(writer.footer_bounds()) == [("total", low, high)]
