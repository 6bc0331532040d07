"""Output, exit status and effects of commands run through the entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.damage import edit_files
from support.tables import levels_of, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.cli import inspect as cli_inspect
from paimon_orch.cli.app import main
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Answer]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as the entry point does, in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["paimon-orch", *map(str, arguments)])
        status: Any = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        out, error = capsys.readouterr()
        return Answer(status, out, error)

    return run


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path / "wh")).create_table(
        "db.t",
        "id BIGINT NOT NULL, v STRING, price DECIMAL(10, 2)",
        primary_key=["id"],
        options={"bucket": "2", "deletion-vectors.enabled": "false"},
    )
    table.upsert(table_of("id v price", [(1, "a", "1"), (2, None, None), (3, "c", "2")]))
    return table


@pytest.fixture
def warehouse(table: Table, tmp_path: Path) -> Path:
    return tmp_path / "wh"


def assert_fails(answer: Answer, *words: str) -> None:
    """Check for exit status 1, one paragraph on stderr, no traceback and an empty stdout."""
    assert answer.status == 1
    assert answer.out == ""
    lines = answer.error.splitlines()
    paragraph = [line for line in lines if line and not line.startswith("Spark ")]
    assert len(paragraph) == 1, answer.error
    assert paragraph[0].startswith("error: ")
    for word in words:
        assert word in paragraph[0]


def test_create_stores_columns_keys_options_and_comment(run: Run, tmp_path: Path) -> None:
    answer = run(
        "create", tmp_path, "db.t", "--columns", "dt STRING, id BIGINT, v DOUBLE",
        "--primary-key", "dt, id", "--partition-by", "dt", "--option", "bucket=2",
        "--option", "target-file-size=1 mb", "--comment", "it's",
    )  # fmt: skip

    assert (answer.status, answer.out) == (0, f"created db.t in {tmp_path}\n")
    schema = Catalog(str(tmp_path)).table("db.t").schema
    assert (schema.primary_keys, schema.partition_keys) == (("dt", "id"), ("dt",))
    assert schema.options == {"bucket": "2", "target-file-size": "1 mb"}
    assert schema.comment == "it's"
    assert_fails(run("create", tmp_path, "db.t", "--columns", "id INT"), "exists already")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--columns", "id FOO"], "unknown type 'FOO'"),
        (["--columns", "id INT", "--option", "bucket"], "must look like key=value"),
        (["--columns", "id INT", "--primary-key", "x"], "'x' is not among the columns id"),
    ],
)
def test_create_refuses_an_invalid_definition(
    run: Run, tmp_path: Path, arguments: list[str], word: str
) -> None:
    assert_fails(run("create", tmp_path / "wh", "db.t", *arguments), word)
    assert not (tmp_path / "wh").exists()


def test_rows_are_printed_as_json_lines(run: Run, warehouse: Path) -> None:
    answer = run("read", warehouse, "db.t", "--format", "jsonl")

    assert answer.status == 0
    assert sorted(answer.lines, key=lambda row: row["id"]) == [
        {"id": 1, "v": "a", "price": "1.00"},
        {"id": 2, "v": None, "price": None},
        {"id": 3, "v": "c", "price": "2.00"},
    ]


def test_read_selects_columns_filters_and_limits_rows(run: Run, warehouse: Path) -> None:
    chosen = run("read", warehouse, "db.t", "--columns", "v, id", "--where", "id > 1 AND v IS NOT NULL",
                 "--format", "jsonl")  # fmt: skip
    limited = run("read", warehouse, "db.t", "--limit", 2, "--format", "jsonl")
    last = run(
        "read", warehouse, "db.t", "--limit", 1, "--order-by", "id desc", "--format", "jsonl"
    )

    assert chosen.lines == [{"v": "c", "id": 3}]
    assert len(limited.lines) == 2
    assert [row["id"] for row in last.lines] == [3]


def test_rows_are_printed_as_csv_and_as_a_table(run: Run, warehouse: Path) -> None:
    csv = run("read", warehouse, "db.t", "--where", "id = 1", "--format", "csv")
    table = run("read", warehouse, "db.t", "--where", "id = 1")

    assert csv.out == '"id","v","price"\n1,"a",1.00\n'
    assert "1 rows" in table.out
    assert "1.00" in table.out


def test_rows_are_written_as_parquet(warehouse: Path) -> None:
    command = [sys.executable, "-m", "paimon_orch.cli", "read", str(warehouse), "db.t"]
    done = subprocess.run([*command, "--format", "parquet"], capture_output=True, check=True)

    assert pq.read_table(pa.BufferReader(done.stdout)).num_rows == 3


def test_older_snapshots_are_read(run: Run, table: Table, warehouse: Path) -> None:
    table.delete(table_of("id", [(1,)]))
    first = table.stores.snapshots.get(1).time_millis

    for arguments in (["--snapshot", 1], ["--timestamp", first]):
        assert len(run("read", warehouse, "db.t", "--format", "jsonl", *arguments).lines) == 3
    assert len(run("read", warehouse, "db.t", "--format", "jsonl").lines) == 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["db.nope"], "there is no table db.nope"),
        (["nope.t"], "no database 'nope' (databases: db)"),
        (["t"], "must be 'database.table'"),
        (["db.t", "--columns", "nope"], "no column 'nope'; the columns are id, v, price"),
        (["db.t", "--where", "id ="], "cannot be understood"),
        (["db.t", "--where", "price = 'x'"], "no value of column 'price'"),
        (["db.t", "--snapshot", "9"], "has no snapshot 9; it has 1 to 1"),
        (["db.t", "--tag", "x"], "has no tag 'x'; it has none"),
        (["db.t", "--branch", "x"], "has no branch 'x'"),
        (["db.t", "--timestamp", "yesterday-ish"], "is not a point in time"),
        (["db.t", "--timestamp", "0"], "no snapshot at or before 0 ms"),
        (["db.t", "--snapshot", "1", "--tag", "x"], "exclude each other"),
    ],
)
def test_read_reports_an_error_in_one_paragraph(
    run: Run, warehouse: Path, arguments: list[str], word: str
) -> None:
    assert_fails(run("read", warehouse, *arguments), word)


def test_a_missing_warehouse_is_reported_and_not_created(run: Run, tmp_path: Path) -> None:
    assert_fails(run("inspect", tmp_path / "nowhere", "db.t"), "there is no table db.t")
    assert_fails(run("compact", tmp_path / "nowhere", "db.t"), "there is no table db.t")
    assert not (tmp_path / "nowhere").exists()


def test_a_warehouse_below_a_file_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = run("create", tmp_path / "file" / "wh", "db.t", "--columns", "id INT")
    assert_fails(answer, "cannot be written", "Check that the warehouse is a directory")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["read"],
        ["read", "wh"],
        ["read", "wh", "db.t", "--format", "xml"],
        ["read", "wh", "db.t", "--limit", "-1"],
        ["read", "wh", "db.t", "--snapshot", "one"],
        ["read", "wh", "db.t", "--nope"],
        ["compact", "wh", "db.t", "--strategy", "most"],
        ["ingest", "wh", "db.t"],
        ["demo", "--months", "13"],
    ],
)
def test_wrong_usage_exits_with_2(run: Run, arguments: list[str]) -> None:
    answer = run(*arguments)

    assert answer.status == 2
    assert answer.out == ""


def test_the_main_commands_have_a_help_page(run: Run) -> None:
    commands = ("demo", "inspect", "read", "create", "ingest", "compact")
    overview = run("--help")
    assert overview.status == 0
    for command in commands:
        assert command in overview.out
        assert run(command, "--help").status == 0


def test_inspect_prints_snapshot_and_totals(run: Run, table: Table, warehouse: Path) -> None:
    found = run("inspect", warehouse, "db.t", "--json").json
    shown = run("inspect", warehouse, "db.t")

    assert found["table"] == "db.t"
    assert found["snapshot"]["id"] == 1
    assert found["totals"]["physical_rows"] == 3
    assert found["totals"]["level0_files"] == len(levels_of(table))
    assert found["totals"]["hidden_rows"] == 0
    assert "snapshot 1 (APPEND)" in shown.out
    assert_fails(run("inspect", warehouse, "db.t", "--snapshot", 5), "has no snapshot 5")


def test_inspect_of_an_empty_table(run: Run, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_table("db.t", "id INT")

    assert "no snapshot yet" in run("inspect", tmp_path, "db.t").out
    assert run("inspect", tmp_path, "db.t", "--json").json["snapshot"] is None


def test_a_dry_run_changes_nothing(run: Run, table: Table, warehouse: Path) -> None:
    table.upsert(table_of("id v price", [(1, "z", "1")]))
    before = stored_files(table)

    planned = run("compact", warehouse, "db.t", "--strategy", "full", "--dry-run", "--json").json
    shown = run("compact", warehouse, "db.t", "--strategy", "full", "--dry-run").out

    assert planned["snapshot_id"] == 2
    assert planned["files"] == len(levels_of(table))
    assert "nothing was changed" in shown
    assert stored_files(table) == before
    [decision] = planned["decisions"]
    assert decision["compact"] == "not now"
    assert f"the table: not now: {decision['reason']}" in shown


def test_compact_without_work_succeeds_and_commits_nothing(
    run: Run, table: Table, warehouse: Path
) -> None:
    before = stored_files(table)

    answer, asked = run("compact", warehouse, "db.t"), run("compact", warehouse, "db.t", "--json")

    assert (answer.status, answer.out) == (0, "nothing to compact\n")
    assert (asked.json["snapshot_id"], asked.json["files_before"]) == (None, 0)
    assert stored_files(table) == before


# --- commands that run on Spark


def ingest(run: Run, warehouse: Path, *arguments: object) -> Answer:
    return run("ingest", warehouse, "db.t", *arguments)


def test_files_are_loaded_in_one_snapshot(
    run: Run, spark: SparkSession, table: Table, warehouse: Path, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text('price,id,v,op\n5.5,1,new,+U\n,2,,-D\n7,9,"a,b",+I\n')

    answer = ingest(run, warehouse, "--from", source, "--row-kind", "op", "--json")

    assert answer.status == 0
    assert (answer.json["snapshot_id"], answer.json["rows"]) == (2, 3)
    assert [(row[0], row[1], str(row[2])) for row in rows_of(table)] == [
        (1, "new", "5.50"),
        (3, "c", "2.00"),
        (9, "a,b", "7.00"),
    ]


def test_parquet_and_json_lines_are_loaded(
    run: Run, spark: SparkSession, table: Table, warehouse: Path, tmp_path: Path
) -> None:
    pq.write_table(table_of("id v price", [(11, "p", "0.5")]), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text('{"id": 12, "v": "j", "price": "1.25"}\n')

    assert ingest(run, warehouse, "--from", tmp_path / "rows.parquet").status == 0
    assert ingest(run, warehouse, "--from", tmp_path / "rows.jsonl").status == 0

    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 11, 12]
    assert_fails(
        ingest(
            run, warehouse, "--from", tmp_path / "rows.parquet", "--from", tmp_path / "rows.jsonl"
        ),
        "files of one format at a time",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v,price\na,1\n", ["missing id (of the primary key: id)"]),
        ("id,v,price,more\n1,a,1,x\n", ["unknown more"]),
        ("id,v,price\n1,a,1\n,b,2\n", ["column 'id' has 1 null values"]),
        ("id,v,price\n1,a,1\n2,b,much\n", ["column 'price'", "much"]),
        ("id,v,price\none,a,1\n", ["column 'id'", "one"]),
        ("id,v,price\n5,a,1.234\n", ["column 'price'"]),
    ],
    ids=[
        "no key column",
        "another column",
        "null in the key",
        "no number",
        "no number in the key",
        "too precise",
    ],
)
def test_rows_that_do_not_match_the_schema_are_refused(
    run: Run, spark: SparkSession, table: Table, warehouse: Path, tmp_path: Path,
    text: str, words: list[str],
) -> None:  # fmt: skip
    source = tmp_path / "rows.csv"
    source.write_text(text)
    before = stored_files(table)

    answer = ingest(run, warehouse, "--from", source)

    assert stored_files(table) == before
    assert_fails(answer, *words)


def test_a_missing_source_file_is_refused(run: Run, table: Table, warehouse: Path) -> None:
    before = stored_files(table)
    assert_fails(ingest(run, warehouse, "--from", "/nowhere.csv"), "/nowhere.csv: no such file")
    assert stored_files(table) == before


def test_a_source_file_with_an_unknown_extension_is_refused(
    run: Run, spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.txt").write_text("id\n1\n")
    assert_fails(ingest(run, warehouse, "--from", tmp_path / "rows.txt"), "told by the ending")


def test_a_source_file_with_wrong_content_is_named(
    run: Run, spark: SparkSession, table: Table, warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.parquet").write_text("id\n1\n")
    before = stored_files(table)
    assert_fails(ingest(run, warehouse, "--from", tmp_path / "rows.parquet"), "rows.parquet")
    assert stored_files(table) == before


def test_a_table_is_compacted(run: Run, spark: SparkSession, table: Table, warehouse: Path) -> None:
    table.upsert(table_of("id v price", [(1, "z", "1")]))
    rows = rows_of(table)

    answer = run("compact", warehouse, "db.t", "--strategy", "full", "--json")

    assert answer.json["snapshot_id"] == 3
    assert answer.json["level0_after"] == 0
    assert set(levels_of(table)) == {5}
    assert rows_of(table) == rows
    assert "Spark" in answer.error


def test_a_file_name_that_is_not_utf_8_is_printed_escaped(
    run: Run, table: Table, tmp_path: Path
) -> None:
    name = os.fsencode(table.paths.manifest_dir) + b"/manifest-\xff"
    Path(os.fsdecode(name)).write_bytes(b"x")
    os.utime(name, (1, 1))

    answer = run("remove-orphan-files", tmp_path / "wh", "db.t", "--dry-run")

    assert (answer.status, answer.error) == (0, "")
    assert "manifest-\\udcff" in answer.out


def test_notes_of_an_os_error_are_printed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        error = OSError("the disk is full")
        error.add_note("the write itself is committed as snapshot 3")
        raise error

    monkeypatch.setattr(cli_inspect, "inspect_table", fail)
    Catalog(str(tmp_path)).create_table("db.t", "id INT")

    answer = run("inspect", tmp_path, "db.t")

    assert answer.status == 1
    assert "the disk is full (the write itself is committed as snapshot 3)" in answer.error


def test_inspect_reports_overlapping_files_of_a_level(run: Run, tmp_path: Path) -> None:
    made = Catalog(str(tmp_path)).create_table(
        "db.t", "id INT NOT NULL", primary_key=["id"], options={"bucket": "1"}
    )
    for number in (1, 2):
        made.upsert(pa.table({"id": pa.array([1, 2], pa.int32())}))
        edit_files(made, number, level=5)

    plain, as_json = run("inspect", tmp_path, "db.t"), run("inspect", tmp_path, "db.t", "--json")

    assert plain.status == as_json.status == 1
    assert "L5:2" in plain.out
    assert "its keys overlap those of" in plain.error
    assert "its keys overlap those of" in as_json.json["problem"]
    assert as_json.json["totals"]["files"] == 2
