"""Load files into a table, in one snapshot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.core_options import ROWKIND_FIELD
from paimon_orch.format.types.data_types import DataType, type_to_sql
from paimon_orch.safe_text import format_names, get_logger
from paimon_orch.steps import ingest
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.executor_choice import find_frames, is_local
from paimon_orch.steps.common.step_declaration import StepDeclaration, StepTarget
from paimon_orch.steps.common.step_report import KEPT_ROWS, PlanReport, describe_loss
from paimon_orch.steps.definition.catalog_target import CatalogEntry
from paimon_orch.steps.ingest import IngestPreview, IngestRequest, IngestResult, WriteMode
from paimon_orch.steps.ingest_columns import find_columns
from paimon_orch.steps.ingest_files import (
    CsvFormat,
    check_files_exist,
    detect_common_format,
    measure_files,
    read_input_files,
)
from paimon_orch.steps.merge_schema import find_new_columns
from paimon_orch.steps.row_level.write_outcome import WriteOutcome, WriteRequest, complete_write
from paimon_orch.steps.source_files import SparkRequiredError
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.filter.partition_spec import parse_partition_spec
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.text_formats import TextFormats
from paimon_orch.table.write.write_plan import WritePlan

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestFilesRequest(WriteRequest):
    """The files to load, and how to write their rows."""

    source: Annotated[
        Sequence[str],
        Argument(
            "Parquet, CSV or JSON lines file; may be repeated.", option="--from", metavar="PATH"
        ),
    ]
    more_files: Annotated[
        Sequence[str] | None,
        Argument("More files to load, as with --from.", is_positional=True, metavar="PATH"),
    ] = None
    mode: Annotated[WriteMode, Argument("Append (upsert by key), or overwrite.")] = "append"
    row_kind: Annotated[
        str | None, Argument("Column that holds +I, -U, +U or -D.", metavar="COLUMN")
    ] = None
    delimiter: Annotated[
        str,
        Argument(r"Character between the fields of CSV files; \t is a tab.", metavar="CHARACTER"),
    ] = ","
    encoding: Annotated[
        str | None,
        Argument("Encoding of CSV files, e.g. latin-1 or cp1252.", metavar="NAME", default="utf-8"),
    ] = None
    no_header: Annotated[
        bool,
        Argument("CSV files have no header; their columns are those of the table, in its order."),
    ] = False
    null: Annotated[
        str | None,
        Argument("Text of CSV files that is null, besides empty fields.", metavar="TEXT"),
    ] = None
    date_format: Annotated[
        str | None,
        Argument(
            "Format of dates in CSV and JSON files, e.g. dd.MM.yyyy.",
            metavar="FORMAT",
            default="ISO 8601",
        ),
    ] = None
    timestamp_format: Annotated[
        str | None,
        Argument(
            "Format of timestamps in CSV and JSON files, e.g. 'dd.MM.yyyy HH:mm:ss.SSS'.",
            metavar="FORMAT",
            default="ISO 8601",
        ),
    ] = None
    merge_schema: Annotated[
        bool,
        Argument(
            "First add the columns that only the files have, as nullable columns; their type is "
            "STRING in CSV and JSON files. They stay if the load fails."
        ),
    ] = False
    partition: Annotated[
        str | None,
        Argument(
            "Partition that an overwrite replaces.",
            metavar="DT=2026-01-01",
            default="all partitions of the loaded rows",
        ),
    ] = None
    commit_user: Annotated[
        str | None,
        Argument(
            "Name of the job; with --commit-identifier, a load is committed once.", metavar="NAME"
        ),
    ] = None
    commit_identifier: Annotated[
        int | None,
        Argument("Number of the load; later loads need larger numbers.", minimum=0),
    ] = None

    @property
    def commit_id(self) -> CommitId | None:
        """The id of the load, or None if it has none."""
        if self.commit_user is None and self.commit_identifier is None:
            return None
        if self.commit_user is None or self.commit_identifier is None:
            raise InputError("--commit-user and --commit-identifier must be used together")
        return CommitId(self.commit_user, self.commit_identifier)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLoad:
    """The files to load into a table, and how to write their rows."""

    table: Table
    paths: Sequence[str]
    csv_format: CsvFormat
    request: IngestRequest
    """The write, without the columns of the rows."""
    ignored: frozenset[str] = frozenset()
    """Columns of the files that a dry run does not add to the table."""

    @classmethod
    def of(cls, table: Table, request: IngestFilesRequest) -> "FileLoad":
        """Return the load of a request; raises an error for a file that does not exist."""
        get_schema = table.stores.get_schema  # a request, which most loads do not need here
        delimiter = "\t" if request.delimiter == r"\t" else request.delimiter
        load = cls(
            table=table,
            paths=[*request.source, *(request.more_files or ())],
            csv_format=CsvFormat(
                delimiter, request.encoding, get_schema().names if request.no_header else None
            ),
            request=IngestRequest(
                columns=(),
                text_formats=TextFormats(
                    request.null, request.date_format, request.timestamp_format
                ),
                mode=request.mode,
                row_kind=request.row_kind,
                partitions=None
                if request.partition is None
                else parse_partition_spec(request.partition, get_schema()),
                commit_id=request.commit_id,
            ),
        )
        check_files_exist(load.paths)
        load._check_formats()
        return load

    def _check_formats(self) -> None:
        """Raise :class:`InputError` for options of text that the files do not have."""
        form, formats = detect_common_format(self.paths), self.request.text_formats
        assert formats is not None
        self.csv_format.check_file_format(form)
        if formats.null is not None and form != "csv":
            raise InputError(f"--null is for CSV only: the files are {form}")
        for name, text in (
            ("--date-format", formats.date),
            ("--timestamp-format", formats.timestamp),
        ):
            if text is not None and form == "parquet":
                raise InputError(f"{name} is for CSV and JSON only: the files are {form}")

    def plan(
        self,
        columns: Sequence[str],
        *,
        are_complete: bool = True,
        state: TableState | None = None,
        in_process: bool = False,
    ) -> WritePlan:
        """Check the columns of the rows, and plan the write."""
        names = [name for name in columns if name not in self.ignored]
        request = replace(self.request, columns=names, are_columns_complete=are_complete)
        return ingest.plan(self.table, request, state=state, in_process=in_process)

    def find_new_columns(self) -> dict[str, DataType]:
        """Return the columns that the table lacks, if all other columns can be written."""
        columns = find_columns(self.paths, self.table.io, csv_format=self.csv_format)
        schema = self.table.stores.get_schema()
        row_kind = self.request.row_kind or schema.typed_options.get(ROWKIND_FIELD)
        new = find_new_columns(columns, schema, row_kind=row_kind)
        assert columns is not None
        self.plan([name for name in columns.names if name not in new])
        return new

    def check_known_columns(self) -> None:
        """Plan the write before Spark starts, unless only Spark can find the columns."""
        columns = find_columns(self.paths, self.table.io, csv_format=self.csv_format)
        if columns is not None:
            self.plan(columns.names, are_complete=columns.is_complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLoadPlan(Displayable):
    """The files to load, the columns to add, and, for a dry run or a question, the rows."""

    request: IngestFilesRequest
    load: FileLoad
    added: Sequence[str] = ()
    """The columns to add to the table, with their types."""
    preview: IngestPreview | None = None

    def __bool__(self) -> bool:
        """Return True; only the content of the files could say that there is nothing to do."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the rows to load and to replace, if they are counted, as JSON values."""
        if self.preview is None:
            return {"files": len(self.load.paths), "bytes": measure_files(self.load.paths)}
        return self.preview.to_dict() | {
            "added_columns": list(self.added),
            "missing_columns": list(self.preview.missing_columns),
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        if self.preview is None:
            files = format_count(len(self.load.paths), "file")
            asks = self.request.mode == "overwrite"
            return PlanReport(action=f"load {files}", link=" into ", asks=asks, undo=KEPT_ROWS)
        names = [name for name in self.preview.replaced_partitions if name]
        lines = [f"would add column {column}" for column in self.added]
        lines += [f"would replace partition {name}" for name in names]
        lines += _note_missing_columns(self.preview)
        rows = format_count(self.preview.rows, "row")
        if not self.preview.replaced_rows:
            return PlanReport(action=f"load {rows}", link=" into ", lines=lines)
        loss = describe_loss({"row": self.preview.replaced_rows, "partition": names})
        return PlanReport(
            action=f"replace {loss}", details=f" by {rows}", lines=lines, asks=True, undo=KEPT_ROWS
        )


def plan(entry: CatalogEntry, request: IngestFilesRequest, *, executor: Executor) -> FileLoadPlan:  # noqa: ARG001
    """Check the files and the options; reads no rows."""
    table = entry.catalog.table(entry.identifier)
    request.check_compactable(table)
    return FileLoadPlan(request=request, load=FileLoad.of(table, request))


def measure(_entry: CatalogEntry, planned: FileLoadPlan, executor: Executor) -> FileLoadPlan:
    """Read and check all rows, and count them and those that they replace; writes nothing."""
    load, added = planned.load, dict[str, DataType]()
    if planned.request.merge_schema:
        added = load.find_new_columns()
        load = replace(load, ignored=frozenset(added))
    preview = _run(load, executor, None, preview=True)
    assert isinstance(preview, IngestPreview)
    return replace(planned, added=_describe_columns(added), preview=preview)


def run(
    entry: CatalogEntry,
    planned: FileLoadPlan,
    executor: Executor,
    *,
    progress: Progress | None = None,
) -> WriteOutcome:
    """Add the new columns, load the rows, and compact them if the request says so."""
    load, new = planned.load, dict[str, DataType]()
    if planned.request.merge_schema:
        new = load.find_new_columns()
        if new:
            changes = [AddColumn(column=name, type=kind) for name, kind in new.items()]
            entry.catalog.alter_table(entry.identifier, changes)
    result = _run(load, executor, progress, preview=False)
    assert isinstance(result, IngestResult)
    outcome = complete_write(
        load.table,
        result,
        planned.request,
        executor,
        progress,
        nothing="no rows: nothing was committed",
    )
    added = _describe_columns(new)
    return replace(
        outcome,
        values=dict(outcome.values)
        | {"added_columns": added, "missing_columns": list(result.missing_columns)},
        lines=(f"added columns {format_names(added)}",) if added else (),
        notes=(*_note_missing_columns(result), *outcome.notes),
    )


def _note_missing_columns(loaded: IngestResult | IngestPreview) -> list[str]:
    if not loaded.missing_columns:
        return []
    names = format_names(loaded.missing_columns)
    return [f"the files lack {names}; null or the default value is written"]


def _describe_columns(columns: dict[str, DataType]) -> list[str]:
    return [f"{name} {type_to_sql(kind)}" for name, kind in columns.items()]


def _run(
    load: FileLoad, executor: Executor, progress: Progress | None, *, preview: bool
) -> IngestResult | IngestPreview:
    """Load the files in this process, or on Spark if they are large or only Spark reads them."""
    size = measure_files(load.paths)
    if not is_local(executor, size):
        load.check_known_columns()
    frames = find_frames(executor, size)
    if frames is None:
        try:
            return _run_here(load, preview=preview)
        except SparkRequiredError as error:
            frames = find_frames(executor)
            if frames is None:
                raise
            logger.info("the files are loaded on Spark: %s", error)
    return frames.load_files(load, preview=preview, progress=progress)


def _run_here(load: FileLoad, *, preview: bool) -> IngestResult | IngestPreview:
    state = load.table.load(with_lists=True)
    rows = read_input_files(load.paths, state.schema, csv_format=load.csv_format)
    planned = load.plan(rows.columns, state=state, in_process=True)

    def read() -> Iterator[pa.Table]:
        return planned.prepare(rows.read())

    loaded = (
        ingest.build_preview(load.table, planned, [ingest.count_rows(planned, read())])
        if preview
        else ingest.run_ingest(
            load.table, planned, lambda: [write_rows(planned, read())], sources=load.paths
        )
    )
    return add_missing_columns(loaded, planned, rows.columns)


def add_missing_columns(
    loaded: IngestResult | IngestPreview, planned: WritePlan, columns: Sequence[str]
) -> IngestResult | IngestPreview:
    """Return a result with the columns of the table that the files do not have."""
    missing = [name for name in planned.schema.names if name not in columns]
    return replace(loaded, missing_columns=missing)


DECLARATION = StepDeclaration(
    request=IngestFilesRequest,
    plan=plan,
    measure=measure,
    run=run,
    title="ingest into",
    target=StepTarget.TABLE_NAME,
    help="Reads Parquet, CSV and JSON lines. Nullable columns that the files lack are null, or have "
    "the default value of the column. With --dry-run, all rows are read and checked, but no rows "
    "are written. An overwrite does the same first, and asks before it replaces rows.",
    examples=[
        "/lake db.orders --from orders.csv --dry-run",
        "/lake db.orders --from orders-*.parquet --compact",
        "/lake db.orders --from day.csv --mode overwrite",
        "/lake db.orders --from a.csv --delimiter ';' --null NULL",
    ],
    asks=True,
    has_units=True,
)
