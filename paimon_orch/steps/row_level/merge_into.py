"""Update, delete and insert rows from files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from paimon_orch.errors import PaimonError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.executor import Executor, FileMerge, Progress
from paimon_orch.steps.common.executor_choice import find_frames
from paimon_orch.steps.common.step_declaration import StepDeclaration
from paimon_orch.steps.common.step_report import KEPT_ROWS, PlanReport, join_words
from paimon_orch.steps.ingest_files import (
    CsvFormat,
    check_files_exist,
    measure_files,
    read_input_files,
)
from paimon_orch.steps.row_level.merge import plan_merge
from paimon_orch.steps.row_level.merge_clauses import MergeClauses, check_merge
from paimon_orch.steps.row_level.row_level_write import RowLevelResult
from paimon_orch.steps.row_level.write_outcome import (
    NO_ROW_MATCHES,
    WriteOutcome,
    WriteRequest,
    complete_write,
)
from paimon_orch.table.table import Table

_STAR: Final = "*"
_EXAMPLE = (
    "/lake db.orders --from changes.csv \\\n"
    "        --on 'target.id = source.id' --update '*' --insert '*'"
)
TextByColumn = Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeIntoRequest(WriteRequest):
    """The files, and what to do with rows with and without a match.

    The new values ``{"*": "*"}`` are those of all columns of the files.
    """

    source: Annotated[
        Sequence[str],
        Argument(
            "Parquet, CSV or JSON lines file; may be repeated.", option="--from", metavar="PATH"
        ),
    ]
    on: Annotated[
        str, Argument('Join condition, e.g. "target.id = source.id".', metavar="CONDITION")
    ]
    matched_update: Annotated[
        TextByColumn,
        Argument(
            'New value of matched rows, e.g. "v = source.v", or "*" for all columns; may be '
            "repeated.",
            option="--update",
            metavar="COLUMN=EXPRESSION",
            has_star=True,
        ),
    ] = None
    matched_delete: Annotated[
        str | None,
        Argument(
            'Delete matched rows that satisfy a condition; "true" deletes all matched rows.',
            option="--delete",
            metavar="CONDITION",
        ),
    ] = None
    insert: Annotated[
        TextByColumn,
        Argument(
            'Value of inserted rows, which have no match, e.g. "v = source.v", or "*" for all '
            "columns; may be repeated.",
            metavar="COLUMN=EXPRESSION",
            has_star=True,
        ),
    ] = None
    update_not_in_source: Annotated[
        TextByColumn,
        Argument(
            "New value of rows of the table without a match in the files; may be repeated.",
            metavar="COLUMN=EXPRESSION",
        ),
    ] = None
    delete_not_in_source: Annotated[
        str | None,
        Argument(
            "Delete rows of the table without a match in the files that satisfy a condition.",
            metavar="CONDITION",
        ),
    ] = None
    encoding: Annotated[
        str | None,
        Argument("Encoding of CSV files, e.g. latin-1 or cp1252.", metavar="NAME", default="utf-8"),
    ] = None

    @property
    def clauses(self) -> MergeClauses:
        """The clauses of the merge."""
        return {
            "when_matched_update": _expand(self.matched_update),
            "when_matched_delete": self.matched_delete,
            "when_not_matched_insert": _expand(self.insert),
            "when_not_matched_by_source_update": self.update_not_in_source,
            "when_not_matched_by_source_delete": self.delete_not_in_source,
        }

    @property
    def deletes(self) -> bool:
        """Whether rows may be deleted."""
        return self.matched_delete is not None or self.delete_not_in_source is not None


def _expand(values: TextByColumn) -> Mapping[str, str] | Literal["*"] | None:
    return _STAR if values == {_STAR: _STAR} else values


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeIntoPlan(Displayable):
    """A merge of files, and, for a dry run or a question, the number of rows."""

    request: MergeIntoRequest
    merge: FileMerge
    preview: RowLevelResult | None = None

    def __bool__(self) -> bool:
        """Return True; only the rows could say that there is nothing to do."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the numbers of rows, if they are counted, as JSON values."""
        if self.preview is None:
            paths = self.request.source
            return {"files": len(paths), "bytes": measure_files(paths)}
        return {kind: getattr(self.preview, kind) for kind in ("inserted", "updated", "deleted")}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        if self.preview is None:
            files = format_count(len(self.request.source), "file")
            return PlanReport(
                action=f"merge {files}", link=" into ", asks=self.request.deletes, undo=KEPT_ROWS
            )
        changes = {
            "insert": self.preview.inserted,
            "update": self.preview.updated,
            "delete": self.preview.deleted,
        }
        parts = [f"{verb} {format_count(count, 'row')}" for verb, count in changes.items() if count]
        return PlanReport(
            action=join_words(parts or ["change no rows"]),
            asks=bool(self.preview.deleted),
            undo=KEPT_ROWS,
        )


def plan(table: Table, request: MergeIntoRequest, *, executor: Executor) -> MergeIntoPlan:
    """Check the clauses and read the files; the merge runs on Spark if this process cannot."""
    request.check_compactable(table)
    check_files_exist(request.source)
    check_merge(table, request.clauses)
    csv_format, size = CsvFormat(encoding=request.encoding), measure_files(request.source)
    frames = find_frames(executor, size)
    if frames is None:
        try:
            rows = read_input_files(
                request.source, table.stores.get_schema(), csv_format=csv_format
            )
            merge = plan_merge(table, rows.to_arrow(), request.on, **request.clauses)
        except PaimonError:
            frames = find_frames(executor)  # Spark evaluates the clauses, or has the error
            if frames is None:
                raise
        else:
            frames = find_frames(executor, size + merge.planned.bytes)
            if frames is None:
                return MergeIntoPlan(request=request, merge=merge)
    on_spark = frames.open_merge(table, request.source, csv_format, request.on, request.clauses)
    return MergeIntoPlan(request=request, merge=on_spark)


def measure(_table: Table, planned: MergeIntoPlan, _executor: Executor) -> MergeIntoPlan:
    """Count the rows that change; writes nothing."""
    return replace(planned, preview=planned.merge.preview())


def run(
    table: Table,
    planned: MergeIntoPlan,
    executor: Executor,
    *,
    progress: Progress | None = None,
) -> WriteOutcome:
    """Merge the files, and compact what was written if the request says so."""
    result = planned.merge.run(progress)
    return complete_write(
        table, result, planned.request, executor, progress, nothing=NO_ROW_MATCHES
    )


DECLARATION = StepDeclaration(
    request=MergeIntoRequest,
    plan=plan,
    measure=measure,
    run=run,
    title="merge into",
    help="Conditions and values are SQL expressions over target.COLUMN and source.COLUMN. Without "
    "Spark, --on is equalities of columns, and conditions and values are as in delete and update; "
    "--executor auto selects Spark for all others. All values of CSV and JSON files are text. The "
    "changes are committed in one snapshot. With --delete or --delete-not-in-source, asks before it "
    "deletes rows.",
    examples=[_EXAMPLE],
    asks=True,
    has_units=True,
)
