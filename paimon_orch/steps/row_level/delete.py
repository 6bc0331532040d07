"""Delete the rows that match a filter.

:func:`paimon_orch.steps.row_level.row_level_write.delete` is the function for Python.
"""

from dataclasses import dataclass
from typing import Annotated

from paimon_orch.steps.common.argument import list_arguments
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.row_level.row_level_write import (
    DELETE_ROWS,
    DeleteRowsRequest,
    RowLevelPlan,
    plan,
    run_delete,
)
from paimon_orch.steps.row_level.write_outcome import (
    NO_ROW_MATCHES,
    WriteOutcome,
    WriteRequest,
    complete_write,
)
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRequest(DeleteRowsRequest, WriteRequest):
    """Selects the rows to delete, by a text, and what to do after that."""

    where: Annotated[str, list_arguments(DeleteRowsRequest)["where"].argument]


def _plan(table: Table, request: DeleteRequest, *, executor: Executor) -> RowLevelPlan:  # noqa: ARG001
    request.check_compactable(table)
    return plan(table, request)


def _run(
    table: Table, planned: RowLevelPlan, executor: Executor, *, progress: Progress | None = None
) -> WriteOutcome:
    assert isinstance(planned.request, DeleteRequest)
    result = run_delete(table, planned, executor, progress=progress)
    return complete_write(
        table, result, planned.request, executor, progress, nothing=NO_ROW_MATCHES
    )


DECLARATION = declare_step(
    DELETE_ROWS,
    DeleteRequest,
    plan=_plan,
    run=_run,
    help="With --dry-run, reads only metadata and prints the number of files that may have such "
    "rows.",
    examples=["/lake db.orders --where \"status = 'VOID'\" --dry-run"],
)
