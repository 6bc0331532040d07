"""Commands that change single rows: ``delete``, ``update`` and ``merge-into``."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

import typer
from rich.progress import Progress

from paimon_orch.cli.common import (
    AsJson,
    CompactAfter,
    DryRun,
    Encoding,
    Identifier,
    Master,
    Warehouse,
    add_progress_bar,
    check_files_exist,
    compact_after_write,
    error_console,
    open_table_for_write,
    parse_pair,
    print_values,
    print_write_result,
    start_spark,
)
from paimon_orch.steps.compaction.compact import CompactionResult
from paimon_orch.steps.row_level import row_level
from paimon_orch.steps.row_level.row_level import RowLevelPlan, RowLevelResult
from paimon_orch.table.table import Table

AssignmentsOption = Annotated[
    list[str],
    typer.Option("--set", help='"column = expression" in Spark\'s SQL; may be repeated'),
]
AssignmentTexts = list[str] | None


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(delete)
    app.command()(update)
    app.command("merge-into")(merge_into)


def delete(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    where: Annotated[str, typer.Option(help="filter, e.g. \"status = 'VOID'\"")],
    compact_after: CompactAfter = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Delete the rows of a filter, in one snapshot."""
    target = open_table_for_write(ctx, warehouse, table, compact=compact_after)
    planned = row_level.plan(target, where)
    if dry_run or not planned:
        _print_row_level_plan(target, planned, dry_run, as_json)
        return
    from paimon_orch.spark.execution.spark_executor import SparkExecutor

    with Progress(console=error_console, transient=True) as bars:
        progress = add_progress_bar(bars, f"delete rows of {table}")
        session = start_spark(master)
        result = row_level.delete(target, SparkExecutor(session), where, progress=progress)
        compaction = (
            compact_after_write(target, result.snapshot_id, session, bars)
            if compact_after
            else None
        )
    _print_row_level_result(target, result, as_json, compaction)


def update(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    assignments: AssignmentsOption,
    where: Annotated[str | None, typer.Option(help="filter [default: all rows]")] = None,
    compact_after: CompactAfter = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Give the rows of a filter new values, in one snapshot."""
    target = open_table_for_write(ctx, warehouse, table, compact=compact_after)
    values = _parse_assignments(assignments)
    planned = row_level.plan(target, where, "update")
    if dry_run or not planned:
        _print_row_level_plan(target, planned, dry_run, as_json)
        return
    from paimon_orch.spark import row_level as on_spark

    _silence_pyspark_loggers()
    with Progress(console=error_console, transient=True) as bars:
        progress = add_progress_bar(bars, f"update {table}")
        session = start_spark(master)
        result = on_spark.update(session, target, values, where, progress=progress)
        compaction = (
            compact_after_write(target, result.snapshot_id, session, bars)
            if compact_after
            else None
        )
    _print_row_level_result(target, result, as_json, compaction)


def merge_into(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    source: Annotated[list[str], typer.Option("--from", help="Parquet, CSV or JSON lines")],
    on: Annotated[str, typer.Option(help='condition, e.g. "target.id = source.id"')],
    matched_update: Annotated[
        AssignmentTexts,
        typer.Option("--update", help='"column = source.column", or "*"; may be repeated'),
    ] = None,
    matched_delete: Annotated[
        str | None, typer.Option("--delete", help='which matched rows go; "true": all')
    ] = None,
    insert: Annotated[
        AssignmentTexts, typer.Option(help='"column = source.column", or "*"; may be repeated')
    ] = None,
    encoding: Encoding = None,
    compact_after: CompactAfter = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Change the rows that rows of files match, and add those that match none, in one snapshot.

    Conditions and values are Spark's SQL over target.column and source.column. CSV and JSON values come as text.
    """
    from paimon_orch.spark import row_level as on_spark
    from paimon_orch.spark.input_files import read_files

    target = open_table_for_write(ctx, warehouse, table, compact=compact_after)
    check_files_exist(source)
    _silence_pyspark_loggers()
    with Progress(console=error_console, transient=True) as bars:
        progress = add_progress_bar(bars, f"merge into {table}")
        session = start_spark(master)
        rows = read_files(session, source, encoding=encoding)
        clauses: MergeClauses = {
            "when_matched_update": _parse_assignments_or_star(matched_update),
            "when_matched_delete": matched_delete,
            "when_not_matched_insert": _parse_assignments_or_star(insert),
        }
        if dry_run:
            _print_merge_preview(on_spark.preview_merge(rows, target, on, **clauses), as_json)
            return
        result = on_spark.merge_into(rows, target, on, **clauses, progress=progress)
        compaction = (
            compact_after_write(target, result.snapshot_id, session, bars)
            if compact_after
            else None
        )
    _print_row_level_result(target, result, as_json, compaction)


def _parse_assignments(assignments: Sequence[str]) -> Mapping[str, str]:
    return dict(parse_pair(text, "\"status = 'VOID'\"") for text in assignments)


def _parse_assignments_or_star(
    assignments: AssignmentTexts,
) -> Mapping[str, str] | Literal["*"] | None:
    if assignments is None:
        return None
    return "*" if assignments == ["*"] else _parse_assignments(assignments)


def _silence_pyspark_loggers() -> None:
    """Keep Spark from printing a page about an expression that our own error tells in a line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _print_row_level_plan(
    table: Table, planned: RowLevelPlan, dry_run: bool, as_json: bool
) -> None:
    """Print a plan that is not carried out: that of a dry run, or one with nothing to do."""
    if not dry_run:
        _print_row_level_result(table, RowLevelResult(), as_json)
        return
    values = planned.to_dict()
    text = (
        f"would look into {values['files']} files of {values['buckets']} buckets, {values['rows']:,} rows; "
        "nothing was changed"
    )
    print_values(values, as_json, text)


def _print_merge_preview(planned: RowLevelResult, as_json: bool) -> None:
    """Print what a merge would change."""
    kinds = ("inserted", "updated", "deleted")
    values: dict[str, object] = {kind: getattr(planned, kind) for kind in kinds}
    counts = ", ".join(f"{number:,} {kind}" for kind, number in values.items())
    print_values(values, as_json, f"rows that would be changed: {counts}; nothing was changed")


class MergeClauses(TypedDict):
    """What a merge does with rows, as :func:`paimon_orch.spark.row_level.merge_into` takes it."""

    when_matched_update: Mapping[str, str] | Literal["*"] | None
    when_matched_delete: str | None
    when_not_matched_insert: Mapping[str, str] | Literal["*"] | None


def _print_row_level_result(
    table: Table,
    result: RowLevelResult,
    as_json: bool,
    compaction: CompactionResult | None = None,
) -> None:
    nothing = "no row matches: nothing was committed"
    print_write_result(table, result.to_dict(), as_json, nothing=nothing, compaction=compaction)
