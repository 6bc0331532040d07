"""The command ``move-postponed``: moves rows from postpone buckets to real buckets."""

import typer
from rich.progress import Progress

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    Master,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    error_console,
    open_table,
    print_result,
    print_values,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.table_layout import format_count
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction import postpone


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(app, move_postponed, Panel.COMPACT)


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
