"""Commands that list, restore and delete quarantined files."""

import time
from datetime import timedelta
from typing import Annotated

import typer

from paimon_orch.cli.arguments import CatalogLocation, DryRun, Identifier, JsonOutput, Yes
from paimon_orch.cli.common import confirm, open_table
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.cli.step_command import add_group
from paimon_orch.format.display import format_count
from paimon_orch.format.times import parse_cutoff
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.argument import CUTOFF_HELP
from paimon_orch.steps.common.step_report import describe_loss

_OlderThan = Annotated[str, typer.Option(metavar="TIME", help=CUTOFF_HELP)]
_Folder = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Folder to restore.", show_default="all"),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    group = add_group(
        app,
        "quarantine",
        list_names=lambda table: Quarantine.of(table).list_folders(),
        list_help="Print the folders of quarantined files.\n\n"
        "Each run of remove-orphan-files --quarantine creates one.",
    )
    register_command(
        group,
        restore_quarantine,
        name="restore",
        has_allowances=False,
        examples=["quarantine restore /lake db.orders --dry-run"],
    )
    register_command(
        group,
        empty_quarantine,
        name="empty",
        has_allowances=False,
        examples=["quarantine empty /lake db.orders --older-than '7 d' --dry-run"],
    )


def _open_quarantine(ctx: typer.Context, location: str, identifier: str) -> Quarantine:
    return Quarantine.of(open_table(ctx, location, identifier))


def restore_quarantine(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    folder: _Folder = None,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Move quarantined files back.

    A file is not moved back if its old path is taken or leads through a symbolic link.
    """
    quarantine = _open_quarantine(ctx, location, table)
    names = quarantine.select_folders(folder)
    if dry_run:
        files = quarantine.count(names)
        text = f"would restore {format_count(files, 'file')}; nothing was changed"
        output.print_values({"files": files}, text)
        return
    restored = quarantine.restore(folder)
    remaining = quarantine.count(names)
    text = f"restored {format_count(restored, 'file')}"
    if remaining:
        text += f"; {remaining} remain: their paths are taken or lead through a symbolic link"
    output.print_values({"files": restored, "remaining_files": remaining}, text)


def empty_quarantine(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    older_than: _OlderThan = "7 d",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Delete old quarantined files."""
    quarantine = _open_quarantine(ctx, location, table)
    cutoff = parse_cutoff("--older-than", older_than)
    retention = timedelta(seconds=max(0.0, time.time() - cutoff / 1000))
    files = quarantine.count(quarantine.find_expired_folders(retention))
    action = f"delete {describe_loss({'quarantined file': files})} of {table}"
    if dry_run:
        text = f"would {action}; nothing was changed"
    else:
        if files:
            confirm(action, yes=yes)
        files = quarantine.empty(retention)
        text = f"deleted {format_count(files, 'file')}"
    output.print_values({"files": files}, text)
