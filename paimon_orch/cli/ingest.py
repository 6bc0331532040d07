"""The command ``ingest``: loads files into a table with Spark, in one snapshot."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    CompactAfter,
    DryRun,
    Encoding,
    Identifier,
    Master,
    SourceFiles,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    check_files_exist,
    compact_after_write,
    error_console,
    open_table_for_write,
    print_values,
    print_write_result,
    start_spark,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.errors import InputError
from paimon_orch.steps import ingest as ingest_step
from paimon_orch.steps.compaction.compact import CompactionResult
from paimon_orch.steps.ingest import IngestPreview, IngestRequest, IngestResult
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.partition_spec import parse_partition_spec
from paimon_orch.table.table import Table
from paimon_orch.table.write.write_plan import WritePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXAMPLES = [
    "ingest /lake db.orders --from orders.csv --dry-run",
    "ingest /lake db.orders --from orders-*.parquet --compact",
    "ingest /lake db.orders --from day.csv --mode overwrite",
]


class IngestMode(StrEnum):
    """Whether to keep the existing rows."""

    APPEND = "append"
    OVERWRITE = "overwrite"


_MoreFiles = Annotated[
    list[str] | None, typer.Argument(metavar="PATH", help="More files to load, as with --from.")
]
_Mode = Annotated[IngestMode, typer.Option(help="Append (upsert by key), or overwrite.")]
_RowKind = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column that holds +I, -U, +U or -D.")
]
_Partition = Annotated[
    str | None,
    typer.Option(
        metavar="DT=2026-01-01",
        help="Partition that an overwrite replaces.",
        show_default="all partitions of the loaded rows",
    ),
]
_CommitUser = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name of the job; with --commit-identifier, a load is committed once."
    ),
]
_CommitIdentifier = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="Number of the load; later loads need larger numbers."),
]


def add_commands(app: typer.Typer) -> None:
    """Register the command of this module."""
    register_command(app, ingest, Panel.WRITE, examples=_EXAMPLES)


def ingest(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    source: SourceFiles,
    more_files: _MoreFiles = None,
    mode: _Mode = IngestMode.APPEND,
    row_kind: _RowKind = None,
    encoding: Encoding = None,
    partition: _Partition = None,
    commit_user: _CommitUser = None,
    commit_identifier: _CommitIdentifier = None,
    compact_after: CompactAfter = False,
    dry_run: DryRun = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Load files into a table, in one snapshot.

    Spark reads Parquet, CSV and JSON lines. With --dry-run, all rows are read and checked, but no
    rows are written.
    """
    from paimon_orch.spark.input_files import read_files

    target = open_table_for_write(ctx, location, table, compact=compact_after)
    paths = [*source, *(more_files or [])]
    check_files_exist(paths)
    commit_id = _parse_commit_id(commit_user, commit_identifier)
    partitions = None if partition is None else parse_partition_spec(partition, target.schema)
    rows = read_files(start_spark(master), paths, encoding=encoding)
    request = IngestRequest(
        columns=rows.columns,
        mode="overwrite" if mode is IngestMode.OVERWRITE else "append",
        row_kind=row_kind,
        partitions=partitions,
        commit_id=commit_id,
    )
    planned = ingest_step.plan(target, request)
    if dry_run:
        _print_preview(_preview(rows, target, planned), as_json)
        return
    result, compaction = _write(rows, target, planned, compact_after=compact_after)
    print_write_result(
        target,
        _to_values(result),
        as_json,
        empty_text="no rows: nothing was committed",
        compaction=compaction,
    )


def _preview(rows: "DataFrame", table: Table, plan: WritePlan) -> IngestPreview:
    from paimon_orch.spark.frame_writer import preview

    with Progress(console=error_console, transient=True) as bars:
        progress = add_progress_bar(bars, f"ingest {table.identifier}")
        return preview(rows, table, plan, progress=progress)


def _write(
    rows: "DataFrame", table: Table, plan: WritePlan, *, compact_after: bool
) -> tuple[IngestResult, CompactionResult | None]:
    from paimon_orch.spark.execution.spark_executor import SparkExecutor
    from paimon_orch.spark.frame_writer import run_ingest

    with Progress(console=error_console, transient=True) as bars:
        progress = add_progress_bar(bars, f"ingest {table.identifier}")
        result = run_ingest(rows, table, plan, progress=progress)
        if not compact_after:
            return result, None
        executor = SparkExecutor(rows.sparkSession)
        return result, compact_after_write(table, result.snapshot_id, executor, bars)


def _to_values(result: IngestResult) -> dict[str, object]:
    return {
        "snapshot_id": result.snapshot_id,
        "rows": result.rows,
        "files": result.files,
        "bytes": result.bytes,
        "duration_seconds": round(result.duration_seconds, 3),
        "rows_not_visible": result.rows_not_visible,
    }


def _print_preview(preview: IngestPreview, as_json: bool) -> None:
    lines = [f"would replace partition {name}" for name in preview.replaced_partitions if name]
    text = f"would load {preview.rows:,} rows"
    if preview.replaced_rows:
        text += f" in place of {preview.replaced_rows:,}"
    print_values(preview.to_dict(), as_json, "\n".join([*lines, f"{text}; nothing was changed"]))


def _parse_commit_id(user: str | None, identifier: int | None) -> CommitId | None:
    if user is None and identifier is None:
        return None
    if user is None or identifier is None:
        raise InputError("--commit-user and --commit-identifier must be used together")
    return CommitId(user, identifier)
