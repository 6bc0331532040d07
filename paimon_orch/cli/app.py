"""The command line: every step as a command; exit status 0 done, 1 failed, 2 usage."""

import json
import logging
import sys
from enum import StrEnum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pendulum
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable

from paimon_orch.cli import alter as cli_alter
from paimon_orch.cli import analyze as cli_steps
from paimon_orch.cli import catalog as cli_catalog
from paimon_orch.cli import file_index as cli_index
from paimon_orch.cli import maintenance as cli_maintenance
from paimon_orch.cli import refs as cli_refs
from paimon_orch.cli import row_level as cli_rows
from paimon_orch.cli.common import (
    AsJson,
    CliSettings,
    CompactAfter,
    DryRun,
    Encoding,
    Identifier,
    Master,
    MergeLevel0,
    PartitionsOption,
    Warehouse,
    add_allowance_switches,
    add_progress_bar,
    check_files_exist,
    compact_after_write,
    error_console,
    note_rows_not_visible,
    open_catalog,
    open_table,
    open_table_for_write,
    parse_names,
    parse_optional_timestamp,
    parse_partitions,
    print_result,
    print_values,
    print_write_result,
    start_spark,
)
from paimon_orch.cli.output import write_rows
from paimon_orch.errors import InputError, PaimonError
from paimon_orch.steps.common.executor import Progress as ProgressOf
from paimon_orch.steps.compaction import compact as compact_step
from paimon_orch.steps.compaction import postpone
from paimon_orch.steps.compaction import sort as sort_compact
from paimon_orch.steps.compaction.policy import CompactionDecision, decide
from paimon_orch.steps.compaction.sort import SortOrder
from paimon_orch.steps.ingest import IngestPreview, IngestResult
from paimon_orch.steps.ingest import WriteMode as IngestMode
from paimon_orch.steps.inspection.inspect import TableReport
from paimon_orch.steps.inspection.inspect import inspect as inspect_table
from paimon_orch.storage.object_store_options import parse_storage_option
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.partition_spec import PartitionSpec, parse_partition_spec
from paimon_orch.table.table import Table
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Keeps Apache Paimon tables healthy: ingest, compaction with deletion vectors, upkeep.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
_console = Console(highlight=False, markup=False, emoji=False)
logger = logging.getLogger(__name__)
_MAX_SHOWN_DECISIONS = 20  # partitions of which a dry run tells what a policy says


class CompactStrategyOption(StrEnum):
    """How much to compact."""

    MINOR = "minor"
    FULL = "full"


class OrderStrategyOption(StrEnum):
    """How the rows of append tables are sorted."""

    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


class IngestModeOption(StrEnum):
    """What happens to the rows that are there."""

    APPEND = "append"
    OVERWRITE = "overwrite"


