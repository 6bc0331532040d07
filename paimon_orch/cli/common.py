"""What commands share: their usual arguments, and how they read and print."""

import inspect
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from paimon_orch.errors import InputError, NotFoundError, PaimonError
from paimon_orch.format.options.step_support import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.times import parse_cutoff, parse_duration, parse_timestamp
from paimon_orch.steps.compaction.compact import CompactionResult, compact_written_partitions
from paimon_orch.steps.compaction.plan import plan_splits
from paimon_orch.table.catalog import Catalog
from paimon_orch.table.cleanup.orphan_candidates import DataRoots, find_bucket_directories
from paimon_orch.table.filter.partition_spec import parse_partition_spec
from paimon_orch.table.scan.lazy_rows import BaseScan
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.visibility import (
    describe_unseen_rows_after_write,
    describe_unseen_rows_in_scan,
    format_compact_command,
)
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Warehouse = Annotated[str, typer.Argument(help="directory of the warehouse, or s3://bucket/path")]
Identifier = Annotated[str, typer.Argument(metavar="DB.TABLE", help="the table")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="show what would be done; change nothing")]
MergeLevel0 = Annotated[
    bool | None,
    typer.Option(
        help="read level 0 of tables with deletion vectors, and of first-row tables, or leave it out [default: as the "
        "table's options say]",
    ),
]
PartitionsOption = Annotated[
    str | None,
    typer.Option(help="only these partitions, separated by semicolons, e.g. dt=a;dt=b"),
]
CompactAfter = Annotated[
    bool,
    typer.Option(
        "--compact", help="compact the partitions that were written, so that readers see the rows"
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="encoding of CSV files, e.g. latin-1 or cp1252 [default: utf-8]"),
]
Master = Annotated[str, typer.Option(help="Spark master, or sc://host:port for Spark Connect")]

error_console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


@dataclass(slots=True)
class CliSettings:
    """The settings of a call: storage options before the command, and what its switches allow."""

    storage_options: dict[str, str]
    allowances: Allowances = NO_ALLOWANCES


_ALLOWANCE_SWITCHES = {
    "allow_stale_external": Annotated[
        bool,
        typer.Option(
            "--allow-stale-external",
            help="proceed although Iceberg metadata, a metastore or a callback that the table's options name becomes stale",
        ),
    ],
    "allow_unknown_options": Annotated[
        bool,
        typer.Option(
            "--allow-unknown-options",
            help="proceed although the table has options that may belong to a newer release of Paimon",
        ),
    ],
}


def add_allowance_switches(app: typer.Typer, *, but: Collection[str], group: str = "") -> None:
    """Add the switches that allow steps which a table's options forbid to all commands but some.

    ``but`` holds names of commands, such as ``read`` and ``tag list``, and of whole groups.
    """
    for inner in app.registered_groups:
        if inner.typer_instance is not None and inner.name not in but:
            add_allowance_switches(inner.typer_instance, but=but, group=f"{inner.name} ")
    for command in app.registered_commands:
        function = command.callback
        if function is not None and group + (command.name or function.__name__) not in but:
            command.callback = _add_switches(function)


def _add_switches(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the switches at its end; they become the allowances of its :class:`CliSettings`."""

    @wraps(function)
    def command(
        *args: Any, allow_stale_external: bool, allow_unknown_options: bool, **kwargs: Any
    ) -> None:
        ctx: typer.Context = kwargs["ctx"]
        ctx.obj.allowances = Allowances(
            stale_external=allow_stale_external, unknown_options=allow_unknown_options
        )
        function(*args, **kwargs)

    signature = inspect.signature(function)
    switches = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation
        )
        for name, annotation in _ALLOWANCE_SWITCHES.items()
    ]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *switches]
    )
    command.__annotations__ = function.__annotations__ | _ALLOWANCE_SWITCHES
    return command


def open_catalog(ctx: typer.Context, warehouse: str) -> Catalog:
    """Open a warehouse with the storage options before the command and the switches after it."""
    settings = ctx.obj or CliSettings({})
    return Catalog(warehouse, allowances=settings.allowances, **settings.storage_options)


def open_table(ctx: typer.Context, warehouse: str, identifier: str) -> Table:
    """Open a table of a warehouse; see :func:`open_catalog`."""
    return open_catalog(ctx, warehouse).table(identifier)


def check_files_exist(paths: Iterable[str]) -> None:
    """Refuse files to load that are not there; those of an object store are looked for when they are read."""
    for path in paths:
        if "://" not in path and not Path(path).exists():
            raise NotFoundError(f"{path}: no such file or directory; nothing was written")


def print_values(values: dict[str, object], as_json: bool, text: str) -> None:
    """Print figures as JSON, or what they say in words."""
    print(json.dumps(values, indent=2) if as_json else text)


def print_names(names: list[str], *, as_json: bool) -> None:
    """Print names, one a line or as JSON."""
    print(json.dumps(names) if as_json else "\n".join(names) or "none")


def parse_names(text: str) -> list[str]:
    """Return the names of a list that commas separate."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_partitions(
    table: Table, text: str | None, *, with_directories: bool = False
) -> list[str] | None:
    """Return the partitions of a list separated by semicolons; None if there is no text.

    Raises :class:`InputError` for an empty list, :class:`NotFoundError` for a partition without files. With
    ``with_directories`` a partition exists also if it has a directory only.
    """
    if text is None:
        return None
    specs = [spec.strip() for spec in text.split(";") if spec.strip()]
    if not specs:
        raise InputError("--partitions names no partition; write for example dt=2026-01-31")
    snapshot, schema = table.stores.snapshots.latest(), table.schema
    for spec in specs:
        parsed = parse_partition_spec(spec, schema)
        if snapshot is not None and plan_splits(
            table, schema, snapshot, partitions=[parsed], where=None
        ):
            continue
        roots = DataRoots.of(table.io, table.paths, schema).roots if with_directories else ()
        if not any(find_bucket_directories(table.io, root, schema, [parsed]) for root in roots):
            raise NotFoundError(
                f"{table.identifier} has no partition {spec}; paimon-orch read ... '{table.identifier}$partitions' "
                "lists those that exist"
            )
    return specs


