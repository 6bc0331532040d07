"""Commands that find problems of tables, verify a table and repair its metadata."""

import sys
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    Master,
    Yes,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    confirm,
    open_catalog,
    open_progress_bars,
    open_table,
    print_values,
    split_partitions,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import print_json, print_lines
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.display import format_count
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.cleanup import remove_unexisting_files as missing_step
from paimon_orch.steps.cleanup import remove_unexisting_manifests as manifest_step
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.inspection import check_table
from paimon_orch.steps.inspection.doctor import examine_catalog
from paimon_orch.steps.inspection.doctor_findings import DoctorReport, DoctorRule, Severity
from paimon_orch.steps.inspection.doctor_page import build_page
from paimon_orch.steps.maintenance import mark_done as mark_step
from paimon_orch.steps.maintenance import sync_iceberg as iceberg_step
from paimon_orch.steps.maintenance import sync_partitions as partition_step
from paimon_orch.steps.repairs import repair as repair_step
from paimon_orch.steps.repairs.tag_before import describe_tag
from paimon_orch.table.iceberg.status import IcebergStatus

_Drop = Annotated[
    bool, typer.Option("--drop", help="Also drop partitions of the catalog that have no rows.")
]
_PartitionsToMark = Annotated[
    str,
    typer.Option(
        "--partitions",
        metavar="DT=2026-01-01",
        help="Partitions to mark, separated by semicolons: 'dt=a;dt=b'. Each names all partition "
        "columns.",
    ),
]
_RESTORE_FILES = "If a backup has the files, restore them instead."
_Deep = Annotated[bool, typer.Option("--deep", help="Also read all data files.")]

_Pattern = Annotated[
    str,
    typer.Argument(
        metavar="[PATTERN]", help="Shell pattern of DATABASE.TABLE, such as 'sales.*'; all tables."
    ),
]
_Html = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write the report as an HTML page.")
]
_Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="RULE",
        help="Finding of doctor to repair, such as snapshot-gap; repeatable.",
        show_default="all that can be repaired",
    ),
]
_CheckFiles = Annotated[
    bool, typer.Option("--check", help="Also verify that all files exist, as check does.")
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app,
        doctor,
        Panel.CHECK,
        examples=[
            "doctor /lake",
            "doctor /lake 'sales.*' --json",
            "doctor /lake --html report.html",
        ],
        has_allowances=False,
    )
    register_command(
        app,
        repair,
        Panel.CHECK,
        examples=[
            "repair /lake db.orders --dry-run",
            "repair /lake db.orders --rule snapshot-gap --yes",
        ],
    )
    register_command(
        app,
        check,
        Panel.CHECK,
        examples=["check /lake db.orders", "check /lake db.orders --deep --json"],
        has_allowances=False,
    )
    register_command(
        app,
        remove_unexisting_files,
        Panel.CHECK,
        examples=["remove-unexisting-files /lake db.orders --dry-run"],
    )
    register_command(
        app,
        remove_unexisting_manifests,
        Panel.CHECK,
        examples=["remove-unexisting-manifests /lake db.orders --dry-run"],
    )
    register_command(
        app, sync_iceberg, Panel.CHECK, examples=["sync-iceberg /lake db.orders --dry-run"]
    )
    register_command(
        app, sync_partitions, Panel.CHECK, examples=["sync-partitions prod db.orders --dry-run"]
    )
    register_command(
        app,
        mark_done,
        Panel.CHECK,
        examples=["mark-done /lake db.orders --partitions dt=2026-01-31"],
    )


def doctor(
    ctx: typer.Context,
    location: CatalogLocation,
    pattern: _Pattern = "*",
    check_files: _CheckFiles = False,
    html: _Html = None,
    as_json: AsJson = False,
) -> None:
    """Find tables that are damaged, slow or not maintained.

    Reads only metadata, and changes nothing. Shows for each finding its cost and the command that
    fixes it. The exit status is 1 if there is a finding with severity error.
    """
    catalog = open_catalog(ctx, location)
    names = [name for name in catalog.find_tables() if fnmatchcase(name, pattern)]
    if not names:
        catalog.require_exists()
        if pattern != "*":
            raise NotFoundError(f"no table of {location} matches {pattern!r}")
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, "examine tables")
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            progress(done, len(names))

        report = examine_catalog(catalog, names, check_files=check_files, advance=advance)
    if html is not None:
        html.write_text(build_page(report, location), encoding="utf-8")
    if as_json:
        print_json(_to_document(report, location))
    else:
        _print_report(report, location)
    if report.count(Severity.ERROR):
        sys.exit(1)


