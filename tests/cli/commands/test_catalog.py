"""Commands on databases and whole tables, ``alter``, ``analyze`` and ``move-postponed``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.commands import invoke, run_command
from support.tables import rows_of, table_of

if TYPE_CHECKING:
    pass

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.table.table import Table


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def table(root: str) -> Table:
    new_table = Catalog(root).create_table("db.t", "id BIGINT, v INT, a ROW<city STRING>")
    new_table.append(table_of("id v a", [(1, 10, {"city": "Bern"})]))
    return new_table


def test_databases_are_created_listed_and_dropped(root: str) -> None:
    for command in (["database", "list"], ["tables"]):
        with pytest.raises(NotFoundError, match="does not exist; check the path of the warehouse"):
            run_command(*command, root)
    Path(root).mkdir()
    assert run_command("database", "list", root) == "none"
    run_command("database", "create", root, "b")
    run_command("database", "create", root, "a")
    run_command("database", "create", root, "a", "--if-not-exists")
    assert run_command("database", "list", root).split() == ["a", "b"]
    run_command("create", root, "b.t", "--columns", "id INT")

    with pytest.raises(InputError, match="already exists"):
        run_command("database", "create", root, "a")
    with pytest.raises(InputError, match="has the tables t"):
        run_command("database", "drop", root, "b")
    run_command("database", "drop", root, "b", "--cascade", "--yes")
    run_command("database", "drop", root, "c", "--if-exists")

    assert json.loads(run_command("database", "list", root, "--json")) == ["a"]


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "..", "sys", "a$b"])
def test_invalid_database_names_are_refused(root: str, name: str) -> None:
    with pytest.raises(InputError, match="database name"):
        run_command("database", "create", root, name)
    assert not Path(root).exists()


def test_tables_are_listed_renamed_and_dropped(root: str, table: Table) -> None:
    run_command("database", "create", root, "other")
    run_command("rename", root, "db.t", "other.t2")

    assert run_command("tables", root) == "other.t2"
    assert run_command("tables", root, "db") == "none"
    assert len(rows_of(Catalog(root).table("other.t2"))) == 1
    with pytest.raises(InputError, match="no terminal"):
        invoke("drop", root, "other.t2")
    with pytest.raises(InputError, match="nothing was changed"):
        run_command("drop", root, "other.t2", answer="n\n")
    run_command("drop", root, "other.t2", answer="y\n")
    run_command("drop", root, "other.t2", "--yes", "--if-exists")

    assert run_command("tables", root) == "none"


def test_rename_refuses_existing_and_missing_names(root: str, table: Table) -> None:
    catalog = Catalog(root)
    catalog.create_table("db.taken", "id INT")
    for to, message in (("db.taken", "already exists"), ("no.t", "no database 'no'")):
        with pytest.raises(InputError, match=message):
            catalog.rename_table("db.t", to)
    with pytest.raises(NotFoundError, match=r"no table db\.x"):
        catalog.rename_table("db.x", "db.y")
    with pytest.raises(InputError, match="branches cannot be renamed"):
        catalog.rename_table("db.t", "db.t$branch_b")

    assert catalog.tables("db") == ["t", "taken"]
    assert len(rows_of(catalog.table("db.t"))) == 1


def test_alter_makes_all_changes_in_one_schema(root: str, table: Table) -> None:
    changes = [
        *("--rename", "v=w", "--type", "w=BIGINT", "--add", "note VARCHAR(20) after id"),
        *("--add", "a.zip INT", "--default", "note=none", "--move", "w first"),
        *("--column-comment", "w=how much", "--comment", "all of it"),
        *("--set", "snapshot.num-retained.max=20", "--set", "x.y=a=b"),
    ]
    before = table.load().schema
    planned = run_command("alter", root, "db.t", *changes, "--dry-run")
    assert table.load().schema == before
    assert planned.endswith("nothing was changed")

    output = run_command("alter", root, "db.t", *changes)

    assert planned.startswith(output)
    assert output.splitlines() == [
        "schema 0 -> 1",
        "- columns id, v, a",
        "- column v INT",
        "- column a ROW<city STRING>",
        "+ columns w, id, note, a",
        "+ column w BIGINT COMMENT how much",
        "+ column note VARCHAR(20) DEFAULT none",
        "+ column a ROW<city STRING, zip INT>",
        "+ comment all of it",
        "+ option snapshot.num-retained.max = 20",
        "+ option x.y = a=b",
    ]
    assert rows_of(table) == [(10, 1, None, {"city": "Bern", "zip": None})]


def test_alter_resets_options_comments_and_columns(root: str, table: Table) -> None:
    run_command("alter", root, "db.t", "--set", "k=1", "--comment", "c", "--column-comment", "v=x")
    run_command("alter", root, "db.t", "--reset", "k", "--comment", "", "--column-comment", "v=")
    run_command("alter", root, "db.t", "--drop", "a", "--add", "b INT FIRST", "--yes")

    schema = table.load().schema
    assert (schema.names, schema.comment, schema.field("v").description) == (
        ["b", "id", "v"],
        None,
        None,
    )
    assert "k" not in schema.options
    assert run_command("alter", root, "db.t", "--reset", "k") == "the table already has this schema"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to change"),
        (["--add", "x"], "a name and a type"),
        (["--add", "x INT NOT NULL"], "NOT NULL"),
        (["--rename", "v"], "key=value"),
        (["--set", "a.b=1", "--set", "a.b=2"], "given twice"),
        (["--set", "*"], "key=value"),
        (["--move", "v up"], "must look like"),
        (["--drop", "zz"], "there is no column"),
        (["--drop", "v", "--type", "v=BIGINT"], "there is no column"),
        (["--set", "bucket=5"], "cannot change from -1 to 5"),
        (["--not-null", "v"], "cannot become NOT NULL"),
        (["--add", "ok INT", "--type", "v=DATE"], "cannot change from INT to DATE"),
    ],
)
def test_a_refused_alter_changes_nothing(
    root: str, table: Table, arguments: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run_command("alter", root, "db.t", *arguments)
    assert table.stores.schemas.ids() == [0]


def test_catalog_commands_have_help_pages() -> None:
    for command in ("database", "tables", "create", "rename", "drop", "alter"):
        assert len(run_command(command, "--help").splitlines()) > 5


def test_analyze_prints_the_statistics(root: str, table: Table) -> None:
    assert run_command("analyze", root, "db.t", "--dry-run").startswith("would read 0 buckets")
    planned = json.loads(
        run_command("analyze", root, "db.t", "--columns", "id", "--dry-run", "--json")
    )
    assert (planned["columns"], planned["buckets_to_read"]) == (["id"], 1)
    assert table.stores.snapshots.latest_id() == 1

    lines = run_command("analyze", root, "db.t").splitlines()
    assert (lines[0].split(",")[0], lines[-1]) == ("1 row", "snapshot 2")
    as_json = json.loads(run_command("analyze", root, "db.t", "--json"))
    assert as_json["statistics"]["mergedRecordCount"] == 1
    with pytest.raises(InputError, match="cannot be combined"):
        run_command("analyze", root, "db.t", "--columns", "id", "--all-columns")


def test_move_postponed_counts_rows_in_a_dry_run(root: str) -> None:
    run_command(
        "create",
        root,
        "db.t",
        "--columns",
        "id INT",
        "--primary-key",
        "id",
        "--option",
        "bucket=-2",
    )
    assert run_command("move-postponed", root, "db.t") == "no rows in postpone buckets"
    run_command("alter", root, "db.t", "--set", "postpone.batch-write-fixed-bucket=false")
    Catalog(root).table("db.t").upsert(table_of("id", [(1,), (2,)]))

    assert run_command("move-postponed", root, "db.t", "--dry-run").startswith(
        "would move 2 rows of 1 "
    )


def test_compact_moves_postponed_rows(root: str) -> None:
    options = ("--option", "bucket=-2", "--option", "postpone.batch-write-fixed-bucket=false")
    run_command("create", root, "db.t", "--columns", "id INT", "--primary-key", "id", *options)
    table = Catalog(root).table("db.t")
    table.upsert(table_of("id", [(1,), (2,)]))

    assert "moved 2 rows from postpone buckets; nothing to compact" in run_command(
        "compact", root, "db.t"
    )
    assert rows_of(table) == [(1,), (2,)]


def test_a_repeated_load_is_committed_once(root: str, tmp_path: Path) -> None:
    run_command("create", root, "db.t", "--columns", "id INT")
    source = tmp_path / "rows.jsonl"
    source.write_text('{"id": 1}\n{"id": 2}\n')
    load = ("ingest", root, "db.t", "--from", str(source), "--commit-user", "etl", "--json")

    answers = [invoke(*load, "--commit-identifier", number) for number in ("7", "7", "8")]

    assert [answer.exit_code for answer in answers] == [0, 0, 0]
    assert len(rows_of(Catalog(root).table("db.t"))) == 4
    with pytest.raises(InputError, match="must be used together"):
        run_command(*load)


@pytest.mark.slow
def test_rows_of_a_postpone_table_are_loaded_into_real_buckets(
    root: str, tmp_path: Path, executor: str
) -> None:
    options = ("--option", "bucket=-2", "--option", "postpone.default-bucket-num=2")
    run_command(
        "create", root, "db.t", "--columns", "id INT, v STRING", "--primary-key", "id", *options
    )
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f'{{"id": {n % 50}, "v": "{n}"}}\n' for n in range(100)))

    assert (
        invoke("ingest", root, "db.t", "--from", str(source), "--executor", executor).exit_code == 0
    )

    table = Catalog(root).table("db.t")
    assert sorted((split.bucket, split.total_buckets) for split in table.files()) == [
        (0, 2),
        (1, 2),
    ]
    assert rows_of(table) == [(n, str(n + 50)) for n in range(50)]


def test_column_statistics_are_computed(root: str) -> None:
    table = Catalog(root).create_table(
        "db.t", "id INT, v STRING", primary_key=["id"], options={"bucket": "2"}
    )
    table.upsert(table_of("id v", [(n, f"v{n % 7}") for n in range(40)]))

    answer = json.loads(invoke("analyze", root, "db.t", "--all-columns", "--json").stdout)

    figures = answer["statistics"]["colStats"]
    assert {name: column["distinctCount"] for name, column in figures.items()} == {"id": 40, "v": 7}


@pytest.mark.parametrize("switches", [[], ["--json"]])
def test_a_change_of_the_buckets_says_what_happens_to_existing_files(
    root: str, switches: list[str]
) -> None:
    table = Catalog(root).create_table(
        "db.t", "id INT, v STRING", primary_key=["id"], options={"bucket": "2"}
    )
    command = ("alter", root, "db.t", "--set", "bucket=3")
    assert "note: " not in invoke(*command).stderr
    table.upsert(table_of("id v", [(1, "a")]))

    answer = invoke("alter", root, "db.t", "--set", "bucket=4", *switches)

    assert f"to rewrite them, run paimon-orch rescale {root} db.t" in answer.stderr
