"""Commands for quarantined files."""

import typer

from paimon_orch.cli.step_command import add_group
from paimon_orch.steps.cleanup.quarantine import Quarantine


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    add_group(
        app,
        "quarantine",
        list_names=lambda table: Quarantine.of(table).list_folders(),
        list_help="Print the folders of quarantined files.\n\n"
        "Each run of remove-orphan-files --quarantine creates one.",
    )
