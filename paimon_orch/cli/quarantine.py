"""The commands ``quarantine list``, ``restore`` and ``empty`` for files moved by orphan removal."""

import time
from datetime import timedelta
from typing import Annotated

import typer

from paimon_orch.cli.arguments import AsJson, DryRun, Identifier, OlderThan, Warehouse
from paimon_orch.cli.common import open_table, parse_optional_cutoff, print_names, print_values
from paimon_orch.cli.help_page import Panel, new_group
from paimon_orch.cli.registration import register_command
from paimon_orch.steps.cleanup.quarantine import Quarantine

_Folder = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Folder to restore.", show_default="all"),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    group = new_group("List, restore and delete quarantined files.")
    register_command(group, list_quarantine, name="list", has_allowances=False)
    register_command(group, restore_quarantine, name="restore", has_allowances=False)
    register_command(group, empty_quarantine, name="empty", has_allowances=False)
    app.add_typer(group, name="quarantine", rich_help_panel=Panel.EXPIRE)


def _open_quarantine(ctx: typer.Context, warehouse: str, identifier: str) -> Quarantine:
    return Quarantine.of(open_table(ctx, warehouse, identifier))


def list_quarantine(
    ctx: typer.Context, warehouse: Warehouse, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the folders of quarantined files.

    Each run of remove-orphan-files --quarantine creates one.
    """
    print_names(_open_quarantine(ctx, warehouse, table).list_folders(), as_json=as_json)


def restore_quarantine(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    folder: _Folder = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Move quarantined files back.

    A file is not moved back if its old path is taken or leads through a symbolic link.
    """
    quarantine = _open_quarantine(ctx, warehouse, table)
    names = quarantine.select_folders(folder)
    if dry_run:
        files = quarantine.count(names)
        text = f"would restore {files} files; nothing was changed"
        print_values({"files": files}, as_json, text)
        return
    restored = quarantine.restore(folder)
    remaining = quarantine.count(names)
    text = f"restored {restored} files"
    if remaining:
        text += f"; {remaining} remain: their paths are taken or lead through a symbolic link"
    print_values({"files": restored, "remaining_files": remaining}, as_json, text)


def empty_quarantine(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: OlderThan = "7 d",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old quarantined files."""
    quarantine = _open_quarantine(ctx, warehouse, table)
    cutoff = parse_optional_cutoff("--older-than", older_than)
    assert cutoff is not None
    retention = timedelta(seconds=max(0.0, time.time() - cutoff / 1000))
    if dry_run:
        files = quarantine.count(quarantine.find_expired_folders(retention))
        text = f"would delete {files} files; nothing was changed"
    else:
        files = quarantine.empty(retention)
        text = f"deleted {files} files"
    print_values({"files": files}, as_json, text)
