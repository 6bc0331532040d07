"""Commands for tags."""

import typer

from paimon_orch.cli.arguments import CatalogLocation, DryRun, Identifier, JsonOutput
from paimon_orch.cli.common import open_table
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.cli.step_command import add_group
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.maintenance import create_automatic_tags as creation_step


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    add_group(
        app,
        "tag",
        list_names=lambda table: table.tags.names(),
        list_help="Print the names of all tags.",
    )
    register_command(
        app,
        trigger_tag_automatic_creation,
        examples=["trigger-tag-automatic-creation /lake db.orders --dry-run"],
    )


def trigger_tag_automatic_creation(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Create the tags that are due.

    The table's option 'tag.automatic-creation' defines the schedule. Prints the names of the tags.
    """
    target = open_table(ctx, location, table)
    created = creation_step.plan(target, EmptyRequest())
    if not dry_run:
        created = run_step(creation_step.CREATE_TAGS, target, created).plan
    output.print_names(created.names)
