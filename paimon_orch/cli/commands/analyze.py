"""The command ``analyze``, which prints the statistics as a table."""

from functools import partial
from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    JsonOutput,
    Master,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    open_progress_bars,
    open_table,
    parse_names,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES, print_lines
from paimon_orch.cli.table_layout import print_rows
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count, format_size
from paimon_orch.format.table_statistics import TableStatistics
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.maintenance import analyze as analyze_step

_Columns = Annotated[
    str,
    typer.Option(metavar="COLUMN,...", help="Columns to read, separated by commas."),
]
_AllColumns = Annotated[
    bool, typer.Option("--all-columns", help="Read all columns except nested ones.")
]
_ANALYZE_EXAMPLES = [
    "analyze /lake db.orders --columns status,price",
    "read /lake 'db.orders$statistics' --format jsonl",
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(app, analyze, Panel.COMPACT, examples=_ANALYZE_EXAMPLES)


def analyze(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    columns: _Columns = "",
    all_columns: _AllColumns = False,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    output: JsonOutput = LINES,
) -> None:
    """Count rows and compute column statistics.

    Commits the number of distinct values and of nulls, the smallest and largest value, and the
    average and maximum length of each column in a new snapshot. Without columns, only the rows are
    counted; for most tables, the row count comes from metadata.
    """
    if columns and all_columns:
        raise InputError("--columns and --all-columns cannot be combined; use one of them")
    runner = build_executor(executor, master)
    target = open_table(ctx, location, table)
    planned = analyze_step.plan(
        target, analyze_step.AnalyzeRequest(columns=None if all_columns else parse_names(columns))
    )
    if dry_run:
        text = f"would read {format_count(len(planned.units), 'bucket')}; nothing was changed"
        output.print_values(planned.to_dict(), text)
        return
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, "analyze")
        result = run_step(analyze_step.ANALYZE, target, planned, runner, progress=progress)
    output.print_report(result.to_dict(), partial(_print_result, result))


def _print_result(result: analyze_step.AnalyzeResult) -> None:
    if result.statistics is None:
        print_lines("the table is empty: it has no snapshot")
    else:
        _print_statistics(result.statistics)
        print_lines(f"snapshot {result.snapshot_id}")


def _print_statistics(statistics: TableStatistics) -> None:
    size = format_size(statistics.size or 0)
    print_lines(f"{format_count(statistics.row_count or 0, 'row')}, {size}")
    if not statistics.columns:
        return
    rows = list[list[str]]()
    for name, column in statistics.columns.items():
        values = (
            column.distinct_count,
            column.null_count,
            column.min,
            column.max,
            column.average_length,
            column.max_length,
        )
        rows.append([name, *("" if value is None else str(value) for value in values)])
    print_rows(("column", "distinct", "nulls", "smallest", "largest", "average", "longest"), rows)
