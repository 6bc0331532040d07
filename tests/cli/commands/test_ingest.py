"""The command ``ingest``: files of all formats, and files that are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import Answer, Run, assert_fails
from support.tables import rows_of, stored_files, table_of

from paimon_orch.errors import InputError
from paimon_orch.table.table import Table


def ingest(run: Run, warehouse: Path, *arguments: object) -> Answer:
    return run("ingest", warehouse, "db.t", *arguments)


@pytest.mark.slow
def test_files_are_loaded_and_compacted_without_pyspark_and_java(
    table: Table, warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("price,id,v\n5.5,7,new\n")
    code = (
        "import sys; from paimon_orch.cli.app import app; sys.modules['pyspark'] = None;"
        "app(sys.argv[1:])"
    )
    for command in (
        ["ingest", str(warehouse), "db.t", "--from", str(tmp_path / "rows.csv"), "--compact"],
        ["compact", str(warehouse), "db.t", "--strategy", "full"],
    ):
        subprocess.run(
            [sys.executable, "-c", code, *command],
            check=True,
            env={**os.environ, "JAVA_HOME": "/nowhere", "PATH": ""},
        )
    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 7]
    assert table.stores.snapshots.latest_id() == 3


def test_files_that_only_spark_reads_are_refused_by_the_local_executor(
    run: Run, table: Table, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_spark(_master: str | None) -> None:
        raise InputError("Spark was started")

    monkeypatch.setattr("paimon_orch.cli.common.start_spark", start_spark)
    # the first block is written before the second one is read
    monkeypatch.setattr("paimon_orch.steps.ingest_files._BLOCK_BYTES", 1)
    (tmp_path / "rows.csv").write_text('price,id,v\n5.5,7,new\n6,8,"say ""x"""\n')
    before = stored_files(table)

    local = ingest(run, warehouse, "--executor", "local", "--from", tmp_path / "rows.csv")
    assert_fails(local, "rows.csv: it has quotes inside of fields", "--executor spark")
    assert_fails(ingest(run, warehouse, "--from", tmp_path / "rows.csv"), "Spark was started")
    assert stored_files(table) == before


@pytest.mark.sampled(1)
def test_files_are_loaded_in_one_snapshot(
    run: Run, executor: str, table: Table, warehouse: Path, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text('price,id,v,op\n5.5,1,new,+U\n,2,,-D\n7,9,"a,b",+I\n')

    answer = ingest(
        run, warehouse, "--executor", executor, "--from", source, "--row-kind", "op", "--json"
    )

    assert answer.status == 0
    assert (answer.json["snapshot_id"], answer.json["rows"]) == (2, 3)
    assert [(row[0], row[1], str(row[2])) for row in rows_of(table)] == [
        (1, "new", "5.50"),
        (3, "c", "2.00"),
        (9, "a,b", "7.00"),
    ]


@pytest.mark.sampled(1)
def test_parquet_and_json_lines_are_loaded(
    run: Run, executor: str, table: Table, warehouse: Path, tmp_path: Path
) -> None:
    pq.write_table(table_of("id v price", [(11, "p", "0.5")]), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text('{"id": 12, "v": "j", "price": "1.25"}\n')

    assert (
        ingest(run, warehouse, "--executor", executor, "--from", tmp_path / "rows.parquet").status
        == 0
    )
    assert (
        ingest(run, warehouse, "--executor", executor, "--from", tmp_path / "rows.jsonl").status
        == 0
    )

    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 11, 12]
    assert_fails(
        ingest(
            run,
            warehouse,
            "--executor",
            executor,
            "--from",
            tmp_path / "rows.parquet",
            "--from",
            tmp_path / "rows.jsonl",
        ),
        "all files must have the same format",
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("text", "messages"),
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
    run: Run, executor: str, table: Table, warehouse: Path, tmp_path: Path,
    text: str, messages: list[str],
) -> None:  # fmt: skip
    source = tmp_path / "rows.csv"
    source.write_text(text)
    before = stored_files(table)

    answer = ingest(run, warehouse, "--executor", executor, "--from", source)

    assert stored_files(table) == before
    assert_fails(answer, *messages)


def test_a_missing_source_file_is_refused(run: Run, table: Table, warehouse: Path) -> None:
    before = stored_files(table)
    assert_fails(ingest(run, warehouse, "--from", "/nowhere.csv"), "/nowhere.csv: no such file")
    assert stored_files(table) == before


def test_a_source_file_with_an_unknown_extension_is_refused(
    run: Run, warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.txt").write_text("id\n1\n")
    assert_fails(
        ingest(run, warehouse, "--from", tmp_path / "rows.txt"), "the file name must end with"
    )


def test_the_error_of_a_source_file_with_wrong_content_contains_its_name(
    run: Run, executor: str, table: Table, warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.parquet").write_text("id\n1\n")
    before = stored_files(table)
    assert_fails(
        ingest(run, warehouse, "--executor", executor, "--from", tmp_path / "rows.parquet"),
        "rows.parquet",
    )
    assert stored_files(table) == before


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rows.csv", [], "missing v, price; unknown w"),
        ("rows.parquet", [], "missing v, price; unknown w"),
        ("rows.json", [], "missing v, price; unknown w"),
        ("rows", [], "missing v, price; unknown w"),
        ("rows.csv", ["--encoding", "klingon"], "unknown encoding 'klingon'"),
        ("rows.json", ["--encoding", "latin-1"], "--encoding is for CSV only"),
        ("rows.json", ["--partition", "dt=1"], "dt"),
        ("rows.json", ["--commit-user", "me"], "must be used together"),
        ("rows.json", ["--master", "foo"], "is not a Spark master"),
    ],
)
def test_arguments_and_columns_are_checked_before_spark_starts(
    run: Run,
    warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    options: list[str],
    message: str,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("paimon_orch.cli.common.start_spark", refuse)
    source = tmp_path / name
    if name == "rows.parquet":
        pq.write_table(pa.table({"id": [1], "w": ["a"]}), source)
    elif name == "rows.json":
        source.write_text('{"id": 1, "w": "a"}\n')
    else:
        file = source if name == "rows.csv" else source / "part-0.csv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("id,w\n1,a\n")

    answer = ingest(run, warehouse, "--executor", "spark", "--from", source, *options)

    assert_fails(answer, message)
