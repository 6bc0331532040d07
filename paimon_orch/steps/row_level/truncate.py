"""Delete all rows."""

from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.common.step import EmptyRequest, build_metadata_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import describe_loss
from paimon_orch.steps.row_level.removal import RemovalPlan, RemovalResult
from paimon_orch.table.table import Table


def plan(table: Table, request: EmptyRequest) -> RemovalPlan:
    """Count the rows of the newest snapshot."""
    state = table.load()
    state.check_step(StepKind.WRITE_ROWS)
    rows = [split.row_count for split in state.files()]
    loss = f"all {describe_loss({'row': sum(rows)})}"
    return RemovalPlan(request=request, loss=loss, bucket_rows=rows)


def commit(table: Table, plan: RemovalPlan) -> RemovalResult:
    """Delete the rows in one snapshot."""
    return RemovalResult.of(table.truncate() if plan else None)


TRUNCATE = build_metadata_step("truncate", plan, commit, max_attempts=1)

DECLARATION = declare_step(
    TRUNCATE,
    EmptyRequest,
    help="Commits one snapshot without the rows; older snapshots keep them.",
    examples=["/lake db.orders --dry-run"],
    asks=True,
)
