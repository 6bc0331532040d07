"""Commands that delete say what, ask on a terminal, and need ``--yes`` elsewhere."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.commands import invoke, option_names, run_command, walk_commands
from support.damage import data_files
from support.data_evolution import evolving_table
from support.histories import backdate_files
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.table.table import Table

ORPHAN = "bucket-0/data-orphan.parquet"
RETENTION = ["--retain-max", "1", "--retain-min", "1", "--older-than", "0 s"]


def do_nothing(_table: Table) -> None:
    pass


def add_orphan(table: Table) -> None:
    path = Path(table.paths.root, "p=1", ORPHAN)
    path.write_text("x")
    backdate_files(table, seconds=3600)


def quarantine_orphan(table: Table) -> None:
    add_orphan(table)
    backdate_files(table)
    run_command(
        "remove-orphan-files", str(Path(table.paths.root).parents[1]), "db.t", "--quarantine"
    )


def lose_data_file(table: Table) -> None:
    max(data_files(table), key=lambda path: path.stat().st_mtime_ns).unlink()


def lose_manifest(table: Table) -> None:
    [meta] = table.stores.manifests.manifest_list(table.stores.snapshots.get(2).delta_manifest_list)
    Path(table.paths.manifest_dir, meta.file_name).unlink()


def lose_snapshot(table: Table) -> None:
    table.upsert(table_of("p k v", [(1, 3, "c")]))
    Path(table.stores.snapshots.path(2)).unlink()


def break_hint(table: Table) -> None:
    Path(table.paths.root, "snapshot", "LATEST").write_text("x")


def add_consumer(table: Table) -> None:
    table.stores.open_consumers().reset("app", table.stores.snapshots.get(1))


def write_file(table: Table) -> None:
    Path(table.paths.root).parents[1].joinpath("rows.csv").write_text("p,k,v\n1,1,c\n")


def tag_late(table: Table) -> None:
    run_command(
        "tag",
        "create",
        str(Path(table.paths.root).parents[1]),
        "db.t",
        "late",
        "--time-retained",
        "1 d",
    )


@dataclass(frozen=True)
class Case:
    """A command that asks, and the start of its question."""

    question: str
    options: tuple[str, ...] = ()
    prepare: Callable[[Table], None] = do_nothing


CASES: dict[str, Case] = {
    "alter": Case("drop the values of column v in 2 rows of db.t", ("--drop", "v")),
    "branch delete": Case("delete branch dev of db.t with 1 snapshot and 1 tag (old)?", ("dev",)),
    "branch fast-forward": Case(
        "move main of db.t from snapshot 2 to snapshot 1 of branch dev and delete 1 snapshot?",
        ("dev",),
    ),
    "consumer clear": Case("delete 1 consumer (app) of db.t?", (), add_consumer),
    "consumer reset": Case("delete consumer app of db.t, which reads", ("app",), add_consumer),
    "drop": Case("delete db.t with 2 snapshots, 1 tag (old), 1 branch (dev) and "),
    "drop-partitions": Case(
        "delete 1 row and 1 partition (p=1) of db.t? Older snapshots keep", ("--partitions", "p=1")
    ),
    "expire-partitions": Case(
        "drop 2 partitions (p=1, p=2) with 2 rows of db.t?",
        ("--expiration-time", "1 ms", "--expire-strategy", "update-time"),
    ),
    "expire-snapshots": Case("expire 1 snapshot with ", tuple(RETENTION)),
    "expire-tags": Case("delete 1 tag (old) of db.t?", ("--older-than", "0 s")),
    "ingest": Case(
        "replace 1 row and 1 partition (p=1) of db.t by 1 row?",
        ("--from", "rows.csv", "--mode", "overwrite"),
        write_file,
    ),
    "merge-into": Case(
        "", ("--from", "rows.csv", "--on", "target.k = source.k", "--delete", "true")
    ),
    "purge-files": Case("delete 2 rows, 2 snapshots, 1 tag (old) and 1 branch (dev) of db.t"),
    "quarantine empty": Case(
        "delete 1 quarantined file of db.t?", ("--older-than", "0 s"), quarantine_orphan
    ),
    "remove-orphan-files": Case(
        "delete 1 file of 1 byte of db.t; files that running jobs have written may be among them?",
        ("--older-than", "1 s"),
        add_orphan,
    ),
    "remove-unexisting-files": Case(
        "remove 1 missing file from the metadata of db.t; 1 row of them is lost", (), lose_data_file
    ),
    "remove-unexisting-manifests": Case(
        "remove 1 missing manifest from the metadata of db.t; the files that they added (1)",
        (),
        lose_manifest,
    ),
    "repair": Case("repair db.t: wrong-hint: write the hint LATEST = 2?", (), break_hint),
    "repair-earliest-snapshot": Case(
        "set the earliest snapshot from 1 to 3 and no longer keep 1 older snapshot of db.t?",
        ("--snapshot", "3"),
        lose_snapshot,
    ),
    "rescale": Case(
        "rewrite 2 rows and 2 partitions (p=1, p=2) of db.t; each partition gets 2 buckets?",
        ("--bucket-num", "2"),
    ),
    "rollback": Case(
        "roll back db.t from snapshot 2 to 1 and delete 1 snapshot?", ("--snapshot", "1")
    ),
    "tag create": Case("move tag old from snapshot 1 to 2 of db.t?", ("old", "--replace")),
    "tag delete": Case("delete tag old and 0 files of db.t?", ("old",)),
    "undo": Case("take back snapshot 2 of db.t (APPEND of +1 records by "),
    "truncate": Case("delete all 2 rows of db.t? Older snapshots keep the rows"),
    "update": Case("update all rows of db.t, in files with 2 rows?", ("--set", "v = 'x'")),
}
DRY_RUNS_WITH_OTHER_TEXT = {
    "alter",
    "consumer",
    "ingest",
    "repair",
    "tag",
}
NEED_SPARK = {"update", "merge-into"}
OTHER_TABLES = {"database drop", "drop-global-index", "expire-changelogs"}
"""Commands whose questions other tests of this module show."""
ASK_NOT = {
    "these read": {
        *(
            "catalogs",
            "tables",
            "database list",
            "read",
            "sql",
            "describe",
            "history",
            "count",
            "inspect",
            "why",
        ),
        *("maintenance-history", "doctor", "check", "tag list", "branch list", "consumer list"),
        "quarantine list",
    },
    "these add or rename": {
        *("create", "database create", "rename", "tag rename", "branch create", "branch rename"),
        *("trigger-tag-automatic-creation", "mark-done", "sync-iceberg", "demo"),
        "quarantine restore",
    },
    "these keep all rows that readers see": {
        *("autopilot", "compact", "compact-database", "compact-manifests", "analyze"),
        *("materialize-deletion-vectors", "reassign-row-ids", "move-postponed"),
        *("rewrite-file-index", "create-global-index", "sync-partitions"),
    },
    "its filter, which is required, says which rows": {"delete"},
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.chdir(tmp_path)
    table = new_table(
        tmp_path, "p INT, k INT, v STRING", key=("p", "k"), partition_by=["p"], bucket="1"
    )
    table.upsert(table_of("p k v", [(1, 1, "a")]))
    table.tags.create("old", 1)
    table.branches.create("dev", "old")
    table.upsert(table_of("p k v", [(2, 1, "b")]))
    return table


def test_each_command_asks_or_loses_nothing() -> None:
    asking = {name for name, command in walk_commands() if "--yes" in option_names(command)}
    others = {name for names in ASK_NOT.values() for name in names}

    assert asking == CASES.keys() | OTHER_TABLES
    assert {name for name, _ in walk_commands()} - asking == others


def assert_asks(table: Table, command: list[str], question: str) -> None:
    """Check the dry run, both refusals, and the execution after a yes."""
    before = read_all_files(table)
    action = question.partition("?")[0]

    with pytest.raises(InputError) as refused:
        invoke(*command)
    assert str(refused.value).startswith(question)
    assert "add --yes to confirm. Nothing was changed" in str(refused.value)
    with pytest.raises(InputError, match="nothing was changed"):
        invoke(*command, answer="n\n")
    if command[0] not in DRY_RUNS_WITH_OTHER_TEXT:
        assert f"would {action}" in invoke(*command, "--dry-run").stdout
    assert read_all_files(table) == before
    assert invoke(*command, answer="y\n").exit_code == 0
    assert read_all_files(table) != before


def read_all_files(table: Table) -> dict[str, bytes]:
    return {path: Path(path).read_bytes() for path in stored_files(table)}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", sorted(CASES.keys() - NEED_SPARK))
def test_a_command_changes_nothing_without_yes(table: Table, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    case.prepare(table)
    assert_asks(table, [*name.split(), str(tmp_path), "db.t", *case.options], case.question)


def test_an_update_of_all_rows_asks_before_spark_starts(table: Table, tmp_path: Path) -> None:
    case, before = CASES["update"], stored_files(table)
    for answer, message in ((None, case.question), ("n\n", "nothing was changed")):
        with pytest.raises(InputError) as refused:
            invoke("update", str(tmp_path), "db.t", *case.options, answer=answer)
        assert str(refused.value).startswith(message)
    assert stored_files(table) == before


def test_dropping_a_global_index_asks(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, "a BIGINT")
    table.append(table_of("a", [(1,), (2,)]))
    command = [str(tmp_path), "db.t", "--column", "a"]
    run_command("create-global-index", *command)

    assert_asks(table, ["drop-global-index", *command], "drop 1 index file of column a of db.t?")


@pytest.mark.slow
def test_expiring_changelogs_asks(tmp_path: Path) -> None:
    kept = {"changelog__num_retained__max": "20", "changelog__num_retained__min": "1"}
    table = new_table(tmp_path, changelog_producer="input", **kept)
    for key in range(3):
        table.upsert(table_of("k v", [(key, "a")]))
    run_command("expire-snapshots", str(tmp_path), "db.t", *RETENTION, "--yes")

    command = ["expire-changelogs", str(tmp_path), "db.t", *RETENTION]
    assert_asks(table, command, "expire 1 changelog with 3 files of db.t?")


def test_scheduled_expirations_by_the_table_do_not_ask(table: Table, tmp_path: Path) -> None:
    tag_late(table)
    for command in ("expire-snapshots", "expire-tags", "remove-orphan-files"):
        run_command(command, str(tmp_path), "db.t")
    run_command("remove-orphan-files", str(tmp_path), "db.t", "--older-than", "2 d")


def test_a_database_is_dropped_with_its_tables_after_a_question(
    table: Table, tmp_path: Path
) -> None:
    command = ("database", "drop", str(tmp_path), "db", "--cascade")

    with pytest.raises(InputError, match=r"delete database db with 1 table: db\.t with 2 snap"):
        invoke(*command)
    run_command(*command, "--yes")

    assert Catalog(str(tmp_path)).databases() == []


def test_a_rollback_deletes_tags_only_on_request(table: Table, tmp_path: Path) -> None:
    table.tags.create("late", 2)
    command = ("rollback", str(tmp_path), "db.t", "--snapshot", "1")

    shown = run_command(*command, "--dry-run")
    assert shown == (
        "would roll back db.t from snapshot 2 to 1 and delete 1 snapshot and 1 tag (late); "
        "nothing was changed"
    )
    with pytest.raises(
        InputError, match="deletes the tags late; to delete them, add --delete-tags"
    ):
        invoke(*command, "--yes")
    assert table.tags.names() == ["late", "old"]
    run_command(*command, "--delete-tags", "--yes")

    assert table.tags.names() == ["old"]
    assert rows_of(table) == [(1, 1, "a")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("answer", "rows"), [("n", 2), ("y", 0)])
def test_a_user_at_a_terminal_is_asked(
    table: Table, tmp_path: Path, answer: str, rows: int
) -> None:
    process, terminal = pty.fork()
    if not process:
        code = "from paimon_orch.cli.app import main; main()"
        os.execv(  # noqa: S606 - a terminal of its own
            sys.executable, [sys.executable, "-c", code, "truncate", str(tmp_path), "db.t"]
        )
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, answer.encode() + b"\n")
    os.waitpid(process, 0)
    os.close(terminal)

    assert b"delete all 2 rows of db.t?" in shown
    assert len(rows_of(table)) == rows
