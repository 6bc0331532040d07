"""Commands for tags."""

import typer

from paimon_orch.cli.step_command import add_group


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    add_group(
        app,
        "tag",
        list_names=lambda table: table.tags.names(),
        list_help="Print the names of all tags.",
    )
