"""Commands for consumers."""

from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    DryRun,
    Identifier,
    JsonOutput,
    Yes,
)
from paimon_orch.cli.common import (
    confirm,
    open_table,
)
from paimon_orch.cli.help_page import Panel, new_group
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.errors import NotFoundError
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.step_report import describe_loss

_LOST_WITH_CONSUMER = "Snapshots that only consumers retain can then expire."
_ConsumerName = Annotated[str, typer.Argument(metavar="CONSUMER", help="Id of the consumer.")]
_NextSnapshot = Annotated[
    int | None,
    typer.Option(metavar="ID", help="Snapshot to read next.", show_default="delete the consumer"),
]
_Including = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX", help="Clear the consumers that match this.", show_default="all consumers"
    ),
]
_Excluding = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Keep the consumers that match this.", show_default="none"),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    consumers = new_group("List, reset and delete consumers.")
    register_command(
        consumers,
        list_consumers,
        name="list",
        has_allowances=False,
        examples=["consumer list /lake db.orders"],
    )
    register_command(
        consumers,
        reset_consumer,
        name="reset",
        examples=["consumer reset /lake db.orders app --next-snapshot 7"],
    )
    register_command(
        consumers,
        clear_consumers,
        name="clear",
        examples=["consumer clear /lake db.orders --including 'test-.*' --dry-run"],
    )
    app.add_typer(consumers, name="consumer", rich_help_panel=Panel.REFERENCES)


def list_consumers(
    ctx: typer.Context, location: CatalogLocation, table: Identifier, output: JsonOutput = LINES
) -> None:
    """Print the ids of all consumers.

    The system table DATABASE.TABLE$consumers also has their next snapshots.
    """
    consumers = open_table(ctx, location, table).stores.open_consumers()
    output.print_names(consumers.find_matching())


def reset_consumer(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _ConsumerName,
    next_snapshot: _NextSnapshot = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Change the next snapshot of a consumer, or delete the consumer.

    Stop its readers first, because they record their own positions.
    """
    stores = open_table(ctx, location, table).stores
    consumers = stores.open_consumers()
    name = consumers.find(name)
    previous, shown = consumers.read_next_snapshot(name), escape_name(name)
    if next_snapshot is None:
        if previous is None:
            raise NotFoundError(f"{stores.identifier} has no consumer {name!r}")
        action = f"delete consumer {shown} of {table}, which reads snapshot {previous} next"
        if not dry_run:
            confirm(action, yes=yes, undo=_LOST_WITH_CONSUMER)
            consumers.delete([name])
        text = f"would {action}; nothing was changed" if dry_run else f"deleted consumer {shown}"
    else:
        snapshot = stores.snapshots.get(next_snapshot)
        text = f"consumer {shown} to read snapshot {snapshot.id} next"
        if not dry_run:
            consumers.reset(name, snapshot)
        text = f"would set {text}; nothing was changed" if dry_run else f"set {text}"
    values: dict[str, object] = {
        "consumer": name,
        "next_snapshot_id": next_snapshot,
        "previous_next_snapshot_id": previous,
    }
    output.print_values(values, text)


def clear_consumers(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    including: _Including = None,
    excluding: _Excluding = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Delete consumers and print their ids.

    A regular expression must match the whole id. Snapshots that only these consumers have not read
    can then expire.
    """
    consumers = open_table(ctx, location, table).stores.open_consumers()
    names = consumers.find_matching(including, excluding)
    if not dry_run:
        if names:
            loss = describe_loss({"consumer": names})
            confirm(f"delete {loss} of {table}", yes=yes, undo=_LOST_WITH_CONSUMER)
        consumers.delete(names)
    output.print_names(names)
