"""The command ``merge-into``, with and without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import invoke, run_command
from support.tables import rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, UnsupportedError
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


@pytest.mark.parametrize("executor", ["auto", pytest.param("spark", marks=pytest.mark.slow)])
def test_files_are_merged_into_a_table(
    request: pytest.FixtureRequest, root: str, table: Table, tmp_path: Path, executor: str
) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    path = tmp_path / "changes.csv"
    path.write_text("id,v\n3,three\n4,\n100,new\n", encoding="utf-8")
    clauses = ["--update", "*", "--delete", "source.v is null", "--insert", "*"]
    clauses += ["--delete-not-in-source", "target.id > 17", "--executor", executor]

    command = ["merge-into", root, "db.t", "--from", str(path), "--on", "target.id = source.id"]
    before = rows_of(table)
    with pytest.raises(
        InputError, match=r"insert 1 row, update 1 row and delete 3 rows of db\.t\? .* add --yes"
    ):
        invoke(*command, *clauses)
    with pytest.raises(InputError, match="nothing was changed"):
        invoke(*command, *clauses, answer="n\n")
    assert "would delete 1 row of db.t" in run_command(*command, *clauses[2:4], "--dry-run")
    assert "would change no rows of db.t" in run_command(*command, "--delete", "false", "--dry-run")
    assert rows_of(table) == before
    document = json.loads(run_command(*command, *clauses, "--json", "--yes"))

    assert [document[key] for key in ("updated", "deleted", "inserted")] == [1, 3, 1]
    assert rows_of(table)[2:5] == [(2, "old"), (3, "three"), (5, "old")]
    assert rows_of(table)[-2:] == [(17, "old"), (100, "new")]


def test_a_merge_that_needs_spark_is_refused_by_the_local_executor(
    root: str, table: Table, tmp_path: Path
) -> None:
    path = tmp_path / "changes.csv"
    path.write_text("id,v\n3,three\n", encoding="utf-8")
    command = ["merge-into", root, "db.t", "--from", str(path), "--executor", "local"]

    with pytest.raises(UnsupportedError, match=r"target\.id < source\.id.*--executor spark"):
        invoke(*command, "--on", "target.id < source.id", "--update", "*")
    with pytest.raises(UnsupportedError, match=r"UPPER\(.*needs Spark"):
        invoke(*command, "--on", "target.id = source.id", "--update", "v = upper(source.v)")
