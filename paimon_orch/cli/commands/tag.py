"""Commands for tags."""

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
    parse_optional_duration,
    parse_optional_timestamp,
)
from paimon_orch.cli.help_page import Panel, new_group
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.cli.step_command import add_group_commands
from paimon_orch.errors import InputError
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.maintenance import create_automatic_tags as creation_step
from paimon_orch.table.metadata.time_travel import (
    find_first_since_time,
    find_first_since_watermark,
)

_LOST_WITH_TAG = "If the old snapshot has expired, its files can then be deleted."
_TagName = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.")]
_NewTagName = Annotated[str, typer.Argument(metavar="NEW_TAG", help="New name of the tag.")]
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
_Replace = Annotated[
    bool, typer.Option(help="Move the tag if it already exists.", show_default=False)
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
        tags,
        rename_tag,
        name="rename",
        examples=["tag rename /lake db.orders release-7 release-7.0"],
    )
    add_group_commands(tags, "tag")
    app.add_typer(tags, name="tag", rich_help_panel=Panel.REFERENCES)
    register_command(
        app,
        trigger_tag_automatic_creation,
        Panel.REFERENCES,
        examples=["trigger-tag-automatic-creation /lake db.orders --dry-run"],
    )


def list_tags(
    ctx: typer.Context, location: CatalogLocation, table: Identifier, output: JsonOutput = LINES
) -> None:
    """Print the names of all tags."""
    output.print_names(open_table(ctx, location, table).tags.names())


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
    output: JsonOutput = LINES,
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
    output.print_values(values, f"tag {name} keeps snapshot {tagged.id}")


def rename_tag(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    name: _TagName,
    to: _NewTagName,
    output: JsonOutput = LINES,
) -> None:
    """Rename a tag."""
    tags = open_table(ctx, location, table).tags
    name = tags.find(name)
    tags.rename(name, to)
    text = f"renamed tag {escape_name(name)} to {to}"
    output.print_values({"tag": to, "previous_name": name}, text)


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
