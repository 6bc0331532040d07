"""Create a tag for a snapshot, or move a tag to another one.

See docs/format/tags-branches-consumers.md#tags.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from paimon_orch.errors import InputError
from paimon_orch.format.display import Displayable
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.times import parse_duration, to_epoch_millis
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.step import PlanOutcome, build_metadata_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.metadata.time_travel import (
    find_first_since_time,
    find_first_since_watermark,
)
from paimon_orch.table.table import Table
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTagRequest(ParsedRequest):
    """The tag, and the snapshot that it keeps; by default, the newest snapshot."""

    name: Annotated[str, Argument("Name of the tag.", metavar="TAG", is_positional=True)]
    snapshot_id: Annotated[
        int | None,
        Argument(
            "Id of the snapshot to tag.", option="--snapshot", metavar="ID", default="the newest"
        ),
    ] = None
    from_timestamp: Annotated[
        int | None,
        Argument(
            "Tag the first snapshot at or after this time: ISO 8601 or epoch milliseconds.",
            parse=to_epoch_millis,
            metavar="TIME",
        ),
    ] = None
    from_watermark: Annotated[
        int | None,
        Argument(
            "Tag the first snapshot with this watermark or a later one: ISO 8601 or epoch "
            "milliseconds.",
            parse=to_epoch_millis,
            metavar="TIME",
        ),
    ] = None
    time_retained: Annotated[
        timedelta | None,
        Argument(
            "Age at which the tag expires, e.g. '30 d'.",
            parse=parse_duration,
            metavar="DURATION",
            default="never",
        ),
    ] = None
    replace: Annotated[bool, Argument("Move the tag if it already exists.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TagCreationPlan(Displayable):
    """A tag and its snapshot."""

    request: CreateTagRequest = field(repr=False)
    snapshot_id: int
    previous_id: int | None
    """The snapshot of the tag that is moved, or None for a new tag."""

    def __bool__(self) -> bool:
        """Return True, because the tag is written in any case."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the tag and its snapshot as JSON values."""
        return {"tag": self.request.name, "snapshot_id": self.snapshot_id}

    def describe(self) -> PlanReport:
        """Return the plan as text; moving a tag asks."""
        tag, moves = escape_name(self.request.name), self.previous_id is not None
        action = f"create tag {tag} for snapshot {self.snapshot_id}"
        if moves:
            action = f"move tag {tag} from snapshot {self.previous_id} to {self.snapshot_id}"
        return PlanReport(
            action=action,
            asks=self.previous_id not in (None, self.snapshot_id),
            undo="If the old snapshot has expired, its files can then be deleted.",
        )


class TagCreationResult(PlanOutcome[TagCreationPlan]):
    """The tag that was written."""

    def describe(self) -> list[str]:
        """Return what the tag keeps."""
        name = escape_name(self.plan.request.name)
        return [f"tag {name} keeps snapshot {self.plan.snapshot_id}"]


def plan(table: Table, request: CreateTagRequest) -> TagCreationPlan:
    """Find the snapshot to tag, and the one that the tag has now.

    Raises :class:`NotFoundError` without a suitable snapshot, or without the tag to move, and
    :class:`InputError` if several arguments select the snapshot or the tag exists.
    """
    stores = table.stores
    stores.check_step(StepKind.TAG)
    snapshot_id, previous = _find_snapshot(stores, request), None
    if request.replace:
        previous = stores.tags.get(request.name).id
    else:
        stores.tags.check_unused(request.name)
    return TagCreationPlan(request=request, snapshot_id=snapshot_id, previous_id=previous)


def _find_snapshot(stores: TableStores, request: CreateTagRequest) -> int:
    selectors = (request.snapshot_id, request.from_timestamp, request.from_watermark)
    if sum(each is not None for each in selectors) > 1:
        raise InputError(
            "the id of a snapshot, a time and a watermark cannot be combined; set only one of them"
        )
    if request.from_timestamp is not None:
        return find_first_since_time(stores.snapshots, request.from_timestamp).id
    if request.from_watermark is not None:
        return find_first_since_watermark(stores.snapshots, request.from_watermark).id
    return stores.tags.find_snapshot(request.snapshot_id).id


def commit(
    table: Table, plan: TagCreationPlan, _results: Sequence[bytes] = ()
) -> TagCreationResult:
    """Write the tag."""
    tags, request = table.tags, plan.request
    write = tags.create if plan.previous_id is None else tags.replace
    write(request.name, plan.snapshot_id, time_retained=request.time_retained)
    return TagCreationResult(plan=plan)


CREATE_TAG = build_metadata_step("create a tag of", plan, commit, max_attempts=1)

DECLARATION = declare_step(
    CREATE_TAG,
    CreateTagRequest,
    help="The files of the snapshot are kept until the tag is deleted.",
    examples=["/lake db.orders release-7 --time-retained '30 d'"],
    asks=True,
    command="tag create",
)
