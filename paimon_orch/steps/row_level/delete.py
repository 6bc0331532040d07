"""Delete the rows that match a filter.

:func:`paimon_orch.steps.row_level.row_level_write.delete` is the function for Python.
"""

from dataclasses import dataclass
from typing import Annotated

from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.row_level.row_level_write import DELETE_ROWS, RowLevelRequest, run_delete


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRequest(RowLevelRequest, ParsedRequest):
    """Selects the rows to delete."""

    where: Annotated[str, Argument("SQL filter, e.g. \"status = 'VOID'\".", metavar="CONDITION")]


DECLARATION = declare_step(
    DELETE_ROWS,
    DeleteRequest,
    run=run_delete,
    help="With --dry-run, reads only metadata and prints the number of files that may have such "
    "rows.",
    examples=["/lake db.orders --where \"status = 'VOID'\" --dry-run"],
)
