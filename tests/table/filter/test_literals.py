"""Constants of all libraries are compared exactly with columns of all types, or refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.tables import new_table

from paimon_orch import Catalog, col
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.format.types.predicate import Leaf
from paimon_orch.table.filter.bind import bind_filter

NANOS = pd.Timestamp("2024-05-06 01:02:03.123456789")
MICROS = dt.datetime(2024, 5, 6, 1, 2, 3, 123456)
NEW_YORK = ZoneInfo("America/New_York")
SECONDS_ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30, seconds=15))
# the second 01:30 of the day with 25 hours
REPEATED = dt.datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=NEW_YORK)


def bound(column_type: str, value: object) -> pa.Scalar[pa.DataType]:
    schema = build_table_schema(
        parse_columns(f"c {column_type}"), primary_key=[], partition_by=[], options={}
    )
    leaf = bind_filter(col("c") == value, schema)
    assert isinstance(leaf, Leaf)
    (literal,) = leaf.values  # noqa: PD011 - not a frame
    return literal


EXACT: list[tuple[str, object, str]] = [
    ("TIMESTAMP(9)", NANOS, "2024-05-06 01:02:03.123456789"),
    ("TIMESTAMP(9)", np.datetime64("2024-05-06T01:02:03.123456789"), "2024-05-06 01:02:03.123456789"),
    ("TIMESTAMP(9)", pa.scalar(NANOS.value, pa.timestamp("ns")), "2024-05-06 01:02:03.123456789"),
    ("TIMESTAMP(6)", pd.Timestamp(MICROS), "2024-05-06 01:02:03.123456"),
    ("TIMESTAMP(6)", pl.Series([MICROS])[0], "2024-05-06 01:02:03.123456"),
    ("TIMESTAMP(3)", dt.date(2024, 5, 6), "2024-05-06 00:00:00.000"),
    ("TIMESTAMP(3)", np.datetime64("2024-05"), "2024-05-01 00:00:00.000"),
    ("TIMESTAMP_LTZ(9)", NANOS.tz_localize(NEW_YORK), "2024-05-06 05:02:03.123456789Z"),
    ("TIMESTAMP_LTZ(6)", REPEATED, "2024-11-03 06:30:00.000000Z"),
    ("TIMESTAMP_LTZ(6)", pd.Timestamp(REPEATED), "2024-11-03 06:30:00.000000Z"),
    ("TIMESTAMP(3)", np.datetime64("1970-01-01T00:00:00.05").astype("datetime64[10ms]"), "1970-01-01 00:00:00.050"),
    ("TIMESTAMP_LTZ(6)", MICROS.replace(tzinfo=SECONDS_ZONE), "2024-05-05 19:31:48.123456Z"),
    ("DATE", np.datetime64("2024-05-06"), "2024-05-06"),
    ("DATE", np.datetime64("10000-01-01"), "10000-01-01"),
    ("DATE", pd.Timestamp("2024-05-06"), "2024-05-06"),
    ("TIME(3)", dt.time(1, 2, 3, 4000), "01:02:03.004"),
    ("DECIMAL(38, 0)", 2**70, "1180591620717411303424"),
    ("DECIMAL(5, 2)", 1.25, "1.25"),
    ("DECIMAL(5, 2)", np.float32(1.25), "1.25"),
    ("BIGINT", np.uint64(7), "7"),
    ("BIGINT", Decimal("7.0"), "7"),
    ("BIGINT", 7.0, "7"),
    ("DOUBLE", np.float32(0.1), "0.10000000149011612"),
    ("FLOAT", 0.1, "0.1"),
    ("FLOAT", float("inf"), "inf"),
    ("FLOAT", 1e20, "1e+20"),
    ("FLOAT", 0.10000000149011612, "0.1"),
    ("FLOAT", "0.1", "0.1"),
    ("DOUBLE", Decimal("1.00000000000"), "1"),
    ("DOUBLE", Decimal("0.1"), "0.1"),
    ("DOUBLE", 2**60, "1.152921504606847e+18"),
    ("DOUBLE", "1e300", "1e+300"),
    ("BOOLEAN", np.bool_(True), "true"),
    ("STRING", np.str_("x"), "x"),
    ("STRING", pa.scalar("x", pa.large_string()), "x"),
    ("STRING", pa.array(["x"]).dictionary_encode()[0], "x"),
    ("STRING", pl.Series(["x"], dtype=pl.Categorical)[0], "x"),
    ("INT", pa.scalar("7", pa.string_view()), "7"),
    ("BYTES", pa.scalar(b"x", pa.binary_view()), "x"),
]  # fmt: skip
REFUSED: list[tuple[str, object]] = [
    ("TIMESTAMP(6)", NANOS),
    ("TIMESTAMP(6)", np.datetime64("2024-05-06T01:02:03.123456789")),
    ("TIMESTAMP(9)", np.datetime64("2024-05-06T01:02:03.1234567891", "ps")),
    ("TIMESTAMP(6)", "2024-05-06 01:02:03.123456789"),
    ("TIMESTAMP(6)", REPEATED),
    ("TIMESTAMP_LTZ(6)", NANOS.tz_localize("UTC")),
    ("TIMESTAMP(6)", pd.NaT),
    ("TIMESTAMP(6)", np.datetime64("NaT")),
    ("DATE", MICROS),
    ("DATE", REPEATED),
    ("TIME(3)", MICROS),
    ("TIME(3)", dt.time(1, 2, 3, 4567)),
    ("TIME(3)", dt.time(1, 2, tzinfo=dt.UTC)),
    ("TIME(3)", "01:02:03+01:00"),
    ("TIME(3)", "01:02:03.1230009"),
    ("TIME(3)", pd.Timedelta("1h")),
    ("TIMESTAMP(9)", np.datetime64("10000-01-01")),
    ("INT", np.datetime64("10000-01-01")),
    ("INT", np.datetime64("2024-05-06")),
    ("INT", b"1"),
    ("INT", True),
    ("INT", float("inf")),
    ("DECIMAL(5, 2)", float("nan")),
    ("INT", pd.NA),
    ("FLOAT", 2**24 + 1),
    ("FLOAT", 1e300),
    ("FLOAT", "1e300"),
    ("FLOAT", 16777217.0),
    ("FLOAT", "16777217"),
    ("FLOAT", 1 / 3),
    ("DOUBLE", 2**53 + 1),
    ("DOUBLE", 2**63 + 1),
    ("DOUBLE", Decimal("0.10000000000000000001")),
    ("DOUBLE", "9007199254740993"),
    ("DOUBLE", "1e400"),
    ("DECIMAL(5, 2)", "1.005"),
    ("BOOLEAN", 2),
    ("STRING", 1.0),
    ("STRING", dt.date(2024, 5, 6)),
    ("STRING", b"\xff"),
    ("STRING", 1j),
    ("STRING", UUID(int=0x41)),
]


@pytest.mark.parametrize(("column_type", "value", "expected"), EXACT, ids=repr)
def test_a_constant_keeps_its_value(column_type: str, value: object, expected: str) -> None:
    literal = bound(column_type, value)

    assert literal.cast(pa.string()).as_py() == expected


@pytest.mark.parametrize(("column_type", "value"), REFUSED, ids=repr)
def test_a_constant_that_would_change_is_refused(column_type: str, value: object) -> None:
    with pytest.raises(InputError, match="'c'"):
        bound(column_type, value)


def test_a_constant_of_a_zone_that_python_does_not_know_is_an_instant() -> None:
    second = pa.scalar(1, pa.timestamp("s", "PST"))

    assert bound("TIMESTAMP_LTZ(3)", second).cast(pa.int64()).as_py() == 1000
    with pytest.raises(
        InputError, match="1 \\(timestamp\\[s, tz=PST\\]\\) is not a value of column 'c'"
    ):
        bound("INT", second)


def test_a_timestamp_of_pandas_selects_its_own_row(tmp_path: Path) -> None:
    table = new_table(tmp_path, "t TIMESTAMP(9)", key=(), bucket="-1")
    nanos = pa.array([NANOS.value - 789, NANOS.value], pa.timestamp("ns"))
    table.append(pa.table({"t": nanos}))

    assert table.scan(filter=col("t") == NANOS).to_arrow()["t"].cast(pa.int64()).to_pylist() == [
        NANOS.value
    ]


@pytest.mark.parametrize("kind", [pl.Series, pd.Series, pa.array, np.array])
def test_a_list_of_another_library_selects_its_own_rows(
    tmp_path: Path, kind: Callable[[Any], Any]
) -> None:
    table = new_table(tmp_path, "t TIMESTAMP(9), s STRING", key=(), bucket="-1")
    nanos = np.array([NANOS.value - 789, NANOS.value], "datetime64[ns]")
    table.append(pa.table({"t": pa.array(nanos), "s": ["micros", "nanos"]}))

    for test in (col("t").is_in(kind(nanos[1:])), col("s").is_in(kind(["nanos"]))):
        assert table.scan(["s"], filter=test).to_arrow()["s"].to_pylist() == ["nanos"]
    assert table.scan(["s"], filter=~col("t").is_in(kind(nanos[1:]))).to_arrow().num_rows == 1


def test_a_timestamp_of_pandas_names_its_own_partition(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "v INT, t TIMESTAMP(9)", partition_by=["t"])
    nanos = pa.array([NANOS.value - 789, NANOS.value], pa.timestamp("ns"))
    table.append(pa.table({"v": pa.array([1, 2], pa.int32()), "t": nanos}))

    table.drop_partitions([{"t": NANOS}])

    assert table.scan().to_arrow()["v"].to_pylist() == [1]


def test_a_timestamp_between_the_values_of_a_partition_column_names_no_partition(
    tmp_path: Path,
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", "v INT, t TIMESTAMP(6)", partition_by=["t"])
    table.append(pa.table({"v": pa.array([1], pa.int32()), "t": [MICROS]}))

    with pytest.raises(NotFoundError, match="has no partition"):
        table.drop_partitions([{"t": NANOS}])

    assert table.scan().to_arrow().num_rows == 1


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_filters_find_years_that_python_does_not_have(tmp_path: Path, file_format: str) -> None:
    table = new_table(
        tmp_path, "t TIMESTAMP(3)", key=(), bucket="-1", **{"file.format": file_format}
    )
    millis = [-(10**14), 0, 253402300800000]
    table.append(pa.table({"t": pa.array(millis, pa.timestamp("ms"))}))
    first, _, last = (np.datetime64(0, "ms") + np.timedelta64(number, "ms") for number in millis)

    for condition in (col("t").is_in([first, last]), (col("t") == first) | (col("t") >= last)):
        rows = table.scan(filter=condition).to_arrow()
        assert rows["t"].cast(pa.int64()).to_pylist() == [millis[0], millis[2]]
