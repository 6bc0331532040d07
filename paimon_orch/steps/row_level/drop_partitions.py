"""Delete whole partitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.partition_request import PARTITION_METAVAR, split_partitions
from paimon_orch.steps.common.step import build_metadata_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import describe_loss
from paimon_orch.steps.row_level.removal import RemovalPlan, RemovalResult
from paimon_orch.table.filter.partition_spec import PartitionSpec, format_partition
from paimon_orch.table.partition_drop import plan_partition_drop
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartitionsRequest(ParsedRequest):
    """The partitions to drop: ``dt=2026-01-01``, or mappings of column to value."""

    partitions: Annotated[
        Sequence[str | PartitionSpec],
        Argument(
            "Partitions to drop, also partial ones.",
            split=split_partitions,
            metavar=PARTITION_METAVAR,
        ),
    ]


def plan(table: Table, request: DropPartitionsRequest) -> RemovalPlan:
    """Find the rows of the partitions.

    Raises :class:`NotFoundError` for a partition that neither the table nor its catalog has.
    """
    state = table.load()
    planned = plan_partition_drop(state, request.partitions)
    dropped = set(planned.partitions)
    rows = [split.row_count for split in state.files() if split.partition in dropped]
    names = sorted(format_partition(partition, state.schema) for partition in dropped)
    return RemovalPlan(
        request=request,
        loss=describe_loss({"row": sum(rows), "partition": names or list(map(str, planned.specs))}),
        bucket_rows=rows,
        catalog_partitions=len(planned.catalog_names),
    )


def commit(table: Table, plan: RemovalPlan) -> RemovalResult:
    """Delete the partitions in one snapshot."""
    return RemovalResult.of(table.drop_partitions(plan.request.partitions))


DROP_PARTITIONS = build_metadata_step("drop partitions of", plan, commit, max_attempts=1)

DECLARATION = declare_step(
    DROP_PARTITIONS,
    DropPartitionsRequest,
    help="Commits one snapshot without the rows; older snapshots keep them.",
    examples=["/lake db.orders --partitions 'dt=2026-01-01'"],
    asks=True,
)
