"""Change the next snapshot of a consumer, or delete the consumer.

See docs/format/tags-branches-consumers.md#consumers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paimon_orch.errors import NotFoundError
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table

LOST_WITH_CONSUMER = "Snapshots that only consumers retain can then expire."


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConsumerRequest(ParsedRequest):
    """A consumer, and where it continues."""

    name: Annotated[str, Argument("Id of the consumer.", metavar="CONSUMER", is_positional=True)]
    next_snapshot: Annotated[
        int | None, Argument("Snapshot to read next.", metavar="ID", default="delete the consumer")
    ] = None


def plan(table: Table, request: ResetConsumerRequest) -> ChangePlan:
    """Find the consumer and the snapshot. Raises :class:`NotFoundError` without them."""
    consumers, next_id = table.stores.open_consumers(), request.next_snapshot
    consumers.check()
    name = consumers.find(request.name)
    previous_id, consumer = consumers.read_next_snapshot(name), f"consumer {escape_name(name)}"
    apply: Callable[[], object]
    if next_id is None:
        if previous_id is None:
            raise NotFoundError(f"{table.identifier} has no consumer {name!r}")
        report = PlanReport(
            action=f"delete {consumer}",
            details=f", which reads snapshot {previous_id} next",
            asks=True,
            undo=LOST_WITH_CONSUMER,
        )
        done, apply = f"deleted {consumer}", partial(consumers.delete, [name])
    else:
        apply = partial(consumers.reset, name, table.stores.snapshots.get(next_id))
        report = PlanReport(action=f"set {consumer}", details=f" to read snapshot {next_id} next")
        done = report.short_action
    return ChangePlan(
        request=request,
        values={
            "consumer": name,
            "next_snapshot_id": next_id,
            "previous_next_snapshot_id": previous_id,
        },
        report=report,
        done=done,
        apply=apply,
    )


DECLARATION = declare_step(
    build_change_step("reset a consumer of", plan),
    ResetConsumerRequest,
    help="Stop its readers first, because they record their own positions.",
    examples=["/lake db.orders app --next-snapshot 7"],
    asks=True,
    command="consumer reset",
)
