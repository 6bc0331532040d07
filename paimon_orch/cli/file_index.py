"""The command ``rewrite-file-index``: builds file indexes for existing data files."""

import json

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
    parse_partitions,
    print_result,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.maintenance import rewrite_file_index as step

_NOTHING_TO_DO = "nothing to do: every file has the indexes that the table's options configure"


def add_commands(app: typer.Typer) -> None:
    """Register the command of this module."""
    register_command(app, rewrite_file_index, Panel.COMPACT)


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
    planned = step.plan(target, step.RewriteFileIndexRequest(partitions=specs, where=where))
    if dry_run:
        _print_plan(planned, as_json=as_json)
        return
    if not planned:
        print_result(step.FileIndexRewriteResult().to_dict(), as_json, _NOTHING_TO_DO)
        return
    with Progress(console=error_console, transient=True) as bars:
        result = run_step(
            step.REWRITE_FILE_INDEX,
            target,
            planned,
            runner,
            progress=add_progress_bar(bars, f"rewrite file indexes of {table}"),
        )
    print_result(result.to_dict(), as_json, _NOTHING_TO_DO)


def _print_plan(planned: step.FileIndexRewritePlan, *, as_json: bool) -> None:
    values = planned.to_dict()
    if as_json:
        print(json.dumps(values, indent=2))
    elif not planned:
        print(_NOTHING_TO_DO)
    else:
        print(
            f"would rewrite the indexes of {values['files']:,} files in {values['snapshots']} "
            "snapshots; nothing was changed"
        )
