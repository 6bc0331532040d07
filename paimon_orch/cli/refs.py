"""Commands for tags, branches and consumers, rollback and the repair of a hint."""

from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    Identifier,
    TagSelector,
    Timestamp,
    Watermark,
    Yes,
)
from paimon_orch.cli.common import (
    confirm,
    describe_loss,
    open_table,
    parse_optional_duration,
    parse_optional_timestamp,
    print_names,
    print_values,
)
from paimon_orch.cli.help_page import Panel, new_group
from paimon_orch.cli.registration import register_command
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.display import format_count
from paimon_orch.format.paths import MAIN_BRANCH
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.expiration import delete_tag as deletion_step
from paimon_orch.steps.maintenance import create_automatic_tags as creation_step
from paimon_orch.steps.maintenance import merge_branch as merge_step
from paimon_orch.steps.maintenance import rollback_as_latest as rollback_step
from paimon_orch.table.metadata.rollback import check_can_repair_earliest
from paimon_orch.table.metadata.time_travel import (
    SnapshotSelector,
    find_first_since_time,
    find_first_since_watermark,
)
from paimon_orch.table.table import Table

_LOST_WITH_CONSUMER = "Snapshots that only consumers retain can then expire."
_LOST_WITH_TAG = "If the old snapshot has expired, its files can then be deleted."
_TagName = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.")]
_NewTagName = Annotated[str, typer.Argument(metavar="NEW_TAG", help="New name of the tag.")]
_BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="Name of the branch.")]
_NewBranchName = Annotated[
    str, typer.Argument(metavar="NEW_BRANCH", help="New name of the branch.")
]
_IntoBranch = Annotated[
    str, typer.Option("--into", metavar="BRANCH", help="Branch to add the files to.")
]
_FromTimestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Tag the first snapshot at or after this time: ISO 8601 or epoch milliseconds.",
    ),
]
_FromWatermark = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Tag the first snapshot with this watermark or a later one: ISO 8601 or epoch "
        "milliseconds.",
    ),
]
_EarliestSnapshot = Annotated[
    int, typer.Option("--snapshot", metavar="ID", help="Id of the snapshot.")
]
_TaggedSnapshot = Annotated[
    int | None,
    typer.Option(
        "--snapshot", metavar="ID", help="Id of the snapshot to tag.", show_default="the newest"
    ),
]
_TimeRetained = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="Age at which the tag expires, e.g. '30 d'.", show_default="never"
    ),
]
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
_Replace = Annotated[
    bool, typer.Option(help="Move the tag if it already exists.", show_default=False)
]
_BranchStart = Annotated[
    str | None,
    typer.Option(
        metavar="TAG", help="Tag to create the branch from.", show_default="an empty branch"
    ),
]
_ConsumerName = Annotated[str, typer.Argument(metavar="CONSUMER", help="Id of the consumer.")]
_NextSnapshot = Annotated[
    int | None,
    typer.Option(metavar="ID", help="Snapshot to read next.", show_default="delete the consumer"),
]
_Including = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX", help="Clear the consumers that match this.", show_default="all consumers"
    ),
]
_Excluding = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Keep the consumers that match this.", show_default="none"),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    tags = new_group("Create, list, rename and delete tags.")
    register_command(
        tags, list_tags, name="list", has_allowances=False, examples=["tag list /lake db.orders"]
    )
    register_command(
        tags,
        create_tag,
        name="create",
        examples=["tag create /lake db.orders release-7 --time-retained '30 d'"],
    )
    register_command(
        tags, delete_tag, name="delete", examples=["tag delete /lake db.orders release-7 --dry-run"]
    )
    register_command(
        tags,
        rename_tag,
        name="rename",
        examples=["tag rename /lake db.orders release-7 release-7.0"],
    )
    app.add_typer(tags, name="tag", rich_help_panel=Panel.REFERENCES)
    _add_branch_commands(app)
    _add_consumer_commands(app)
    register_command(
        app,
        rollback,
        Panel.REFERENCES,
        examples=[
            "rollback /lake db.orders --tag release-7 --dry-run",
            "rollback /lake db.orders --snapshot 41 --as-latest",
        ],
    )
    register_command(
        app,
        trigger_tag_automatic_creation,
        Panel.REFERENCES,
        examples=["trigger-tag-automatic-creation /lake db.orders --dry-run"],
    )
    register_command(
        app,
        repair_earliest,
        Panel.CHECK,
        name="repair-earliest-snapshot",
        examples=["repair-earliest-snapshot /lake db.orders --snapshot 8 --dry-run"],
    )


