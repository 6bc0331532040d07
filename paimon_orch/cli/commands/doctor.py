"""The command that looks for problems of tables."""

import sys
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from paimon_orch.cli.arguments import CatalogLocation, JsonOutput, TablePattern
from paimon_orch.cli.common import add_progress_bar, open_catalog, open_progress_bars, require_match
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.output import parse_file
from paimon_orch.cli.registration import cli_command
from paimon_orch.cli.screen import LINES, print_lines
from paimon_orch.format.display import format_count
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.inspection.doctor.doctor import examine_catalog
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorReport, Severity
from paimon_orch.steps.inspection.doctor.doctor_page import build_page

app = new_app()

_Html = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=partial(parse_file, "--html"),
        help="Also write the report as an HTML page.",
    ),
]
_CheckFiles = Annotated[
    bool, typer.Option("--check", help="Also verify that all files exist, as check does.")
]
_Deep = Annotated[
    bool, typer.Option("--deep", help="Also read all data files, as check --deep does.")
]


@cli_command(
    app,
    "doctor /lake",
    "doctor /lake 'sales.*' --json",
    "doctor /lake --html report.html",
    "doctor /lake db.orders --deep",
)
def doctor(
    ctx: typer.Context,
    location: CatalogLocation,
    pattern: TablePattern = "*",
    check_files: _CheckFiles = False,
    deep: _Deep = False,
    html: _Html = None,
    output: JsonOutput = LINES,
) -> None:
    """Find tables that are damaged, slow or not maintained.

    Reads only metadata, unless --deep is given, and changes nothing. Shows for each finding its cost
    and the command that fixes it, or why none does. The exit status is 1 if there is a finding with
    severity error.
    """
    catalog = open_catalog(ctx, location)
    names = [name for name in catalog.find_tables() if fnmatchcase(name, pattern)]
    require_match(catalog, location, pattern, names)
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, "examine tables")
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            progress(done, len(names))

        report = examine_catalog(
            catalog, names, check_files=check_files, deep=deep, advance=advance
        )
    if html is not None:
        html.write_text(build_page(report, location), encoding="utf-8")
    output.print_report(_to_document(report, location), partial(_print_report, report, location))
    if report.count(Severity.ERROR):
        sys.exit(1)


def _to_document(report: DoctorReport, location: str) -> dict[str, object]:
    return {
        "tables": len(report.tables),
        **{severity.value: report.count(severity) for severity in Severity},
        "stores": report.stores,
        "findings": [
            {
                "table": finding.table,
                "rule": finding.rule.value,
                "severity": finding.severity.value,
                "text": finding.text,
                "cost": dict(finding.cost),
                "command": finding.format_command(location),
                "advice": finding.advice,
            }
            for finding in report.findings
        ],
    }


def _print_report(report: DoctorReport, location: str) -> None:
    for table, findings in groupby(report.findings, key=lambda finding: finding.table):
        print_lines(escape_name(table))
        for finding in findings:
            print_lines(f"  {finding.severity} {finding.rule}: {finding.text}")
            remedy = finding.format_command(location) or finding.advice
            if remedy is not None:
                print_lines(f"    {remedy}")
    for store in report.stores:
        print_lines(f"store {store}")
    counts = ", ".join(
        f"{severity.name.lower()}: {report.count(severity)}" for severity in Severity
    )
    tables = format_count(len(report.tables), "table")
    print_lines(f"{tables}, {report.sound_tables} without findings; {counts}")
