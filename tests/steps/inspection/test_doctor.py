"""The doctor finds each kind of damage and neglect, and is silent about healthy tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.damage import edit_files, edit_snapshot
from support.golden import GOLDEN, copy_warehouse
from support.tables import catalog_of, new_table, table_of

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection import doctor
from paimon_orch.steps.inspection.doctor import (
    DoctorFinding,
    DoctorRule,
    Severity,
    examine_catalog,
    examine_table,
)
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.table import Table

ROWS = table_of("k v", [(1, "a"), (2, "b")])
HOUR = 3600.0


def examine(table: Table, **arguments: object) -> list[DoctorFinding]:
    return examine_table(catalog_of(table), table.identifier, **arguments)  # type: ignore[arg-type]


def rules(findings: list[DoctorFinding]) -> set[DoctorRule]:
    return {finding.rule for finding in findings}


def snapshot_file(table: Table, name: str) -> Path:
    return Path(table.paths.root) / "snapshot" / name


def write_times(table: Table, times: int) -> Table:
    for _ in range(times):
        table.upsert(ROWS)
    return table


def remove_snapshot_in_the_middle(root: Path) -> Table:
    table = write_times(new_table(root), 3)
    snapshot_file(table, "snapshot-2").unlink()
    return table


def remove_latest_hint(root: Path) -> Table:
    table = write_times(new_table(root), 1)
    snapshot_file(table, "LATEST").unlink()
    return table


def write_earliest_hint_of_a_missing_snapshot(root: Path) -> Table:
    table = write_times(new_table(root), 3)
    snapshot_file(table, "snapshot-1").unlink()
    snapshot_file(table, "EARLIEST").write_text("1")
    return table


def commit_in_the_future(root: Path) -> Table:
    table = write_times(new_table(root), 1)
    edit_snapshot(table, 1, time_millis=int((time.time() + 24 * HOUR) * 1000))
    return table


def damage_the_snapshot(root: Path) -> Table:
    table = write_times(new_table(root), 1)
    snapshot_file(table, "snapshot-1").write_text("{")
    return table


def let_files_of_a_level_overlap(root: Path) -> Table:
    table = write_times(new_table(root), 2)
    edit_files(table, 1, level=5)
    edit_files(table, 2, level=5)
    return table


def write_rows_that_are_not_visible(root: Path) -> Table:
    return write_times(new_table(root, deletion_vectors__enabled="true"), 1)


def write_many_level0_files(root: Path) -> Table:
    return write_times(new_table(root, write_only="true"), 12)


def write_many_small_files(root: Path) -> Table:
    return write_times(new_table(root, write_only="true"), 20)


def delete_most_rows(root: Path) -> Table:
    table = write_times(new_table(root, deletion_vectors__enabled="true"), 1)
    compact(table, InProcessExecutor(), strategy="full")
    table.delete(table_of("k", [(1,)]))
    compact(table, InProcessExecutor())
    return table


def store_option(table: Table, key: str, value: str) -> Table:
    """Write an option into the schema, as an engine that does not validate options does."""
    path = Path(table.paths.root) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["options"][key] = value
    path.write_text(json.dumps(schema))
    return catalog_of(table).table(table.identifier)


def add_an_index_option(root: Path) -> Table:
    table = write_times(new_table(root), 1)
    return store_option(table, "file-index.bloom-filter.columns", "v")


def retain_one_snapshot(root: Path) -> Table:
    options = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1"}
    return write_times(new_table(root, **options), 3)


def let_a_consumer_fall_behind(root: Path) -> Table:
    table = retain_one_snapshot(root)
    table.stores.consumers.record("reader", 1)
    return table


def misspell_an_option(root: Path) -> Table:
    return store_option(write_times(new_table(root), 1), "target-file-sise", "1 mb")


CASES: dict[DoctorRule, tuple[Callable[[Path], Table], Severity, str | None]] = {
    DoctorRule.SNAPSHOT_GAP: (
        remove_snapshot_in_the_middle,
        Severity.ERROR,
        "paimon-orch repair-earliest-snapshot /lake db.t",
    ),
    DoctorRule.FUTURE_SNAPSHOT: (commit_in_the_future, Severity.WARNING, None),
    DoctorRule.UNREADABLE_TABLE: (
        damage_the_snapshot,
        Severity.ERROR,
        "paimon-orch check /lake db.t",
    ),
    DoctorRule.INCONSISTENT_METADATA: (
        let_files_of_a_level_overlap,
        Severity.ERROR,
        "paimon-orch check /lake db.t",
    ),
    DoctorRule.ROWS_NOT_VISIBLE: (
        write_rows_that_are_not_visible,
        Severity.WARNING,
        "paimon-orch compact /lake db.t",
    ),
    DoctorRule.SORTED_RUNS: (
        write_many_level0_files,
        Severity.WARNING,
        "paimon-orch compact /lake db.t",
    ),
    DoctorRule.SMALL_FILES: (
        write_many_small_files,
        Severity.WARNING,
        "paimon-orch compact /lake db.t",
    ),
    DoctorRule.DELETED_ROWS: (
        delete_most_rows,
        Severity.WARNING,
        "paimon-orch compact /lake db.t --strategy full",
    ),
    DoctorRule.MISSING_FILE_INDEXES: (
        add_an_index_option,
        Severity.WARNING,
        "paimon-orch rewrite-file-index /lake db.t",
    ),
    DoctorRule.EXPIRED_SNAPSHOTS: (
        retain_one_snapshot,
        Severity.WARNING,
        "paimon-orch expire-snapshots /lake db.t",
    ),
    DoctorRule.CONSUMER_RETAINS_SNAPSHOTS: (
        let_a_consumer_fall_behind,
        Severity.WARNING,
        "paimon-orch consumer list /lake db.t",
    ),
    DoctorRule.OPTION: (misspell_an_option, Severity.WARNING, None),
}


@pytest.mark.parametrize("rule", CASES)
def test_damage_and_neglect_are_found_with_the_command_that_fixes_them(
    tmp_path: Path, rule: DoctorRule
) -> None:
    damage, severity, command = CASES[rule]
    table = damage(tmp_path)
    [finding] = [found for found in examine(table) if found.rule is rule]

    assert finding.table == table.identifier
    assert finding.severity is severity
    assert finding.format_command("/lake") == command


@pytest.mark.parametrize("damage", [remove_latest_hint, write_earliest_hint_of_a_missing_snapshot])
def test_wrong_hints_are_found(damage: Callable[[Path], Table], tmp_path: Path) -> None:
    assert DoctorRule.WRONG_HINT in rules(examine(damage(tmp_path)))


def test_stale_iceberg_metadata_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="table-location")
    table.upsert(ROWS)
    assert DoctorRule.STALE_ICEBERG_METADATA not in rules(examine(table))
    monkeypatch.setattr(IcebergPublisher, "publish", lambda _: None)
    table.upsert(ROWS)

    [finding] = [
        found for found in examine(table) if found.rule is DoctorRule.STALE_ICEBERG_METADATA
    ]
    assert finding.severity is Severity.WARNING
    assert finding.command == "sync-iceberg"


def test_missing_files_are_found_only_by_the_check_of_files(tmp_path: Path) -> None:
    table = write_times(new_table(tmp_path), 1)
    next(Path(table.paths.root).glob("bucket-*/*")).unlink()

    assert examine(table) == []
    [finding] = examine(table, check_files=True)
    assert (finding.rule, finding.severity) == (DoctorRule.DAMAGED_FILES, Severity.ERROR)


def test_a_table_that_cannot_be_read_does_not_stop_the_examination(tmp_path: Path) -> None:
    damaged = damage_the_snapshot(tmp_path)
    other = catalog_of(damaged).create_table("db.other", "a BIGINT")
    names = [damaged.identifier, other.identifier]

    report = examine_catalog(catalog_of(damaged), names)

    assert report.tables == tuple(names)
    assert [finding.table for finding in report.findings] == [damaged.identifier]
    assert report.count(Severity.ERROR) == 1


def test_the_examination_changes_no_file(tmp_path: Path) -> None:
    for number, (damage, _, _) in enumerate(CASES.values()):
        table = damage(tmp_path / str(number))
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        examine(table, check_files=True)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_an_important_finding_comes_first(tmp_path: Path) -> None:
    table = remove_snapshot_in_the_middle(tmp_path)
    snapshot_file(table, "LATEST").unlink()

    findings = examine(table)

    assert [finding.rule for finding in findings] == [
        DoctorRule.SNAPSHOT_GAP,
        DoctorRule.WRONG_HINT,
    ]


@pytest.mark.parametrize("writer", ["java-0.9", "java-2.0", "pypaimon-2.1", "pypaimon-rust-0.4"])
def test_tables_of_other_implementations_have_no_false_alarms(writer: str, tmp_path: Path) -> None:
    """Their tables have expired snapshots, small files and unused options, but no damage."""
    expected = {
        *(DoctorRule.ROWS_NOT_VISIBLE, DoctorRule.SMALL_FILES, DoctorRule.MISSING_FILE_INDEXES),
        *(
            DoctorRule.DELETED_ROWS,
            DoctorRule.EXPIRED_SNAPSHOTS,
            DoctorRule.OPTION,
            DoctorRule.STALE_ICEBERG_METADATA,
        ),
    }
    count = 0
    for folder in sorted((GOLDEN / writer).iterdir()):
        if not (folder / "warehouse").is_dir():
            continue
        catalog = Catalog(str(copy_warehouse(folder, tmp_path / folder.name)))
        for name in catalog.find_tables():
            count += 1
            findings = examine_table(catalog, name)
            assert rules(findings) <= expected, (folder.name, findings)
            assert all(finding.severity is not Severity.ERROR for finding in findings)
    assert count > 5


def test_every_rule_is_documented() -> None:
    page = (Path(doctor.__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert [rule for rule in DoctorRule if f"| `{rule}` |" not in page] == []