def repair(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    rules: _Rules = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Repair what doctor finds in a table.

    Each repair commits a snapshot or writes a hint. Nothing is deleted: the tag
    before-repair-<UTC time> keeps the state before, and replaced hints and rows are put into the
    quarantine. Rows that are lost already remain lost. The exit status is 1 if a finding with
    severity error cannot be repaired.
    """
    target = open_table(ctx, location, table)
    planned = repair_step.plan(target, repair_step.RepairRequest(rules=_parse_rules(rules)))
    lines = _format_repairs(planned)
    if dry_run or not planned:
        end = "nothing was changed" if planned else "nothing to repair"
        values = planned.to_dict() | {"results": [], "tag": None}
        print_values(values, as_json, *lines, end)
    else:
        repairs = "; ".join(lines[: len(planned.actions)])
        confirm(f"repair {table}: {repairs}", yes=yes, undo="")
        result = run_step(repair_step.REPAIR, target, planned)
        done = [
            f"{action.rule}: {action.text}: {text}"
            for action, text in zip(planned.actions, result.results, strict=True)
        ]
        tagged = [] if result.tag is None else [describe_tag(target, result.tag)]
        print_values(result.to_dict(), as_json, *done, *lines[len(done) :], *tagged)
    if planned.refused:
        sys.exit(1)


def _parse_rules(names: list[str] | None) -> frozenset[DoctorRule] | None:
    if not names:
        return None
    unknown = sorted(set(names) - set(DoctorRule))
    if unknown:
        raise InputError(
            f"--rule {', '.join(unknown)}: unknown; the rules are {', '.join(DoctorRule)}"
        )
    return frozenset(map(DoctorRule, names))


def _format_repairs(planned: repair_step.RepairPlan) -> list[str]:
    lines = [f"{action.rule}: {action.text}" for action in planned.actions]
    lines += [f"not repaired: {each.rule}: {each.reason}" for each in planned.refused]
    if planned.deferred:
        lines.append(f"after these repairs, run repair again for: {', '.join(planned.deferred)}")
    return lines


def check(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    deep: _Deep = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Verify a table.

    Prints one line for each finding. The exit status is 1 if there is a finding. The executor reads
    the metadata; --deep reads the data files in this process.
    """
    runner = build_executor(executor, master)
    report = check_table.check(open_table(ctx, location, table), deep=deep, executor=runner)
    lines = [str(finding) for finding in report.findings]
    text = (
        f"{format_count(len(lines), 'finding')} in {format_count(report.versions, 'version')} and "
        f"{format_count(report.data_files, 'data file')}"
    )
    print_values(report.to_dict(), as_json, *lines, *report.stale_indexes, text)
    if not report:
        sys.exit(1)


def remove_unexisting_files(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove missing data files from the metadata.

    Afterwards, the remaining rows of the newest snapshot can be read again. The rows of the missing
    files are lost. In a table with a primary key, older values of the same keys become visible, and
    are written to a Parquet file of the quarantine. The tag before-repair-<UTC time> keeps the
    state before.
    """
    target = open_table(ctx, location, table)
    missing = missing_step.plan(target, EmptyRequest())
    files = format_count(len(missing.paths), "missing file")
    action = f"remove {files} of {table} from the metadata; {missing.describe_loss()}"
    if dry_run or not missing:
        text = f"would {action}; nothing was changed" if missing else "no file is missing"
        print_values(missing.to_dict(), as_json, *missing.paths, text)
        return
    confirm(action, yes=yes, undo=_RESTORE_FILES)
    result = run_step(missing_step.REMOVE_UNEXISTING_FILES, target, missing)
    text = f"removed {files} from the metadata{result.describe_visible_rows()}"
    end = [] if result.tag is None else [describe_tag(target, result.tag)]
    print_values(result.to_dict(), as_json, *missing.paths, text, *end)


def remove_unexisting_manifests(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove missing manifests from the metadata.

    Afterwards, the files of the other manifests can be read again. Files that the missing manifests
    added are lost, and files that they deleted are read again if they exist: run check --deep. The
    tag before-repair-<UTC time> keeps the state before.
    """
    target = open_table(ctx, location, table)
    missing = manifest_step.plan(target, EmptyRequest())
    manifests = format_count(len(missing.paths), "missing manifest")
    action = f"remove {manifests} of {table} from the metadata; {missing.describe_loss()}"
    if dry_run or not missing:
        text = f"would {action}; nothing was changed" if missing else "no manifest is missing"
        print_values(missing.to_dict(), as_json, *missing.paths, text)
        return
    confirm(action, yes=yes, undo=_RESTORE_FILES)
    result = run_step(manifest_step.REMOVE_UNEXISTING_MANIFESTS, target, missing)
    lines = [*missing.paths, f"removed {manifests} from the metadata"]
    if missing.comparable_id is not None:
        lines.append(
            f"snapshot {missing.comparable_id} is the newest older one with all manifests: compare "
            "the rows with its rows"
        )
    lines += [] if result.tag is None else [describe_tag(target, result.tag)]
    print_values(result.to_dict(), as_json, *lines)


def sync_iceberg(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish the newest snapshot as Iceberg metadata.

    Commits do this themselves, if the table's option metadata.iceberg.storage is set. Run the
    command after a failure, and after commits of writers that publish no Iceberg metadata.
    """
    target = open_table(ctx, location, table)
    planned = iceberg_step.plan(target, EmptyRequest())
    if dry_run or not planned:
        values = planned.to_dict() | {"published_snapshots": 0}
        print_values(values, as_json, _format_iceberg_status(planned.status))
        return
    result = run_step(iceberg_step.SYNC_ICEBERG, target, planned)
    text = (
        f"published {result.published_snapshots} snapshots; {_format_iceberg_status(result.status)}"
    )
    print_values(result.to_dict(), as_json, text)


def _format_iceberg_status(status: IcebergStatus) -> str:
    if status.latest_id is None:
        return "the table has no snapshot; nothing to publish"
    if status.problem is None:
        return f"Iceberg readers see snapshot {status.published_id}, the newest one"
    missing = "" if status.missing_snapshots is None else f" ({status.missing_snapshots} missing)"
    return f"not up to date: {status.problem}{missing}"


def sync_partitions(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    drop: _Drop = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add the table's partitions to its catalog.

    Commits do this themselves, if the table's option metastore.partitioned-table is set and the
    table is opened through its Hive catalog. Run the command after a failure, and after changes of
    writers that opened the table by its directory. With the option metastore.tag-to-partition, the
    command adds the tags.
    """
    target = open_table(ctx, location, table)
    planned = partition_step.plan(target, partition_step.SyncPartitionsRequest(drop=drop))
    if dry_run:
        text = f"would add {len(planned.missing)} partitions"
        surplus = f"{len(planned.surplus)} partitions without rows"
        text += f" and drop {surplus}" if drop else f"; the catalog has {surplus}"
        print_values(planned.to_dict(), as_json, text)
        return
    result = run_step(partition_step.SYNC_PARTITIONS, target, planned)
    text = f"added {len(result.added)} partitions, dropped {len(result.dropped)}"
    print_values(result.to_dict(), as_json, text)


def mark_done(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    partitions: _PartitionsToMark,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Mark partitions as done.

    Executes the actions of the table's option partition.mark-done-action; by default, it writes the
    file _SUCCESS into the directory of each partition. The partitions need not have rows.
    """
    target = open_table(ctx, location, table)
    specs = split_partitions(target, partitions) or []
    planned = mark_step.plan(target, mark_step.MarkDoneRequest(partitions=specs))
    if not dry_run:
        planned = run_step(mark_step.MARK_DONE, target, planned).plan
    verb = "would mark" if dry_run else "marked"
    text = f"{verb} {len(planned.partitions)} partitions: {', '.join(planned.actions)}"
    print_values(planned.to_dict(), as_json, text)


def _to_document(report: DoctorReport, location: str) -> dict[str, object]:
    return {
        "tables": len(report.tables),
        **{severity.value: report.count(severity) for severity in Severity},
        "findings": [
            {
                "table": finding.table,
                "rule": finding.rule.value,
                "severity": finding.severity.value,
                "text": finding.text,
                "cost": dict(finding.cost),
                "command": finding.format_command(location),
            }
            for finding in report.findings
        ],
    }


def _print_report(report: DoctorReport, location: str) -> None:
    for table, findings in groupby(report.findings, key=lambda finding: finding.table):
        print_lines(escape_name(table))
        for finding in findings:
            print_lines(f"  {finding.severity} {finding.rule}: {finding.text}")
            command = finding.format_command(location)
            if command is not None:
                print_lines(f"    {command}")
    counts = ", ".join(
        f"{severity.name.lower()}: {report.count(severity)}" for severity in Severity
    )
    tables = format_count(len(report.tables), "table")
    print_lines(f"{tables}, {report.sound_tables} without findings; {counts}")
