"""Partitions are marked by name; a name must be complete and have values of its columns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.tables import table_of

from paimon_orch import Catalog, Table
from paimon_orch.errors import InputError, NotFoundError, UnsupportedError
from paimon_orch.orchestration.step_runs import run_declared_step
from paimon_orch.steps import mark_done
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.publication.mark_done import MarkDoneRequest, plan


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        "dt STRING, hr INT, v INT",
        partition_by=["dt", "hr"],
        options={"partition.mark-done-action": "success-file"},
    )
    table.append(table_of("dt hr v", [("a", 5, 0), (None, 7, 0), ("a", 1, 0), ("a", 2, 0)]))
    return table


def marked(table: Table) -> set[str]:
    root = table.paths.root
    return {os.path.relpath(path.parent, root) for path in Path(root).rglob("_SUCCESS")}


def test_partitions_are_marked_by_their_names_in_directories(table: Table) -> None:
    result = mark_done(table, ["dt=a/hr=05", {"hr": 7, "dt": None}])
    expected = ["dt=a/hr=5", "dt=__DEFAULT_PARTITION__/hr=7"]
    assert result.plan.to_dict() == {"partitions": expected, "actions": ["success-file"]}
    assert marked(table) == set(expected)


def test_a_plan_marks_nothing(table: Table) -> None:
    assert plan(table, MarkDoneRequest(partitions=["dt=a/hr=5"]))
    assert marked(table) == set()


def test_incomplete_and_unknown_names_are_refused(table: Table) -> None:
    with pytest.raises(InputError, match="'dt=a' lacks hr"):
        mark_done(table, ["dt=b/hr=1", "dt=a"])
    with pytest.raises(NotFoundError, match="'day' is not a partition column"):
        mark_done(table, ["day=1"])
    with pytest.raises(InputError, match="'x' is not a value of the partition column 'hr'"):
        mark_done(table, ["dt=a/hr=x"])
    assert marked(table) == set()


def test_an_action_that_needs_java_is_refused(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.u",
        "p INT, v INT",
        partition_by=["p"],
        options={"partition.mark-done-action": "success-file,custom"},
    )
    with pytest.raises(UnsupportedError, match="Java class"):
        mark_done(table, ["p=1"])


def test_a_partition_that_does_not_exist_is_refused_by_every_front_end(table: Table) -> None:
    message = "db.t has no partition dt=a/hr=6"
    with pytest.raises(NotFoundError, match=message):
        mark_done(table, ["dt=a/hr=5", "dt=a/hr=6"])
    with pytest.raises(NotFoundError, match=message):
        plan(table, MarkDoneRequest(partitions=["dt=a/hr=6"]))
    with pytest.raises(NotFoundError, match=message):
        run_declared_step(
            "mark-done",
            table,
            {"partitions": ["dt=a/hr=6"]},
            InProcessExecutor(),
            dry_run=True,
        )
    assert marked(table) == set()


def test_a_partition_whose_rows_were_deleted_is_marked(table: Table) -> None:
    table.drop_partitions(["dt=a/hr=5"])
    mark_done(table, ["dt=a/hr=5"])
    assert marked(table) == {"dt=a/hr=5"}


@pytest.mark.slow
def test_the_command_marks_partitions(table: Table, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paimon_orch", "mark-done", str(tmp_path), "db.t"]
    command += ["--partitions", "dt=a/hr=1; dt=a/hr=2"]
    shown = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == (
        "would mark 2 partitions as done (success-file) of db.t; nothing was changed"
    )
    assert marked(table) == set()
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "marked 2 partitions as done (success-file)"
    assert marked(table) == {"dt=a/hr=1", "dt=a/hr=2"}
