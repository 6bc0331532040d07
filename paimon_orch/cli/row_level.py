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
    bar,
    check_there,
    compact_written,
    errors,
    open_to_write,
    pair_of,
    print_values,
    print_write,
    spark_of,
)
from paimon_orch.steps.compaction.compact import CompactionResult
from paimon_orch.steps.row_level import row_level
from paimon_orch.steps.row_level.row_level import RowLevelPlan, RowLevelResult
from paimon_orch.table.table import Table

Sets = Annotated[
    list[str],
    typer.Option("--set", help='"column = expression" in Spark\'s SQL; may be repeated'),
]
Values = list[str] | None


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
    target = open_to_write(ctx, warehouse, table, compact=compact_after)
    planned = row_level.plan(target, where)
    if dry_run or not planned:
        _print_undone(target, planned, dry_run, as_json)
        return
    from paimon_orch.spark.execution.spark_executor import SparkExecutor

    with Progress(console=errors, transient=True) as bars:
        progress = bar(bars, f"delete rows of {table}")
        session = spark_of(master)
        result = row_level.delete(target, SparkExecutor(session), where, progress=progress)
        compaction = (
            compact_written(target, result.snapshot_id, session, bars) if compact_after else None
        )
    _print_done(target, result, as_json, compaction)


def update(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    assignments: Sets,
    where: Annotated[str | None, typer.Option(help="filter [default: all rows]")] = None,
    compact_after: CompactAfter = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Give the rows of a filter new values, in one snapshot."""
    target = open_to_write(ctx, warehouse, table, compact=compact_after)
    values = _values(assignments)
    planned = row_level.plan(target, where, "update")
    if dry_run or not planned:
        _print_undone(target, planned, dry_run, as_json)
        return
    from paimon_orch.spark import row_level as on_spark

    _hush()
    with Progress(console=errors, transient=True) as bars:
        progress = bar(bars, f"update {table}")
        session = spark_of(master)
        result = on_spark.update(session, target, values, where, progress=progress)
        compaction = (
            compact_written(target, result.snapshot_id, session, bars) if compact_after else None
        )
    _print_done(target, result, as_json, compaction)


def merge_into(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    source: Annotated[list[str], typer.Option("--from", help="Parquet, CSV or JSON lines")],
    on: Annotated[str, typer.Option(help='condition, e.g. "target.id = source.id"')],
    matched_update: Annotated[
        Values, typer.Option("--update", help='"column = source.column", or "*"; may be repeated')
    ] = None,
    matched_delete: Annotated[
        str | None, typer.Option("--delete", help='which matched rows go; "true": all')
    ] = None,
    insert: Annotated[
        Values, typer.Option(help='"column = source.column", or "*"; may be repeated')
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

    target = open_to_write(ctx, warehouse, table, compact=compact_after)
    check_there(source)
    _hush()
    with Progress(console=errors, transient=True) as bars:
        progress = bar(bars, f"merge into {table}")
        session = spark_of(master)
        rows = read_files(session, source, encoding=encoding)
        clauses: MergeClauses = {
            "when_matched_update": _values_or_star(matched_update),
            "when_matched_delete": matched_delete,
            "when_not_matched_insert": _values_or_star(insert),
        }
        if dry_run:
            _print_merge(on_spark.plan_merge(rows, target, on, **clauses), as_json)
            return
        result = on_spark.merge_into(rows, target, on, **clauses, progress=progress)
        compaction = (
            compact_written(target, result.snapshot_id, session, bars) if compact_after else None
        )
    _print_done(target, result, as_json, compaction)


def _values(assignments: Sequence[str]) -> Mapping[str, str]:
    return dict(pair_of(text, "\"status = 'VOID'\"") for text in assignments)


def _values_or_star(assignments: Values) -> Mapping[str, str] | Literal["*"] | None:
    if assignments is None:
        return None
    return "*" if assignments == ["*"] else _values(assignments)


def _hush() -> None:
    """Keep Spark from printing a page about an expression that our own error tells in a line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _print_undone(table: Table, planned: RowLevelPlan, dry_run: bool, as_json: bool) -> None:
    """Print a plan that is not carried out: that of a dry run, or one with nothing to do."""
    if not dry_run:
        _print_done(table, RowLevelResult(), as_json)
        return
    values = planned.to_dict()
    text = (
        f"would look into {values['files']} files of {values['buckets']} buckets, {values['rows']:,} rows; "
        "nothing was changed"
    )
    print_values(values, as_json, text)


def _print_merge(planned: RowLevelResult, as_json: bool) -> None:
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


def _print_done(
    table: Table,
    result: RowLevelResult,
    as_json: bool,
    compaction: CompactionResult | None = None,
) -> None:
    nothing = "no row matches: nothing was committed"
    print_write(table, result.to_dict(), as_json, nothing=nothing, compaction=compaction)
