"""Commands that optimize a table for readers, besides compactions: statistics, file indexes, rows.

``analyze`` counts rows and computes column statistics, ``move-postponed`` moves rows from postpone
buckets to real buckets, and ``rewrite-file-index`` builds file indexes for existing data files.
"""

import json
from typing import Annotated

import typer
from rich.progress import Progress

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    Master,
    PartitionFilter,
    Partitions,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    error_console,
    open_table,
    parse_names,
    parse_partitions,
    print_result,
    print_values,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.table_layout import format_count, format_size, print_rows
from paimon_orch.errors import InputError
from paimon_orch.format.table_statistics import TableStatistics
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction import postpone
from paimon_orch.steps.maintenance import analyze as analyze_step
from paimon_orch.steps.maintenance import rewrite_file_index as index_step

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
_NOTHING_TO_INDEX = "nothing to do: every file has the indexes that the table's options configure"


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(app, analyze, Panel.COMPACT, examples=_ANALYZE_EXAMPLES)
    register_command(app, move_postponed, Panel.COMPACT)
    register_command(app, rewrite_file_index, Panel.COMPACT)


def analyze(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    columns: _Columns = "",
    all_columns: _AllColumns = False,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
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
        print_values(planned.to_dict(), as_json, text)
        return
    with Progress(console=error_console, transient=True) as bars:
        progress = add_progress_bar(bars, "analyze")
        result = run_step(analyze_step.ANALYZE, target, planned, runner, progress=progress)
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    elif result.statistics is None:
        print("the table is empty: it has no snapshot")
    else:
        _print_statistics(result.statistics)
        print(f"snapshot {result.snapshot_id}")


def _print_statistics(statistics: TableStatistics) -> None:
    size = format_size(statistics.size or 0)
    print(f"{format_count(statistics.row_count or 0, 'row')}, {size}")
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


def move_postponed(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Move rows from postpone buckets to real buckets.

    Writers of a table with 'bucket' = -2 may write rows to postpone buckets, which readers do not
    see.
    """
    runner = build_executor(executor, master)
    target = open_table(ctx, location, table)
    planned = postpone.plan(target, postpone.MovePostponedRequest())
    rows = planned.rows
    if dry_run:
        partitions = format_count(len(planned.units), "partition")
        text = f"would move {format_count(rows, 'row')} of {partitions}; nothing was changed"
        print_values(planned.to_dict(), as_json, text)
        return
    with Progress(console=error_console, transient=True) as bars:
        result = run_step(
            postpone.MOVE_POSTPONED,
            target,
            planned,
            runner,
            progress=add_progress_bar(bars, f"move {table}"),
        )
    snapshot = result.snapshot
    values: dict[str, object] = {"snapshot_id": None if snapshot is None else snapshot.id}
    print_result(values | {"rows": rows}, as_json, "no rows in postpone buckets")


def rewrite_file_index(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    partitions: Partitions = None,
    where: PartitionFilter = None,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Build file indexes for existing data files.

    The table's options configure the indexes. Data files are not rewritten. Indexes that are no
    longer configured are removed.
    """
    runner = build_executor(executor, master)
    target = open_table(ctx, location, table)
    specs = parse_partitions(target, partitions)
    planned = index_step.plan(
        target, index_step.RewriteFileIndexRequest(partitions=specs, where=where)
    )
    if dry_run:
        _print_index_plan(planned, as_json=as_json)
        return
    if not planned:
        print_result(index_step.FileIndexRewriteResult().to_dict(), as_json, _NOTHING_TO_INDEX)
        return
    with Progress(console=error_console, transient=True) as bars:
        result = run_step(
            index_step.REWRITE_FILE_INDEX,
            target,
            planned,
            runner,
            progress=add_progress_bar(bars, f"rewrite file indexes of {table}"),
        )
    print_result(result.to_dict(), as_json, _NOTHING_TO_INDEX)


def _print_index_plan(planned: index_step.FileIndexRewritePlan, *, as_json: bool) -> None:
    values = planned.to_dict()
    if as_json:
        print(json.dumps(values, indent=2))
    elif not planned:
        print(_NOTHING_TO_INDEX)
    else:
        print(
            f"would rewrite the indexes of {values['files']:,} files in {values['snapshots']} "
            "snapshots; nothing was changed"
        )
