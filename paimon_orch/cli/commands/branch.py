"""Commands for branches."""

import typer

from paimon_orch.cli.step_command import add_group


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    add_group(
        app,
        "branch",
        list_names=lambda table: table.branches.names(),
        list_help="Print the names of all branches except main.",
    )
