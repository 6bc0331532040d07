"""Commands that change rows, and ``compact --order-by``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.commands import invoke, run_command
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import (
    InputError,
    NotFoundError,
    PaimonError,
    StorageError,
    UnsupportedError,
)
from paimon_orch.steps.compaction import compact
from paimon_orch.table.table import Table


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def table(root: str) -> Table:
    created = Catalog(root).create_table("db.t", "id BIGINT, v STRING")
    for start in (10, 0):
        created.append(table_of("id v", [(n, "old") for n in range(start, start + 10)]))
    return created


def test_rows_are_deleted(root: str, table: Table) -> None:
    dry = run_command("delete", root, "db.t", "--where", "id < 5", "--dry-run")
    assert dry == "would read 1 file of 1 bucket with 10 rows of db.t; nothing was changed"
    dry = run_command("delete", root, "db.t", "--where", "id = 99", "--dry-run")
    assert dry == "no row matches"

    document = json.loads(run_command("delete", root, "db.t", "--where", "id < 5", "--json"))

    assert (document["snapshot_id"], document["deleted"]) == (3, 5)
    assert [row[0] for row in rows_of(table)] == list(range(5, 20))
    nothing = run_command("delete", root, "db.t", "--where", "id = 7 and v = 'none'")
    assert nothing == "no row matches: nothing was committed"


def test_rows_are_updated(spark: SparkSession, root: str, table: Table) -> None:
    run_command("update", root, "db.t", "--set", "v = concat('n=', id)", "--where", "id in (3, 4)")

    assert rows_of(table)[3:5] == [(3, "n=3"), (4, "n=4")]
    with pytest.raises(InputError, match=r"an expression is invalid"):
        run_command("update", root, "db.t", "--set", "v = nope", "--yes")
    with pytest.raises(InputError, match="must look like key=value"):
        run_command("update", root, "db.t", "--set", "v")


def test_a_table_is_sorted(spark: SparkSession, root: str, table: Table) -> None:
    order = ["--order-by", "id", "--order-strategy", "hilbert"]
    assert "hilbert by id" in run_command("compact", root, "db.t", "--dry-run", "--json", *order)

    document = json.loads(run_command("compact", root, "db.t", "--json", *order))

    assert (document["files_before"], document["files_after"]) == (2, 1)
    assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == list(range(20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--order-strategy", "zorder"], "order_strategy zorder requires order_by"),
        (["--order-by", " , "], "order_by has no columns"),
        (["--order-by", "id", "--strategy", "minor"], "cannot be combined"),
        (
            ["--order-by", "id", "--order-strategy", "z"],
            "--order-strategy is 'z', but must be order, zorder or hilbert",
        ),
    ],
)
def test_contradicting_sort_options_are_refused(
    root: str, table: Table, arguments: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run_command("compact", root, "db.t", *arguments)


def test_a_table_with_a_primary_key_is_not_sorted(root: str) -> None:
    Catalog(root).create_table("db.k", "id BIGINT", primary_key=["id"], options={"bucket": "1"})

    with pytest.raises(UnsupportedError, match="only append tables without buckets"):
        run_command("compact", root, "db.k", "--order-by", "id", "--dry-run")


@pytest.mark.slow
def test_writes_report_rows_that_are_not_visible_and_compact_on_request(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = Catalog(root).create_table(
        "db.k", "id BIGINT, v STRING", primary_key=["id"], options=options
    )
    rows = tmp_path / "rows.csv"
    rows.write_text("id,v\n1,a\n2,b\n", encoding="utf-8")
    target, load = (root, "db.k"), ("--from", str(rows))
    note = (
        "note: 2 of the records written to db.k are not visible to batch readers before a compaction; "
        f"run `paimon-orch compact {root} db.k`"
    )

    assert note in invoke("ingest", *target, *load).stderr
    assert rows_of(table) == []
    loaded = invoke("ingest", *target, *load, "--mode", "overwrite", "--yes", "--json")
    assert "not visible" not in loaded.stderr
    assert json.loads(loaded.stdout)["rows_not_visible"] == 0
    assert rows_of(table) == [(1, "a"), (2, "b")]

    assert note in invoke("update", *target, "--set", "v = 'c'", "--yes").stderr
    assert rows_of(table) == [(1, "a"), (2, "b")]
    answer = invoke(
        "update", *target, "--set", "v = concat(v, 'd')", "--yes", "--compact", "--json"
    )
    assert "not visible" not in answer.stderr
    values = json.loads(answer.stdout)
    assert (values["updated"], values["rows_not_visible"]) == (2, 0)
    assert values["compaction"]["snapshot_id"] == values["snapshot_id"] + 1
    assert rows_of(table) == [(1, "cd"), (2, "cd")]

    deleted = invoke("delete", *target, "--where", "id = 1")
    assert "note: 1 of the records" in deleted.stderr
    assert rows_of(table) == [(1, "cd"), (2, "cd")]
    clauses = ["--on", "target.id = source.id", "--update", "*", "--compact"]
    assert "files after 1" in run_command("merge-into", *target, *load, *clauses)
    assert rows_of(table) == [(2, "b")]


def test_a_failed_compaction_reports_that_the_write_is_committed(
    spark: SparkSession, root: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise StorageError("the store did not answer")

    monkeypatch.setattr(compact, "compact_written_partitions", fail)

    with pytest.raises(StorageError) as failed:
        run_command("delete", root, "db.t", "--where", "id < 5", "--compact")

    command = f"paimon-orch compact {root} db.t"
    text = f"the write is committed as snapshot 3; do not repeat it, but run `{command}`"
    assert failed.value.__notes__ == [text]
    assert len(rows_of(table)) == 15


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("delete", ["--where", "id < 5"]),
        ("update", ["--set", "v = 'x'"]),
        ("ingest", ["--from", "."]),
        ("merge-into", ["--from", ".", "--on", "true"]),
    ],
)
def test_an_impossible_compaction_is_refused_before_the_write(
    root: str, command: str, arguments: list[str]
) -> None:
    options = {"clustering.incremental": "true"}
    table = Catalog(root).create_table("db.k", "id BIGINT, v STRING", options=options)
    table.append(table_of("id v", [(1, "a")]))

    with pytest.raises(InputError, match=r"clustering\.columns"):
        run_command(command, root, "db.k", *arguments, "--compact")
    assert table.stores.snapshots.latest_id() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["update", "--set", "nope = 1", "--where", "k = 1"], "nope"),
        (["update", "--set", "k = 1", "--where", "k = 1"], "k cannot be set"),
        (["update", "--set", "v", "--where", "k = 1"], "must look like key=value"),
        (["update", "--set", "v = 1", "--set", "v = 2", "--where", "k = 1"], "v is given twice"),
        (["update", "--set", "v = 1", "--where", "nope = 1"], "nope"),
        (["delete", "--where", "nope = 1"], "nope"),
        (["merge-into", "--on", "true", "--insert", "nope = 1"], "nope"),
        (["merge-into", "--on", "true", "--update", "k = 1"], "k cannot be set"),
        (["merge-into", "--on", "true"], "requires an update, delete or insert clause"),
    ],
)
def test_columns_and_clauses_are_checked_before_spark_starts(
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    keyed = Catalog(root).create_table(
        "db.t", "k BIGINT NOT NULL, v STRING", primary_key=["k"], options={"bucket": "1"}
    )
    keyed.upsert(table_of("k v", [(1, "a")]))

    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("paimon_orch.cli.common.start_spark", refuse)
    command, *options = arguments
    if command == "merge-into":
        (tmp_path / "rows.csv").write_text("k,v\n1,a\n")
        options += ["--from", str(tmp_path / "rows.csv")]

    with pytest.raises(PaimonError, match=message):
        invoke(command, root, "db.t", *options)


@pytest.mark.parametrize("value", ["a/b", "a%2Fb", "a%", "a%25", "100%", "a/p=1", "x/k=2", "a,b=c"])
def test_partitions_have_the_names_of_the_system_table_or_of_directories(
    tmp_path: Path, value: str
) -> None:
    names = ["a/b", "a%", "100%", "a/p=1", "x/k=2", "a,b=c", "z", value]
    table = new_table(tmp_path, "p STRING, v INT", key=(), partition_by=["p"], bucket="-1")
    rows = [(name, 1) for name in dict.fromkeys(names)]
    table.append(table_of("p v", rows))
    shown = table.system("partitions").scan().to_arrow()["partition"].to_pylist()
    assert f"p={value}" in shown

    run_command("drop-partitions", str(tmp_path), "db.t", "--partitions", f"p={value}", "--yes")

    if value in {"a%2Fb", "a%25"}:  # also the name of the directory of another partition
        value = value.replace("%2F", "/").replace("%25", "%")
    assert rows_of(table) == sorted(row for row in rows if row[0] != value)


def test_semicolons_separate_partitions_before_a_column_and_at_the_end(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p STRING, v INT", key=(), partition_by=["p"], bucket="-1")
    table.append(table_of("p v", [(p, 1) for p in ("a", "b;c", "d", "e", "f;")]))
    command = ["drop-partitions", str(tmp_path), "db.t", "--partitions"]

    run_command(*command, "p=a; p=b;c ;p=d;", "--yes")

    assert rows_of(table) == [("e", 1), ("f;", 1)]
    with pytest.raises(NotFoundError, match="has no partition p=e;x"):
        run_command(*command, "p=e;x", "--yes")
