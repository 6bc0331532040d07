"""Rows and figures of the doctor's report of a lake, compared with the report before it."""

from __future__ import annotations

from typing import Any

from paimon_orch.orchestration.lake_report import LakeReport, build_lake_report
from paimon_orch.steps.inspection.doctor.doctor_findings import (
    DoctorFinding,
    DoctorReport,
    DoctorRule,
    ExaminedTable,
    Severity,
)


def finding(table: str, rule: DoctorRule, severity: Severity, **cost: int) -> DoctorFinding:
    return DoctorFinding(
        table=table, rule=rule, severity=severity, text="text", command="compact", cost=cost
    )


def report_on(*tables: str, findings: tuple[DoctorFinding, ...] = ()) -> DoctorReport:
    examined = tuple(ExaminedTable(name=name, requests=10, bytes=100) for name in tables)
    return DoctorReport(tables=examined, findings=findings)


def follow(report: DoctorReport, last: LakeReport, **options: Any) -> LakeReport:
    return build_lake_report(
        report, "/lake", previous_tables=last.tables, previous_findings=last.findings, **options
    )


def test_errors_come_first_and_then_what_a_scan_would_save() -> None:
    findings = (
        finding("a.few", DoctorRule.SORTED_RUNS, Severity.WARNING, saved_requests=2),
        finding("a.many", DoctorRule.SORTED_RUNS, Severity.WARNING, saved_requests=7),
        finding("a.many", DoctorRule.SMALL_FILES, Severity.WARNING, saved_requests=7),
        finding("a.wrong", DoctorRule.SNAPSHOT_GAP, Severity.ERROR),
    )

    report = build_lake_report(
        report_on("a.few", "a.good", "a.many", "a.wrong", findings=findings), "/lake"
    )

    assert [row["table"] for row in report.tables] == ["a.wrong", "a.many", "a.few", "a.good"]
    assert report.figures["saved_requests"] == 9  # one compaction ends both findings of a.many
    assert report.findings[0]["command"] == "paimon-orch compact /lake a.wrong"
    assert not any(row["is_new"] for row in report.findings)  # there is no report before it


def test_a_finding_has_not_ended_if_its_table_cannot_be_reached() -> None:
    gap = finding("a.one", DoctorRule.SNAPSHOT_GAP, Severity.ERROR)
    hint = finding("a.two", DoctorRule.WRONG_HINT, Severity.WARNING)
    outage = finding("a.one", DoctorRule.UNAVAILABLE_TABLE, Severity.ERROR)
    last = build_lake_report(report_on("a.one", "a.two", findings=(gap, hint)), "/lake")

    report = follow(report_on("a.one", "a.two", findings=(outage,)), last)

    assert report.ended_findings == 1
    assert report.figures["new_findings"] == 1


def test_costs_are_zero_for_tables_without_actions_and_unknown_without_prices() -> None:
    tables = report_on("a.one", "a.two")

    priced = build_lake_report(tables, "/lake", costs={"a.one": 0.5})
    unpriced = build_lake_report(tables, "/lake")

    assert [row["cost_per_day"] for row in priced.tables] == [0.5, 0.0]
    assert priced.figures["cost_per_day"] == 0.5
    assert [row["cost_per_day"] for row in unpriced.tables] == [None, None]
    assert "cost_per_day" not in unpriced.figures
