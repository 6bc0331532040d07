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
    Partitions,
    Warehouse,
    bar,
    errors,
    open_table,
    partitions_of,
    print_result,
    spark_of,
)
from paimon_orch.steps.maintenance import rewrite_file_index as step

_NOTHING = "nothing to do: every file has the indexes that the table's options name"


def add_commands(app: typer.Typer) -> None:
    """Register the command of this module."""
    app.command("rewrite-file-index")(rewrite_file_index)


def rewrite_file_index(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    partitions: Partitions = None,
    where: Annotated[str | None, typer.Option(help="filter over partition columns")] = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Give the data files of a table, or of some partitions, the file indexes that its options name.

    Data files stay as they are. Indexes that the options name no more are removed.
    """
    target = open_table(ctx, warehouse, table)
    specs = partitions_of(target, partitions)
    planned = step.plan(target, partitions=specs, where=where)
    if dry_run:
        _print_plan(planned, as_json=as_json)
        return
    if not planned:
        print_result(step.RewriteResult().to_dict(), as_json, _NOTHING)
        return
    from paimon_orch.spark.execution.spark_executor import SparkExecutor

    with Progress(console=errors, transient=True) as bars:
        result = step.rewrite_file_index(
            target,
            SparkExecutor(spark_of(master)),
            partitions=specs,
            where=where,
            progress=bar(bars, f"rewrite file indexes of {table}"),
        )
    print_result(result.to_dict(), as_json, _NOTHING)


def _print_plan(planned: step.RewritePlan, *, as_json: bool) -> None:
    values = planned.to_dict()
    if as_json:
        print(json.dumps(values, indent=2))
    elif not planned:
        print(_NOTHING)
    else:
        print(
            f"would make the indexes of {values['files']:,} files anew in {values['snapshots']} snapshots; "
            "nothing was changed"
        )
