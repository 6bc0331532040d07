"""The commands doctor and repair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import invoke
from support.damage import data_files
from support.tables import new_table, table_of

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.display import format_size

ROWS = table_of("k v", [(1, "a")])
LOCAL_STORE = "store file system of this machine: commits by hard link of a complete file"


def test_sound_tables_have_no_findings(tmp_path: Path) -> None:
    new_table(tmp_path).upsert(ROWS)

    answer = invoke("doctor", str(tmp_path))

    assert answer.exit_code == 0
    assert answer.stdout.splitlines() == [
        LOCAL_STORE,
        "1 table, 1 without findings; error: 0, warning: 0, advice: 0",
    ]


def test_a_warning_names_its_command_and_keeps_the_exit_status_0(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(ROWS)

    answer = invoke("doctor", str(tmp_path))

    assert answer.exit_code == 0
    warning = "  warning rows-not-visible: batch readers do not see 1 record before a compaction"
    size = format_size(data_files(table)[0].stat().st_size)
    assert answer.stdout.splitlines() == [
        "db.t",
        f"{warning}; rewrites 1 file of {size}",
        f"    paimon-orch compact {tmp_path} db.t",
        LOCAL_STORE,
        "1 table, 0 without findings; error: 0, warning: 1, advice: 0",
    ]


def test_an_error_sets_the_exit_status_also_with_json(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(ROWS)
    (Path(table.paths.root) / "snapshot" / "snapshot-1").write_text("{")

    answer = invoke("doctor", str(tmp_path), "db.*", "--json")

    assert answer.exit_code == 1
    document = json.loads(answer.stdout)
    [finding] = document.pop("findings")
    stores = [LOCAL_STORE.removeprefix("store ")]
    assert document == {"tables": 1, "error": 1, "warning": 0, "advice": 0, "stores": stores}
    assert finding["rule"] == "unreadable-table"
    assert finding["command"] is None
    assert "restore the file from a backup" in finding["advice"]


def test_missing_files_are_found_with_check(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(ROWS)
    next(Path(table.paths.root).glob("bucket-*/*")).unlink()

    assert invoke("doctor", str(tmp_path)).exit_code == 0
    answer = invoke("doctor", str(tmp_path), "--check")
    assert answer.exit_code == 1
    assert "error missing-files: 1 data file of " in answer.stdout


def test_the_report_is_also_written_as_a_page(tmp_path: Path) -> None:
    new_table(tmp_path, deletion_vectors__enabled="true").upsert(ROWS)
    page = tmp_path / "report.html"

    assert invoke("doctor", str(tmp_path), "--html", str(page)).exit_code == 0

    text = page.read_text(encoding="utf-8")
    assert "rows-not-visible" in text
    assert f"paimon-orch compact {tmp_path} db.t" in text


def test_a_repair_shows_its_plan_and_asks_before_it_changes_anything(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(ROWS)
    hint = Path(table.paths.root) / "snapshot" / "LATEST"
    hint.write_text("x")
    command = ("repair", str(tmp_path), "db.t")

    shown = invoke(*command, "--dry-run").stdout.splitlines()
    assert shown == [
        "would repair db.t: wrong-hint: write the hint LATEST = 1; nothing was changed",
    ]
    with pytest.raises(InputError, match="nothing was changed"):
        invoke(*command, answer="n\n")
    assert hint.read_text() == "x"
    document = json.loads(invoke(*command, "--yes", "--json").stdout)
    assert document == {
        "repairs": [{"rule": "wrong-hint", "text": "write the hint LATEST = 1"}],
        "refused": [],
        "deferred": [],
        "results": ["done"],
        "tag": None,
        "next": [],
    }
    assert hint.read_text() == "1"
    assert invoke(*command).stdout == "nothing to repair\n"


def test_a_repair_that_is_not_possible_is_refused_by_name(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(ROWS)
    (Path(table.paths.root) / "snapshot" / "snapshot-1").write_text("{")
    command = ("repair", str(tmp_path), "db.t")

    answer = invoke(*command, "--yes")

    assert answer.exit_code == 1
    assert answer.stdout.startswith("not repaired: unreadable-table: ")
    assert "restore the file from a backup" in answer.stdout
    with pytest.raises(InputError, match="clock-skew: not repaired by this command"):
        invoke(*command, "--rule", "clock-skew")
    with pytest.raises(InputError, match="other, x: not repaired by this command"):
        invoke(*command, "--rule", "x", "--rule", "other")


def test_a_pattern_without_tables_and_a_missing_warehouse_are_errors(tmp_path: Path) -> None:
    new_table(tmp_path)
    with pytest.raises(NotFoundError, match=r"no table of .* matches 'other\.\*'"):
        invoke("doctor", str(tmp_path), "other.*")
    with pytest.raises(NotFoundError, match="missing"):
        invoke("doctor", str(tmp_path / "missing"))