def parse_optional_duration(option: str, text: str | None) -> timedelta | None:
    """Return a duration such as ``30 d``; None if there is no text."""
    return None if text is None else parse_duration(option, text)


def parse_optional_cutoff(option: str, text: str | None) -> int | None:
    """Return epoch milliseconds of a point in time or of a duration ago; None if there is no text."""
    return None if text is None else parse_cutoff(option, text)


def parse_pair(text: str, example: str) -> tuple[str, str]:
    """Split ``key=value``; raises :class:`InputError` for anything else."""
    key, separator, value = (part.strip() for part in text.partition("="))
    if not (key and separator):
        raise InputError(f"{text!r} must look like key=value, for example {example}")
    return key, value


def parse_optional_timestamp(option: str, text: str | None) -> int | None:
    """Return epoch milliseconds of a point in time; None if there is no text."""
    return None if text is None else parse_timestamp(option, text)


def print_result(values: dict[str, object], as_json: bool, nothing: str) -> None:
    """Print what a step did; ``nothing`` is said if it committed no snapshot."""
    if as_json:
        print(json.dumps(values, indent=2))
    elif values["snapshot_id"] is None:
        print(nothing)
    else:
        shown = (f"{key.replace('_', ' ')} {value:,}" for key, value in values.items() if value)
        print("; ".join(shown))


def print_write_result(
    table: Table,
    values: dict[str, object],
    as_json: bool,
    *,
    nothing: str,
    compaction: CompactionResult | None = None,
) -> None:
    """Print the results of a write and its compaction; note on stderr how many rows readers do not see yet."""
    rows = values["rows_not_visible"]
    if compaction is not None:
        rows = values["rows_not_visible"] = table.scan().rows_not_visible
    if compaction is not None and as_json:
        values["compaction"] = compaction.to_dict()
    print_result(values, as_json, nothing)
    if compaction is not None and not as_json:
        print_result(compaction.to_dict(), as_json, "nothing to compact")
    if isinstance(rows, int) and rows:
        text = describe_unseen_rows_after_write(table.identifier, table.paths, rows)
        error_console.print(f"note: {text}", markup=False)


def open_table_for_write(
    ctx: typer.Context, warehouse: str, identifier: str, *, compact: bool
) -> Table:
    """Open a table to write to; with ``compact``, refuse the write if the table cannot be compacted."""
    table = open_table(ctx, warehouse, identifier)
    if compact:
        table.stores.check_step(StepKind.COMPACT)
    return table


def compact_after_write(
    table: Table, snapshot_id: int | None, session: "SparkSession", bars: Progress
) -> CompactionResult | None:
    """Compact the partitions that a commit wrote to; returns None without a commit."""
    from paimon_orch.spark.execution.spark_executor import SparkExecutor

    if snapshot_id is None:
        return None
    moved = add_progress_bar(bars, f"compact {table.identifier}")
    try:
        return compact_written_partitions(
            table, snapshot_id, SparkExecutor(session), progress=moved
        )
    except (PaimonError, OSError) as error:
        command = format_compact_command(table.identifier, table.paths)
        error.add_note(
            f"the write itself is committed as snapshot {snapshot_id}; do not repeat it, run `{command}`"
        )
        raise


def note_rows_not_visible(opened: Table | SystemTable, scan: BaseScan) -> None:
    """Note on stderr how many records a scan leaves out until they are compacted, and how to read them."""
    rows = scan.rows_not_visible
    if rows:
        table = opened.table if isinstance(opened, SystemTable) else opened
        merges = isinstance(scan, Scan) and scan.visibility.can_merge_more
        merge = "--merge-level-0" if merges else None
        error_console.print(
            f"note: {describe_unseen_rows_in_scan(table.identifier, table.paths, rows, merge)}",
            markup=False,
        )


def start_spark(master: str) -> "SparkSession":
    """Start Spark, or connect to it, and say which it is."""
    from paimon_orch.spark.session.session import java_in_use, spark_session

    remote = master.startswith("sc://")
    session = spark_session(remote=master) if remote else spark_session(master)
    error_console.print(f"Spark {session.version} on {java_in_use(session)}")
    return session


def add_progress_bar(bars: Progress, description: str) -> Callable[[int, int], None]:
    """Return what moves a progress bar."""
    task = bars.add_task(description, total=None)
    return lambda done, total: bars.update(task, completed=done, total=total)
