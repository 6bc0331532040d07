"""The command that verifies a table."""

import sys
from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    ExecutorOption,
    Identifier,
    JsonOutput,
    Master,
)
from paimon_orch.cli.common import build_executor, open_table
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.registration import cli_command
from paimon_orch.cli.screen import LINES
from paimon_orch.format.display import format_count
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.inspection import check_table

app = new_app()

_Deep = Annotated[bool, typer.Option("--deep", help="Also read all data files.")]


@cli_command(app, "check /lake db.orders", "check /lake db.orders --deep --json")
def check(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    deep: _Deep = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    output: JsonOutput = LINES,
) -> None:
    """Verify a table.

    Prints one line for each finding. The exit status is 1 if there is a finding. The executor reads
    the metadata; --deep reads the data files in this process.
    """
    runner = build_executor(executor, master)
    report = check_table.check(open_table(ctx, location, table), deep=deep, executor=runner)
    lines = [str(finding) for finding in report.findings]
    text = (
        f"{format_count(len(lines), 'finding')} in {format_count(report.versions, 'version')} and "
        f"{format_count(report.data_files, 'data file')}"
    )
    output.print_values(report.to_dict(), *lines, *report.stale_indexes, text)
    if not report:
        sys.exit(1)
