"""Commands that expire snapshots, changelogs, partitions and tags."""

from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    Identifier,
    OlderThan,
    Yes,
)
from paimon_orch.cli.common import (
    KEPT_ROWS,
    confirm,
    describe_loss,
    describe_refused_paths,
    open_table,
    parse_optional_cutoff,
    parse_optional_duration,
    print_names,
    print_values,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import declare_option, register_command
from paimon_orch.format.display import format_count
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.expiration import expire_changelogs as changelog_step
from paimon_orch.steps.expiration import expire_partitions as partition_step
from paimon_orch.steps.expiration import expire_snapshots as expire_step
from paimon_orch.steps.expiration import expire_tags as tag_step
from paimon_orch.steps.expiration.retention import RetentionRequest

_FROM_OPTIONS = "the table's option"
_Retention, _Partitions = RetentionRequest, partition_step.ExpirePartitionsRequest
_NUMBER = {"metavar": "N", "show_default": _FROM_OPTIONS}
_PATTERN = {"metavar": "PATTERN", "show_default": _FROM_OPTIONS}
_RetainMax = Annotated[int | None, declare_option(_Retention, "retain_max", **_NUMBER)]
_RetainMin = Annotated[int | None, declare_option(_Retention, "retain_min", **_NUMBER)]
_MaxDeletes = Annotated[int | None, declare_option(_Retention, "max_deletes", **_NUMBER)]
_ExpirationTime = Annotated[
    str | None,
    declare_option(_Partitions, "expiration_time", metavar="DURATION", show_default=_FROM_OPTIONS),
]
_ExpireStrategy = Annotated[
    str | None,
    declare_option(
        _Partitions,
        "strategy",
        metavar="values-time|update-time",
        show_default=_FROM_OPTIONS,
    ),
]
_TimestampFormatter = Annotated[
    str | None, declare_option(_Partitions, "timestamp_formatter", **_PATTERN)
]
_TimestampPattern = Annotated[
    str | None, declare_option(_Partitions, "timestamp_pattern", **_PATTERN)
]
_MaxExpires = Annotated[int | None, declare_option(_Partitions, "max_expires", **_NUMBER)]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app,
        expire_snapshots,
        Panel.EXPIRE,
        examples=["expire-snapshots /lake db.orders --older-than '2 d' --dry-run"],
    )
    register_command(
        app,
        expire_partitions,
        Panel.EXPIRE,
        examples=["expire-partitions /lake db.orders --expiration-time '30 d'"],
    )
    register_command(
        app,
        expire_changelogs,
        Panel.EXPIRE,
        examples=["expire-changelogs /lake db.orders --dry-run"],
    )
    register_command(
        app, expire_tags, Panel.EXPIRE, examples=["expire-tags /lake db.orders --dry-run"]
    )


