"""Commands that report a table to other systems: Iceberg readers, a catalog, readers of done-files."""

from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    Identifier,
)
from paimon_orch.cli.common import (
    open_table,
    print_values,
    split_partitions,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import declare_option, register_command
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.maintenance import mark_done as mark_step
from paimon_orch.steps.maintenance import sync_iceberg as iceberg_step
from paimon_orch.steps.maintenance import sync_partitions as partition_step
from paimon_orch.table.iceberg.status import IcebergStatus

_Drop = Annotated[bool, declare_option(partition_step.SyncPartitionsRequest, "drop", "--drop")]
_PartitionsToMark = Annotated[
    str,
    typer.Option(
        "--partitions",
        metavar="DT=2026-01-01",
        help="Partitions to mark, separated by semicolons: 'dt=a;dt=b'. Each names all partition "
        "columns.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app, sync_iceberg, Panel.CHECK, examples=["sync-iceberg /lake db.orders --dry-run"]
    )
    register_command(
        app, sync_partitions, Panel.CHECK, examples=["sync-partitions prod db.orders --dry-run"]
    )
    register_command(
        app,
        mark_done,
        Panel.CHECK,
        examples=["mark-done /lake db.orders --partitions dt=2026-01-31"],
    )


def sync_iceberg(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish the newest snapshot as Iceberg metadata.

    Commits do this themselves, if the table's option metadata.iceberg.storage is set. Run the
    command after a failure, and after commits of writers that publish no Iceberg metadata.
    """
    target = open_table(ctx, location, table)
    planned = iceberg_step.plan(target, EmptyRequest())
    if dry_run or not planned:
        values = planned.to_dict() | {"published_snapshots": 0}
        print_values(values, as_json, _format_iceberg_status(planned.status))
        return
    result = run_step(iceberg_step.SYNC_ICEBERG, target, planned)
    text = (
        f"published {result.published_snapshots} snapshots; {_format_iceberg_status(result.status)}"
    )
    print_values(result.to_dict(), as_json, text)


def _format_iceberg_status(status: IcebergStatus) -> str:
    if status.latest_id is None:
        return "the table has no snapshot; nothing to publish"
    if status.problem is None:
        return f"Iceberg readers see snapshot {status.published_id}, the newest one"
    missing = "" if status.missing_snapshots is None else f" ({status.missing_snapshots} missing)"
    return f"not up to date: {status.problem}{missing}"


def sync_partitions(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    drop: _Drop = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add the table's partitions to its catalog.

    Commits do this themselves, if the table's option metastore.partitioned-table is set and the
    table is opened through its Hive catalog. Run the command after a failure, and after changes of
    writers that opened the table by its directory. With the option metastore.tag-to-partition, the
    command adds the tags.
    """
    target = open_table(ctx, location, table)
    planned = partition_step.plan(target, partition_step.SyncPartitionsRequest(drop=drop))
    if dry_run:
        text = f"would add {len(planned.missing)} partitions"
        surplus = f"{len(planned.surplus)} partitions without rows"
        text += f" and drop {surplus}" if drop else f"; the catalog has {surplus}"
        print_values(planned.to_dict(), as_json, text)
        return
    result = run_step(partition_step.SYNC_PARTITIONS, target, planned)
    text = f"added {len(result.added)} partitions, dropped {len(result.dropped)}"
    print_values(result.to_dict(), as_json, text)


def mark_done(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    partitions: _PartitionsToMark,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Mark partitions as done.

    Executes the actions of the table's option partition.mark-done-action; by default, it writes the
    file _SUCCESS into the directory of each partition. The partitions need not have rows.
    """
    target = open_table(ctx, location, table)
    specs = split_partitions(target, partitions) or []
    planned = mark_step.plan(target, mark_step.MarkDoneRequest(partitions=specs))
    if not dry_run:
        planned = run_step(mark_step.MARK_DONE, target, planned).plan
    verb = "would mark" if dry_run else "marked"
    text = f"{verb} {len(planned.partitions)} partitions: {', '.join(planned.actions)}"
    print_values(planned.to_dict(), as_json, text)
