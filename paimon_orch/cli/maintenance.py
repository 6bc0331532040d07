"""Commands that expire, clean up, repair and check."""

import sys
from datetime import datetime
from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    DryRun,
    Identifier,
    Master,
    OlderThan,
    Partitions,
    Warehouse,
)
from paimon_orch.cli.common import (
    open_table,
    parse_optional_cutoff,
    parse_optional_duration,
    parse_partitions,
    print_names,
    print_values,
    start_spark,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.steps.cleanup import remove_orphan_files as orphan_step
from paimon_orch.steps.cleanup import remove_unexisting_files as missing_step
from paimon_orch.steps.common.executor import Executor, ThresholdExecutor
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.expiration import expire_changelogs as changelog_step
from paimon_orch.steps.expiration import expire_partitions as partition_step
from paimon_orch.steps.expiration import expire_snapshots as expire_step
from paimon_orch.steps.expiration import expire_tags as tag_step
from paimon_orch.steps.inspection import check_table
from paimon_orch.steps.maintenance import compact_manifests as manifest_step
from paimon_orch.steps.maintenance import rescale as rescale_step

_FROM_OPTIONS = "the table's option"
_RetainMax = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Maximum number to keep.", show_default=_FROM_OPTIONS),
]
_RetainMin = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Minimum number to keep.", show_default=_FROM_OPTIONS),
]
_MaxDeletes = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="Maximum number to delete.", show_default=_FROM_OPTIONS),
]
_Quarantine = Annotated[
    bool,
    typer.Option("--quarantine", help="Move the files to a quarantine instead of deleting them."),
]
_Deep = Annotated[bool, typer.Option("--deep", help="Also read all data files.")]
_ExpirationTime = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="Age of partitions, e.g. '30 d'.", show_default=_FROM_OPTIONS
    ),
]
_ExpireStrategy = Annotated[
    str | None,
    typer.Option(
        metavar="values-time|update-time",
        help="How to compute the age: by the partition's values, or by its last write.",
        show_default=_FROM_OPTIONS,
    ),
]
_TimestampFormatter = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="Format of partition values, e.g. yyyyMMdd.",
        show_default=_FROM_OPTIONS,
    ),
]
_TimestampPattern = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="How to build a time from partition columns, e.g. '$dt $hour:00:00'.",
        show_default=_FROM_OPTIONS,
    ),
]
_MaxExpires = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, help="Maximum number of partitions to drop.", show_default=_FROM_OPTIONS
    ),
]
_BucketNumber = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Buckets of each partition.", show_default=_FROM_OPTIONS),
]

_LARGE_UNIT_BYTES = 256 << 20  # rewrite larger units on Spark, which takes seconds to start


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(app, rescale, Panel.COMPACT)
    register_command(app, compact_manifests, Panel.COMPACT)
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
    register_command(app, expire_changelogs, Panel.EXPIRE)
    register_command(app, expire_tags, Panel.EXPIRE)
    register_command(
        app,
        remove_orphan_files,
        Panel.EXPIRE,
        examples=[
            "remove-orphan-files /lake db.orders --older-than '3 d' --dry-run",
            "remove-orphan-files /lake db.orders --quarantine",
        ],
    )
    register_command(app, check, Panel.CHECK, has_allowances=False)
    register_command(app, remove_unexisting_files, Panel.CHECK)


