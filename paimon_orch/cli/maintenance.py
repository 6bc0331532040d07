"""Commands that expire, clean and check."""

import sys
import time
from datetime import datetime, timedelta
from typing import Annotated

import typer

from paimon_orch.cli.common import (
    AsJson,
    DryRun,
    Identifier,
    Master,
    PartitionsOption,
    Warehouse,
    open_table,
    parse_optional_cutoff,
    parse_optional_duration,
    parse_partitions,
    print_names,
    print_values,
    start_spark,
)
from paimon_orch.steps.cleanup import remove_orphan_files as orphan_step
from paimon_orch.steps.cleanup import remove_unexisting_files as lost_step
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.executor import Executor, ThresholdExecutor
from paimon_orch.steps.expiration import expire_changelogs as changelog_step
from paimon_orch.steps.expiration import expire_partitions as partition_step
from paimon_orch.steps.expiration import expire_snapshots as expire_step
from paimon_orch.steps.expiration import expire_tags as tag_step
from paimon_orch.steps.expiration.retention import RetentionOverrides
from paimon_orch.steps.inspection import check as check_step
from paimon_orch.steps.maintenance import compact_manifests as manifest_step
from paimon_orch.steps.maintenance import rescale as rescale_step
from paimon_orch.steps.maintenance.create_tags import create_tags, find_due_tags

OlderThan = Annotated[
    str | None, typer.Option(help="a duration such as '3 d', or ISO 8601, or epoch milliseconds")
]
RetainMax = Annotated[int | None, typer.Option(min=1, help="keep at most this many")]
RetainMin = Annotated[int | None, typer.Option(min=1, help="keep at least this many")]
MaxDeletes = Annotated[int | None, typer.Option(min=0, help="delete at most this many")]

_LARGE_UNIT_BYTES = 256 << 20  # of files to rewrite: Spark takes seconds to start

quarantine_app = typer.Typer(
    help="Files that orphan cleanup moved aside with --quarantine.", no_args_is_help=True
)


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command("expire-snapshots")(expire_snapshots)
    app.command("remove-orphan-files")(remove_orphan_files)
    app.command()(check)
    app.command("expire-changelogs")(expire_changelogs)
    app.command("expire-partitions")(expire_partitions)
    app.command("compact-manifests")(compact_manifests)
    app.command("remove-unexisting-files")(remove_unexisting_files)
    app.command()(rescale)
    app.command("expire-tags")(expire_tags)
    app.command("trigger-tag-automatic-creation")(trigger_tag_automatic_creation)
    app.add_typer(quarantine_app, name="quarantine")