def expire_snapshots(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    retain_max: _RetainMax = None,
    retain_min: _RetainMin = None,
    older_than: OlderThan = None,
    max_deletes: _MaxDeletes = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old snapshots and their files.

    A file is deleted if no remaining snapshot, tag, branch or changelog references it. --dry-run
    also lists the snapshots that a tag, branch or consumer retains. Asks if an option of the
    command replaces the retention of the table's options.
    """
    target = open_table(ctx, location, table)
    limits = _parse_retention(retain_max, retain_min, older_than, max_deletes)
    planned = expire_step.plan(target, expire_step.ExpireSnapshotsRequest(**limits))
    action = f"expire {_describe_expiration(planned)} of {table}"
    if dry_run:
        text = f"would {action}; nothing was changed"
        print_values(planned.to_dict(), as_json, *planned.held_by, text)
        return
    if planned and _replaces_retention(retain_max, retain_min, older_than):
        confirm(action, yes=yes)
    result = expire_step.run_expiration(target, planned)
    text = (
        f"expired {format_count(result.snapshots, 'snapshot')}, deleted "
        f"{format_count(result.data_files, 'data file')} ({format_count(result.bytes, 'byte')}) and "
        f"{format_count(result.metadata_files, 'metadata file')}"
    )
    print_values(result.to_dict(), as_json, text, *describe_refused_paths(result.refused))


def _parse_retention(
    retain_max: int | None, retain_min: int | None, older_than: str | None, max_deletes: int | None
) -> dict[str, int | None]:
    before = parse_optional_cutoff("--older-than", older_than)
    return {
        "retain_max": retain_max,
        "retain_min": retain_min,
        "older_than": before,
        "max_deletes": max_deletes,
    }


def _replaces_retention(
    retain_max: int | None, retain_min: int | None, older_than: str | None
) -> bool:
    """Return whether the command deletes by other limits than the table's options."""
    return (retain_max, retain_min, older_than) != (None, None, None)


def _describe_expiration(planned: expire_step.SnapshotExpirationPlan) -> str:
    files, changelogs = planned.files_to_delete, planned.changelog_plan
    text = (
        f"{format_count(len(planned.snapshots), 'snapshot')} with "
        f"{format_count(len(files), 'file')}, "
        f"{format_count(files.bytes, 'byte')} of data"
    )
    if changelogs:
        text += (
            f", and {format_count(len(changelogs.changelogs), 'changelog')} with "
            f"{format_count(len(changelogs.files_to_delete), 'file')}"
        )
    return text


def expire_changelogs(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    retain_max: _RetainMax = None,
    retain_min: _RetainMin = None,
    older_than: OlderThan = None,
    max_deletes: _MaxDeletes = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old changelogs and their files.

    Applies to tables that keep changelogs longer than snapshots. Asks if an option of the command
    replaces the retention of the table's options.
    """
    target = open_table(ctx, location, table)
    limits = _parse_retention(retain_max, retain_min, older_than, max_deletes)
    expired = changelog_step.plan(target, changelog_step.ExpireChangelogsRequest(**limits))
    if not dry_run:
        if expired and _replaces_retention(retain_max, retain_min, older_than):
            confirm(f"expire {_describe_changelogs(expired)} of {table}", yes=yes)
        expired = run_step(changelog_step.EXPIRE_CHANGELOGS, target, expired).plan
    loss = _describe_changelogs(expired)
    text = f"would expire {loss} of {table}; nothing was changed" if dry_run else f"expired {loss}"
    print_values(expired.to_dict(), as_json, text)


def _describe_changelogs(planned: changelog_step.ChangelogExpirationPlan) -> str:
    files = format_count(len(planned.files_to_delete), "file")
    return f"{format_count(len(planned.changelogs), 'changelog')} with {files}"


def expire_partitions(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    expiration_time: _ExpirationTime = None,
    expire_strategy: _ExpireStrategy = None,
    timestamp_formatter: _TimestampFormatter = None,
    timestamp_pattern: _TimestampPattern = None,
    max_expires: _MaxExpires = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Drop partitions older than a given age.

    Asks first, because readers see the rows. Their files are deleted when the snapshots that
    reference them expire.
    """
    target = open_table(ctx, location, table)
    request = partition_step.ExpirePartitionsRequest(
        expiration_time=parse_optional_duration("--expiration-time", expiration_time),
        strategy=expire_strategy,
        timestamp_formatter=timestamp_formatter,
        timestamp_pattern=timestamp_pattern,
        max_expires=max_expires,
    )
    dropped = partition_step.plan(target, request)
    if not dry_run:
        if dropped:
            confirm(f"drop {_describe_partitions(dropped)} of {table}", yes=yes, undo=KEPT_ROWS)
        dropped = run_step(partition_step.EXPIRE_PARTITIONS, target, dropped).plan
    loss = _describe_partitions(dropped)
    text = f"would drop {loss} of {table}; nothing was changed" if dry_run else f"dropped {loss}"
    print_values(dropped.to_dict(), as_json, text)


def _describe_partitions(planned: partition_step.PartitionExpirationPlan) -> str:
    partitions = describe_loss({"partition": planned.names})
    return f"{partitions} with {format_count(planned.rows, 'row')}"


def expire_tags(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    older_than: OlderThan = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete expired tags and their files.

    Prints the names of the tags. With --older-than, asks before it deletes them.
    """
    local = None if older_than is None else tag_step.parse_local_cutoff("--older-than", older_than)
    target = open_table(ctx, location, table)
    expired = tag_step.plan(target, tag_step.ExpireTagsRequest(older_than=local))
    if not dry_run:
        if expired and older_than is not None:
            confirm(f"delete {describe_loss({'tag': expired.names})} of {table}", yes=yes)
        expired = run_step(tag_step.EXPIRE_TAGS, target, expired).plan
    print_names(expired.names, as_json=as_json)
