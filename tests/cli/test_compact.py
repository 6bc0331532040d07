"""The command ``compact``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support.commands import Run
from support.tables import levels_of, rows_of, stored_files, table_of

from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    answer, json_answer = (
        run("compact", warehouse, "db.t"),
        run("compact", warehouse, "db.t", "--json"),
    )

    assert (answer.status, answer.out) == (0, "nothing to compact\n")
    assert (json_answer.json["snapshot_id"], json_answer.json["files_before"]) == (None, 0)
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
