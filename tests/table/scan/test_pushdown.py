"""Columns, tests and limits that Polars and DuckDB pass to scans."""

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import MissingPackageError
from paimon_orch.table.filter.expression import col
from paimon_orch.table.scan import arrow_dataset, polars_frame
from paimon_orch.table.scan.pushdown import list_filterable_columns, narrow_scan
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.table import Table

COLUMNS = """id BIGINT NOT NULL, s STRING, d DATE, ts TIMESTAMP(3), z TIMESTAMP_LTZ(6), p DECIMAL(10, 2),
    f DOUBLE, b BOOLEAN, n INT"""
DAYS = [dt.date(2026, 1, day) for day in range(1, 6)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table of five files, each with one day, and a null in most columns."""
    created = new_table(tmp_path, COLUMNS, key=(), bucket="-1")
    for number, day in enumerate(DAYS):
        time = dt.datetime.combine(day, dt.time(12))
        rows: list[dict[str, Any]] = [
            {
                "id": number * 10 + k,
                "s": f's"{number}' if k == 0 else f"s{number}",
                "d": day,
                "ts": time,
                "z": time,
                "p": Decimal(number),
                "f": [float(number), math.nan, math.inf][k],
                "b": number % 2 == 0,
                "n": None if k else number,
            }
            for k in range(3)
        ]
        rows.append(dict.fromkeys(rows[0]) | {"id": number * 10 + 9})
        created.append(pa.Table.from_pylist(rows, created.scan().arrow_schema))
    return created


@pytest.fixture
def narrowed(monkeypatch: pytest.MonkeyPatch) -> list[Scan]:
    """Return a list that collects the scans that Polars and DuckDB execute."""
    scans = list[Scan]()

    def record(*arguments: Any) -> Scan:
        scans.append(narrow_scan(*arguments))
        return scans[-1]

    monkeypatch.setattr(polars_frame, "narrow_scan", record)
    monkeypatch.setattr(arrow_dataset, "narrow_scan", record)
    return scans


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def count_files(scan: Scan) -> int:
    return sum(len(split.files) for split in scan.plan())


POLARS_TESTS = [
    (pl.col("id") >= 35, 2),
    (pl.col("id") > 2**40, 0),
    (pl.col("id").is_in([3, 42]), 2),
    (pl.col("id").is_between(11, 12), 1),
    (pl.lit(40) <= pl.col("id"), 1),
    (pl.col("s") == 's"2', 3),
    (pl.col("s").is_in(['s"2', None]), 5),
    (~pl.col("s").is_in(["s2", "s3"]), 5),
    (pl.col("s").str.starts_with("s2"), 5),
    (pl.col("d") > dt.date(2026, 1, 4), 1),
    (pl.col("ts") < dt.datetime(2026, 1, 2), 1),
    (pl.col("z") < dt.datetime(2026, 1, 2, tzinfo=dt.UTC), 1),
    (pl.col("p") == Decimal(2), 1),
    (pl.col("p") == Decimal("2.005"), 0),
    (pl.col("p") > Decimal("2.005"), 2),
    (pl.col("f") > 3.0, 5),
    (pl.col("f") != 3.0, 5),
    (~(pl.col("f") < 3.0), 5),
    (pl.lit(math.nan) == pl.col("f"), 5),
    (pl.col("f").is_between(3.0, math.inf) & (pl.col("id") < 5), 1),
    (pl.col("b") & (pl.col("id") < 20), 1),
    (pl.col("b") | (pl.col("id") < 20), 4),
    (~pl.col("b"), 2),
    (pl.col("n").is_null() & (pl.col("d") == DAYS[0]), 1),
    (pl.col("n").is_not_null() | (pl.col("d") == DAYS[0]), 5),
    ((pl.col("id") % 2 == 0) & (pl.col("id") < 5), 1),
    (pl.col("n").eq_missing(None), 5),
    (pl.col("id") == pl.col("n"), 5),
    (pl.col("id") < 2.5, 5),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("test", "files"), POLARS_TESTS, ids=[str(x) for x, _ in POLARS_TESTS])
def test_a_filter_of_polars_reads_the_files_that_may_match(
    table: Table, narrowed: list[Scan], test: pl.Expr, files: int
) -> None:
    scan = table.scan()

    rows = scan.to_polars_lazy().filter(test).collect()

    assert rows.equals(scan.to_polars().filter(test))
    assert sum(map(count_files, narrowed)) == files


DUCKDB_TESTS = [
    ("id >= 35", 2),
    ("id in (3, 42)", 2),
    ("id between 11 and 12", 1),
    ("40 <= id", 1),
    ("""s = 's"2'""", 3),
    ("""s in ('s2', 's3', 'x')""", 3),
    ("""s in ('s"2', 'x')""", 5),
    ("s like 's2%'", 5),
    ("d > date '2026-01-04'", 1),
    ("ts < '2026-01-02 00:00:00'", 1),
    ("ts < timestamp '2026-01-02 00:00:00'", 5),  # DuckDB converts the column to microseconds
    ("z < timestamptz '2026-01-02 00:00:00.000001+00'", 1),
    ("p = 2", 1),
    ("f > 3", 5),
    ("f <> 3", 5),
    ("not (f < 3)", 5),
    ("b and id < 20", 2),
    ("n is null and d = date '2026-01-01'", 1),
    ("n is not null or d = date '2026-01-01'", 5),
    ("id % 2 = 0 and id < 5", 1),
    ("id = n", 5),
    ("id < 2.5", 5),
    ("not (id = 3) and (id < 5 or id > 40)", 2),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("condition", "files"), DUCKDB_TESTS)
def test_a_filter_of_duckdb_reads_the_files_that_may_match(
    table: Table,
    narrowed: list[Scan],
    connection: duckdb.DuckDBPyConnection,
    condition: str,
    files: int,
) -> None:
    connection.register("copy", table.scan().to_arrow())
    table.scan().to_duckdb(connection, "t")
    query = f"SELECT id, s, f, z FROM {{}} WHERE {condition} ORDER BY id"  # noqa: S608 - of the test

    rows = connection.execute(query.format("t")).fetchall()

    assert str(rows) == str(connection.execute(query.format("copy")).fetchall())  # NaN is not NaN
    assert sum(map(count_files, narrowed)) == files


def test_only_the_columns_of_a_query_are_read(
    table: Table, narrowed: list[Scan], connection: duckdb.DuckDBPyConnection
) -> None:
    table.scan().to_polars_lazy().select("s").collect()
    table.scan().to_duckdb(connection, "t").project("s").fetchall()
    connection.execute("SELECT max(d) FROM t WHERE id > 3").fetchall()
    connection.execute("SELECT count(*) FROM t").fetchall()

    names = [[field.name for field in scan.fields] for scan in narrowed]
    assert names == [["s"], ["s"], ["d", "id"], ["id"]]


def test_a_limit_of_polars_stops_the_scan_and_precedes_a_filter(
    table: Table, narrowed: list[Scan]
) -> None:
    frame = table.scan().to_polars_lazy()

    head = frame.head(3).collect()
    filtered = frame.head(3).filter(pl.col("id") > 1).collect()

    assert head["id"].to_list() == [0, 1, 2]
    assert filtered["id"].to_list() == [2]
    assert [scan.limit for scan in narrowed] == [3, 3]
    assert [scan.predicate for scan in narrowed] == [None, None]


def test_a_scan_with_a_limit_keeps_its_rows(
    table: Table, connection: duckdb.DuckDBPyConnection
) -> None:
    scan = table.scan(order_by="id desc", limit=3)

    of_polars = scan.to_polars_lazy().filter(pl.col("id") < 45).select("id").collect()
    of_duckdb = scan.to_duckdb(connection, "t").filter("id < 42").project("id").fetchall()

    assert of_polars["id"].to_list() == [42, 41]
    assert of_duckdb == [(41,)]


def test_a_filter_is_added_to_that_of_the_scan(
    table: Table, connection: duckdb.DuckDBPyConnection
) -> None:
    scan = table.scan(["id"], "id < 12")

    assert scan.to_polars_lazy().filter(pl.col("id") > 10).collect()["id"].to_list() == [11]
    assert scan.to_duckdb(connection, "t").filter("id > 10").fetchall() == [(11,)]


def test_a_query_without_rows_has_the_columns(
    table: Table, connection: duckdb.DuckDBPyConnection
) -> None:
    frame = table.scan().to_polars_lazy().filter(pl.col("id") > 99).select("s", "d").collect()
    rows = table.scan().to_duckdb(connection, "t").filter("id > 99")

    assert frame.schema == {"s": pl.String, "d": pl.Date}
    assert rows.fetchall() == []


def test_columns_of_a_variant_are_read_but_not_tested(
    tmp_path: Path, narrowed: list[Scan], connection: duckdb.DuckDBPyConnection
) -> None:
    table = new_table(tmp_path, "id BIGINT, v VARIANT", key=(), bucket="-1")
    table.append(pa.table({"id": [1, 2], "v": ['{"n": 3}', '{"n": 4}']}))
    scan = table.scan(["id", "variant_get(v, '$.n', 'INT') AS n"])

    assert scan.to_polars_lazy().filter(pl.col("n") == 4).collect().rows() == [(2, 4)]
    assert scan.to_duckdb(connection, "t").filter("n = 4").fetchall() == [(2, 4)]
    assert [scan.predicate for scan in narrowed] == [None, None]


def test_merged_rows_are_filtered_and_not_older_ones(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "old"), (2, "old")]))
    table.upsert(table_of("k v", [(1, "new")]))

    frame = table.scan().to_polars_lazy().filter(pl.col("v") == "old").collect()
    rows = table.scan().to_duckdb(connection, "t").filter("v = 'old'").fetchall()

    assert frame.rows() == rows == rows_of(table, filter="v = 'old'") == [(2, "old")]


def test_numbers_beyond_the_type_of_a_column_select_the_rows_of_the_engine(table: Table) -> None:
    frame = table.scan(["n"]).to_polars_lazy()

    assert frame.filter(pl.col("n") == 2**40).collect().is_empty()
    assert frame.filter(pl.col("n") < 2**40).collect().equals(frame.drop_nulls().collect())
    assert frame.filter(pl.col("n") != 2**40).collect().equals(frame.drop_nulls().collect())


def test_values_that_a_column_cannot_hold_have_no_effect(table: Table) -> None:
    scan = table.scan(["n"])

    assert narrow_scan(scan, None, [col("n") == "one"]).predicate is None
    assert narrow_scan(scan, None, [col("f") == 1.0]).predicate is None
    assert narrow_scan(scan, [], [col("n") == 1]).fields == scan.fields
    bound = narrow_scan(scan, None, [col("n") == pa.scalar(1, pa.int64())]).predicate
    assert bound is not None
    assert bound == (col("n") == pa.scalar(1, pa.int32()))
    assert list_filterable_columns(scan).keys() == {"n"}
    assert list_filterable_columns(table.scan(limit=1)) == {}


def test_a_lazy_frame_needs_polars(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_orch.optional_packages.is_installed", lambda _: False)

    with pytest.raises(MissingPackageError, match=r"pip install 'polars>=1.20'"):
        table.scan().to_polars_lazy()
