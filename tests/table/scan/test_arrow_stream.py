"""Scans and tables as Arrow streams, which DuckDB, Polars and pyarrow read."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from support.tables import new_table, table_of

from paimon_orch.table.scan.base_scan import BaseScan
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path)
    created.upsert(table_of("k v", [(k, f"v{k}") for k in range(10)]))
    created.upsert(table_of("k v", [(3, "new")]))
    return created


def test_duckdb_reads_a_scan_and_a_table_by_the_names_of_their_variables(table: Table) -> None:
    scan, orders = table.scan(filter="k >= 3"), table  # noqa: F841 - DuckDB finds the names

    of_scan = duckdb.sql("SELECT v FROM scan WHERE k < 5 ORDER BY k")
    of_table = duckdb.sql("SELECT v FROM orders WHERE k = 3")

    assert of_scan is not None
    assert of_scan.fetchall() == [("new",), ("v4",)]
    assert of_table is not None
    assert of_table.fetchall() == [("new",)]


def test_a_registered_scan_is_read_by_each_query(table: Table) -> None:
    connection = duckdb.connect()
    connection.register("orders", table.scan())

    for _ in range(2):
        assert connection.execute("SELECT count(*), max(k) FROM orders").fetchall() == [(10, 9)]


def test_polars_and_pyarrow_read_a_scan_and_a_table(table: Table) -> None:
    expected = table.scan().to_arrow()

    for source in (table.scan(), table):
        assert pl.DataFrame(source).equals(pl.DataFrame(expected))
        assert pa.table(source).equals(expected)
        assert pa.RecordBatchReader.from_stream(source).read_all().equals(expected)
        assert pa.schema(source) == expected.schema


def test_a_stream_has_the_types_that_its_reader_requests(table: Table) -> None:
    wanted = pa.schema([("k", pa.int32()), ("v", pa.large_string())])

    assert pa.table(table.scan(), schema=wanted).schema.equals(wanted)


def test_a_table_without_rows_is_a_stream(tmp_path: Path) -> None:
    empty = new_table(tmp_path)

    assert duckdb.from_arrow(empty).fetchall() == []
    assert pl.DataFrame(empty).columns == ["k", "v"]


def test_rows_of_a_scan_are_written_to_another_table(table: Table, tmp_path: Path) -> None:
    copy = new_table(tmp_path / "copy")

    copy.upsert(table.scan(filter="k < 2"))

    assert copy.scan(["k"]).to_arrow()["k"].to_pylist() == [0, 1]


class _EndlessScan(BaseScan):
    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return (pa.record_batch([[n]], names=["n"]) for n in count())


def test_a_stream_holds_one_batch_and_not_the_table() -> None:
    stream = pa.RecordBatchReader.from_stream(_EndlessScan())

    assert [stream.read_next_batch()["n"].to_pylist() for _ in range(3)] == [[0], [1], [2]]
