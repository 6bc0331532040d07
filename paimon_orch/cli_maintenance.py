"""Commands that expire, clean and check."""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from paimon_orch.cli_common import (
    AsJson,
    DryRun,
    Identifier,
    Warehouse,
    open_catalog,
    parse_time,
    print_names,
    spark_of,
)
from paimon_orch.format.options import Options
from paimon_orch.steps import check as check_step
from paimon_orch.steps import compact_manifests as manifest_step
from paimon_orch.steps import expire_changelogs as changelog_step
from paimon_orch.steps import expire_partitions as partition_step
from paimon_orch.steps import expire_snapshots as expire_step
from paimon_orch.steps import expire_tags as tag_step
from paimon_orch.steps import remove_orphan_files as orphan_step
from paimon_orch.steps import remove_unexisting_files as lost_step
from paimon_orch.steps import rescale as rescale_step
from paimon_orch.steps.create_tags import create_tags
from paimon_orch.steps.executor import Executor
from paimon_orch.steps.quarantine import Quarantine
from paimon_orch.table.table import Table

OlderThan = Annotated[str | None, typer.Option(help="ISO 8601, or epoch milliseconds")]
Partitions = Annotated[str | None, typer.Option(help="dt=a;dt=b")]
Master = Annotated[
    str | None, typer.Option(help="Spark that lists large tables, e.g. local[*] [default: none]")
]

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


def _table(ctx: typer.Context, warehouse: str, identifier: str) -> Table:
    return open_catalog(ctx, warehouse).table(identifier)


def _print(values: dict[str, object], as_json: bool, text: str) -> None:
    print(json.dumps(values, indent=2) if as_json else text)


