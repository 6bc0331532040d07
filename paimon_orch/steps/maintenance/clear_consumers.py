"""Delete consumers.

See docs/format/tags-branches-consumers.md#consumers.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.steps.maintenance.reset_consumer import LOST_WITH_CONSUMER
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearConsumersRequest(ParsedRequest):
    """Selects consumers by their ids."""

    including: Annotated[
        str | None,
        Argument("Clear the consumers that match this.", metavar="REGEX", default="all consumers"),
    ] = None
    excluding: Annotated[
        str | None,
        Argument("Keep the consumers that match this.", metavar="REGEX", default="none"),
    ] = None


def plan(table: Table, request: ClearConsumersRequest) -> ChangePlan:
    """Find the consumers. Raises :class:`InputError` for an invalid regular expression."""
    consumers = table.stores.open_consumers()
    names = consumers.find_matching(request.including, request.excluding)
    loss = describe_loss({"consumer": names})
    return ChangePlan(
        request=request,
        values={"consumers": names},
        report=PlanReport(
            action=f"delete {loss}",
            lines=[escape_name(name) for name in names],
            nothing="" if names else "no consumer matches",
            asks=bool(names),
            undo=LOST_WITH_CONSUMER,
        ),
        done=f"deleted {loss}",
        apply=partial(consumers.delete, names),
    )


DECLARATION = declare_step(
    build_change_step("clear consumers of", plan),
    ClearConsumersRequest,
    help="A regular expression must match the whole id. Snapshots that only these consumers have "
    "not read can then expire.",
    examples=["/lake db.orders --including 'test-.*' --dry-run"],
    asks=True,
    command="consumer clear",
)
