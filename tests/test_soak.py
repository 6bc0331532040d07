"""A soak: writers, maintainers and kills at once. The model of its rows, and a short run."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import soak
from support.soak_tables import TABLES, Operation, Record, SoakTable, TableHistory, verify

_BY_NAME = {table.name: table for table in TABLES}
_SHORT_MINUTES, _SHORT_TABLES = 1.2, 8
_END_SECONDS = 900


def make_numbers(seed: int) -> random.Random:
    """Return the same random numbers in each test."""
    return random.Random(seed)  # noqa: S311 - data, not a secret


def make_history(table: SoakTable, count: int = 30) -> TableHistory:
    """Return a history whose operations are all acknowledged."""
    history, rng = TableHistory(table=table, writer=1), make_numbers(1)
    for number in range(1, count + 1):
        history.acknowledge(history.make_operation(number, rng, deletes=True))
    return history


def leave_out(history: TableHistory, *left_out: Operation) -> list[Record]:
    """Return the rows of a table to which some operations were not applied."""
    applied = [each for each in history.operations if each not in left_out]
    return history.replay(applied)


def count_differences(history: TableHistory, rows: list[Record]) -> tuple[int, int]:
    """Return the number of lost and of duplicated rows."""
    found = verify([history], rows)
    return found.lost, found.duplicated


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_all_rows_of_acknowledged_operations_are_expected(table: SoakTable) -> None:
    history = make_history(table)

    rows = leave_out(history)

    assert len(rows) > 30
    assert count_differences(history, rows) == (0, 0)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_lost_write_is_found(table: SoakTable) -> None:
    history = make_history(table)
    last = [each for each in history.operations if each.do == "write"][-1]

    assert count_differences(history, leave_out(history, last))[0] > 0


@pytest.mark.parametrize("name", ["deduplicate", "vectors"])
def test_a_lost_delete_is_found(name: str) -> None:
    history = make_history(_BY_NAME[name])
    [*_, last] = [each for each in history.operations if each.do == "delete"]

    assert count_differences(history, leave_out(history, last))[1] > 0


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_operation_of_a_killed_writer_may_be_applied_or_not(table: SoakTable) -> None:
    history = make_history(table)
    killed = history.make_operation(31, make_numbers(2), deletes=False)

    assert count_differences(history, leave_out(history)) == (0, 0)
    assert count_differences(history, leave_out(history, killed)) == (0, 0)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_part_of_the_operation_of_a_killed_writer_is_found(table: SoakTable) -> None:
    history = make_history(table, 2)
    before = leave_out(history)
    killed = history.make_operation(31, make_numbers(2), deletes=False)

    assert count_differences(history, [*before, killed.single])[0] > 0


def test_a_row_that_is_twice_in_a_table_is_found() -> None:
    history = make_history(_BY_NAME["append"])
    rows = leave_out(history)

    assert count_differences(history, [*rows, rows[0]]) == (0, 1)


def test_a_commit_that_is_applied_twice_is_found_by_its_sums() -> None:
    history = make_history(_BY_NAME["aggregation"])

    twice = history.replay([*history.operations, history.operations[-1]])

    assert count_differences(history, twice)[0] > 0


def test_a_replaced_write_is_recognized_although_some_of_its_rows_were_deleted() -> None:
    history = make_history(_BY_NAME["vectors"])
    deletes = [each for each in history.operations if each.do == "delete"]
    keys = {row["k"] for each in deletes for row in each.rows}
    [written, *_] = [
        each
        for each in history.operations
        if each.do == "write" and each.single["k"] in keys and each.rows[-1]["k"] not in keys
    ]

    found = verify([history], leave_out(history, written), replaced=1)

    assert (found.lost, found.duplicated, found.replaced) == (0, 0, len(written.rows))


def test_an_operation_whose_snapshot_was_replaced_is_counted_separately() -> None:
    history = make_history(_BY_NAME["deduplicate"])
    [*_, first, last] = [each for each in history.operations if each.do == "write"]
    one, both = leave_out(history, last), leave_out(history, first, last)

    found = verify([history], one, replaced=1)
    assert (found.lost, found.duplicated, found.replaced) == (0, 0, len(last.rows))
    assert verify([history], both, replaced=1).lost > 0
    assert verify([history], one[1:], replaced=1).lost > 0


def test_the_page_is_generated_from_the_stored_figures(repository: Path) -> None:
    stored = (repository / "docs" / "soak.md").read_text(encoding="utf-8")

    assert soak.page() == stored, "run: make reference"


def run_soak(
    repository: Path, folder: Path, minutes: float, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a soak in a process; its figures are in the file ``report.json`` of a folder."""
    script = str(repository / "benchmarks" / "soak.py")
    options = ["--minutes", str(minutes), "--output", str(folder / "report.json"), *arguments]
    return subprocess.run(
        [sys.executable, script, "measure", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=minutes * 60 + _END_SECONDS,
    )


@pytest.mark.slow
@pytest.mark.xdist_group("soak")
@pytest.mark.timeout(1700)
def test_no_row_is_lost_or_duplicated_in_a_soak(repository: Path, tmp_path: Path) -> None:
    """The variable SOAK_MINUTES sets a longer time of at most 20 minutes, with all tables."""
    minutes = os.environ.get("SOAK_MINUTES")
    few = () if minutes else ("--tables", str(_SHORT_TABLES), "--kill-every", "8")

    ended = run_soak(repository, tmp_path, float(minutes or _SHORT_MINUTES), "--seed", "7", *few)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    writers, maintainers = report["writers"], report["maintainers"]
    assert sum(each["kills"] for each in [*writers.values(), *maintainers.values()]) >= 3
    assert {"java-2.0", "pypaimon", "Airflow"} <= {*writers, *maintainers, *report["skipped"]}
    assert maintainers["Dagster"]["actions"]
    for name in ("paimon_orch 1", "paimon_orch 2"):
        assert writers[name]["acknowledged_rows"]
        assert not writers[name]["errors"]
