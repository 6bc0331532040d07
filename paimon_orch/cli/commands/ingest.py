"""The command ``ingest``: loads files into a table, in one snapshot."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.cli.arguments import (
    CatalogLocation,
    CompactAfter,
    DryRun,
    Encoding,
    ExecutorOption,
    Identifier,
    JsonOutput,
    Master,
    SourceFiles,
    Yes,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    check_files_exist,
    compact_after_write,
    confirm,
    open_catalog,
    open_progress_bars,
    open_table_for_write,
    print_write_result,
    start_spark,
)
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES, Output, print_lines, print_note
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count
from paimon_orch.format.options.core_options import ROWKIND_FIELD
from paimon_orch.format.types.data_types import DataType, type_to_sql
from paimon_orch.optional_packages import is_installed
from paimon_orch.safe_text import format_names, get_logger
from paimon_orch.steps import ingest as ingest_step
from paimon_orch.steps.common import executor as executors
from paimon_orch.steps.common.executor_choice import ChoosingExecutor, ExecutorKind
from paimon_orch.steps.common.step_report import KEPT_ROWS, describe_loss
from paimon_orch.steps.ingest import (
    IngestPreview,
    IngestRequest,
    IngestResult,
    WriteMode,
    build_preview,
    count_rows,
)
from paimon_orch.steps.ingest_columns import find_columns
from paimon_orch.steps.ingest_files import (
    CsvFormat,
    SparkRequiredError,
    detect_common_format,
    list_variant_columns,
    measure_files,
    read_input_files,
)
from paimon_orch.steps.merge_schema import find_new_columns
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.partition_spec import PartitionSpec, parse_partition_spec
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.text_formats import TextFormats
from paimon_orch.table.write.write_plan import WritePlan

if TYPE_CHECKING:
    from paimon_orch.steps.compaction.compact import CompactionResult

logger = get_logger(__name__)

_EXAMPLES = [
    "ingest /lake db.orders --from orders.csv --dry-run",
    "ingest /lake db.orders --from orders-*.parquet --compact",
    "ingest /lake db.orders --from day.csv --mode overwrite",
    "ingest /lake db.orders --from a.csv --delimiter ';' --null NULL",
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
_Delimiter = Annotated[
    str,
    typer.Option(
        metavar="CHARACTER", help=r"Character between the fields of CSV files; \t is a tab."
    ),
]
_NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="CSV files have no header; their columns are those of the table, in its order.",
    ),
]
_Null = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Text of CSV files that is null, besides empty fields."),
]
_DateFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="Format of dates in CSV and JSON files, e.g. dd.MM.yyyy.",
        show_default="ISO 8601",
    ),
]
_TimestampFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="Format of timestamps in CSV and JSON files, e.g. 'dd.MM.yyyy HH:mm:ss.SSS'.",
        show_default="ISO 8601",
    ),
]
_MergeSchema = Annotated[
    bool,
    typer.Option(
        "--merge-schema",
        help="First add the columns that only the files have, as nullable columns; their type is "
        "STRING in CSV and JSON files. They stay if the load fails.",
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
    register_command(app, ingest, examples=_EXAMPLES)


def ingest(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    source: SourceFiles,
    more_files: _MoreFiles = None,
    mode: _Mode = IngestMode.APPEND,
    row_kind: _RowKind = None,
    delimiter: _Delimiter = ",",
    encoding: Encoding = None,
    no_header: _NoHeader = False,
    null: _Null = None,
    date_format: _DateFormat = None,
    timestamp_format: _TimestampFormat = None,
    merge_schema: _MergeSchema = False,
    partition: _Partition = None,
    commit_user: _CommitUser = None,
    commit_identifier: _CommitIdentifier = None,
    compact_after: CompactAfter = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    output: JsonOutput = LINES,
) -> None:
    """Load files into a table, in one snapshot.

    Reads Parquet, CSV and JSON lines. Nullable columns that the files lack are null, or have the
    default value of the column. With --dry-run, all rows are read and checked, but no rows are
    written. An overwrite does the same first, and asks before it replaces rows.
    """
    runner = build_executor(executor, master)
    target = open_table_for_write(ctx, location, table, compact=compact_after)
    paths = [*source, *(more_files or [])]
    check_files_exist(paths)
    load = _Load(
        table=target,
        paths=paths,
        csv_format=_build_csv_format(target, delimiter, encoding, no_header=no_header),
        text_formats=TextFormats(null, date_format, timestamp_format),
        mode="overwrite" if mode is IngestMode.OVERWRITE else "append",
        row_kind=row_kind,
        partitions=None
        if partition is None
        else parse_partition_spec(partition, target.stores.get_schema()),
        commit_id=_parse_commit_id(commit_user, commit_identifier),
        dry_run=dry_run,
    )
    load.check_formats()
    reopen = partial(open_catalog, ctx, location)
    if load.mode == "overwrite" and not (dry_run or yes):
        trial = replace(load, dry_run=True)
        trial = _merge_schema(trial, reopen)[0] if merge_schema else trial
        _confirm_overwrite(trial, runner, master)
    load, added = _merge_schema(load, reopen) if merge_schema else (load, [])
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, f"ingest {target.identifier}")
        outcome = _run(load, runner, master, progress)
        compaction = None
        if compact_after and isinstance(outcome, IngestResult):
            compaction = compact_after_write(target, outcome.snapshot_id, runner, bars)
    if isinstance(outcome, IngestPreview):
        _print_preview(outcome, added, output)
    else:
        _print_result(target, outcome, added, output, compaction)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """The files to load, and how to write their rows."""

    table: Table
    paths: Sequence[str]
    csv_format: CsvFormat
    text_formats: TextFormats
    mode: WriteMode
    row_kind: str | None
    partitions: PartitionSpec | None
    commit_id: CommitId | None
    dry_run: bool
    ignored: frozenset[str] = frozenset()
    """Columns of the files that a dry run does not add to the table."""

    def check_formats(self) -> None:
        """Raise :class:`InputError` for options of text that the files do not have."""
        form, formats = detect_common_format(self.paths), self.text_formats
        self.csv_format.check_file_format(form)
        if formats.null is not None and form != "csv":
            raise InputError(f"--null is for CSV only: the files are {form}")
        for option, text in (
            ("--date-format", formats.date),
            ("--timestamp-format", formats.timestamp),
        ):
            if text is not None and form == "parquet":
                raise InputError(f"{option} is for CSV and JSON only: the files are {form}")

    def plan(
        self,
        columns: Sequence[str],
        *,
        are_complete: bool = True,
        state: TableState | None = None,
        in_process: bool = False,
    ) -> WritePlan:
        """Check the columns of the rows, and plan the write."""
        request = IngestRequest(
            columns=[name for name in columns if name not in self.ignored],
            text_formats=self.text_formats,
            are_columns_complete=are_complete,
            mode=self.mode,
            row_kind=self.row_kind,
            partitions=self.partitions,
            commit_id=self.commit_id,
        )
        return ingest_step.plan(self.table, request, state=state, in_process=in_process)


def _confirm_overwrite(trial: _Load, runner: ChoosingExecutor, master: str | None) -> None:
    """Ask before an overwrite replaces rows; ``trial`` is a dry run of it."""
    preview = _run(trial, runner, master, lambda _completed, _total: None)
    assert isinstance(preview, IngestPreview)
    if preview.replaced_rows:
        names = [name for name in preview.replaced_partitions if name]
        loss = describe_loss({"row": preview.replaced_rows, "partition": names})
        confirm(
            f"replace {loss} of {trial.table.identifier} by {format_count(preview.rows, 'row')}",
            undo=KEPT_ROWS,
        )


def _run(
    load: _Load, runner: ChoosingExecutor, master: str | None, progress: executors.Progress
) -> IngestResult | IngestPreview:
    """Load the files in this process, or on Spark if they are large or only Spark reads them."""
    if runner.is_local(measure_files(load.paths)):
        try:
            return _run_here(load)
        except SparkRequiredError as error:
            if runner.kind is ExecutorKind.LOCAL or not is_installed("pyspark.core"):
                raise
            logger.info("the files are loaded on Spark: %s", error)
    return _run_on_spark(load, master, progress)


def _run_here(load: _Load) -> IngestResult | IngestPreview:
    state = load.table.load(with_lists=True)
    rows = read_input_files(load.paths, state.schema, csv_format=load.csv_format)
    plan = load.plan(rows.columns, state=state, in_process=True)
    _note_missing_columns(plan, rows.columns)

    def read() -> Iterator[pa.Table]:
        return plan.prepare(rows.read())

    if load.dry_run:
        return build_preview(load.table, plan, [count_rows(plan, read())])
    return ingest_step.run_ingest(
        load.table, plan, lambda: [write_rows(plan, read())], sources=load.paths
    )


def _run_on_spark(
    load: _Load, master: str | None, progress: executors.Progress
) -> IngestResult | IngestPreview:
    from paimon_orch.spark.frame_writer import RowSource, preview, run_ingest
    from paimon_orch.spark.input_files import read_files
    from paimon_orch.spark.parquet_source import can_read_local_files, open_parquet_files

    _check_known_columns(load)
    session = start_spark(master)
    columns = _find_parquet_columns(load) if can_read_local_files(session) else None
    if columns is not None:
        plan = load.plan(columns)
        source = open_parquet_files(session, load.paths, plan)
    else:
        variants = list_variant_columns(load.table.stores.get_schema())
        rows = read_files(session, load.paths, csv_format=load.csv_format, variants=variants)
        columns = rows.columns
        plan = load.plan(columns)
        source = RowSource(rows, plan.prepare)
    _note_missing_columns(plan, columns)
    if load.dry_run:
        return preview(source, load.table, plan, progress=progress)
    return run_ingest(source, load.table, plan, progress=progress, sources=load.paths)


def _check_known_columns(load: _Load) -> None:
    """Plan the write before Spark starts, unless only Spark can find the columns."""
    columns = find_columns(load.paths, load.table.io, csv_format=load.csv_format)
    if columns is not None:
        load.plan(columns.names, are_complete=columns.is_complete)


def _merge_schema(load: _Load, open_catalog: Callable[[], Catalog]) -> tuple[_Load, list[str]]:
    """Add the columns of the files to the table, unless it is a dry run; return their texts."""
    new = _find_new_columns(load)
    added = [f"{name} {type_to_sql(kind)}" for name, kind in new.items()]
    if load.dry_run:
        return replace(load, ignored=frozenset(new)), added
    if new:
        changes = [AddColumn(column=name, type=kind) for name, kind in new.items()]
        open_catalog().alter_table(load.table.identifier, changes)
    return load, added


def _find_new_columns(load: _Load) -> dict[str, DataType]:
    """Return the columns of the files that the table lacks, if all other columns can be written."""
    columns = find_columns(load.paths, load.table.io, csv_format=load.csv_format)
    schema = load.table.stores.get_schema()
    row_kind = load.row_kind or schema.typed_options.get(ROWKIND_FIELD)
    new = find_new_columns(columns, schema, row_kind=row_kind)
    assert columns is not None
    load.plan([name for name in columns.names if name not in new])
    return new


def _note_missing_columns(plan: WritePlan, columns: Sequence[str]) -> None:
    missing = [name for name in plan.schema.names if name not in columns]
    if missing:
        print_note(f"the files lack {format_names(missing)}; null or the default value is written")


def _build_csv_format(
    table: Table, delimiter: str, encoding: str | None, *, no_header: bool
) -> CsvFormat:
    character = "\t" if delimiter == r"\t" else delimiter
    return CsvFormat(character, encoding, table.stores.get_schema().names if no_header else None)


def _find_parquet_columns(load: _Load) -> Sequence[str] | None:
    """Return the columns of local Parquet files that Arrow reads as Spark does, or None."""
    if detect_common_format(load.paths) != "parquet":
        return None
    try:
        return read_input_files(load.paths, load.table.stores.get_schema()).columns
    except SparkRequiredError:
        return None


def _print_result(
    table: Table,
    result: IngestResult,
    added: list[str],
    output: Output,
    compaction: "CompactionResult | None",
) -> None:
    if added and not output.is_json:
        print_lines(f"added columns {format_names(added)}")
    print_write_result(
        table,
        _to_values(result) | ({"added_columns": added} if output.is_json else {}),
        output,
        empty_text="no rows: nothing was committed",
        compaction=compaction,
    )


def _to_values(result: IngestResult) -> dict[str, object]:
    return {
        "snapshot_id": result.snapshot_id,
        "rows": result.rows,
        "files": result.files,
        "bytes": result.bytes,
        "duration_seconds": round(result.duration_seconds, 3),
        "rows_not_visible": result.rows_not_visible,
    }


def _print_preview(preview: IngestPreview, added: list[str], output: Output) -> None:
    lines = [f"would add column {column}" for column in added]
    lines += [f"would replace partition {name}" for name in preview.replaced_partitions if name]
    text = f"would load {format_count(preview.rows, 'row')}"
    if preview.replaced_rows:
        text += f" in place of {preview.replaced_rows:,}"
    values = preview.to_dict() | {"added_columns": added}
    output.print_values(values, *lines, f"{text}; nothing was changed")


def _parse_commit_id(user: str | None, identifier: int | None) -> CommitId | None:
    if user is None and identifier is None:
        return None
    if user is None or identifier is None:
        raise InputError("--commit-user and --commit-identifier must be used together")
    return CommitId(user, identifier)
