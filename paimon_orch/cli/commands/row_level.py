"""The commands ``update`` and ``delete``."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    CompactAfter,
    DryRun,
    ExecutorOption,
    Identifier,
    JsonOutput,
    Master,
    Yes,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    compact_after_write,
    confirm,
    open_progress_bars,
    open_table_for_write,
    parse_pairs,
    print_write_result,
    start_spark,
)
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES, Output
from paimon_orch.errors import PaimonError
from paimon_orch.format.display import format_count
from paimon_orch.steps.common.executor_choice import ChoosingExecutor, ExecutorKind
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.common.step_report import KEPT_ROWS
from paimon_orch.steps.compaction.compact import CompactionResult
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.assignments import NewValues, check_update
from paimon_orch.steps.row_level.row_level_write import (
    RowLevelPlan,
    RowLevelRequest,
    RowLevelResult,
)
from paimon_orch.steps.row_level.update import UPDATE_ROWS, UpdateRequest
from paimon_orch.table.table import Table

_Filter = Annotated[
    str, typer.Option(metavar="CONDITION", help="SQL filter, e.g. \"status = 'VOID'\".")
]
_OptionalFilter = Annotated[
    str | None,
    typer.Option(metavar="CONDITION", help="SQL filter.", show_default="all rows"),
]
_Assignments = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="COLUMN=EXPRESSION",
        help="New value as a Spark SQL expression; may be repeated.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app, update, examples=["update /lake db.orders --set \"status = 'VOID'\" --where 'v < 0'"]
    )
    register_command(
        app, delete, examples=["delete /lake db.orders --where \"status = 'VOID'\" --dry-run"]
    )


def delete(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    where: _Filter,
    compact_after: CompactAfter = False,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    output: JsonOutput = LINES,
) -> None:
    """Delete the rows that match a filter.

    With --dry-run, reads only metadata and prints the number of files that may have such rows.
    """
    runner = build_executor(executor, master)
    target = open_table_for_write(ctx, location, table, compact=compact_after)
    planned = row_level.plan(target, RowLevelRequest(where=where))
    if dry_run or not planned:
        _print_row_level_plan(target, planned, dry_run, output)
        return
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, f"delete rows of {table}")
        result = row_level.run_delete(target, planned, runner, progress=progress)
        compaction = (
            compact_after_write(target, result.snapshot_id, runner, bars) if compact_after else None
        )
    print_row_level_result(target, result, output, compaction)


def update(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    assignments: _Assignments,
    where: _OptionalFilter = None,
    compact_after: CompactAfter = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    output: JsonOutput = LINES,
) -> None:
    """Update the rows that match a filter.

    Without Spark, a new value is a constant, a column, or a sum, difference or product of numbers;
    --executor auto selects Spark for all others. With --dry-run, reads only metadata and prints the
    number of files that may have such rows.
    """
    runner = build_executor(executor, master)
    target = open_table_for_write(ctx, location, table, compact=compact_after)
    values = parse_assignments(assignments)
    planned = row_level.plan(target, UpdateRequest(assignments=values, where=where))
    if dry_run or not planned:
        _print_row_level_plan(target, planned, dry_run, output)
        return
    check_update(planned.schema, values)
    is_local = _is_local_update(planned, values, runner)
    if where is None:
        rows = format_count(sum(split.row_count for split in target.files()), "row")
        confirm(f"update all rows of {table}, in files with {rows}", yes=yes, undo=KEPT_ROWS)
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, f"update {table}")
        if is_local:
            result = run_step(UPDATE_ROWS, target, planned)
        else:
            from paimon_orch.spark import update_and_merge as on_spark

            silence_pyspark_loggers()
            session = start_spark(master)
            result = on_spark.update(
                session, target, values, where, plan=planned, progress=progress
            )
        compaction = (
            compact_after_write(target, result.snapshot_id, runner, bars) if compact_after else None
        )
    print_row_level_result(target, result, output, compaction)


def _is_local_update(
    planned: RowLevelPlan, values: Mapping[str, str], runner: ChoosingExecutor
) -> bool:
    """Return whether an update runs without Spark; raises an error if it must and cannot."""
    if not runner.is_local(planned.bytes):
        return False
    try:
        NewValues.parse(planned.schema, values)
    except PaimonError:
        if runner.kind is ExecutorKind.LOCAL:
            raise
        return False  # Spark computes the value, or has the error
    return True


def parse_assignments(assignments: Sequence[str]) -> Mapping[str, str]:
    """Parse options of the form ``COLUMN=EXPRESSION``."""
    return parse_pairs(assignments, "\"status = 'VOID'\"")


def silence_pyspark_loggers() -> None:
    """Prevent Spark from logging a page about an invalid expression; our error has one line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _print_row_level_plan(
    table: Table, planned: RowLevelPlan, dry_run: bool, output: Output
) -> None:
    """Print the plan of a dry run, or the result of a plan with nothing to do."""
    if not dry_run:
        print_row_level_result(table, RowLevelResult(), output)
        return
    report = planned.describe()
    text = report.nothing or f"would {report.short_action}; nothing was changed"
    output.print_values(planned.to_dict(), text)


def print_row_level_result(
    table: Table,
    result: RowLevelResult,
    output: Output,
    compaction: CompactionResult | None = None,
) -> None:
    """Print the counts of a row-level change and of the compaction after it."""
    empty_text = "no row matches: nothing was committed"
    print_write_result(
        table, result.to_dict(), output, empty_text=empty_text, compaction=compaction
    )