def _add_consumer_commands(app: typer.Typer) -> None:
    consumers = new_group("List, reset and delete consumers.")
    register_command(
        consumers,
        list_consumers,
        name="list",
        has_allowances=False,
        examples=["consumer list /lake db.orders"],
    )
    register_command(
        consumers,
        reset_consumer,
        name="reset",
        examples=["consumer reset /lake db.orders app --next-snapshot 7"],
    )
    register_command(
        consumers,
        clear_consumers,
        name="clear",
        examples=["consumer clear /lake db.orders --including 'test-.*' --dry-run"],
    )
    app.add_typer(consumers, name="consumer", rich_help_panel=Panel.REFERENCES)


def _add_branch_commands(app: typer.Typer) -> None:
    branches = new_group("Create, list, merge and delete branches.")
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
    register_command(
        branches,
        merge_branch,
        name="merge",
        examples=["branch merge /lake db.log dev --dry-run"],
    )
    app.add_typer(branches, name="branch", rich_help_panel=Panel.REFERENCES)


def list_tags(
    ctx: typer.Context, location: CatalogLocation, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the names of all tags."""
    print_names(open_table(ctx, location, table).tags.names(), as_json=as_json)


def create_tag(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _TagName,
    snapshot: _TaggedSnapshot = None,
    from_timestamp: _FromTimestamp = None,
    from_watermark: _FromWatermark = None,
    time_retained: _TimeRetained = None,
    replace: _Replace = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Create a tag for a snapshot.

    The files of the snapshot are kept until the tag is deleted.
    """
    stores = open_table(ctx, location, table).stores
    tags, retention = stores.tags, parse_optional_duration("--time-retained", time_retained)
    if sum(option is not None for option in (snapshot, from_timestamp, from_watermark)) > 1:
        raise InputError(
            "--snapshot, --from-timestamp and --from-watermark cannot be combined; set only one "
            "of them"
        )
    millis = parse_optional_timestamp("--from-timestamp", from_timestamp)
    watermark = parse_optional_timestamp("--from-watermark", from_watermark)
    if millis is not None:
        snapshot = find_first_since_time(stores.snapshots, millis).id
    if watermark is not None:
        snapshot = find_first_since_watermark(stores.snapshots, watermark).id
    if replace:
        previous, latest = tags.get(name).id, stores.snapshots.latest_id()
        if previous != (snapshot or latest):
            action = f"move tag {escape_name(name)} of {table} from snapshot {previous} to {snapshot or latest}"
            confirm(action, yes=yes, undo=_LOST_WITH_TAG)
    create_or_replace = tags.replace if replace else tags.create
    tagged = create_or_replace(name, snapshot, time_retained=retention)
    values: dict[str, object] = {"tag": name, "snapshot_id": tagged.id}
    print_values(values, as_json, f"tag {name} keeps snapshot {tagged.id}")


def delete_tag(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _TagName,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete a tag and the files that only it references."""
    target = open_table(ctx, location, table)
    name = target.tags.find(name)
    shown = escape_name(name)
    deleted = deletion_step.plan(target, deletion_step.DeleteTagRequest(name=name))
    action = f"delete tag {shown} of {table} with {_count_files(deleted)}"
    if dry_run:
        print_values(deleted.to_dict(), as_json, f"would {action}; nothing was changed")
        return
    confirm(action, yes=yes)
    deleted = run_step(deletion_step.DELETE_TAG, target, deleted).plan
    print_values(deleted.to_dict(), as_json, f"deleted tag {shown} with {_count_files(deleted)}")


def _count_files(planned: deletion_step.TagDeletionPlan) -> str:
    return format_count(len(planned.files_to_delete), "file")


def rename_tag(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _TagName,
    to: _NewTagName,
    as_json: AsJson = False,
) -> None:
    """Rename a tag."""
    tags = open_table(ctx, location, table).tags
    name = tags.find(name)
    tags.rename(name, to)
    text = f"renamed tag {escape_name(name)} to {to}"
    print_values({"tag": to, "previous_name": name}, as_json, text)


def list_branches(
    ctx: typer.Context, location: CatalogLocation, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the names of all branches except main."""
    print_names(open_table(ctx, location, table).branches.names(), as_json=as_json)


def create_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    tag: _BranchStart = None,
    as_json: AsJson = False,
) -> None:
    """Create a branch from a tag, or an empty branch."""
    open_table(ctx, location, table).branches.create(name, tag)
    start = "without rows" if tag is None else f"at tag {tag}"
    print_values({"branch": name, "tag": tag}, as_json, f"branch {name} starts {start}")


def delete_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
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
        print_values(values, as_json, f"would {action}; nothing was changed")
        return
    confirm(action, yes=yes)
    target.branches.delete(name)
    print_values({"branch": name}, as_json, f"deleted branch {escape_name(name)}")


def rename_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    to: _NewBranchName,
    as_json: AsJson = False,
) -> None:
    """Rename a branch.

    No job may write to the branch at the same time. Object stores cannot rename branches.
    """
    branches = open_table(ctx, location, table).branches
    name = branches.find(name)
    branches.rename(name, to)
    text = f"renamed branch {escape_name(name)} to {to}"
    print_values({"branch": to, "previous_name": name}, as_json, text)


