"""Update the rows that match a filter.

The new values are simple expressions, which this process computes.
:func:`paimon_orch.spark.update` computes any expression of Spark.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pyarrow as pa

from paimon_orch.errors import PaimonError
from paimon_orch.files.row_tracking import ROW_ID, row_tracking_fields
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.merge.engine.update_rows import should_merge_updates
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.executor import Executor, FrameExecutor, Progress
from paimon_orch.steps.common.executor_choice import find_frames, may_have_frames
from paimon_orch.steps.common.step import build_metadata_step, plan_and_run, run_step
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.assignments import Assignments, NewValues, check_update
from paimon_orch.steps.row_level.local_write import write_in_process
from paimon_orch.steps.row_level.row_level_write import (
    RowLevelPlan,
    RowLevelRequest,
    RowLevelResult,
)
from paimon_orch.steps.row_level.task_result import ADDRESS_COLUMN, KIND_COLUMN, OLD_VALUE_PREFIX
from paimon_orch.steps.row_level.write_outcome import (
    NO_ROW_MATCHES,
    WriteOutcome,
    WriteRequest,
    complete_write,
)
from paimon_orch.table.table import Table


@dataclass(frozen=True, kw_only=True)  # the second base of a class with slots
class _AssignmentsRequest:
    """The argument that calls pass first."""

    assignments: Annotated[
        Assignments,
        Argument(
            "New value as a Spark SQL expression; may be repeated.",
            option="--set",
            metavar="COLUMN=EXPRESSION",
        ),
    ] = field(kw_only=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRequest(ParsedRequest, RowLevelRequest, _AssignmentsRequest):
    """The new values of the rows that match a filter."""

    where: Annotated[
        str | Predicate | None, Argument("SQL filter.", metavar="CONDITION", default="all rows")
    ] = field(default=None, kw_only=False)
    operation: str = field(default="update", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateCommandRequest(UpdateRequest, WriteRequest):
    """An update, and what to do after it."""


def plan(table: Table, request: UpdateRequest) -> RowLevelPlan:
    """Find the files that may have such rows; reads only metadata.

    Raises :class:`UnsupportedError` for an expression that only Spark computes.
    """
    planned = row_level.plan(table, request)
    check_update(planned.schema, request.assignments)
    NewValues.parse(planned.schema, request.assignments)
    return planned


def commit(table: Table, planned: RowLevelPlan) -> RowLevelResult:
    """Compute and write the new rows."""
    if not planned:
        return RowLevelResult()
    assert isinstance(planned.request, UpdateRequest)
    values = NewValues.parse(planned.schema, planned.request.assignments)
    changes = _compute_changes(planned, values)
    return write_in_process(table, planned, changes, values.expressions)


UPDATE_ROWS = build_metadata_step("update rows of", plan, commit)


def _plan_anywhere(
    table: Table,
    request: UpdateCommandRequest,
    *,
    executor: Executor,
) -> RowLevelPlan:
    """Plan an update, whose expressions Spark may compute; a dry run does not start Spark."""
    request.check_compactable(table)
    planned = row_level.plan(table, request)
    check_update(planned.schema, request.assignments)
    if not may_have_frames(executor):
        NewValues.parse(planned.schema, request.assignments)
    return planned


def _find_frames(planned: RowLevelPlan, executor: Executor) -> FrameExecutor | None:
    """Return the executor that computes the new values, or None if this process does."""
    assert isinstance(planned.request, UpdateRequest)
    frames = find_frames(executor, planned.bytes)
    if frames is None:
        try:
            NewValues.parse(planned.schema, planned.request.assignments)
        except PaimonError:
            frames = find_frames(executor)  # Spark computes the value, or has the error
            if frames is None:
                raise
    return frames


def _run_anywhere(
    table: Table,
    planned: RowLevelPlan,
    executor: Executor,
    *,
    progress: Progress | None = None,
) -> WriteOutcome:
    assert isinstance(planned.request, UpdateCommandRequest)
    frames = _find_frames(planned, executor) if planned else None
    if frames is None:
        result = run_step(UPDATE_ROWS, table, planned, progress=progress)
    else:
        result = frames.update_rows(table, planned, progress)
    return complete_write(
        table, result, planned.request, executor, progress, nothing=NO_ROW_MATCHES
    )


@take_fields(UpdateRequest)
def update(table: Table, request: UpdateRequest) -> RowLevelResult:
    """Update the rows that match a filter, in one snapshot; skips rows for which it is NULL.

    ``assignments`` are new values by column: text is an SQL expression, as in
    :func:`paimon_orch.spark.update`; other values, such as numbers, dates and ``col("name")``, are
    stored as they are. An expression is a constant, a column, or a sum, difference or product of
    numbers. Columns of the primary key, the partition and the bucket key cannot be updated.

    Conflicts are handled, and rows of merge engines written, as in :func:`paimon_orch.spark.update`.

    :raises UnsupportedError: for an expression that only Spark computes
    """
    return plan_and_run(UPDATE_ROWS, table, request)


def _compute_changes(planned: RowLevelPlan, values: NewValues) -> Iterator[pa.RecordBatch]:
    """Yield the new rows with their addresses and kinds, and what the writers need of the old."""
    schema, source = planned.schema, planned.source
    assert source is not None
    row_ids = [ROW_ID] if row_tracking_fields(schema) else []
    needs_old = should_merge_updates(schema)
    for unit in planned.units:
        for rows in unit.read(source, [*schema.fields, *row_ids]):
            new = {name: rows.column(name) for name in schema.names} | values.compute(rows)
            kinds = pa.array(np.full(rows.num_rows, "+U"))
            columns = {ADDRESS_COLUMN: rows.column(ADDRESS_COLUMN), KIND_COLUMN: kinds, **new}
            if needs_old:
                columns |= {f"{OLD_VALUE_PREFIX}{x}": rows.column(x) for x in schema.names}
            columns |= {field.name: rows.column(field.name) for field in row_ids}
            yield from pa.table(columns).combine_chunks().to_batches()


DECLARATION = declare_step(
    UPDATE_ROWS,
    UpdateCommandRequest,
    plan=_plan_anywhere,
    run=_run_anywhere,
    help="Without Spark, a new value is a constant, a column, or a sum, difference or product of "
    "numbers; --executor auto selects Spark for all others. With --dry-run, reads only metadata and "
    "prints the number of files that may have such rows.",
    examples=["/lake db.orders --set \"status = 'VOID'\" --where 'v < 0'"],
    asks=True,
    has_units=True,
)
