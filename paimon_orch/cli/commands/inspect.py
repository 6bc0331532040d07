"""The command ``inspect``: snapshot, files, levels, deletion vectors and health of a table."""

from functools import partial
from typing import TYPE_CHECKING

import pendulum
import typer

from paimon_orch.cli.arguments import CatalogLocation, Identifier, JsonOutput, SnapshotId
from paimon_orch.cli.common import open_table
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.registration import cli_command
from paimon_orch.cli.screen import LINES, print_error, print_lines
from paimon_orch.cli.table_layout import print_rows
from paimon_orch.format.display import format_count, format_size
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.inspection.health_metrics import METRIC_LIMITS, find_problems
from paimon_orch.steps.inspection.inspect import BucketSummary, TableReport, inspect_newest
from paimon_orch.steps.inspection.inspect import inspect as inspect_table
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.table import Table

if TYPE_CHECKING:  # plans of compactions are needed only if something is wrong
    from paimon_orch.steps.inspection.verdict.verdict import Verdict

app = new_app()

_MAX_SHOWN_BUCKETS = 1_000


@cli_command(app, "inspect /lake db.orders", "inspect /lake db.orders --snapshot 12 --json")
def inspect(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    snapshot: SnapshotId = None,
    output: JsonOutput = LINES,
) -> None:
    """Show the files, levels and health of a table.

    Reads only metadata, and no data files. The exit status is 1 if the metadata is inconsistent,
    for example if files of one level overlap. If a limit of doctor is exceeded, the command that helps
    is shown, as why shows it.
    """
    opened = open_table(ctx, location, table)
    if snapshot is None:
        report, verdict = _judge(opened)
    else:
        report, verdict = inspect_table(opened, snapshot), None
    values = report.to_dict() | {"verdict": None if verdict is None else verdict.to_dict()}
    output.print_report(values, partial(_print_report, report, verdict))
    if report.problem is not None:
        print_error(f"{report.identifier}: {report.problem}")
        raise typer.Exit(1)


@repeat_if_expired
def _judge(table: Table) -> tuple[TableReport, "Verdict | None"]:
    """Return the report on the newest snapshot, and the verdict if something is wrong."""
    state = table.load(with_lists=True)
    report = inspect_newest(state)
    health = report.health
    if health is None or not (find_problems(health, METRIC_LIMITS) or report.rows_not_visible):
        return report, None
    from paimon_orch.steps.inspection.verdict.remedies import Inspection
    from paimon_orch.steps.inspection.verdict.verdict import Judge

    inspection = Inspection(table=table, state=state, report=report, health=health)
    return report, Judge(inspection).judge()


def _print_report(report: TableReport, verdict: "Verdict | None") -> None:
    print_lines(f"{report.identifier}  {report.location}")
    if report.snapshot is None:
        print_lines("the table is empty: it has no snapshot")
        return
    print_lines(_format_snapshot(report.snapshot))
    print_lines(_format_totals(report))
    if report.health is not None:
        print_lines(str(report.health))
    if verdict is not None:
        print_lines(verdict.describe_problems())
    elif report.rows_not_visible:
        print_lines(
            f"{report.rows_not_visible:,} records are not visible to batch readers before a "
            "compaction"
        )
    print_rows(
        ("partition", "bucket", "files by level", "rows", "deleted", "size"),
        list(map(_format_bucket, report.summarize_buckets(_MAX_SHOWN_BUCKETS))),
    )
    if report.bucket_count > _MAX_SHOWN_BUCKETS:
        more = report.bucket_count - _MAX_SHOWN_BUCKETS
        print_lines(f"and {format_count(more, 'more bucket')}; --json shows all")


def _format_snapshot(snapshot: Snapshot) -> str:
    time = pendulum.from_timestamp(snapshot.time_millis / 1000, tz="local")
    return f"snapshot {snapshot.id} ({snapshot.commit_kind}) of {time:YYYY-MM-DD HH:mm:ss Z}"


def _format_totals(report: TableReport) -> str:
    rows = "known only after a merge" if report.row_count is None else f"{report.row_count:,}"
    return (
        f"rows {rows}; physical {report.physical_rows:,}, deleted by deletion vectors "
        f"{report.deleted_rows:,}; files {report.file_count} ({format_size(report.bytes)}), "
        f"level 0 {report.level0_files}, small {report.small_files}"
    )


def _format_bucket(bucket: BucketSummary) -> tuple[str, ...]:
    return (
        bucket.partition,
        str(bucket.bucket),
        " ".join(f"L{level}:{count}" for level, count in bucket.files_by_level.items()),
        f"{bucket.rows:,}",
        f"{bucket.deleted_rows:,}",
        format_size(bucket.bytes),
    )
