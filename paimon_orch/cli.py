"""The command line: every step as a command; exit status 0 done, 1 failed, 2 usage."""

import json
import logging
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pendulum
import typer
from pendulum.parsing.exceptions import ParserError
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable

from paimon_orch.cli_refs import add_commands
from paimon_orch.errors import InputError, NotFoundError, PaimonError
from paimon_orch.output import write_rows
from paimon_orch.steps import compact as compact_step
from paimon_orch.steps.inspect import TableReport
from paimon_orch.steps.inspect import inspect as inspect_table
from paimon_orch.storage.options import parse_option
from paimon_orch.table.catalog import Catalog
from paimon_orch.table.partitions import parse_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Keeps Apache Paimon tables healthy: ingest, compaction with deletion vectors, upkeep.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_errors = Console(stderr=True, soft_wrap=True, highlight=False)
_out = Console(highlight=False)
_storage_options: dict[str, Any] = {}  # of --storage-option, which stands before the command

Warehouse = Annotated[str, typer.Argument(help="directory of the warehouse, or s3://bucket/path")]
Identifier = Annotated[str, typer.Argument(metavar="DB.TABLE", help="the table")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print the plan, change nothing")]
Master = Annotated[str, typer.Option(help="Spark master, or sc://host:port for Spark Connect")]


class Strategy(StrEnum):
    """How much to compact."""

    MINOR = "minor"
    FULL = "full"


class Mode(StrEnum):
    """What happens to the rows that are there."""

    APPEND = "append"
    OVERWRITE = "overwrite"


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def main() -> None:
    """Run the command line; an error of ours is one paragraph, not a traceback."""
    try:
        app()
    except PaimonError as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        _errors.print(f"error: {error}{notes}", markup=False)
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _errors.print(f"error: {where}{error.strerror or error}", markup=False)
        sys.exit(1)


@app.callback()
def _settings(
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
    _storage_options.clear()
    _storage_options.update(map(parse_option, storage_option or []))
    ctx.obj = _storage_options
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
    """Run the main job on real flights: three waves, compaction, and a check of every row."""
    from paimon_orch.demo import run_demo
    from paimon_orch.warehouse import fresh_warehouse

    if not run_demo(warehouse or fresh_warehouse(), months, _out):
        sys.exit(1)


@app.command("inspect")
def inspect_command(
    warehouse: Warehouse,
    table: Identifier,
    snapshot: Annotated[int | None, typer.Option(help="snapshot id [default: the newest]")] = None,
    as_json: AsJson = False,
) -> None:
    """Show snapshot, files per partition, bucket and level, deletion vectors, health."""
    report = inspect_table(_catalog(warehouse).table(table), snapshot)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _print_report(report)


def _say(text: str) -> None:
    """Print a line as it is: what is piped into another program is not wrapped."""
    _out.print(text, markup=False, soft_wrap=True)


def _print_report(report: TableReport) -> None:
    snapshot = report.snapshot
    _say(f"{report.identifier}  {report.location}")
    if snapshot is None:
        _say("no snapshot yet: the table is empty")
        return
    when = pendulum.from_timestamp(snapshot.time_millis / 1000, tz="local")
    _say(f"snapshot {snapshot.id} ({snapshot.commit_kind}) of {when:YYYY-MM-DD HH:mm:ss Z}")
    rows = "known after a merge only" if report.row_count is None else f"{report.row_count:,}"
    _say(
        f"rows {rows}; physical {report.physical_rows:,}, hidden by deletion vectors "
        f"{report.hidden_rows:,}; files {report.file_count} ({report.bytes / 1e6:,.1f} MB), "
        f"level 0 {report.level0_files}, small {report.small_files}"
    )
    shown = RichTable("partition", "bucket", "files by level", "rows", "hidden", "MB")
    for bucket in report.buckets:
        levels = [file.level for file in bucket.files]
        by_level = " ".join(f"L{level}:{levels.count(level)}" for level in sorted(set(levels)))
        shown.add_row(
            bucket.partition,
            str(bucket.bucket),
            by_level,
            f"{sum(file.row_count for file in bucket.files):,}",
            f"{bucket.hidden_rows:,}",
            f"{sum(file.file_size for file in bucket.files) / 1e6:,.2f}",
        )
    _out.print(shown)


@app.command()
def read(
    warehouse: Warehouse,
    table: Identifier,
    columns: Annotated[str | None, typer.Option(help="columns, separated by commas")] = None,
    where: Annotated[str | None, typer.Option(help="filter, e.g. \"status = 'OPEN'\"")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="at most so many rows")] = None,
    snapshot: Annotated[int | None, typer.Option(help="snapshot id")] = None,
    tag: Annotated[str | None, typer.Option(help="tag")] = None,
    timestamp: Annotated[str | None, typer.Option(help="ISO 8601, or epoch milliseconds")] = None,
    branch: Annotated[str | None, typer.Option(help="branch")] = None,
    form: Annotated[Format, typer.Option("--format", help="how to print")] = Format.TABLE,
) -> None:
    """Print rows."""
    identifier = f"{table}$branch_{branch}" if branch else table
    scan = (
        _catalog(warehouse)
        .open(identifier)
        .scan(
            None if columns is None else [name.strip() for name in columns.split(",")],
            where,
            limit=limit,
            snapshot_id=snapshot,
            tag=tag,
            timestamp=None if timestamp is None else parse_time(timestamp),
        )
    )
    write_rows(scan.to_reader(), form.value, sys.stdout.buffer)


def parse_time(text: str) -> int:
    """Return epoch milliseconds of an ISO 8601 text (local time if it names no zone) or of a number."""
    if text.isdigit():
        return int(text)
    try:
        moment = pendulum.parse(text, tz="local")
    except (ParserError, TypeError, ValueError) as error:
        raise InputError(f"time {text!r} must be ISO 8601 or epoch milliseconds") from error
    if not isinstance(moment, pendulum.DateTime):
        raise InputError(f"time {text!r} names no moment; write for example 2026-01-31T12:00:00")
    return int(moment.timestamp() * 1000)


@app.command()
def create(
    warehouse: Warehouse,
    table: Identifier,
    columns: Annotated[str, typer.Option(help='e.g. "id BIGINT NOT NULL, dt STRING, v DOUBLE"')],
    primary_key: Annotated[str, typer.Option(help="columns, separated by commas")] = "",
    partition_by: Annotated[str, typer.Option(help="columns, separated by commas")] = "",
    option: Annotated[list[str] | None, typer.Option(help="key=value; may be repeated")] = None,
    comment: Annotated[str | None, typer.Option(help="comment of the table")] = None,
) -> None:
    """Create a table."""
    pairs = [text.partition("=") for text in option or []]
    for text, (key, separator, _) in zip(option or [], pairs, strict=True):
        if not (key and separator):
            raise InputError(f"option {text!r} must look like key=value, for example bucket=2")
    _catalog(warehouse).create_table(
        table,
        columns,
        primary_key=_names(primary_key),
        partition_by=_names(partition_by),
        options={key.strip(): value.strip() for key, _, value in pairs},
        comment=comment,
    )
    _say(f"created {table} in {warehouse}")


def _catalog(warehouse: str) -> Catalog:
    return Catalog(warehouse, **_storage_options)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@app.command()
def ingest(
    warehouse: Warehouse,
    table: Identifier,
    source: Annotated[list[str], typer.Option("--from", help="Parquet, CSV or JSON lines")],
    more: Annotated[list[str] | None, typer.Argument(metavar="PATH", help="more of --from")] = None,
    mode: Annotated[Mode, typer.Option(help="append (upsert by key) or overwrite")] = Mode.APPEND,
    row_kind: Annotated[str | None, typer.Option(help="column of +I, -U, +U, -D")] = None,
    partition: Annotated[
        str | None,
        typer.Option(help="what an overwrite replaces, e.g. dt=a [default: what gets rows]"),
    ] = None,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Load files through Spark in one snapshot."""
    from paimon_orch.spark.files import read_files
    from paimon_orch.spark.writer import write

    target = _catalog(warehouse).table(table)
    paths = [*source, *(more or [])]
    for path in paths:
        if "://" not in path and not Path(path).exists():
            raise NotFoundError(f"{path}: no such file or directory; nothing was written")
    session = _session(master)
    with Progress(console=_errors, transient=True) as bars:
        result = write(
            read_files(session, paths),
            target,
            mode=mode.value,
            row_kind=row_kind,
            partitions=None if partition is None else parse_spec(partition, target.schema),
            progress=_bar(bars, f"ingest {table}"),
        )
    values: dict[str, object] = {
        "snapshot_id": result.snapshot_id,
        "rows": result.rows,
        "files": result.files,
        "bytes": result.bytes,
        "duration_seconds": round(result.duration_seconds, 3),
    }
    _print_result(values, as_json, "no rows: nothing was committed")


@app.command()
def compact(
    warehouse: Warehouse,
    table: Identifier,
    partitions: Annotated[str | None, typer.Option(help="dt=a;dt=b")] = None,
    where: Annotated[str | None, typer.Option(help="filter over partition columns")] = None,
    strategy: Annotated[Strategy, typer.Option(help="how much")] = Strategy.MINOR,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Compact: merge sorted runs, and hide replaced rows by deletion vectors where the table has them."""
    target = _catalog(warehouse).table(table)
    specs = None if partitions is None else [s for s in partitions.split(";") if s.strip()]
    planned = compact_step.plan(target, partitions=specs, where=where, strategy=strategy.value)
    if dry_run:
        _print_plan(planned, as_json)
        return
    if not planned:
        nothing = compact_step.CompactionResult(planned)
        _print_result(nothing.to_dict(), as_json, "nothing to compact")
        return
    from paimon_orch.spark.executor import SparkExecutor

    with Progress(console=_errors, transient=True) as bars:
        result = compact_step.compact(
            target,
            SparkExecutor(_session(master)),
            partitions=specs,
            where=where,
            strategy=strategy.value,
            progress=_bar(bars, f"compact {table}"),
        )
    _print_result(result.to_dict(), as_json, "nothing to compact")


def _print_plan(planned: compact_step.CompactionPlan, as_json: bool) -> None:
    values = planned.to_dict()
    if as_json:
        print(json.dumps(values, indent=2))
    elif not planned:
        _say("nothing to compact")
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
        _out.print(shown)
        _say(f"{values['buckets']} buckets, {values['files']} files; nothing was changed")


def _print_result(values: dict[str, object], as_json: bool, nothing: str) -> None:
    if as_json:
        print(json.dumps(values, indent=2))
    elif values["snapshot_id"] is None:
        _say(nothing)
    else:
        shown = (f"{key.replace('_', ' ')} {value:,}" for key, value in values.items() if value)
        _say("; ".join(shown))


def _session(master: str) -> "SparkSession":
    from paimon_orch.spark.session import java_in_use, spark_session

    remote = master.startswith("sc://")
    session = spark_session(remote=master) if remote else spark_session(master)
    _errors.print(f"Spark {session.version} on {java_in_use(session)}", markup=False)
    return session


def _bar(bars: Progress, description: str) -> Callable[[int, int], None]:
    task = bars.add_task(description, total=None)
    return lambda done, total: bars.update(task, completed=done, total=total)


add_commands(app)

if __name__ == "__main__":
    main()
