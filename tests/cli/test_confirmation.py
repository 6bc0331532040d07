"""Commands that delete say what, ask on a terminal, and need ``--yes`` elsewhere."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest
from support.commands import invoke, run_command
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.table.table import Table

ROWS = "1 row of 1 bucket"
# the command, its question, and its options that are always needed
COMMANDS: dict[str, tuple[list[str], str]] = {
    "rollback": (["--snapshot", "1"], "roll back db.t to snapshot 1 and delete 1 snapshot"),
    "truncate": ([], "delete 2 rows of 2 buckets of db.t"),
    "drop-partitions": (["--partitions", "p=1"], f"delete {ROWS} of db.t: p=1"),
    "rescale": (["--bucket-num", "2"], "rewrite 2 rows of db.t to 2 buckets: p=1, p=2"),
    "update": (["--set", "v = 'x'"], "update all rows of db.t, in files with 2 rows"),
    "tag delete": (["old"], "delete tag old with "),
    "branch delete": (["dev"], "delete branch dev of db.t, 1 snapshot and 1 tag"),
    "branch fast-forward": (["dev"], "replace 1 snapshot of main of db.t by branch dev"),
    "drop": ([], "delete db.t with 2 snapshots, 1 tag, 1 branch"),
    "purge-files": ([], "delete 2 rows, "),
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(
        tmp_path, "p INT, k INT, v STRING", key=("p", "k"), partition_by=["p"], bucket="1"
    )
    table.upsert(table_of("p k v", [(1, 1, "a")]))
    table.tags.create("old", 1)
    table.branches.create("dev", "old")
    table.upsert(table_of("p k v", [(2, 1, "b")]))
    return table


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_terminal_nothing_is_deleted_unless_yes_is_passed(
    table: Table, tmp_path: Path, name: str
) -> None:
    options, question = COMMANDS[name]
    command = [*name.split(), str(tmp_path), "db.t", *options]
    before = stored_files(table)

    with pytest.raises(InputError) as refused:
        invoke(*command)
    assert str(refused.value).startswith(question)
    assert "add --yes to confirm. Nothing was changed" in str(refused.value)
    with pytest.raises(InputError, match="nothing was changed"):
        invoke(*command, answer="n\n")
    assert stored_files(table) == before
    if name != "update":  # needs Spark
        run_command(*command, answer="y\n")
        assert stored_files(table) != before


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
        "would roll back from snapshot 2 to 1 and delete 1 snapshot and the tags late; "
        "nothing was changed"
    )
    with pytest.raises(InputError, match="deletes the tags late; add --delete-tags"):
        invoke(*command, "--yes")
    assert table.tags.names() == ["late", "old"]
    run_command(*command, "--delete-tags", "--yes")

    assert table.tags.names() == ["old"]
    assert rows_of(table) == [(1, 1, "a")]


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

    assert b"delete 2 rows of 2 buckets of db.t?" in shown
    assert len(rows_of(table)) == rows
