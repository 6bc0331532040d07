"""The commands that roll a table back."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    DryRun,
    Identifier,
    JsonOutput,
    TagSelector,
    Timestamp,
    Watermark,
    Yes,
)
from paimon_orch.cli.common import (
    confirm,
    open_table,
    parse_optional_timestamp,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES, Output
from paimon_orch.format.display import format_count
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.common.step_report import describe_loss
from paimon_orch.steps.maintenance import rollback_as_latest as rollback_step
from paimon_orch.table.metadata.time_travel import (
    SnapshotSelector,
)
from paimon_orch.table.table import Table

_RollbackSnapshot = Annotated[
    int | None, typer.Option("--snapshot", metavar="ID", help="Id of the snapshot.")
]
_DeleteTags = Annotated[
    bool, typer.Option("--delete-tags", help="Also delete the tags of later snapshots.")
]
_AsLatest = Annotated[
    bool,
    typer.Option(
        "--as-latest",
        help="Commit the older state as a new snapshot; later snapshots and tags are kept.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app,
        rollback,
        Panel.REFERENCES,
        examples=[
            "rollback /lake db.orders --tag release-7 --dry-run",
            "rollback /lake db.orders --snapshot 41 --as-latest",
        ],
    )
    register_command(app, undo, Panel.REFERENCES, examples=["undo /lake db.orders --dry-run"])


def undo(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Take back the newest snapshot.

    Commits the state before it as a new snapshot, as rollback --as-latest does; nothing is deleted,
    so a second undo restores the change. Schemas and options are not changed.
    """
    target = open_table(ctx, location, table)
    latest, planned = rollback_step.plan_undo(target)
    committed = datetime.fromtimestamp(latest.time_millis / 1000, UTC)
    values = {
        "undone_snapshot_id": latest.id,
        "commit_kind": latest.commit_kind,
        "commit_user": latest.commit_user,
        "commit_time": committed.isoformat(timespec="seconds"),
        "delta_record_count": latest.delta_record_count,
        **planned.to_dict(),
    }
    change = f"{latest.commit_kind} of {latest.delta_record_count:+,} records by "
    change += f"{escape_name(latest.commit_user)} at {values['commit_time']}"
    action = f"take back snapshot {latest.id} of {table} ({change})"
    if dry_run:
        output.print_values(values, f"would {action}; nothing was changed")
        return
    confirm(action, yes=yes, undo="A second undo restores it.")
    result = run_step(rollback_step.ROLLBACK_AS_LATEST, target, planned)
    values |= {"snapshot_id": result.snapshot.id, "tag": result.tag}
    text = f"committed the state of snapshot {planned.target.id} as snapshot {result.snapshot.id}"
    output.print_values(values, f"{text}; tag {result.tag} keeps its files")


def rollback(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    snapshot: _RollbackSnapshot = None,
    tag: TagSelector = None,
    timestamp: Timestamp = None,
    watermark: Watermark = None,
    as_latest: _AsLatest = False,
    delete_tags: _DeleteTags = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Roll back to an older snapshot.

    Later snapshots are deleted, and with --delete-tags later tags. No job may write to the table at
    the same time. With --as-latest, nothing is deleted, and jobs may write; a tag is created that
    keeps the files of the older snapshot.
    """
    target = open_table(ctx, location, table)
    millis = parse_optional_timestamp("--timestamp", timestamp)
    watermark_millis = parse_optional_timestamp("--watermark", watermark)
    selector = SnapshotSelector(snapshot, tag, millis, watermark_millis)
    if as_latest:
        _roll_back_as_latest(target, selector, dry_run=dry_run, output=output)
        return
    planned = target.plan_rollback(selector)
    previous, snapshot_id = target.stores.snapshots.latest_id(), planned.target.id
    values: dict[str, object] = {"snapshot_id": snapshot_id, "previous_snapshot_id": previous}
    values |= {"deleted_snapshots": planned.snapshots, "deleted_tags": planned.tags}
    loss = describe_loss({"snapshot": len(planned.snapshots), "tag": planned.tags})
    action = f"roll back {table} from snapshot {previous} to {snapshot_id} and delete {loss}"
    if dry_run:
        output.print_values(values, f"would {action}; nothing was changed")
        return
    planned.check_tags(delete_tags=delete_tags)
    if planned.snapshots or planned.tags:
        confirm(action, yes=yes)
    target.run_rollback(planned)
    output.print_values(values, f"rolled back to snapshot {snapshot_id}")


def _roll_back_as_latest(
    table: Table, selector: SnapshotSelector, *, dry_run: bool, output: Output
) -> None:
    request = rollback_step.RollbackAsLatestRequest(selector=selector)
    planned = rollback_step.plan(table, request)
    values = planned.to_dict()
    text = f"the state of snapshot {planned.target.id}"
    changes = f"{format_count(planned.added_files, 'file')} added, {planned.removed_files} removed"
    if dry_run:
        output.print_values(values, f"would commit {text} ({changes}); nothing was changed")
        return
    result = run_step(rollback_step.ROLLBACK_AS_LATEST, table, planned)
    values |= {"snapshot_id": result.snapshot.id, "tag": result.tag}
    text = f"committed {text} as snapshot {result.snapshot.id} ({changes})"
    output.print_values(values, f"{text}; tag {result.tag} keeps its files")