def expire_snapshots(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    retain_max: Annotated[int | None, typer.Option(help="keep at most so many")] = None,
    retain_min: Annotated[int | None, typer.Option(help="keep at least so many")] = None,
    older_than: OlderThan = None,
    max_deletes: Annotated[int | None, typer.Option(help="delete at most so many")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old snapshots and the files that only they need. What is not given is taken from the table's options."""
    target = _table(ctx, warehouse, table)
    before = None if older_than is None else parse_time(older_than)
    if dry_run:
        planned = expire_step.plan(
            target,
            retain_max=retain_max,
            retain_min=retain_min,
            older_than=before,
            max_deletes=max_deletes,
        )
        _print(planned.to_dict(), as_json, _would_expire(planned))
        return
    result = expire_step.expire_snapshots(
        target,
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=before,
        max_deletes=max_deletes,
    )
    text = (
        f"expired {result.snapshots} snapshots, deleted {result.data_files} data files ({result.bytes:,} bytes) "
        f"and {result.metadata_files} metadata files"
    )
    _print(result.to_dict(), as_json, _with_refused(text, result.refused))


def _would_expire(planned: expire_step.ExpirationPlan) -> str:
    garbage = planned.garbage
    return (
        f"would expire {len(planned.snapshots)} snapshots with {len(garbage)} files, {garbage.bytes:,} bytes of them "
        "data; nothing was changed"
    )


def _with_refused(text: str, refused: tuple[str, ...]) -> str:
    lines = [f"left alone, because it lies outside the table: {path}" for path in refused]
    return "\n".join([text, *lines])


def remove_orphan_files(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: OlderThan = None,
    partitions: Partitions = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="move them aside instead of deleting them")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Delete files that nothing refers to and that are older than a day (or --older-than)."""
    target = _table(ctx, warehouse, table)
    executor = None if master is None else _spark_executor(master)
    specs = None if partitions is None else [s for s in partitions.split(";") if s.strip()]
    planned = orphan_step.plan(
        target,
        executor,
        older_than=None if older_than is None else parse_time(older_than),
        partitions=specs,
    )
    if dry_run:
        text = f"would remove {len(planned.files)} files of {planned.bytes:,} bytes; nothing was changed"
        paths = [file.path for file in planned.files]
        _print(planned.to_dict(), as_json, "\n".join([*paths, text]))
        return
    result = orphan_step.run(target, planned, executor, quarantine=quarantine)
    done = "deleted" if result.quarantine is None else f"moved to quarantine {result.quarantine}:"
    text = f"{done} {result.files} files of {result.bytes:,} bytes"
    _print(result.to_dict(), as_json, _with_refused(text, result.refused))


def _spark_executor(master: str) -> Executor:
    from paimon_orch.spark.executor import SparkExecutor

    return SparkExecutor(spark_of(master))


def check(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    deep: Annotated[bool, typer.Option("--deep", help="read every data file as well")] = False,
    as_json: AsJson = False,
) -> None:
    """Verify a table, one line a finding; exit status 1 if there is any."""
    report = check_step.check(_table(ctx, warehouse, table), deep=deep)
    lines = [str(finding) for finding in report.findings]
    text = f"{len(lines)} findings in {report.versions} versions and {report.data_files} data files"
    _print(report.to_dict(), as_json, "\n".join([*lines, text]))
    if not report:
        sys.exit(1)


def _quarantine(ctx: typer.Context, warehouse: str, identifier: str) -> Quarantine:
    target = _table(ctx, warehouse, identifier)
    return Quarantine(target.io, target.paths.root)


@quarantine_app.command("list")
def list_quarantine(
    ctx: typer.Context, warehouse: Warehouse, table: Identifier, as_json: AsJson = False
) -> None:
    """Print the folders that hold quarantined files."""
    names = _quarantine(ctx, warehouse, table).folders()
    print(json.dumps(names) if as_json else "\n".join(names) or "none")


@quarantine_app.command("restore")
def restore_quarantine(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    folder: Annotated[str | None, typer.Option(help="one folder [default: all]")] = None,
) -> None:
    """Move quarantined files back to where they were."""
    print(f"restored {_quarantine(ctx, warehouse, table).restore(folder)} files")


@quarantine_app.command("empty")
def empty_quarantine(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: Annotated[str, typer.Option(help="how long they are kept, e.g. '7 d'")] = "7 d",
) -> None:
    """Delete quarantined files after their time."""
    kept = Options({"--older-than": older_than}).duration("--older-than", "")
    print(f"deleted {_quarantine(ctx, warehouse, table).empty(kept)} files")


def expire_changelogs(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    retain_max: Annotated[int | None, typer.Option(help="keep at most so many")] = None,
    retain_min: Annotated[int | None, typer.Option(help="keep at least so many")] = None,
    older_than: OlderThan = None,
    max_deletes: Annotated[int | None, typer.Option(help="delete at most so many")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old changelogs of a table that keeps them longer than snapshots."""
    step = changelog_step.plan if dry_run else changelog_step.expire_changelogs
    done = step(
        _table(ctx, warehouse, table),
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=None if older_than is None else parse_time(older_than),
        max_deletes=max_deletes,
    )
    verb = "would expire" if dry_run else "expired"
    text = f"{verb} {len(done.changelogs)} changelogs with {len(done.garbage)} files"
    _print(done.to_dict(), as_json, text)


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
    max_expires: Annotated[int | None, typer.Option(help="drop at most so many")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Drop partitions that are older than a time; what is not given is taken from the table's options."""
    step = partition_step.plan if dry_run else partition_step.expire_partitions
    done = step(
        _table(ctx, warehouse, table),
        expiration_time=None if expiration_time is None else _duration(expiration_time),
        strategy=expire_strategy,
        timestamp_formatter=timestamp_formatter,
        timestamp_pattern=timestamp_pattern,
        max_expires=max_expires,
    )
    verb = "would drop" if dry_run else "dropped"
    text = f"{verb} {len(done.names)} partitions of {done.rows:,} rows"
    _print(done.to_dict(), as_json, "\n".join([*done.names, text]))


def _duration(text: str) -> timedelta:
    return Options({"--expiration-time": text}).duration("--expiration-time", "")


def compact_manifests(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge the manifests of the newest snapshot into few."""
    target = _table(ctx, warehouse, table)
    planned = manifest_step.plan(target)
    snapshot = None if dry_run else manifest_step.compact_manifests(target)
    values = planned.to_dict() | {"snapshot_id": None if snapshot is None else snapshot.id}
    text = (
        f"{planned.manifests} manifests, {planned.small} of them small, with {planned.deleted_entries} deleted "
        f"entries; {'nothing was changed' if snapshot is None else f'merged in snapshot {snapshot.id}'}"
    )
    _print(values, as_json, text)


def remove_unexisting_files(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take data files that were lost out of a table, so that the rest can be read."""
    step = lost_step.plan if dry_run else lost_step.remove_unexisting_files
    lost = step(_table(ctx, warehouse, table))
    verb = "would take out" if dry_run else "took out"
    text = f"{verb} {len(lost.paths)} files of {lost.rows:,} rows"
    _print(lost.to_dict(), as_json, "\n".join([*lost.paths, text]))


def rescale(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    bucket_num: Annotated[
        int | None, typer.Option(help="buckets a partition [default: the table's option]")
    ] = None,
    partitions: Partitions = None,
    dry_run: DryRun = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Change the number of buckets of partitions by rewriting them; change the option 'bucket' too."""
    target = _table(ctx, warehouse, table)
    specs = None if partitions is None else [s for s in partitions.split(";") if s.strip()]
    planned = rescale_step.plan(target, bucket_num, partitions=specs)
    snapshot = None
    if planned and not dry_run:
        executor = None if master is None else _spark_executor(master)
        snapshot = rescale_step.rescale(target, bucket_num, executor, partitions=specs)
    committed = None if snapshot is None else snapshot.id
    text = f"{len(planned.units)} partitions to {planned.buckets} buckets; " + (
        "nothing was changed" if snapshot is None else f"snapshot {snapshot.id}"
    )
    _print(planned.to_dict() | {"committed": committed}, as_json, text)


def expire_tags(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete tags whose time is over, and the files that only they keep."""
    before = None if older_than is None else parse_time(older_than) / 1000
    moment = None if before is None else datetime.fromtimestamp(before, UTC).astimezone()
    step = tag_step.plan if dry_run else tag_step.expire_tags
    local = None if moment is None else moment.replace(tzinfo=None)
    print_names(step(_table(ctx, warehouse, table), older_than=local), as_json=as_json)


def trigger_tag_automatic_creation(
    ctx: typer.Context, warehouse: Warehouse, table: Identifier, as_json: AsJson = False
) -> None:
    """Make the tags that are due by the table's option 'tag.automatic-creation'."""
    print_names(create_tags(_table(ctx, warehouse, table)), as_json=as_json)
