"""Commands for consumers."""

import typer

from paimon_orch.cli.step_command import add_group


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    add_group(
        app,
        "consumer",
        list_names=lambda table: table.stores.open_consumers().find_matching(),
        list_help="Print the ids of all consumers.\n\n"
        "The system table DATABASE.TABLE$consumers also has their next snapshots.",
    )
