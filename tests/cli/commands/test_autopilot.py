"""The commands autopilot and maintenance-history."""

from __future__ import annotations

import json
import re
import shutil
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from support.commands import invoke
from support.lake import create_lake

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError


@pytest.fixture(scope="module")
def lake_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    create_lake(root)
    return root


@pytest.fixture
def lake(tmp_path: Path, lake_directory: Path) -> str:
    return str(shutil.copytree(lake_directory, tmp_path / "lake"))


def test_a_dry_run_shows_the_plan_and_changes_nothing(lake: str) -> None:
    answer = invoke("autopilot", lake, "--dry-run", "--min-score", "9.5")

    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert re.fullmatch(
        r"web\.events: minor compaction: sorted runs: 0, level-0 files: 0, small files: 12; "
        r"saves each read 11 files \(score 11\.00, [\d.]+ kB to rewrite\)",
        lines[0],
    )
    assert "skipped: sales.orders: manifest compaction: saves too little" in answer.stdout
    assert lines[-1].startswith("2 tables: would execute 2 actions and rewrite ")
    assert Catalog(lake).databases() == ["sales", "web"]


def test_actions_that_are_due_have_no_score(tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", "k INT NOT NULL", primary_key=["k"], options=options)
    table.upsert(pa.table({"k": pa.array([1], pa.int32())}))

    answer = invoke("autopilot", str(tmp_path), "--dry-run")

    assert re.search(
        r"moves postponed rows to buckets \(due, [\d.]+ k?B to rewrite\)", answer.stdout
    )


def test_a_run_prints_each_action_and_its_history_can_be_read(lake: str) -> None:
    answer = invoke("autopilot", lake, "web.*", "--price-per-gb", "1000000")

    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert re.match(
        r"web\.events: minor compaction: done \([\d.]+ kB read, [\d.]+ k?B written", lines[0]
    )
    assert lines[-1].startswith(
        "1 table; done: 2, nothing to do: 0, skipped: 0, refused: 0, failed: 0; "
    )
    assert "; cost " in lines[-1]
    history = invoke("maintenance-history", lake)
    first, second = history.stdout.splitlines()
    assert re.search(r" web\.events: minor compaction: done \([\d.]+ kB read, 24 rows, ", first)
    assert " web.events: manifest compaction: done (" in second


@pytest.mark.slow
def test_json_has_the_outcomes_and_the_history_rows(lake: str) -> None:
    plan = json.loads(invoke("autopilot", lake, "--dry-run", "--json").stdout)
    arguments = ("--max-concurrent", "2", "--executor", "local", "--json")
    result = json.loads(invoke("autopilot", lake, *arguments).stdout)
    arguments = ("--since", "1 d", "--table", "web.events", "--json")
    rows = json.loads(invoke("maintenance-history", lake, *arguments).stdout)

    assert {a["table"] for a in plan["actions"]} == {"sales.orders", "web.events"}
    assert result["done"] == len(plan["actions"])
    assert [row["action"] for row in rows] == [
        action["action"] for action in result["actions"] if action["table"] == "web.events"
    ]
    assert {row["run_id"] for row in rows} == {result["run_id"]}


def test_a_run_outside_of_the_hours_says_why_it_skips_all_actions(lake: str) -> None:
    hour = datetime.now().astimezone().hour
    closed = f"{(hour + 2) % 24}-{(hour + 4) % 24}"

    answer = invoke("autopilot", lake, "--hours", closed).stdout

    assert "done: 0," in answer
    assert answer.endswith(f"; it is outside of the hours {closed}\n")
    assert "hours" not in invoke("autopilot", lake, "--hours", "0-24").stdout


def test_a_failed_action_sets_the_exit_status(lake: str) -> None:
    for file in Path(lake, "web.db", "events", "bucket-0").iterdir():
        file.unlink()

    answer = invoke("autopilot", lake)

    assert answer.exit_code == 1
    assert "web.events: minor compaction: failed: " in answer.stdout
    assert "sales.orders: minor compaction: done" in answer.stdout


def test_tables_that_are_read_more_often_come_first(lake: str) -> None:
    arguments = ("--dry-run", "--json", "--reads", "sales.*=50")
    plan = json.loads(invoke("autopilot", lake, *arguments).stdout)

    assert plan["actions"][0]["table"] == "sales.orders"


def test_without_actions_the_history_is_empty(lake: str) -> None:
    assert invoke("maintenance-history", lake).stdout == "no actions\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--reads", "often"),
        ("--reads", "a=often"),
        ("--max-bytes", "many"),
        ("--hours", "22"),
        ("--idle-for", "soon"),
    ],
)
def test_wrong_arguments_are_refused(lake: str, arguments: tuple[str, str]) -> None:
    with pytest.raises(InputError):
        invoke("autopilot", lake, *arguments)


def test_a_pattern_without_tables_is_refused(lake: str) -> None:
    with pytest.raises(NotFoundError, match=r"matches 'x\.\*'"):
        invoke("autopilot", lake, "x.*")
