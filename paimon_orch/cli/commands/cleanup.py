"""Commands that remove orphan files, and list, restore and delete quarantined files."""

import time
from datetime import timedelta
from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    Master,
    OlderThan,
    Partitions,
    Yes,
)
from paimon_orch.cli.common import (
    build_executor,
    confirm,
    describe_loss,
    describe_refused_paths,
    open_table,
    parse_optional_cutoff,
    parse_partitions,
    print_names,
    print_values,
)
from paimon_orch.cli.help_page import Panel, new_group
from paimon_orch.cli.registration import declare_option, register_command
from paimon_orch.format.display import format_count
from paimon_orch.steps.cleanup import purge_files as purge_step
from paimon_orch.steps.cleanup import remove_orphan_files as orphan_step
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.executor import ThresholdExecutor
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step import EmptyRequest, run_step

_Quarantine = Annotated[
    bool, declare_option(orphan_step.RemoveOrphanFilesRequest, "quarantine", "--quarantine")
]
_Folder = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Folder to restore.", show_default="all"),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app,
        remove_orphan_files,
        Panel.EXPIRE,
        examples=[
            "remove-orphan-files /lake db.orders --older-than '3 d' --dry-run",
            "remove-orphan-files /lake db.orders --quarantine",
        ],
    )
    register_command(app, purge_files, Panel.EXPIRE, examples=["purge-files /lake db.t --dry-run"])
    group = new_group("List, restore and delete quarantined files.")
    register_command(
        group,
        list_quarantine,
        name="list",
        has_allowances=False,
        examples=["quarantine list /lake db.orders"],
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
    app.add_typer(group, name="quarantine", rich_help_panel=Panel.EXPIRE)


def remove_orphan_files(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    older_than: OlderThan = None,
    partitions: Partitions = None,
    quarantine: _Quarantine = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Delete unreferenced files.

    These are files in the table's directories that no snapshot, tag, branch or changelog
    references. By default, files of the last day are kept, because running jobs may still commit
    them; with a later --older-than, the command asks before it deletes files.
    """
    many_units = build_executor(executor, master)
    runner = ThresholdExecutor(lambda: many_units)
    target = open_table(ctx, location, table)
    cutoff = parse_optional_cutoff("--older-than", older_than)
    planned = orphan_step.plan(
        target,
        orphan_step.RemoveOrphanFilesRequest(
            older_than=cutoff,
            partitions=parse_partitions(target, partitions, with_directories=True),
            quarantine=quarantine,
        ),
        executor=runner,
    )
    skipped = [f"skipped: {text}" for text in planned.skipped_external_paths]
    action = (
        f"{'move' if quarantine else 'delete'} {format_count(len(planned.files), 'file')} of "
        f"{format_count(planned.bytes, 'byte')} of {table}"
    )
    if dry_run:
        text = f"would {action}; nothing was changed"
        paths = [file.path for file in planned.files]
        print_values(planned.to_dict(), as_json, *paths, *skipped, text)
        return
    if planned and not quarantine and _may_delete_files_of_jobs(cutoff):
        confirm(f"{action}, also files that running jobs have written", yes=yes)
    result = run_step(orphan_step.REMOVE_ORPHAN_FILES, target, planned, runner)
    verb = "deleted" if result.quarantine is None else f"moved to quarantine {result.quarantine}:"
    text = f"{verb} {format_count(result.files, 'file')} of {format_count(result.bytes, 'byte')}"
    values = result.to_dict() | {"skipped_external_paths": list(planned.skipped_external_paths)}
    refused = describe_refused_paths(result.refused)
    print_values(values, as_json, *skipped, text, *refused)


def _may_delete_files_of_jobs(cutoff: int | None) -> bool:
    """Return whether a cutoff is later than the default one."""
    return (
        cutoff is not None and cutoff > (time.time() - orphan_step.DEFAULT_MIN_AGE_SECONDS) * 1000
    )


def purge_files(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete all rows, snapshots, tags and branches.

    The table, its schemas and its newest snapshot remain. No other job may write to the table,
    because files that are not committed yet are deleted too. This cannot be undone.
    """
    target = open_table(ctx, location, table)
    planned = purge_step.plan(target, EmptyRequest())
    loss = describe_loss(
        {
            "row": planned.rows,
            "snapshot": planned.snapshots,
            "tag": planned.tags,
            "branch": planned.branches,
            "consumer": planned.consumers,
        }
    )
    action = f"delete {loss} of {table}, and its unreferenced files"
    if dry_run:
        print_values(planned.to_dict(), as_json, f"would {action}; nothing was changed")
        return
    confirm(action, yes=yes)
    result = run_step(purge_step.PURGE_FILES, target, planned)
    files = format_count(result.files, "unreferenced file")
    print_values(result.to_dict(), as_json, f"deleted {loss}, and {files}")


def _open_quarantine(ctx: typer.Context, location: str, identifier: str) -> Quarantine:
    return Quarantine.of(open_table(ctx, location, identifier))


def list_quarantine(
    ctx: typer.Context, location: CatalogLocation, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the folders of quarantined files.

    Each run of remove-orphan-files --quarantine creates one.
    """
    print_names(_open_quarantine(ctx, location, table).list_folders(), as_json=as_json)


def restore_quarantine(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    folder: _Folder = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Move quarantined files back.

    A file is not moved back if its old path is taken or leads through a symbolic link.
    """
    quarantine = _open_quarantine(ctx, location, table)
    names = quarantine.select_folders(folder)
    if dry_run:
        files = quarantine.count(names)
        text = f"would restore {format_count(files, 'file')}; nothing was changed"
        print_values({"files": files}, as_json, text)
        return
    restored = quarantine.restore(folder)
    remaining = quarantine.count(names)
    text = f"restored {format_count(restored, 'file')}"
    if remaining:
        text += f"; {remaining} remain: their paths are taken or lead through a symbolic link"
    print_values({"files": restored, "remaining_files": remaining}, as_json, text)


def empty_quarantine(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    older_than: OlderThan = "7 d",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old quarantined files."""
    quarantine = _open_quarantine(ctx, location, table)
    cutoff = parse_optional_cutoff("--older-than", older_than)
    assert cutoff is not None
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
    print_values({"files": files}, as_json, text)
