"""The commands ``rewrite-file-index``, ``create-global-index`` and ``drop-global-index``."""

from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    Master,
    PartitionFilter,
    Partitions,
    Yes,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    confirm,
    open_progress_bars,
    open_table,
    parse_partitions,
    print_result,
    print_values,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import print_json, print_lines
from paimon_orch.format.display import format_count
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.maintenance import create_global_index as creation_step
from paimon_orch.steps.maintenance import drop_global_index as drop_step
from paimon_orch.steps.maintenance import rewrite_file_index as step

Column = Annotated[str, typer.Option(metavar="COLUMN", help="The indexed column.")]

_NOTHING_TO_DO = "nothing to do: every file has the indexes that the table's options configure"


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app,
        rewrite_file_index,
        Panel.COMPACT,
        examples=["rewrite-file-index /lake db.orders --dry-run"],
    )
    register_command(
        app,
        create_global_index,
        Panel.COMPACT,
        examples=["create-global-index /lake db.events --column user_id"],
    )
    register_command(
        app,
        drop_global_index,
        Panel.COMPACT,
        examples=["drop-global-index /lake db.events --column user_id"],
    )


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
    with open_progress_bars() as bars:
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
        print_json(values)
    elif not planned:
        print_lines(_NOTHING_TO_DO)
    else:
        print_lines(
            f"would rewrite the indexes of {values['files']:,} files in {values['snapshots']} "
            "snapshots; nothing was changed"
        )


def create_global_index(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    column: Column,
    index_type: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="Type of the index: btree or bitmap.")
    ] = "btree",
    partitions: Partitions = None,
    where: PartitionFilter = None,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Build an index of a column, in a table with data evolution.

    Builds the index of rows that have none, also of rows that were appended later. Scans with a
    filter on the column read only the files and rows that may match.
    """
    runner = build_executor(executor, master)
    target = open_table(ctx, location, table)
    request = creation_step.CreateGlobalIndexRequest(
        column=column,
        index_type=index_type,
        partitions=parse_partitions(target, partitions),
        where=where,
    )
    planned = creation_step.plan(target, request)
    if dry_run or not planned:
        values = planned.to_dict()
        text = f"{values['rows']:,} rows have no index; nothing was changed"
        print_values(values | {"snapshot_id": None}, as_json, text)
        return
    with open_progress_bars() as bars:
        result = run_step(
            creation_step.CREATE_GLOBAL_INDEX,
            target,
            planned,
            runner,
            progress=add_progress_bar(bars, f"index {column} of {table}"),
        )
    print_result(result.to_dict(), as_json, "nothing to do: all rows have an index")


def drop_global_index(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    column: Column,
    index_type: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="Drop only indexes of this type."),
    ] = None,
    partitions: Partitions = None,
    where: PartitionFilter = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Drop the indexes of a column, in a table with data evolution."""
    target = open_table(ctx, location, table)
    request = drop_step.DropGlobalIndexRequest(
        column=column,
        index_type=index_type,
        partitions=parse_partitions(target, partitions),
        where=where,
    )
    planned, snapshot_id = drop_step.plan(target, request), None
    files = format_count(len(planned.entries), "index file")
    action = f"drop {files} of column {column} of {table}"
    if not dry_run:
        if planned:
            confirm(action, yes=yes, undo="create-global-index builds the index again.")
        snapshot_id = run_step(drop_step.DROP_GLOBAL_INDEX, target, planned).snapshot_id
    outcome = "nothing was changed" if snapshot_id is None else f"snapshot {snapshot_id}"
    text = f"would {action}; nothing was changed" if dry_run else f"{files}; {outcome}"
    print_values(planned.to_dict() | {"snapshot_id": snapshot_id}, as_json, text)