def expire_snapshots(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    retain_max: _RetainMax = None,
    retain_min: _RetainMin = None,
    older_than: OlderThan = None,
    max_deletes: _MaxDeletes = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old snapshots and their files.

    A file is deleted if no remaining snapshot, tag, branch or changelog references it. --dry-run
    also lists the snapshots that a tag, branch or consumer retains.
    """
    target = open_table(ctx, warehouse, table)
    limits = _parse_retention(retain_max, retain_min, older_than, max_deletes)
    planned = expire_step.plan(target, expire_step.ExpireSnapshotsRequest(**limits))
    if dry_run:
        print_values(planned.to_dict(), as_json, _format_expiration_plan(planned))
        return
    result = expire_step.run_expiration(target, planned)
    text = (
        f"expired {result.snapshots} snapshots, deleted {result.data_files} data files "
        f"({result.bytes:,} bytes) and {result.metadata_files} metadata files"
    )
    print_values(result.to_dict(), as_json, _append_refused_paths(text, result.refused))


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


def _format_expiration_plan(planned: expire_step.SnapshotExpirationPlan) -> str:
    files, changelogs = planned.files_to_delete, planned.changelog_plan
    text = (
        f"would expire {len(planned.snapshots)} snapshots with {len(files)} files, "
        f"{files.bytes:,} bytes of data"
    )
    if changelogs:
        text += (
            f", and {len(changelogs.changelogs)} changelogs with "
            f"{len(changelogs.files_to_delete)} files"
        )
    return "\n".join([*planned.held_by, f"{text}; nothing was changed"])


def _append_refused_paths(text: str, refused: tuple[str, ...]) -> str:
    lines = [f"not deleted, because it is outside of the table: {path}" for path in refused]
    return "\n".join([text, *lines])


def remove_orphan_files(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: OlderThan = None,
    partitions: Partitions = None,
    quarantine: _Quarantine = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Delete unreferenced files.

    These are files in the table's directories that no snapshot, tag, branch or changelog
    references. By default, files of the last day are kept, because running jobs may still commit
    them.
    """
    target, executor = open_table(ctx, warehouse, table), _build_executor(master)
    planned = orphan_step.plan(
        target,
        orphan_step.RemoveOrphanFilesRequest(
            older_than=parse_optional_cutoff("--older-than", older_than),
            partitions=parse_partitions(target, partitions, with_directories=True),
            quarantine=quarantine,
        ),
        executor=executor,
    )
    skipped = [f"skipped: {text}" for text in planned.skipped_external_paths]
    if dry_run:
        text = (
            f"would remove {len(planned.files)} files of {planned.bytes:,} bytes; "
            "nothing was changed"
        )
        paths = [file.path for file in planned.files]
        print_values(planned.to_dict(), as_json, "\n".join([*paths, *skipped, text]))
        return
    result = run_step(orphan_step.REMOVE_ORPHAN_FILES, target, planned, executor)
    verb = "deleted" if result.quarantine is None else f"moved to quarantine {result.quarantine}:"
    text = f"{verb} {result.files} files of {result.bytes:,} bytes"
    values = result.to_dict() | {"skipped_external_paths": list(planned.skipped_external_paths)}
    text = _append_refused_paths("\n".join([*skipped, text]), result.refused)
    print_values(values, as_json, text)


def _build_executor(master: str, *, large: bool = False) -> Executor:
    """Return an executor that starts Spark for many units, or for ``large`` units."""

    def spark() -> Executor:
        from paimon_orch.spark.execution.spark_executor import SparkExecutor

        return SparkExecutor(start_spark(master))

    return ThresholdExecutor(spark, 1) if large else ThresholdExecutor(spark)


def check(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    deep: _Deep = False,
    as_json: AsJson = False,
) -> None:
    """Verify a table.

    Prints one line for each finding. The exit status is 1 if there is a finding.
    """
    report = check_table.check(open_table(ctx, warehouse, table), deep=deep)
    lines = [str(finding) for finding in report.findings]
    text = f"{len(lines)} findings in {report.versions} versions and {report.data_files} data files"
    print_values(report.to_dict(), as_json, "\n".join([*lines, text]))
    if not report:
        sys.exit(1)


def expire_changelogs(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    retain_max: _RetainMax = None,
    retain_min: _RetainMin = None,
    older_than: OlderThan = None,
    max_deletes: _MaxDeletes = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old changelogs and their files.

    Applies to tables that keep changelogs longer than snapshots.
    """
    target = open_table(ctx, warehouse, table)
    limits = _parse_retention(retain_max, retain_min, older_than, max_deletes)
    expired = changelog_step.plan(target, changelog_step.ExpireChangelogsRequest(**limits))
    if not dry_run:
        expired = run_step(changelog_step.EXPIRE_CHANGELOGS, target, expired).plan
    verb = "would expire" if dry_run else "expired"
    text = f"{verb} {len(expired.changelogs)} changelogs with {len(expired.files_to_delete)} files"
    print_values(expired.to_dict(), as_json, text)


def expire_partitions(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    expiration_time: _ExpirationTime = None,
    expire_strategy: _ExpireStrategy = None,
    timestamp_formatter: _TimestampFormatter = None,
    timestamp_pattern: _TimestampPattern = None,
    max_expires: _MaxExpires = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Drop partitions older than a given age.

    Their files are deleted when the snapshots that reference them expire.
    """
    target = open_table(ctx, warehouse, table)
    request = partition_step.ExpirePartitionsRequest(
        expiration_time=parse_optional_duration("--expiration-time", expiration_time),
        strategy=expire_strategy,
        timestamp_formatter=timestamp_formatter,
        timestamp_pattern=timestamp_pattern,
        max_expires=max_expires,
    )
    dropped = partition_step.plan(target, request)
    if not dry_run:
        dropped = run_step(partition_step.EXPIRE_PARTITIONS, target, dropped).plan
    verb = "would drop" if dry_run else "dropped"
    text = f"{verb} {len(dropped.names)} partitions of {dropped.rows:,} rows"
    print_values(dropped.to_dict(), as_json, "\n".join([*dropped.names, text]))


def compact_manifests(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge small manifests of the newest snapshot."""
    target = open_table(ctx, warehouse, table)
    planned = manifest_step.plan(target, EmptyRequest())
    snapshot = (
        None if dry_run else run_step(manifest_step.COMPACT_MANIFESTS, target, planned).snapshot
    )
    values = planned.to_dict() | {"snapshot_id": None if snapshot is None else snapshot.id}
    outcome = "nothing was changed" if snapshot is None else f"merged in snapshot {snapshot.id}"
    text = (
        f"{planned.manifests} manifests, {planned.small} of them small, with "
        f"{planned.deleted_entries} deleted entries; {outcome}"
    )
    print_values(values, as_json, text)


def remove_unexisting_files(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove missing data files from the metadata.

    Afterwards, the remaining rows of the newest snapshot can be read again. The rows of the missing
    files are lost.
    """
    target = open_table(ctx, warehouse, table)
    missing = missing_step.plan(target, EmptyRequest())
    if not dry_run:
        missing = run_step(missing_step.REMOVE_UNEXISTING_FILES, target, missing).plan
    verb = "would remove" if dry_run else "removed"
    text = f"{verb} {len(missing.paths)} files of {missing.rows:,} rows from the metadata"
    print_values(missing.to_dict(), as_json, "\n".join([*missing.paths, text]))


def rescale(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    bucket_num: _BucketNumber = None,
    partitions: Partitions = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Change the number of buckets.

    Rewrites the partitions. Also change the table's option 'bucket', which writers use.
    """
    target = open_table(ctx, warehouse, table)
    specs = parse_partitions(target, partitions)
    planned = rescale_step.plan(
        target, rescale_step.RescaleRequest(bucket_num=bucket_num, partitions=specs)
    )
    snapshot = None
    if planned and not dry_run:
        executor = _build_executor(master, large=planned.bytes >= _LARGE_UNIT_BYTES)
        snapshot = run_step(rescale_step.RESCALE, target, planned, executor).snapshot
    committed = None if snapshot is None else snapshot.id
    outcome = "nothing was changed" if snapshot is None else f"snapshot {snapshot.id}"
    text = f"{len(planned.partitions)} partitions to {planned.buckets} buckets; {outcome}"
    print_values(planned.to_dict() | {"committed": committed}, as_json, text)


def expire_tags(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete expired tags and their files.

    Prints the names of the tags.
    """
    before = parse_optional_cutoff("--older-than", older_than)
    # tags store local times
    local = None if before is None else datetime.fromtimestamp(before / 1000)  # noqa: DTZ006
    target = open_table(ctx, warehouse, table)
    expired = tag_step.plan(target, tag_step.ExpireTagsRequest(older_than=local))
    if not dry_run:
        expired = run_step(tag_step.EXPIRE_TAGS, target, expired).plan
    print_names(expired.names, as_json=as_json)
