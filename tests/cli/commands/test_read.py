"""The command ``read``: formats, filters, older snapshots and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import Run, assert_fails
from support.tables import table_of

from paimon_orch import Catalog
from paimon_orch.table.table import Table


def test_rows_are_printed_as_json_lines(run: Run, warehouse: Path) -> None:
    answer = run("read", warehouse, "db.t", "--format", "jsonl")

    assert answer.status == 0
    assert sorted(answer.lines, key=lambda row: row["id"]) == [
        {"id": 1, "v": "a", "price": "1.00"},
        {"id": 2, "v": None, "price": None},
        {"id": 3, "v": "c", "price": "2.00"},
    ]


def test_read_selects_columns_and_filters_and_limits_rows(run: Run, warehouse: Path) -> None:
    answer = run("read", warehouse, "db.t", "--columns", "v, id", "--where", "id > 1 AND v IS NOT NULL",
                 "--format", "jsonl")  # fmt: skip
    limited = run("read", warehouse, "db.t", "--limit", 2, "--format", "jsonl")
    last = run(
        "read", warehouse, "db.t", "--limit", 1, "--order-by", "id desc", "--format", "jsonl"
    )

    assert answer.lines == [{"v": "c", "id": 3}]
    assert len(limited.lines) == 2
    assert [row["id"] for row in last.lines] == [3]


def test_rows_are_printed_as_csv_and_as_a_table(run: Run, warehouse: Path) -> None:
    csv = run("read", warehouse, "db.t", "--where", "id = 1", "--format", "csv")
    table = run("read", warehouse, "db.t", "--where", "id = 1")

    assert csv.out == '"id","v","price"\n1,"a",1.00\n'
    assert table.out == "id  v  price\n1   a  1.00\n1 row\n"
    vertical = run("read", warehouse, "db.t", "--where", "id = 1", "--format", "vertical")
    assert vertical.out.splitlines()[1:] == ["id     1", "v      a", "price  1.00", "1 row"]


@pytest.mark.parametrize(
    ("declared", "stored", "shown"),
    [
        ("FLOAT", 0.1, 0.1),
        ("FLOAT", 16777216.0, 16777216.0),
        ("FLOAT", float("nan"), "NaN"),
        ("DOUBLE", 0.1 + 0.2, 0.1 + 0.2),
        ("ARRAY<FLOAT>", [0.3, None], [0.3, None]),
        ("MAP<STRING, FLOAT>", [("k", 0.1)], [["k", 0.1]]),
        ("ROW<a FLOAT>", {"a": 0.1}, {"a": 0.1}),
        ("VECTOR<FLOAT, 2>", [0.1, 0.2], [0.1, 0.2]),
    ],
    ids=str,
)
def test_floats_are_printed_with_the_digits_that_identify_them(
    run: Run, tmp_path: Path, declared: str, stored: object, shown: object
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.floats", f"v {declared}")
    kind = table.scan().to_arrow().schema.field("v").type
    table.append(pa.table({"v": pa.array([stored], kind)}))

    assert run("read", tmp_path, "db.floats", "--format", "jsonl").lines == [{"v": shown}]


@pytest.mark.slow
def test_rows_are_written_as_parquet(warehouse: Path) -> None:
    command = [sys.executable, "-m", "paimon_orch", "read", str(warehouse), "db.t"]
    process = subprocess.run([*command, "--format", "parquet"], capture_output=True, check=True)

    assert pq.read_table(pa.BufferReader(process.stdout)).num_rows == 3


def test_older_snapshots_are_read(run: Run, table: Table, warehouse: Path) -> None:
    table.delete(table_of("id", [(1,)]))
    first = table.stores.snapshots.get(1).time_millis

    for arguments in (["--snapshot", 1], ["--timestamp", first]):
        assert len(run("read", warehouse, "db.t", "--format", "jsonl", *arguments).lines) == 3
    assert len(run("read", warehouse, "db.t", "--format", "jsonl").lines) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["db.nope"], "there is no table db.nope"),
        (["nope.t"], "no database 'nope' (databases: db)"),
        (["t"], "must be 'database.table'"),
        (["db.t", "--columns", "nope"], "no column 'nope'; the columns are id, v, price"),
        (["db.t", "--where", "id ="], "is not a valid SQL condition"),
        (["db.t", "--where", "price = 'x'"], "not a value of column 'price'"),
        (["db.t", "--snapshot", "9"], "has no snapshot 9; it has only 1"),
        (["db.t", "--tag", "x"], "has no tag 'x'; it has none"),
        (["db.t", "--branch", "x"], "has no branch 'x'"),
        (["db.t", "--timestamp", "yesterday-ish"], "is not a point in time"),
        (["db.t", "--timestamp", "0"], "no snapshot at or before 1970-01-01 00:00:00.000 UTC"),
        (["db.t", "--snapshot", "1", "--tag", "x"], "cannot be combined"),
    ],
)
def test_read_reports_an_error_in_one_paragraph(
    run: Run, warehouse: Path, arguments: list[str], message: str
) -> None:
    assert_fails(run("read", warehouse, *arguments), message)


def test_rows_are_one_json_array_on_request(run: Run, warehouse: Path) -> None:
    answer = run("read", warehouse, "db.t", "--order-by", "id", "--limit", 2, "--json")

    rows = [{"id": 1, "v": "a", "price": "1.00"}, {"id": 2, "v": None, "price": None}]
    assert answer.json == rows
    assert run("read", warehouse, "db.t", "--format", "json", "--where", "id < 3").json == rows
    assert run("read", warehouse, "db.t", "--where", "id > 9", "--json").json == []
    refused = run("read", warehouse, "db.t", "--json", "--format", "csv")
    assert_fails(refused, "--json and --format csv cannot be combined")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_an_output_that_cannot_be_written_is_named(run: Run, warehouse: Path, form: str) -> None:
    full = run("read", warehouse, "db.t", "--output", "/dev/full", "--format", form)
    missing = run("read", warehouse, "db.t", "--output", warehouse / "no" / f"rows.{form}")

    assert_fails(full, "/dev/full was not written: No space left on device")
    assert_fails(missing, f"no/rows.{form} was not written: No such file or directory")
