"""The doctor finds each kind of damage and neglect, and is silent about healthy tables."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import Run
from support.damage import edit_files, edit_snapshot, store_option
from support.damaged_tables import CORPUS
from support.golden import GOLDEN
from support.tables import catalog_of, new_table, table_of

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.doctor import doctor
from paimon_orch.steps.inspection.doctor.doctor import examine_catalog, examine_table
from paimon_orch.steps.inspection.doctor.doctor_findings import (
    DoctorFinding,
    DoctorReport,
    DoctorRule,
    ExaminedTable,
    Severity,
)
from paimon_orch.steps.inspection.doctor.doctor_page import build_page
from paimon_orch.steps.inspection.doctor.lost_commits import find_lost_files
from paimon_orch.table.iceberg.publish import IcebergPublisher
from paimon_orch.table.table import Table

ROWS = table_of("k v", [(1, "a"), (2, "b")])
HOUR = 3600.0
ASKS = {"repair", "expire-snapshots"}
"""The commands that ask before they change the table."""


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
    table = write_times(new_table(root), 2)
    snapshot_file(table, "snapshot-2").write_text("{")
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
    table.upsert(table_of("k v", [(3, "c")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.delete(table_of("k", [(1,), (3,)]))
    compact(table, InProcessExecutor())
    return table


def add_an_index_option(root: Path) -> Table:
    table = write_times(new_table(root), 1)
    return store_option(table, "file-index.bloom-filter.columns", "v")


def retain_one_snapshot(root: Path) -> Table:
    options = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1"}
    return write_times(new_table(root, **options), 3)


def let_a_consumer_fall_behind(root: Path) -> Table:
    table = retain_one_snapshot(root)
    table.stores.open_consumers().record("reader", 1)
    return table


def misspell_an_option(root: Path) -> Table:
    return store_option(write_times(new_table(root), 1), "target-file-sise", "1 mb")


CASES: dict[DoctorRule, tuple[Callable[[Path], Table], Severity, str | None]] = {
    DoctorRule.SNAPSHOT_GAP: (
        remove_snapshot_in_the_middle,
        Severity.ERROR,
        "paimon-orch repair /lake db.t",
    ),
    DoctorRule.CLOCK_SKEW: (commit_in_the_future, Severity.WARNING, None),
    DoctorRule.UNREADABLE_TABLE: (
        damage_the_snapshot,
        Severity.ERROR,
        "paimon-orch repair /lake db.t",
    ),
    DoctorRule.OVERLAPPING_FILES: (
        let_files_of_a_level_overlap,
        Severity.ERROR,
        "paimon-orch repair /lake db.t",
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
        "paimon-orch compact /lake db.t",
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rule", CASES)
def test_damage_and_neglect_are_found_with_the_command_that_fixes_them(
    run: Run, tmp_path: Path, rule: DoctorRule
) -> None:
    damage, severity, command = CASES[rule]
    table = damage(tmp_path)
    [finding] = [found for found in examine(table) if found.rule is rule]

    assert finding.table == table.identifier
    assert finding.severity is severity
    assert finding.format_command("/lake") == command
    assert (finding.command is None) != (finding.advice is None)
    if finding.command is not None and rule is not DoctorRule.CONSUMER_RETAINS_SNAPSHOTS:
        name, *options = finding.command.split()  # which consumer is deleted, the user decides
        confirmed = ["--yes"] if name in ASKS else []
        assert run(name, tmp_path, "db.t", *options, *confirmed).status == 0
        assert rule not in rules(examine(table))


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


def test_level_0_without_a_compaction_is_found_after_a_day(tmp_path: Path) -> None:
    table = write_times(new_table(tmp_path, write_only="true"), 3)
    assert examine(table) == []

    [finding] = examine(table, now=time.time() + 49 * HOUR)

    assert finding.rule is DoctorRule.NO_COMPACTION
    assert finding.command == "compact --strategy full"
    assert finding.cost["files"] == finding.cost["runs"] == 3
    assert finding.text.startswith(
        "no compaction for 2 days (none since snapshot 1): readers merge up to 3 sorted runs in a "
        "bucket; 3 files of "
    )
    compact(table, InProcessExecutor(), strategy="full")
    assert examine(table, now=time.time() + 49 * HOUR) == []


def test_missing_files_are_found_only_by_the_check_of_files(tmp_path: Path) -> None:
    table = write_times(new_table(tmp_path), 1)
    next(Path(table.paths.root).glob("bucket-*/*")).unlink()

    assert examine(table) == []
    [finding] = examine(table, check_files=True)
    assert (finding.rule, finding.severity) == (DoctorRule.MISSING_FILES, Severity.ERROR)


def test_a_table_that_cannot_be_read_does_not_stop_the_examination(tmp_path: Path) -> None:
    damaged = damage_the_snapshot(tmp_path)
    other = catalog_of(damaged).create_table("db.other", "a BIGINT")
    names = [damaged.identifier, other.identifier]

    report = examine_catalog(catalog_of(damaged), names)

    assert [table.name for table in report.tables] == names
    assert [finding.table for finding in report.findings] == [damaged.identifier]
    assert report.count(Severity.ERROR) == 1


def test_the_examination_changes_no_file(tmp_path: Path) -> None:
    damages = [remove_snapshot_in_the_middle, let_files_of_a_level_overlap, delete_most_rows]
    for number, damage in enumerate([*damages, let_a_consumer_fall_behind]):
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


@pytest.mark.parametrize("name", CORPUS)
def test_damage_of_the_corpus_is_found_without_other_findings(name: str, tmp_path: Path) -> None:
    case = CORPUS[name]
    table = case.open(tmp_path / "lake")
    sound = rules(examine(table, check_files=case.needs_check))
    case.damage(table)

    found = rules(examine(table, check_files=case.needs_check))

    assert case.rule not in sound
    # Other rules need the newest snapshot, which can be damaged.
    assert found - sound == {case.rule}


ACCEPTED = {
    *(DoctorRule.ROWS_NOT_VISIBLE, DoctorRule.SMALL_FILES, DoctorRule.MISSING_FILE_INDEXES),
    *(DoctorRule.DELETED_ROWS, DoctorRule.EXPIRED_SNAPSHOTS, DoctorRule.OPTION),
    *(DoctorRule.STALE_ICEBERG_METADATA, DoctorRule.NO_COMPACTION),
}
"""What is true of tables of other implementations: they are small, old and not maintained."""


GOLDEN_TABLES = {"java-0.9": 103, "java-2.0": 122, "pypaimon-2.1": 20, "pypaimon-rust-0.4": 11}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("writer", GOLDEN_TABLES)
def test_tables_of_other_implementations_have_no_false_alarms(writer: str) -> None:
    count = 0
    for warehouse in sorted((GOLDEN / writer).glob("*/warehouse")):
        catalog = Catalog(str(warehouse))
        for name in catalog.find_tables():
            count += 1
            findings = examine_table(catalog, name)
            assert rules(findings) <= ACCEPTED, (warehouse, findings)
            assert all(finding.severity is not Severity.ERROR for finding in findings)
            assert find_lost_files(catalog.table(name), time.time() + HOUR) is None
    assert count == GOLDEN_TABLES[writer]


def test_a_commit_is_lost_if_no_snapshot_has_its_files_and_another_commit_was_near(
    tmp_path: Path,
) -> None:
    table = write_times(new_table(tmp_path), 2)
    snapshot = table.stores.snapshots.get(2)
    for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
        path = Path(table.paths.manifest_dir) / name
        path.with_name(f"manifest-list-of-first-attempt-{name}").write_bytes(path.read_bytes())
    assert find_lost_files(table, time.time() + HOUR) is None
    table.stores.snapshots.write_hint("LATEST", 1)
    snapshot_file(table, "snapshot-2").unlink()

    assert find_lost_files(table, time.time()) is None
    lost = find_lost_files(table, time.time() + HOUR)

    assert lost is not None
    assert (lost.files, lost.rows) == (1, 2)
    edit_snapshot(table, 1, time_millis=int((time.time() - HOUR) * 1000))
    assert find_lost_files(table, time.time() + HOUR) is None, "no other commit was near"


def test_the_page_has_the_numbers_of_found_damage_and_false_alarms() -> None:
    page = read_page()
    assert f"| {len(CORPUS)} | {len(CORPUS)} of {len(CORPUS)} |" in page
    assert f"| {sum(GOLDEN_TABLES.values())} | 0 of {sum(GOLDEN_TABLES.values())} |" in page


def test_bars_of_a_page_are_as_long_as_their_share_of_the_longest_one() -> None:
    sizes = {"db.a": 1_000, "db.b": 500, "db.c": 1, "db.d": 0}
    tables = [ExaminedTable(name=name, files=1, bytes=size) for name, size in sizes.items()]

    page = build_page(DoctorReport(tables=tuple(tables), findings=()), "/lake")

    bars = re.findall(r'<rect x="(\d+)" .*? width="([\d.]+)"[^<]*<text x="([\d.]+)"', page)
    assert [width for _, width, _ in bars] == ["260.0", "130.0", "2.0"]
    for start, width, text in bars:
        assert float(text) > float(start) + float(width), "the text does not cover the bar"


def test_names_in_a_page_are_escaped(tmp_path: Path) -> None:
    table = store_option(write_times(new_table(tmp_path), 1), "target-file-sise", "<script>'\"&")
    [finding] = examine(table)
    examined = ExaminedTable(name="db.<i>t</i>", files=1, bytes=2_500_000)
    report = DoctorReport(tables=(examined,), findings=(replace(finding, table=examined.name),))

    page = build_page(report, "/lake'<i>")

    assert "<script" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("db.&lt;i&gt;t&lt;/i&gt;") == 3  # a bar, its tooltip and a heading
    assert "2.5 MB" in page
    assert "http" not in page


def read_page() -> str:
    return (Path(doctor.__file__).parents[4] / "docs" / "doctor.md").read_text(encoding="utf-8")


def test_every_rule_is_documented() -> None:
    page = read_page()
    assert [rule for rule in DoctorRule if f"| `{rule}` |" not in page] == []
