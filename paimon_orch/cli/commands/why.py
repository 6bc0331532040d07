"""The command ``why``: what makes a table slow or large, and which command helps."""

import typer

from paimon_orch.cli.arguments import CatalogLocation, Identifier, JsonOutput
from paimon_orch.cli.common import open_table
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES


def add_commands(app: typer.Typer) -> None:
    """Register the command of this module."""
    register_command(app, why, Panel.READ, examples=["why /lake db.orders"], has_allowances=False)


def why(
    ctx: typer.Context, location: CatalogLocation, table: Identifier, output: JsonOutput = LINES
) -> None:
    """Explain what makes a table slow or large.

    Shows what a scan reads now, which command saves most of it, and what a scan reads afterwards.
    The figures are estimated from metadata; nothing is changed.
    """
    from paimon_orch.steps.inspection.verdict.verdict import judge

    verdict = judge(open_table(ctx, location, table))
    output.print_values(verdict.to_dict(), verdict.describe())
