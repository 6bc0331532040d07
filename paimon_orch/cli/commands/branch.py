"""Commands for branches."""

from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    DryRun,
    Identifier,
    JsonOutput,
    Yes,
)
from paimon_orch.cli.common import (
    confirm,
    open_table,
)
from paimon_orch.cli.help_page import Panel, new_group
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.step_report import describe_loss

_BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="Name of the branch.")]
_NewBranchName = Annotated[
    str, typer.Argument(metavar="NEW_BRANCH", help="New name of the branch.")
]
_BranchStart = Annotated[
    str | None,
    typer.Option(
        metavar="TAG", help="Tag to create the branch from.", show_default="an empty branch"
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    branches = new_group("Create, list and delete branches.")
    register_command(
        branches,
        list_branches,
        name="list",
        has_allowances=False,
        examples=["branch list /lake db.orders"],
    )
    register_command(
        branches,
        create_branch,
        name="create",
        examples=["branch create /lake db.orders dev --tag release-7"],
    )
    register_command(
        branches,
        delete_branch,
        name="delete",
        examples=["branch delete /lake db.orders dev --dry-run"],
    )
    register_command(
        branches, rename_branch, name="rename", examples=["branch rename /lake db.orders dev test"]
    )
    register_command(
        branches,
        fast_forward_branch,
        name="fast-forward",
        examples=["branch fast-forward /lake db.orders dev --dry-run"],
    )
    app.add_typer(branches, name="branch", rich_help_panel=Panel.REFERENCES)


def list_branches(
    ctx: typer.Context, location: CatalogLocation, table: Identifier, output: JsonOutput = LINES
) -> None:
    """Print the names of all branches except main."""
    output.print_names(open_table(ctx, location, table).branches.names())


def create_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    tag: _BranchStart = None,
    output: JsonOutput = LINES,
) -> None:
    """Create a branch from a tag, or an empty branch."""
    open_table(ctx, location, table).branches.create(name, tag)
    start = "without rows" if tag is None else f"at tag {tag}"
    output.print_values({"branch": name, "tag": tag}, f"branch {name} starts {start}")


def delete_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Delete a branch.

    The command remove-orphan-files deletes the data files that only the branch references.
    """
    target = open_table(ctx, location, table)
    name = target.branches.find(name)
    target.branches.check_can_delete(name)
    branch = open_table(ctx, location, f"{table}$branch_{name}")
    snapshots, tags = len(branch.stores.snapshots.ids()), branch.tags.names()
    values: dict[str, object] = {"branch": name, "snapshots": snapshots, "tags": tags}
    loss = describe_loss({"snapshot": snapshots, "tag": tags})
    action = f"delete branch {escape_name(name)} of {table} with {loss}"
    if dry_run:
        output.print_values(values, f"would {action}; nothing was changed")
        return
    confirm(action, yes=yes)
    target.branches.delete(name)
    output.print_values({"branch": name}, f"deleted branch {escape_name(name)}")


def rename_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    to: _NewBranchName,
    output: JsonOutput = LINES,
) -> None:
    """Rename a branch.

    No job may write to the branch at the same time. Object stores cannot rename branches.
    """
    branches = open_table(ctx, location, table).branches
    name = branches.find(name)
    branches.rename(name, to)
    text = f"renamed branch {escape_name(name)} to {to}"
    output.print_values({"branch": to, "previous_name": name}, text)


def fast_forward_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Replace main with a branch.

    Snapshots and tags that were created on main after the start of the branch are deleted.
    """
    target = open_table(ctx, location, table)
    name = target.branches.find(name)
    shown, planned = escape_name(name), target.branches.plan_fast_forward(name)
    snapshots, tags = planned.replaced_snapshots, planned.replaced_tags
    previous, snapshot_id = planned.latest_id, planned.snapshots[-1]
    action = (
        f"move main of {table} from snapshot {previous} to snapshot {snapshot_id} of branch {shown} "
        f"and delete {describe_loss({'snapshot': len(snapshots), 'tag': tags})}"
    )
    if dry_run:
        text = f"would {action}; nothing was changed"
    else:
        if snapshots or tags:
            confirm(action, yes=yes)
        target.branches.run_fast_forward(planned)
        text = f"moved main to snapshot {snapshot_id} of branch {shown}"
    values: dict[str, object] = {
        "branch": name,
        "snapshot_id": snapshot_id,
        "previous_snapshot_id": previous,
    }
    output.print_values(values, text)
