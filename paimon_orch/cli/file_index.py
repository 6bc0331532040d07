"""The command ``rewrite-file-index``: indexes for files that were written before the table asked for them."""

import json
from typing import Annotated

import typer
from rich.progress import Progress

from paimon_orch.cli.common import (
    AsJson,
    DryRun,
    Identifier,
    Master,
    PartitionsOption,
    Warehouse,
    add_progress_bar,
    error_console,
    open_table,
    parse_partitions,
    print_result,
    start_spark,
)
from paimon_orch.steps.maintenance import rewrite_file_index as step

_NOTHING_TO_DO = "nothing to do: every file has the indexes that the table's options name"


def add_commands(app: typer.Typer) -> None:
    """Register the command of this module."""
    app.command("rewrite-file-index")(rewrite_file_index)


def rewrite_file_index(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    partitions: PartitionsOption = None,
    where: Annotated[str | None, typer.Option(help="filter over partition columns")] = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Give the data files of a table, or of some partitions, the file indexes that its options name.

    Data files stay as they are. Indexes that the options name no more are removed.
    """
    target = open_table(ctx, warehouse, table)
    specs = parse_partitions(target, partitions)
    planned = step.plan(target, partitions=specs, where=where)
    if dry_run:
        _print_plan(planned, as_json=as_json)
        return
    if not planned:
        print_result(step.FileIndexRewriteResult().to_dict(), as_json, _NOTHING_TO_DO)
        return
    from paimon_orch.spark.execution.spark_executor import SparkExecutor

    with Progress(console=error_console, transient=True) as bars:
        result = step.rewrite_file_index(
            target,
            SparkExecutor(start_spark(master)),
            partitions=specs,
            where=where,
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
            f"would make the indexes of {values['files']:,} files anew in {values['snapshots']} snapshots; "
            "nothing was changed"
        )
