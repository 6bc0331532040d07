"""The command ``merge-into``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, TypedDict

import typer

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
from paimon_orch.cli.commands.row_level import (
    parse_assignments,
    print_row_level_result,
    silence_pyspark_loggers,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    check_files_exist,
    compact_after_write,
    confirm,
    open_progress_bars,
    open_table_for_write,
    start_spark,
)
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES, Output
from paimon_orch.errors import PaimonError
from paimon_orch.optional_packages import is_installed
from paimon_orch.steps.common.executor import Progress
from paimon_orch.steps.common.executor_choice import ChoosingExecutor, ExecutorKind
from paimon_orch.steps.common.step_report import KEPT_ROWS, describe_loss
from paimon_orch.steps.ingest_files import CsvFormat, measure_files, read_input_files
from paimon_orch.steps.row_level.merge import plan_merge
from paimon_orch.steps.row_level.merge_clauses import check_merge
from paimon_orch.steps.row_level.row_level_write import RowLevelResult
from paimon_orch.table.table import Table

AssignmentTexts = list[str] | None

_JoinCondition = Annotated[
    str, typer.Option(metavar="CONDITION", help='Join condition, e.g. "target.id = source.id".')
]
_MatchedUpdate = Annotated[
    AssignmentTexts,
    typer.Option(
        "--update",
        metavar="COLUMN=EXPRESSION",
        help='New value of matched rows, e.g. "v = source.v", or "*" for all columns; may be '
        "repeated.",
    ),
]
_MatchedDelete = Annotated[
    str | None,
    typer.Option(
        "--delete",
        metavar="CONDITION",
        help='Delete matched rows that satisfy a condition; "true" deletes all matched rows.',
    ),
]
_Insert = Annotated[
    AssignmentTexts,
    typer.Option(
        metavar="COLUMN=EXPRESSION",
        help='Value of inserted rows, which have no match, e.g. "v = source.v", or "*" for all '
        "columns; may be repeated.",
    ),
]
_UpdateNotInSource = Annotated[
    AssignmentTexts,
    typer.Option(
        metavar="COLUMN=EXPRESSION",
        help="New value of rows of the table without a match in the files; may be repeated.",
    ),
]
_DeleteNotInSource = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION",
        help="Delete rows of the table without a match in the files that satisfy a condition.",
    ),
]
_EXAMPLE = (
    "merge-into /lake db.orders --from changes.csv \\\n"
    "        --on 'target.id = source.id' --update '*' --insert '*'"
)


def add_commands(app: typer.Typer) -> None:
    """Register the command of this module."""
    register_command(app, merge_into, examples=[_EXAMPLE])


def merge_into(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    source: SourceFiles,
    on: _JoinCondition,
    matched_update: _MatchedUpdate = None,
    matched_delete: _MatchedDelete = None,
    insert: _Insert = None,
    update_not_in_source: _UpdateNotInSource = None,
    delete_not_in_source: _DeleteNotInSource = None,
    encoding: Encoding = None,
    compact_after: CompactAfter = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    output: JsonOutput = LINES,
) -> None:
    """Update, delete and insert rows from files.

    Conditions and values are SQL expressions over target.COLUMN and source.COLUMN. Without Spark,
    --on is equalities of columns, and conditions and values are as in delete and update; --executor
    auto selects Spark for all others. All values of CSV and JSON files are text. The changes are
    committed in one snapshot. With --delete or --delete-not-in-source, asks before it deletes rows.
    """
    runner = build_executor(executor, master)
    target = open_table_for_write(ctx, location, table, compact=compact_after)
    check_files_exist(source)
    clauses: _Clauses = {
        "when_matched_update": _parse_assignments_or_star(matched_update),
        "when_matched_delete": matched_delete,
        "when_not_matched_insert": _parse_assignments_or_star(insert),
        "when_not_matched_by_source_update": (
            None if update_not_in_source is None else parse_assignments(update_not_in_source)
        ),
        "when_not_matched_by_source_delete": delete_not_in_source,
    }
    check_merge(target, clauses)
    request = _Request(target, source, CsvFormat(encoding=encoding), on, clauses)
    merge = request.plan_in_process(runner) or _MergeOnSpark(request, master)
    deletes = matched_delete is not None or delete_not_in_source is not None
    if dry_run or (deletes and not yes):
        preview = merge.preview()
        if dry_run:
            _print_preview(preview, output)
            return
        if preview.deleted:
            loss = describe_loss({"row": preview.deleted})
            confirm(f"delete {loss} of {table} that match the conditions", undo=KEPT_ROWS)
    with open_progress_bars() as bars:
        result = merge.run(add_progress_bar(bars, f"merge into {table}"))
        compaction = (
            compact_after_write(target, result.snapshot_id, runner, bars) if compact_after else None
        )
    print_row_level_result(target, result, output, compaction)


class _Clauses(TypedDict):
    """The clauses of a merge in this process or on Spark."""

    when_matched_update: Mapping[str, str] | Literal["*"] | None
    when_matched_delete: str | None
    when_not_matched_insert: Mapping[str, str] | Literal["*"] | None
    when_not_matched_by_source_update: Mapping[str, str] | None
    when_not_matched_by_source_delete: str | None


class _Merge(Protocol):
    def preview(self) -> RowLevelResult: ...

    def run(self, progress: Progress | None = None) -> RowLevelResult: ...


@dataclass(frozen=True, slots=True)
class _Request:
    table: Table
    paths: Sequence[str]
    csv_format: CsvFormat
    on: str
    clauses: _Clauses

    def plan_in_process(self, runner: ChoosingExecutor) -> _Merge | None:
        """Return the merge in this process, or None if Spark must run it."""
        size = measure_files(self.paths)
        if not runner.is_local(size):
            return None
        try:
            schema = self.table.stores.get_schema()
            rows = read_input_files(self.paths, schema, csv_format=self.csv_format)
            plan = plan_merge(self.table, rows.to_arrow(), self.on, **self.clauses)
        except PaimonError:
            if runner.kind is ExecutorKind.LOCAL or not is_installed("pyspark.core"):
                raise
            return None  # Spark reads the files and evaluates the clauses, or has the error
        return plan if runner.is_local(size + plan.planned.bytes) else None


class _MergeOnSpark:
    def __init__(self, request: _Request, master: str | None) -> None:
        from paimon_orch.spark.input_files import read_files

        silence_pyspark_loggers()
        self._request = request
        self._rows = read_files(start_spark(master), request.paths, csv_format=request.csv_format)

    def preview(self) -> RowLevelResult:
        from paimon_orch.spark.update_and_merge import preview_merge

        request = self._request
        return preview_merge(self._rows, request.table, request.on, **request.clauses)

    def run(self, progress: Progress | None = None) -> RowLevelResult:
        from paimon_orch.spark.update_and_merge import merge_into as merge_on_spark

        request = self._request
        return merge_on_spark(
            self._rows, request.table, request.on, progress=progress, **request.clauses
        )


def _parse_assignments_or_star(
    assignments: AssignmentTexts,
) -> Mapping[str, str] | Literal["*"] | None:
    if assignments is None:
        return None
    return "*" if assignments == ["*"] else parse_assignments(assignments)


def _print_preview(planned: RowLevelResult, output: Output) -> None:
    kinds = ("inserted", "updated", "deleted")
    values: dict[str, object] = {kind: getattr(planned, kind) for kind in kinds}
    counts = ", ".join(f"{number:,} {kind}" for kind, number in values.items())
    output.print_values(values, f"rows that would change: {counts}; nothing was changed")