def expire_snapshots(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    retain_max: RetainMax = None,
    retain_min: RetainMin = None,
    older_than: OlderThan = None,
    max_deletes: MaxDeletes = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old snapshots and the files that only they need. What is not given is taken from the table's options."""
    target = open_table(ctx, warehouse, table)
    limits = _parse_retention(retain_max, retain_min, older_than, max_deletes)
    if dry_run:
        planned = expire_step.plan(target, **limits)
        print_values(planned.to_dict(), as_json, _format_expiration_plan(planned))
        return
    result = expire_step.expire_snapshots(target, **limits)
    text = (
        f"expired {result.snapshots} snapshots, deleted {result.data_files} data files ({result.bytes:,} bytes) "
        f"and {result.metadata_files} metadata files"
    )
    print_values(result.to_dict(), as_json, _append_refused_paths(text, result.refused))


def _parse_retention(
    retain_max: int | None, retain_min: int | None, older_than: str | None, max_deletes: int | None
) -> RetentionOverrides:
    before = parse_optional_cutoff("--older-than", older_than)
    return {
        "retain_max": retain_max,
        "retain_min": retain_min,
        "older_than": before,
        "max_deletes": max_deletes,
    }


def _format_expiration_plan(planned: expire_step.SnapshotExpirationPlan) -> str:
    garbage = planned.files_to_delete
    text = (
        f"would expire {len(planned.snapshots)} snapshots with {len(garbage)} files, {garbage.bytes:,} bytes of them "
        "data; nothing was changed"
    )
    return "\n".join([*planned.held_by, text])


def _append_refused_paths(text: str, refused: tuple[str, ...]) -> str:
    lines = [f"left alone, because it lies outside the table: {path}" for path in refused]
    return "\n".join([text, *lines])


def remove_orphan_files(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: OlderThan = None,
    partitions: PartitionsOption = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="move them aside instead of deleting them")
    ] = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Delete files that nothing refers to and that are older than a day (or --older-than)."""
    target, executor = open_table(ctx, warehouse, table), _build_executor(master)
    planned = orphan_step.plan(
        target,
        executor,
        older_than=parse_optional_cutoff("--older-than", older_than),
        partitions=parse_partitions(target, partitions, with_directories=True),
    )
    left = [f"left alone: {text}" for text in planned.skipped_external_paths]
    if dry_run:
        text = f"would remove {len(planned.files)} files of {planned.bytes:,} bytes; nothing was changed"
        paths = [file.path for file in planned.files]
        print_values(planned.to_dict(), as_json, "\n".join([*paths, *left, text]))
        return
    result = orphan_step.run(target, planned, executor, quarantine=quarantine)
    done = "deleted" if result.quarantine is None else f"moved to quarantine {result.quarantine}:"
    text = f"{done} {result.files} files of {result.bytes:,} bytes"
    values = result.to_dict() | {"left_alone": list(planned.skipped_external_paths)}
    print_values(values, as_json, _append_refused_paths("\n".join([*left, text]), result.refused))


def _build_executor(master: str, *, large: bool = False) -> Executor:
    """Return what starts Spark when there are many units, or any of ``large`` ones."""

    def spark() -> Executor:
        from paimon_orch.spark.execution.spark_executor import SparkExecutor

        return SparkExecutor(start_spark(master))

    return ThresholdExecutor(spark, 1) if large else ThresholdExecutor(spark)


def check(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    deep: Annotated[bool, typer.Option("--deep", help="read every data file as well")] = False,
    as_json: AsJson = False,
) -> None:
    """Verify a table, one line a finding; exit status 1 if there is any."""
    report = check_step.check(open_table(ctx, warehouse, table), deep=deep)
    lines = [str(finding) for finding in report.findings]
    text = f"{len(lines)} findings in {report.versions} versions and {report.data_files} data files"
    print_values(report.to_dict(), as_json, "\n".join([*lines, text]))
    if not report:
        sys.exit(1)


def _open_quarantine(ctx: typer.Context, warehouse: str, identifier: str) -> Quarantine:
    return Quarantine.of(open_table(ctx, warehouse, identifier))


@quarantine_app.command("list")
def list_quarantine(
    ctx: typer.Context, warehouse: Warehouse, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the folders that hold quarantined files."""
    print_names(_open_quarantine(ctx, warehouse, table).list_folders(), as_json=as_json)


@quarantine_app.command("restore")
def restore_quarantine(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    folder: Annotated[str | None, typer.Option(help="one folder [default: all]")] = None,
    dry_run: DryRun = False,
) -> None:
    """Move quarantined files back to where they were."""
    found = _open_quarantine(ctx, warehouse, table)
    names = found.select_folders(folder)
    if dry_run:
        print(f"would restore {found.count(names)} files; nothing was changed")
        return
    text = f"restored {found.restore(folder)} files"
    left = found.count(names)
    print(f"{text}; {left} stay aside: their names are taken, or behind a link" if left else text)


@quarantine_app.command("empty")
def empty_quarantine(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: OlderThan = "7 d",
    dry_run: DryRun = False,
) -> None:
    """Delete quarantined files after their time."""
    found, cutoff = (
        _open_quarantine(ctx, warehouse, table),
        parse_optional_cutoff("--older-than", older_than),
    )
    assert cutoff is not None
    kept = timedelta(seconds=max(0.0, time.time() - cutoff / 1000))
    if dry_run:
        print(
            f"would delete {found.count(found.find_expired_folders(kept))} files; nothing was changed"
        )
        return
    print(f"deleted {found.empty(kept)} files")