def fast_forward_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
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
    print_values(values, as_json, text)


def merge_branch(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _BranchName,
    into: _IntoBranch = MAIN_BRANCH,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add the files of a branch of an append table to main.

    All snapshots of both branches must exist, and all must have appended rows. Afterwards, both
    branches have the same files: Java Paimon's expiration of one branch deletes files of the other.
    """
    main = open_table(ctx, location, table)
    for branch in {name, into} - {MAIN_BRANCH}:
        main.branches.find_existing(branch)
    source, target = (
        main if branch == MAIN_BRANCH else open_table(ctx, location, f"{table}$branch_{branch}")
        for branch in (name, into)
    )
    planned = merge_step.plan(target, merge_step.MergeBranchRequest(source=source))
    values = planned.to_dict()
    text = (
        f"{format_count(values['files'], 'file')} of {format_count(planned.rows, 'row')} to {into}"
    )
    if dry_run:
        print_values(values, as_json, f"would add {text}; nothing was changed")
        return
    snapshot = run_step(merge_step.MERGE_BRANCH, target, planned).snapshot
    values["snapshot_id"] = None if snapshot is None else snapshot.id
    print_values(values, as_json, f"added {text}")


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
    as_json: AsJson = False,
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
        _roll_back_as_latest(target, selector, dry_run=dry_run, as_json=as_json)
        return
    planned = target.plan_rollback(selector)
    previous, snapshot_id = target.stores.snapshots.latest_id(), planned.target.id
    values: dict[str, object] = {"snapshot_id": snapshot_id, "previous_snapshot_id": previous}
    values |= {"deleted_snapshots": planned.snapshots, "deleted_tags": planned.tags}
    loss = describe_loss({"snapshot": len(planned.snapshots), "tag": planned.tags})
    action = f"roll back {table} from snapshot {previous} to {snapshot_id} and delete {loss}"
    if dry_run:
        print_values(values, as_json, f"would {action}; nothing was changed")
        return
    planned.check_tags(delete_tags=delete_tags)
    if planned.snapshots or planned.tags:
        confirm(action, yes=yes)
    target.run_rollback(planned)
    print_values(values, as_json, f"rolled back to snapshot {snapshot_id}")


def _roll_back_as_latest(
    table: Table, selector: SnapshotSelector, *, dry_run: bool, as_json: bool
) -> None:
    request = rollback_step.RollbackAsLatestRequest(selector=selector)
    planned = rollback_step.plan(table, request)
    values = planned.to_dict()
    text = f"the state of snapshot {planned.target.id}"
    changes = f"{format_count(planned.added_files, 'file')} added, {planned.removed_files} removed"
    if dry_run:
        print_values(values, as_json, f"would commit {text} ({changes}); nothing was changed")
        return
    result = run_step(rollback_step.ROLLBACK_AS_LATEST, table, planned)
    values |= {"snapshot_id": result.snapshot.id, "tag": result.tag}
    text = f"committed {text} as snapshot {result.snapshot.id} ({changes})"
    print_values(values, as_json, f"{text}; tag {result.tag} keeps its files")


def repair_earliest(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    snapshot: _EarliestSnapshot,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make the snapshot after a gap the earliest one.

    For a table with missing snapshot files. All snapshots from this one to the newest must exist.
    Older snapshots are then treated as expired.
    """
    target = open_table(ctx, location, table)
    store = target.stores.snapshots
    previous = check_can_repair_earliest(store, snapshot)
    older = sum(previous <= number < snapshot for number in store.ids())
    action = (
        f"set the earliest snapshot of {table} from {previous} to {snapshot} and no longer keep "
        f"{describe_loss({'older snapshot': older})}"
    )
    if dry_run:
        text = f"would {action}; nothing was changed"
    else:
        if older:
            confirm(action, yes=yes)
        target.repair_earliest_snapshot(snapshot)
        text = f"set the earliest snapshot from {previous} to {snapshot}"
    values: dict[str, object] = {"snapshot_id": snapshot, "previous_snapshot_id": previous}
    print_values(values, as_json, text)


def trigger_tag_automatic_creation(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Create the tags that are due.

    The table's option 'tag.automatic-creation' defines the schedule. Prints the names of the tags.
    """
    target = open_table(ctx, location, table)
    created = creation_step.plan(target, EmptyRequest())
    if not dry_run:
        created = run_step(creation_step.CREATE_TAGS, target, created).plan
    print_names(created.names, as_json=as_json)


def list_consumers(
    ctx: typer.Context, location: CatalogLocation, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the ids of all consumers.

    The system table DATABASE.TABLE$consumers also has their next snapshots.
    """
    consumers = open_table(ctx, location, table).stores.open_consumers()
    print_names(consumers.find_matching(), as_json=as_json)


def reset_consumer(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _ConsumerName,
    next_snapshot: _NextSnapshot = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Change the next snapshot of a consumer, or delete the consumer.

    Stop its readers first, because they record their own positions.
    """
    stores = open_table(ctx, location, table).stores
    consumers = stores.open_consumers()
    name = consumers.find(name)
    previous, shown = consumers.read_next_snapshot(name), escape_name(name)
    if next_snapshot is None:
        if previous is None:
            raise NotFoundError(f"{stores.identifier} has no consumer {name!r}")
        action = f"delete consumer {shown} of {table}, which reads snapshot {previous} next"
        if not dry_run:
            confirm(action, yes=yes, undo=_LOST_WITH_CONSUMER)
            consumers.delete([name])
        text = f"would {action}; nothing was changed" if dry_run else f"deleted consumer {shown}"
    else:
        snapshot = stores.snapshots.get(next_snapshot)
        text = f"consumer {shown} to read snapshot {snapshot.id} next"
        if not dry_run:
            consumers.reset(name, snapshot)
        text = f"would set {text}; nothing was changed" if dry_run else f"set {text}"
    values: dict[str, object] = {
        "consumer": name,
        "next_snapshot_id": next_snapshot,
        "previous_next_snapshot_id": previous,
    }
    print_values(values, as_json, text)


def clear_consumers(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    including: _Including = None,
    excluding: _Excluding = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete consumers and print their ids.

    A regular expression must match the whole id. Snapshots that only these consumers have not read
    can then expire.
    """
    consumers = open_table(ctx, location, table).stores.open_consumers()
    names = consumers.find_matching(including, excluding)
    if not dry_run:
        if names:
            loss = describe_loss({"consumer": names})
            confirm(f"delete {loss} of {table}", yes=yes, undo=_LOST_WITH_CONSUMER)
        consumers.delete(names)
    print_names(names, as_json=as_json)
