"""Update the rows that match a filter.

The new values are simple expressions, which this process computes.
:func:`paimon_orch.spark.update` computes any expression of Spark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa

from paimon_orch.files.row_tracking import ROW_ID, row_tracking_fields
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.merge.engine.update_rows import should_merge_updates
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.step import build_metadata_step, run_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.assignments import Assignments, NewValues, check_update
from paimon_orch.steps.row_level.local_write import write_in_process
from paimon_orch.steps.row_level.row_level_write import (
    RowLevelPlan,
    RowLevelRequest,
    RowLevelResult,
)
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    OLD_VALUE_PREFIX,
)
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRequest(RowLevelRequest, ParsedRequest):
    """The new values of the rows that match a filter."""

    assignments: Annotated[Assignments, Argument("New values by column, as SQL expressions.")]
    where: Annotated[
        str | Predicate | None, Argument("SQL filter.", metavar="CONDITION", default="all rows")
    ] = None
    operation: str = "update"


def plan(table: Table, request: UpdateRequest) -> RowLevelPlan:
    """Find the files that may have such rows; reads only metadata.

    Raises :class:`UnsupportedError` for an expression that only Spark computes.
    """
    planned = row_level.plan(table, request)
    check_update(planned.schema, request.assignments)
    NewValues.parse(planned.schema, request.assignments)
    return planned


def commit(table: Table, planned: RowLevelPlan, _results: Sequence[bytes] = ()) -> RowLevelResult:
    """Compute and write the new rows."""
    if not planned:
        return RowLevelResult()
    assert isinstance(planned.request, UpdateRequest)
    values = NewValues.parse(planned.schema, planned.request.assignments)
    changes = _compute_changes(planned, values)
    return write_in_process(table, planned, changes, values.expressions)


UPDATE_ROWS = build_metadata_step("update rows of", plan, commit)


def update(
    table: Table, assignments: Assignments, where: str | Predicate | None = None
) -> RowLevelResult:
    """Update the rows that match a filter, in one snapshot; skips rows for which it is NULL.

    ``assignments`` are new values by column: text is an SQL expression, as in
    :func:`paimon_orch.spark.update`; other values, such as numbers, dates and ``col("name")``, are
    stored as they are. An expression is a constant, a column, or a sum, difference or product of
    numbers. Columns of the primary key, the partition and the bucket key cannot be updated.

    Conflicts are handled, and rows of merge engines written, as in :func:`paimon_orch.spark.update`.

    :raises UnsupportedError: for an expression that only Spark computes
    """
    request = UpdateRequest(assignments=assignments, where=where)
    return run_step(UPDATE_ROWS, table, plan(table, request))


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
    UpdateRequest,
    help="A new value is a constant, a column, or a sum, difference or product of numbers.",
    asks=True,
)
