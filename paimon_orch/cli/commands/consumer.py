"""Commands for consumers."""

from typing import Annotated

import typer

from paimon_orch.cli.arguments import CatalogLocation, DryRun, Identifier, JsonOutput, Yes
from paimon_orch.cli.common import confirm, open_table
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.cli.step_command import add_group
from paimon_orch.steps.common.step_report import describe_loss
from paimon_orch.steps.maintenance.reset_consumer import LOST_WITH_CONSUMER

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
    consumers = add_group(
        app,
        "consumer",
        list_names=lambda table: table.stores.open_consumers().find_matching(),
        list_help="Print the ids of all consumers.\n\n"
        "The system table DATABASE.TABLE$consumers also has their next snapshots.",
    )
    register_command(
        consumers,
        clear_consumers,
        name="clear",
        examples=["consumer clear /lake db.orders --including 'test-.*' --dry-run"],
    )


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
            confirm(f"delete {loss} of {table}", yes=yes, undo=LOST_WITH_CONSUMER)
        consumers.delete(names)
    output.print_names(names)
