"""Commands that change what a table refers to, and no data files: tags, branches, rollback, dropped partitions."""

from typing import Annotated

import typer

from paimon_orch.cli.common import (
    AsJson,
    DryRun,
    Identifier,
    Warehouse,
    open_table,
    parse_optional_duration,
    parse_optional_timestamp,
    parse_partitions,
    print_names,
)
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.expiration import expire_tags as tag_step
from paimon_orch.table.filter.partition_spec import (
    build_any_partition_matcher,
    parse_partition_spec,
)
from paimon_orch.table.metadata.tags import find_rollback_target
from paimon_orch.table.metadata.time_travel import SnapshotSelector

TagName = Annotated[str, typer.Argument(metavar="TAG", help="name of the tag")]
BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="name of the branch")]
SnapshotId = Annotated[
    int | None, typer.Option("--snapshot", help="snapshot id [default: the newest]")
]
TimeRetained = Annotated[
    str | None, typer.Option(help="how long, e.g. '30 d' [default: until it is deleted]")
]

tag_app = typer.Typer(help="Keep snapshots under a name.", no_args_is_help=True)
branch_app = typer.Typer(help="Snapshots of their own over the same data.", no_args_is_help=True)


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.add_typer(tag_app, name="tag")
    app.add_typer(branch_app, name="branch")
    app.command()(rollback)
    app.command("drop-partitions")(drop_partitions)
    app.command()(truncate)


@tag_app.command("list")
def list_tags(
    ctx: typer.Context, warehouse: Warehouse, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the names of all tags."""
    print_names(open_table(ctx, warehouse, table).tags.names(), as_json=as_json)


@tag_app.command("create")
def create_tag(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    name: TagName,
    snapshot: SnapshotId = None,
    time_retained: TimeRetained = None,
    replace: Annotated[bool, typer.Option(help="let a tag that exists move")] = False,
) -> None:
    """Keep a snapshot under a name."""
    tags = open_table(ctx, warehouse, table).tags
    kept = parse_optional_duration("--time-retained", time_retained)
    change = tags.replace if replace else tags.create
    tagged = change(name, snapshot, time_retained=kept)
    print(f"tag {name} keeps snapshot {tagged.id}")


@tag_app.command("delete")
def delete_tag(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    name: TagName,
    dry_run: DryRun = False,
) -> None:
    """Remove a tag and the files that only it keeps."""
    target = open_table(ctx, warehouse, table)
    if dry_run:
        found = tag_step.find_files_to_delete(target, name)
        print(f"would delete tag {name} with {len(found)} files; nothing was changed")
        return
    print(f"tag {name} is deleted, with {len(tag_step.delete_tag(target, name))} files")


@tag_app.command("rename")
def rename_tag(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    name: TagName,
    to: Annotated[str, typer.Argument(help="its new name")],
) -> None:
    """Give a tag another name."""
    open_table(ctx, warehouse, table).tags.rename(name, to)
    print(f"tag {name} is called {to} now")


@branch_app.command("list")
def list_branches(
    ctx: typer.Context, warehouse: Warehouse, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the names of all branches but main."""
    print_names(open_table(ctx, warehouse, table).branches.names(), as_json=as_json)


@branch_app.command("create")
def create_branch(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    name: BranchName,
    tag: Annotated[str | None, typer.Option(help="where it begins [default: no rows]")] = None,
) -> None:
    """Start a branch at a tag, or with no rows."""
    open_table(ctx, warehouse, table).branches.create(name, tag)
    print(f"branch {name} begins {'with no rows' if tag is None else f'at tag {tag}'}")


@branch_app.command("delete")
def delete_branch(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    name: BranchName,
    dry_run: DryRun = False,
) -> None:
    """Remove a branch; files that only it needed stay until orphan files are removed."""
    target = open_table(ctx, warehouse, table)
    if dry_run:
        target.branches.check_can_delete(name)
        found = open_table(ctx, warehouse, f"{table}$branch_{name}")
        snapshots, tags = len(found.stores.snapshots.ids()), len(found.tags.names())
        print(f"would delete branch {name}, {snapshots} snapshots and {tags} tags; nothing was changed")  # fmt: skip
        return
    target.branches.delete(name)
    print(f"branch {name} is deleted")


@branch_app.command("fast-forward")
def fast_forward_branch(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    name: BranchName,
    dry_run: DryRun = False,
) -> None:
    """Let main become what a branch is; what main did since the branch began is given up."""
    target = open_table(ctx, warehouse, table)
    if dry_run:
        newest = target.branches.snapshots(name)[-1]
        print(
            f"would move main from snapshot {target.stores.snapshots.latest_id()} to {newest} of branch {name}; "
            "nothing was changed"
        )
        return
    target.branches.fast_forward(name)
    print(f"main is at snapshot {target.stores.snapshots.latest_id()} of branch {name}")


def rollback(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    snapshot: Annotated[int | None, typer.Option(help="snapshot id")] = None,
    tag: Annotated[str | None, typer.Option(help="tag")] = None,
    timestamp: Annotated[str | None, typer.Option(help="ISO 8601, or epoch milliseconds")] = None,
    watermark: Annotated[
        str | None, typer.Option(help="the first snapshot that has reached it; as --timestamp")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Go back to an older snapshot.

    Later snapshots and tags are removed. Nothing may write meanwhile.
    """
    target = open_table(ctx, warehouse, table)
    time = parse_optional_timestamp("--timestamp", timestamp)
    reached = parse_optional_timestamp("--watermark", watermark)
    moment = SnapshotSelector(snapshot, tag, time, reached)
    if dry_run and moment:
        found, newest = (
            find_rollback_target(target.stores.snapshots, moment),
            target.stores.snapshots.latest_id(),
        )
        print(f"would go back from snapshot {newest} to {found.id}; nothing was changed")
        return
    done = target.rollback(snapshot, tag=tag, timestamp=time, watermark=reached)
    print(f"snapshot {done.id} is the newest one now")


def drop_partitions(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    partitions: Annotated[
        str, typer.Option(help="partitions, separated by semicolons, e.g. dt=a;dt=b")
    ],
    dry_run: DryRun = False,
) -> None:
    """Remove whole partitions in one snapshot.

    Older snapshots keep them.
    """
    target = open_table(ctx, warehouse, table)
    specs = parse_partitions(target, partitions) or []
    if dry_run:
        schema = target.schema
        chosen = build_any_partition_matcher(
            [parse_partition_spec(spec, schema) for spec in specs], schema
        )
        _print_removal_plan(
            [split.row_count for split in target.files() if chosen(split.partition)]
        )
        return
    _print_removal_result(target.drop_partitions(specs))


def truncate(
    ctx: typer.Context, warehouse: Warehouse, table: Identifier, dry_run: DryRun = False
) -> None:
    """Remove all rows in one snapshot.

    Older snapshots keep them.
    """
    target = open_table(ctx, warehouse, table)
    if dry_run:
        _print_removal_plan([split.row_count for split in target.files()])
        return
    _print_removal_result(target.truncate())


def _print_removal_plan(rows: list[int]) -> None:
    print(f"would remove {len(rows)} buckets of {sum(rows):,} rows; nothing was changed")


def _print_removal_result(snapshot: Snapshot | None) -> None:
    if snapshot is None:
        print("no row matches: nothing was committed")
    else:
        print(f"snapshot {snapshot.id}: {-snapshot.delta_record_count:,} rows removed")
