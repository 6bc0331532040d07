"""The command ``sql``: queries over tables, formats, files and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import Run, assert_fails
from support.tables import new_table, stored_files, table_of

from paimon_orch.table.scan import arrow_dataset
from paimon_orch.table.scan.pushdown import narrow_scan
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.table import Table

COUNTS = "SELECT v, count(*) AS n FROM db.t WHERE id <> 2 GROUP BY v ORDER BY v"


def test_a_query_over_a_table_is_printed(run: Run, warehouse: Path) -> None:
    assert run("sql", warehouse, COUNTS).out == "v  n\na  1\nc  1\n2 rows\n"
    assert run("sql", warehouse, COUNTS, "--json").json == [{"v": "a", "n": 1}, {"v": "c", "n": 1}]
    assert run("sql", warehouse, COUNTS, "--format", "csv").out == '"v","n"\n"a",1\n"c",1\n'


def test_tables_are_joined_with_each_other_and_with_system_tables(
    run: Run, warehouse: Path
) -> None:
    query = """
        WITH o AS (SELECT t.id FROM db.t t)
        SELECT o.id, s.commit_kind FROM o, "db"."t$snapshots" AS s, sys.tables
        WHERE sys.tables.table_name = 't' ORDER BY 1
        """

    answer = run("sql", warehouse, query, "--json")

    assert answer.json == [{"id": n, "commit_kind": "APPEND"} for n in (1, 2, 3)]


def test_a_name_with_a_dollar_needs_no_quotes(run: Run, warehouse: Path) -> None:
    answer = run("sql", warehouse, "SELECT count(*) AS n FROM db.t$snapshots", "--json")

    assert answer.json == [{"n": 1}]


def test_a_query_reads_the_columns_and_rows_that_it_needs(
    run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = list[Scan]()

    def record(*arguments: Any) -> Scan:
        scans.append(narrow_scan(*arguments))
        return scans[-1]

    monkeypatch.setattr(arrow_dataset, "narrow_scan", record)

    run("sql", warehouse, "SELECT max(v) FROM db.t WHERE id = 3")

    [scan] = scans
    assert [field.name for field in scan.fields] == ["v", "id"]
    assert scan.list_values()["filter"] is not None


def test_times_are_printed_in_utc(run: Run, tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, z TIMESTAMP_LTZ(3)", key=(), bucket="-1")
    table.append(pa.table({"k": [1], "z": pa.array([0], pa.timestamp("ms", "UTC"))}))

    answer = run("sql", tmp_path, "SELECT z FROM db.t", "--json")

    assert answer.json == [{"z": "1970-01-01T00:00:00+00:00"}]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", [("sql", COUNTS), ("read", "db.t", "--columns", "v")])
def test_a_file_has_the_format_of_its_suffix(
    run: Run, warehouse: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    def write(name: str, *options: str) -> Path:
        path = tmp_path / name
        answer = run(command[0], warehouse, *command[1:], "--output", path, *options)
        assert (answer.status, answer.out) == (0, "")
        return path

    expected = pq.read_table(write("rows.parquet"))["v"].to_pylist()
    with pa.ipc.open_stream(write("rows.arrow")) as stream:
        assert stream.read_all()["v"].to_pylist() == expected
    assert write("rows.csv").read_text().startswith('"v"')
    assert write("rows.txt", "--format", "jsonl").read_text().startswith('{"v": ')
    assert write("rows", "--json").read_text().startswith('[{"v": ')


def test_a_file_of_an_unknown_format_is_refused(run: Run, warehouse: Path, tmp_path: Path) -> None:
    for options in (
        ["--output", tmp_path / "x.xls"],
        ["--output", tmp_path / "x.csv", "--format", "wide"],
    ):
        answer = run("sql", warehouse, COUNTS, *options)
        assert_fails(
            answer, "choose how to write it with --format json, jsonl, csv, parquet, arrow"
        )
    assert not (tmp_path / "x.csv").exists()


def test_a_file_that_is_not_complete_is_removed(run: Run, table: Table, tmp_path: Path) -> None:
    for name in stored_files(table):
        if "/data-" in name:
            Path(name).unlink()
    output = tmp_path / "rows.csv"

    for command in (["sql", tmp_path / "wh", "FROM db.t"], ["read", tmp_path / "wh", "db.t"]):
        answer = run(*command, "--output", output)
        assert_fails(answer, "is missing, but the metadata of the table names it")
        assert "Traceback" not in answer.error
        assert not output.exists()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("FROM db.x", "there is no table db.x in"),
        (
            "FROM x",
            "DuckDB: Catalog Error: Table with name x does not exist!; tables of the catalog are",
        ),
        ("SELEC 1", "DuckDB: Parser Error: syntax error"),
        ("SELECT x FROM db.t", 'DuckDB: Binder Error: Referenced column "x" not found'),
        ("INSERT INTO db.t VALUES (1)", "DuckDB: "),
        ('FROM db."t$nothing"', "nothing"),
    ],
)
def test_errors_have_one_line(run: Run, warehouse: Path, query: str, message: str) -> None:
    answer = run("sql", warehouse, query)

    assert_fails(answer, message)
    assert answer.error.count("\n") == 1


def test_rows_that_are_not_compacted_are_mentioned(run: Run, tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(1, "a")]))

    answer = run("sql", tmp_path, "SELECT count(*) AS n FROM db.t", "--json")

    assert answer.json == [{"n": 0}]
    assert "note: " in answer.error


def test_the_extra_is_named(run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_orch.optional_packages.is_installed", lambda _: False)

    assert_fails(run("sql", warehouse, COUNTS), "run: pip install 'paimon-orch[sql]'")
