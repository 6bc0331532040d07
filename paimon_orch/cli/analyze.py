"""Steps that few tables need: statistics for query planners, and rows that wait for a bucket."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable

from paimon_orch.cli.common import (
    AsJson,
    DryRun,
    Identifier,
    Master,
    Warehouse,
    add_progress_bar,
    error_console,
    open_table,
    parse_names,
    print_result,
    print_values,
    start_spark,
)
from paimon_orch.errors import InputError
from paimon_orch.format.table_statistics import TableStatistics
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.compaction import postpone
from paimon_orch.steps.maintenance import analyze as step


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(analyze)
    app.command("move-postponed")(move_postponed)


def analyze(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    columns: Annotated[
        str, typer.Option(help="columns to read for figures, separated by commas")
    ] = "",
    all_columns: Annotated[bool, typer.Option("--all-columns", help="all but nested ones")] = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Count rows and gather figures of columns.

    These are the distinct, null, smallest and largest values and their lengths; a snapshot of its own refers to them.

    Rows that metadata tells are not read; without columns most tables need no read at all.
    """
    if columns and all_columns:
        raise InputError("--columns and --all-columns exclude each other; name one")
    target = open_table(ctx, warehouse, table)
    planned = step.plan(target, None if all_columns else parse_names(columns))
    if dry_run:
        text = f"would read {len(planned.units)} buckets; nothing was changed"
        print_values(planned.to_dict(), as_json, text)
        return
    with Progress(console=error_console, transient=True) as bars:
        results = _build_executor(planned.units, master).map(
            step.run,
            planned.units,
            label=f"analyze {table}",
            progress=add_progress_bar(bars, "analyze"),
        )
    result = step.commit(target, planned, results)
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    elif result.statistics is None:
        print("no snapshot yet: the table is empty")
    else:
        _print_statistics(result.statistics)
        print(f"snapshot {result.snapshot_id}")


def _build_executor(units: Sequence[object], master: str) -> Executor:
    """Return Spark if there is anything to read."""
    if not units:
        return InProcessExecutor()
    from paimon_orch.spark.execution.spark_executor import SparkExecutor

    return SparkExecutor(start_spark(master))


def _print_statistics(found: TableStatistics) -> None:
    print(f"{found.row_count:,} rows, {(found.size or 0) / 1e6:,.1f} MB")
    if not found.columns:
        return
    shown = RichTable("column", "distinct", "nulls", "smallest", "largest", "average", "longest")
    for name, column in found.columns.items():
        values = (
            column.distinct_count,
            column.null_count,
            column.min,
            column.max,
            column.average_length,
            column.max_length,
        )
        shown.add_row(name, *("" if value is None else str(value) for value in values))
    Console(highlight=False, markup=False, emoji=False).print(shown)


def move_postponed(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Move rows that wait in postpone buckets.

    Tables with 'bucket' = -2 may keep new rows aside; here they go to real buckets, where readers see them.
    """
    target = open_table(ctx, warehouse, table)
    planned = postpone.plan(target)
    rows = sum(file.row_count for unit in planned.units for file in unit.files)
    if dry_run:
        text = f"would move {rows:,} rows of {len(planned.units)} partitions; nothing was changed"
        print_values(planned.to_dict(), as_json, text)
        return
    with Progress(console=error_console, transient=True) as bars:
        snapshot = postpone.move_postponed(
            target,
            _build_executor(planned.units, master),
            progress=add_progress_bar(bars, f"move {table}"),
        )
    values: dict[str, object] = {"snapshot_id": None if snapshot is None else snapshot.id}
    print_result(values | {"rows": rows}, as_json, "no rows wait")