def expire_changelogs(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    retain_max: RetainMax = None,
    retain_min: RetainMin = None,
    older_than: OlderThan = None,
    max_deletes: MaxDeletes = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old changelogs of a table that keeps them longer than snapshots."""
    step = changelog_step.plan if dry_run else changelog_step.expire_changelogs
    limits = _parse_retention(retain_max, retain_min, older_than, max_deletes)
    done = step(open_table(ctx, warehouse, table), **limits)
    verb = "would expire" if dry_run else "expired"
    text = f"{verb} {len(done.changelogs)} changelogs with {len(done.files_to_delete)} files"
    print_values(done.to_dict(), as_json, text)


def expire_partitions(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    expiration_time: Annotated[
        str | None, typer.Option(help="e.g. '30 d' [default: the table's option]")
    ] = None,
    expire_strategy: Annotated[str | None, typer.Option(help="values-time, update-time")] = None,
    timestamp_formatter: Annotated[str | None, typer.Option(help="e.g. yyyyMMdd")] = None,
    timestamp_pattern: Annotated[str | None, typer.Option(help="e.g. '$dt $hour:00:00'")] = None,
    max_expires: Annotated[int | None, typer.Option(min=0, help="drop at most this many")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Drop partitions that are older than a time; what is not given is taken from the table's options."""
    step = partition_step.plan if dry_run else partition_step.expire_partitions
    done = step(
        open_table(ctx, warehouse, table),
        expiration_time=parse_optional_duration("--expiration-time", expiration_time),
        strategy=expire_strategy,
        timestamp_formatter=timestamp_formatter,
        timestamp_pattern=timestamp_pattern,
        max_expires=max_expires,
    )
    verb = "would drop" if dry_run else "dropped"
    text = f"{verb} {len(done.names)} partitions of {done.rows:,} rows"
    print_values(done.to_dict(), as_json, "\n".join([*done.names, text]))


def compact_manifests(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge the manifests of the newest snapshot into few."""
    target = open_table(ctx, warehouse, table)
    planned = manifest_step.plan(target)
    snapshot = None if dry_run else manifest_step.compact_manifests(target)
    values = planned.to_dict() | {"snapshot_id": None if snapshot is None else snapshot.id}
    text = (
        f"{planned.manifests} manifests, {planned.small} of them small, with {planned.deleted_entries} deleted "
        f"entries; {'nothing was changed' if snapshot is None else f'merged in snapshot {snapshot.id}'}"
    )
    print_values(values, as_json, text)


def remove_unexisting_files(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take data files that were lost out of a table, so that the rest can be read."""
    step = lost_step.plan if dry_run else lost_step.remove_unexisting_files
    lost = step(open_table(ctx, warehouse, table))
    verb = "would take out" if dry_run else "took out"
    text = f"{verb} {len(lost.paths)} files of {lost.rows:,} rows"
    print_values(lost.to_dict(), as_json, "\n".join([*lost.paths, text]))


def rescale(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    bucket_num: Annotated[
        int | None,
        typer.Option(min=1, help="buckets of each partition [default: the table's option]"),
    ] = None,
    partitions: PartitionsOption = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Change the number of buckets of partitions by rewriting them; change the option 'bucket' too."""
    target = open_table(ctx, warehouse, table)
    specs = parse_partitions(target, partitions)
    planned = rescale_step.plan(target, bucket_num, partitions=specs)
    snapshot = None
    if planned and not dry_run:
        executor = _build_executor(master, large=planned.bytes >= _LARGE_UNIT_BYTES)
        snapshot = rescale_step.rescale(target, bucket_num, executor, partitions=specs)
    committed = None if snapshot is None else snapshot.id
    text = f"{len(planned.partitions)} partitions to {planned.buckets} buckets; " + (
        "nothing was changed" if snapshot is None else f"snapshot {snapshot.id}"
    )
    print_values(planned.to_dict() | {"committed": committed}, as_json, text)


def expire_tags(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete tags whose time is over, and the files that only they keep."""
    before = parse_optional_cutoff("--older-than", older_than)
    local = None if before is None else datetime.fromtimestamp(before / 1000)  # noqa: DTZ006 - as tags have it
    step = tag_step.plan if dry_run else tag_step.expire_tags
    print_names(step(open_table(ctx, warehouse, table), older_than=local), as_json=as_json)


def trigger_tag_automatic_creation(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make the tags that are due by the table's option 'tag.automatic-creation'."""
    target = open_table(ctx, warehouse, table)
    names = list(find_due_tags(target)) if dry_run else create_tags(target)
    print_names(names, as_json=as_json)