class OutputFormatOption(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def main() -> None:
    """Run the command line; an error of ours is one paragraph, not a traceback."""
    if isinstance(sys.stdout, TextIOWrapper):  # names on a disk may be no text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except PaimonError as error:
        error_console.print(f"error: {error}{_format_notes(error)}")
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        error_console.print(f"error: {where}{error.strerror or error}{_format_notes(error)}")
        sys.exit(1)
    except MemoryError:
        error_console.print("error: out of memory; nothing was committed")
        sys.exit(1)
    except Exception as error:
        logger.info("the command failed", exc_info=True)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        error_console.print(
            f"error: internal error ({text}). This is a bug; please report it with what the command prints with "
            "--verbose (paimon-orch --verbose COMMAND ...)"
        )
        sys.exit(1)


def _format_notes(error: Exception) -> str:
    """Return what was added to an error on its way, such as what was committed before."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


@app.callback()
def _read_settings(
    ctx: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="tell every decision")] = False,
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="for a warehouse in an object store; may be repeated. Others see command lines: give secrets in the "
            "environment variable PAIMON_STORAGE_OPTIONS, as a JSON object",
        ),
    ] = None,
) -> None:
    ctx.obj = CliSettings(dict(map(parse_storage_option, storage_option or [])))
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    if not verbose:
        logging.getLogger("py4j").setLevel(logging.ERROR)


@app.command()
def demo(
    warehouse: Annotated[
        str | None, typer.Option(help="directory for the table [default: a fresh one]")
    ] = None,
    months: Annotated[int, typer.Option(min=1, max=12, help="months of 2013 to load")] = 12,
) -> None:
    """Run the main job on real flights.

    Three waves of upserts, compaction after each, and a check of every row.
    """
    from paimon_orch.demo.pipeline import run_demo
    from paimon_orch.demo.warehouse import fresh_warehouse

    if not run_demo(warehouse or fresh_warehouse(), months, _console):
        sys.exit(1)


@app.command("inspect")
def inspect_command(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    snapshot: Annotated[int | None, typer.Option(help="snapshot id [default: the newest]")] = None,
    as_json: AsJson = False,
) -> None:
    """Show snapshot, files, levels, deletion vectors and health."""
    report = inspect_table(open_table(ctx, warehouse, table), snapshot)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _print_report(report)
    if report.problem is not None:
        error_console.print(f"error: {report.identifier}: {report.problem}")
        raise typer.Exit(1)


def _print_report(report: TableReport) -> None:
    snapshot = report.snapshot
    print(f"{report.identifier}  {report.location}")
    if snapshot is None:
        print("no snapshot yet: the table is empty")
        return
    when = pendulum.from_timestamp(snapshot.time_millis / 1000, tz="local")
    print(f"snapshot {snapshot.id} ({snapshot.commit_kind}) of {when:YYYY-MM-DD HH:mm:ss Z}")
    rows = "known after a merge only" if report.row_count is None else f"{report.row_count:,}"
    print(
        f"rows {rows}; physical {report.physical_rows:,}, hidden by deletion vectors "
        f"{report.deleted_rows:,}; files {report.file_count} ({report.bytes / 1e6:,.1f} MB), "
        f"level 0 {report.level0_files}, small {report.small_files}"
    )
    if report.rows_not_visible:
        print(
            f"{report.rows_not_visible:,} records are not visible to batch readers before a compaction"
        )
    if report.health is not None:
        print(report.health)
    shown = RichTable("partition", "bucket", "files by level", "rows", "hidden", "MB")
    for bucket in report.buckets:
        levels = [file.level for file in bucket.files]
        by_level = " ".join(f"L{level}:{levels.count(level)}" for level in sorted(set(levels)))
        shown.add_row(
            bucket.partition,
            str(bucket.bucket),
            by_level,
            f"{sum(file.row_count for file in bucket.files):,}",
            f"{bucket.deleted_rows:,}",
            f"{sum(file.file_size for file in bucket.files) / 1e6:,.2f}",
        )
    _console.print(shown)


@app.command()
def read(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    columns: Annotated[str | None, typer.Option(help="columns, separated by commas")] = None,
    where: Annotated[str | None, typer.Option(help="filter, e.g. \"status = 'OPEN'\"")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="at most so many rows")] = None,
    order_by: Annotated[
        str | None, typer.Option(help='columns, e.g. "price desc nulls last, id"')
    ] = None,
    snapshot: Annotated[int | None, typer.Option(help="snapshot id")] = None,
    tag: Annotated[str | None, typer.Option(help="tag")] = None,
    timestamp: Annotated[str | None, typer.Option(help="ISO 8601, or epoch milliseconds")] = None,
    watermark: Annotated[
        str | None, typer.Option(help="the first snapshot that has reached it; as --timestamp")
    ] = None,
    branch: Annotated[str | None, typer.Option(help="branch")] = None,
    merge_level_0: MergeLevel0 = None,
    form: Annotated[
        OutputFormatOption, typer.Option("--format", help="how to print")
    ] = OutputFormatOption.TABLE,
) -> None:
    """Print rows."""
    if branch == "":
        raise InputError("--branch names no branch; leave it out to read main")
    identifier = table if branch is None else f"{table}$branch_{branch}"
    opened = open_catalog(ctx, warehouse).open(identifier)
    scan = opened.scan(
        None if columns is None else [name.strip() for name in columns.split(",")],
        where,
        limit=limit,
        order_by=order_by,
        snapshot_id=snapshot,
        tag=tag,
        timestamp=parse_optional_timestamp("--timestamp", timestamp),
        watermark=parse_optional_timestamp("--watermark", watermark),
        merge_level_0=merge_level_0,
    )
    note_rows_not_visible(opened, scan)
    write_rows(scan.to_reader(), form.value, sys.stdout.buffer)


@app.command()
def ingest(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    source: Annotated[list[str], typer.Option("--from", help="Parquet, CSV or JSON lines")],
    more: Annotated[list[str] | None, typer.Argument(metavar="PATH", help="more of --from")] = None,
    mode: Annotated[
        IngestModeOption, typer.Option(help="append (upsert by key) or overwrite")
    ] = IngestModeOption.APPEND,
    row_kind: Annotated[str | None, typer.Option(help="column of +I, -U, +U, -D")] = None,
    encoding: Encoding = None,
    partition: Annotated[
        str | None,
        typer.Option(help="what an overwrite replaces, e.g. dt=a [default: what gets rows]"),
    ] = None,
    commit_user: Annotated[
        str | None, typer.Option(help="name of the job; with --commit-identifier, it loads once")
    ] = None,
    commit_identifier: Annotated[
        int | None, typer.Option(min=0, help="number of the load; it grows from load to load")
    ] = None,
    compact_after: CompactAfter = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Load files through Spark in one snapshot.

    With --dry-run all rows are read and checked, but nothing is written.
    """
    from paimon_orch.spark.input_files import read_files
    from paimon_orch.spark.writer import preview, write

    target = open_table_for_write(ctx, warehouse, table, compact=compact_after)
    paths = [*source, *(more or [])]
    check_files_exist(paths)
    commit_id = _parse_commit_id(commit_user, commit_identifier)
    replaced = None if partition is None else parse_partition_spec(partition, target.schema)
    session = start_spark(master)
    with Progress(console=error_console, transient=True) as bars:
        rows, progress = (
            read_files(session, paths, encoding=encoding),
            add_progress_bar(bars, f"ingest {table}"),
        )
        how: IngestArguments = {
            "mode": "overwrite" if mode is IngestModeOption.OVERWRITE else "append",
            "row_kind": row_kind,
            "partitions": replaced,
            "progress": progress,
        }
        if dry_run:
            _print_ingest_preview(preview(rows, target, **how), as_json)
            return
        result = write(rows, target, **how, commit_id=commit_id)
        compaction = (
            compact_after_write(target, result.snapshot_id, session, bars)
            if compact_after
            else None
        )
    nothing = "no rows: nothing was committed"
    print_write_result(
        target, _build_ingest_values(result), as_json, nothing=nothing, compaction=compaction
    )


def _build_ingest_values(result: IngestResult) -> dict[str, object]:
    return {
        "snapshot_id": result.snapshot_id,
        "rows": result.rows,
        "files": result.files,
        "bytes": result.bytes,
        "duration_seconds": round(result.duration_seconds, 3),
        "rows_not_visible": result.rows_not_visible,
    }


class IngestArguments(TypedDict):
    """The arguments that a run and a dry run of an ingest share."""

    mode: IngestMode
    row_kind: str | None
    partitions: PartitionSpec | None
    progress: ProgressOf


def _print_ingest_preview(planned: IngestPreview, as_json: bool) -> None:
    """Print what an ingest would load and replace."""
    lines = [f"would replace partition {name}" for name in planned.replaced_partitions if name]
    text = f"would load {planned.rows:,} rows"
    if planned.replaced_rows:
        text += f" in place of {planned.replaced_rows:,}"
    print_values(planned.to_dict(), as_json, "\n".join([*lines, f"{text}; nothing was changed"]))


def _parse_commit_id(user: str | None, identifier: int | None) -> CommitId | None:
    if user is None and identifier is None:
        return None
    if user is None or identifier is None:
        raise InputError("--commit-user and --commit-identifier belong together: name both")
    return CommitId(user, identifier)


@app.command()
def compact(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    partitions: PartitionsOption = None,
    where: Annotated[str | None, typer.Option(help="filter over partition columns")] = None,
    strategy: Annotated[
        CompactStrategyOption | None,
        typer.Option(help="how much [default: minor]", show_default=False),
    ] = None,
    order_by: Annotated[
        str | None, typer.Option(help="sort append tables: columns, separated by commas")
    ] = None,
    order_strategy: Annotated[
        OrderStrategyOption | None,
        typer.Option(
            help="with --order-by: by the columns in turn, or along a curve [default: order]",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Merge sorted runs, or pack small files.

    Where the table has deletion vectors, rows that were replaced are hidden instead of rewritten. Rows that wait in
    postpone buckets are moved first.
    """
    target = open_table(ctx, warehouse, table)
    specs = parse_partitions(target, partitions)
    order = _parse_order(order_by, order_strategy, strategy)
    strategy = strategy or CompactStrategyOption.MINOR
    if order is None:
        planned = compact_step.plan(target, partitions=specs, where=where, strategy=strategy.value)
    else:
        planned = sort_compact.plan(target, order, partitions=specs, where=where)
    if dry_run:
        sorting = order is not None
        decisions = [] if sorting else decide(target, partitions=specs, where=where)
        _print_plan(planned, decisions, as_json)
        return
    waiting = has_postpone_buckets(target.schema) and postpone.plan(
        target, partitions=specs, where=where
    )
    if not planned and not waiting:
        nothing = compact_step.CompactionResult(plan=planned)
        print_result(nothing.to_dict(), as_json, "nothing to compact")
        return
    with Progress(console=error_console, transient=True) as bars:
        moved = add_progress_bar(bars, f"compact {table}")
        chosen = {"partitions": specs, "where": where, "progress": moved}
        result = _run_compaction(target, start_spark(master), order or strategy, **chosen)
    only_moved = "rows that waited in postpone buckets were moved; nothing to compact"
    print_result(result.to_dict(), as_json, only_moved if waiting else "nothing to compact")


def _parse_order(
    columns: str | None, how: OrderStrategyOption | None, strategy: CompactStrategyOption | None
) -> SortOrder | None:
    """Return how rows are sorted, None if they are not; raises :class:`InputError` for options that contradict."""
    if columns is None:
        if how is not None:
            raise InputError(f"--order-strategy {how} needs --order-by with the columns to sort by")
        return None
    names = parse_names(columns)
    if not names:
        raise InputError("--order-by names no column; write for example --order-by dt,id")
    if strategy is CompactStrategyOption.MINOR:
        raise InputError("--strategy minor and --order-by contradict: sorting rewrites all files")
    return SortOrder(tuple(names), (how or OrderStrategyOption.ORDER).value)


def _run_compaction(
    target: Table, session: "SparkSession", how: SortOrder | CompactStrategyOption, **chosen: Any
) -> compact_step.CompactionResult:
    from paimon_orch.spark.execution.spark_executor import SparkExecutor
    from paimon_orch.spark.sort_compact import sort_table

    if isinstance(how, SortOrder):
        return sort_table(session, target, how, **chosen)
    executor = SparkExecutor(session)
    return compact_step.compact(target, executor, strategy=how.value, **chosen)


def _print_plan(
    planned: compact_step.CompactionPlan, decisions: list[CompactionDecision], as_json: bool
) -> None:
    values = planned.to_dict()
    if as_json:
        values["decisions"] = [decision.to_dict() for decision in decisions]
        print(json.dumps(values, indent=2))
        return
    if not planned:
        print("nothing to compact")
    else:
        shown = RichTable("partition", "bucket", "why", "files", "rows", "MB", "to level")
        for unit in planned.units:
            shown.add_row(
                unit.partition_text,
                str(unit.bucket),
                unit.reason,
                str(unit.files),
                f"{unit.rows:,}",
                f"{unit.bytes / 1e6:,.2f}",
                str(unit.output_level),
            )
        _console.print(shown)
        print(f"{values['buckets']} buckets, {values['files']} files; nothing was changed")
    if decisions:
        print("What the default policy of the Dagster sensor says:")
    for decision in decisions[:_MAX_SHOWN_DECISIONS]:
        print(f"  {decision}")
    if len(decisions) > _MAX_SHOWN_DECISIONS:
        print(f"  and {len(decisions) - _MAX_SHOWN_DECISIONS} more partitions")


for module in (cli_catalog, cli_alter, cli_steps, cli_index, cli_maintenance, cli_refs, cli_rows):
    module.add_commands(app)
_COMMANDS_WITHOUT_SWITCHES = {
    *("alter", "check", "create", "demo", "inspect", "read", "tables"),
    *("branch list", "database create", "database list", "quarantine", "tag list"),
}
add_allowance_switches(app, but=_COMMANDS_WITHOUT_SWITCHES)

if __name__ == "__main__":
    main()
