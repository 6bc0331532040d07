"""The doctor's report of a lake as rows and figures, compared with the report before it.

The doctor decides what is wrong, what it costs and which command helps; this module only orders and
counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.format.display import format_count
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.autopilot.maintenance_history import read_maintenance_history
from paimon_orch.steps.inspection.doctor.doctor_findings import (
    DoctorFinding,
    DoctorReport,
    ExaminedTable,
    Severity,
)

SOUND = "ok"
"""The state of a table without findings."""
STATES = (*(severity.value for severity in Severity), SOUND)
"""The states of a table, the worst first: the severity of its worst finding."""
TABLE_COLUMNS = {
    "table": "string",
    "state": "string",
    "findings": "int",
    "new_findings": "int",
    "requests": "int",
    "requests_change": "int",
    "saved_requests": "int",
    "bytes": "int",
    "bytes_change": "int",
    "files": "int",
    "cost_per_day": "float",
    "command": "string",
}
FINDING_COLUMNS = {
    "table": "string",
    "severity": "string",
    "rule": "string",
    "is_new": "bool",
    "text": "string",
    "saved_requests": "int",
    "saved_bytes": "int",
    "rewrite_bytes": "int",
    "command": "string",
    "advice": "string",
}
_UNAVAILABLE = "unavailable-table"
_DAY = timedelta(days=1)

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeReport:
    """The tables of a lake by cost, and their findings."""

    tables: Rows
    """The worst state first, then what a scan would save, then what it needs."""
    findings: Rows
    """In the order of the tables."""
    ended_findings: int | None
    """The number of findings of the last report that are gone; None if these are not known."""
    costs: Mapping[str, float] | None

    @property
    def summary(self) -> str:
        """Return one sentence on the states of the tables."""
        states = [each["state"] for each in self.tables]
        counts = [f"{count} {state}" for state in STATES if (count := states.count(state))]
        return f"{format_count(len(states), 'table')}: {', '.join(counts) or 'none examined'}."

    @property
    def figures(self) -> dict[str, int | float]:
        """Return the numbers of the whole lake."""
        states = [each["state"] for each in self.tables]
        figures: dict[str, int | float] = {
            "tables": len(self.tables),
            **{f"tables_{state}": states.count(state) for state in STATES},
            **{name: self._sum(name) for name in ("requests", "saved_requests", "bytes", "files")},
            "findings": len(self.findings),
        }
        if self.ended_findings is not None:
            figures["new_findings"] = self._sum("new_findings")
            figures["ended_findings"] = self.ended_findings
        if self.costs is not None:
            figures["cost_per_day"] = round(sum(self.costs.values()), 6)
        return figures

    def _sum(self, column: str) -> int:
        return sum(each[column] or 0 for each in self.tables)


def build_lake_report(
    report: DoctorReport,
    location: str,
    *,
    previous_tables: Rows | None = None,
    previous_findings: Rows | None = None,
    costs: Mapping[str, float] | None = None,
) -> LakeReport:
    """Return the rows of a doctor's report.

    :param location: the catalog in the commands
    :param previous_tables: the tables of the last report; None if there is none
    :param previous_findings: all findings of the last report; None if they are not known
    :param costs: the costs of the last day by table, if they are known
    """
    known = {(row["table"], row["rule"]) for row in previous_findings or ()}
    before = {row["table"]: row for row in previous_tables or ()}
    by_table = {
        name: list(findings) for name, findings in groupby(report.findings, lambda each: each.table)
    }

    def is_new(finding: DoctorFinding) -> bool:
        return previous_findings is not None and _identify(finding) not in known

    rows = []
    for table in report.tables:
        findings = [
            _build_finding_row(each, location, is_new=is_new(each))
            for each in by_table.get(table.name, ())
        ]
        row = _build_table_row(table, findings, before.get(clean_line(table.name)), costs)
        rows.append((row, findings))
    rows.sort(key=lambda row: _rank(row[0]))
    present = {_identify(each) for each in report.findings}
    # nothing is known of a table that could not be reached
    unknown = {table for table, rule in present if rule == _UNAVAILABLE}
    ended = {key for key in known - present if key[0] not in unknown}
    return LakeReport(
        tables=[table for table, _ in rows],
        findings=[finding for _, findings in rows for finding in findings],
        ended_findings=None if previous_findings is None else len(ended),
        costs=costs,
    )


def _identify(finding: DoctorFinding) -> tuple[str, str]:
    """Return the table, as a stored report names it, and the rule."""
    return clean_line(finding.table), finding.rule.value


def _build_finding_row(finding: DoctorFinding, location: str, *, is_new: bool) -> dict[str, Any]:
    costs = ("saved_requests", "saved_bytes", "rewrite_bytes")
    return {
        "table": finding.table,
        "severity": finding.severity.value,
        "rule": finding.rule.value,
        "is_new": is_new,
        "text": finding.text,
        **{name: finding.cost.get(name) for name in costs},
        "command": finding.format_command(location),
        "advice": finding.advice,
    }


def _build_table_row(
    table: ExaminedTable,
    findings: Rows,
    before: Mapping[str, Any] | None,
    costs: Mapping[str, float] | None,
) -> dict[str, Any]:
    state = findings[0]["severity"] if findings else SOUND
    return {
        "table": table.name,
        "state": state,
        "findings": len(findings),
        "new_findings": sum(each["is_new"] for each in findings),
        "requests": table.requests,
        "requests_change": None if before is None else table.requests - before["requests"],
        # the compactions that findings of a table name are one command
        "saved_requests": max((each["saved_requests"] or 0 for each in findings), default=0),
        "bytes": table.bytes,
        "bytes_change": None if before is None else table.bytes - before["bytes"],
        "files": table.files,
        "cost_per_day": None if costs is None else costs.get(table.name, 0.0),
        "command": next((each["command"] for each in findings if each["command"]), None),
    }


def _rank(row: Mapping[str, Any]) -> tuple[object, ...]:
    return STATES.index(row["state"]), -row["saved_requests"], -row["requests"], row["table"]


def read_costs_per_day(
    catalog: Catalog, history_table: str, now: datetime | None = None
) -> dict[str, float] | None:
    """Return the costs of the maintenance actions of the last 24 hours, by table.

    Returns None if the history has no prices.
    """
    since = (now or datetime.now(UTC)) - _DAY
    rows = read_maintenance_history(catalog, history_table, since=since)
    costs = dict[str, float]()
    for table, cost in zip(rows["table_name"].to_pylist(), rows["cost"].to_pylist(), strict=True):
        costs[table] = costs.get(table, 0.0) + cost
    return costs if any(costs.values()) else None
