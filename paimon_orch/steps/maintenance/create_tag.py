"""Create a tag for a snapshot, or move a tag to another one.

See docs/format/tags-branches-consumers.md#tags.
"""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated

from paimon_orch.errors import InputError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.times import parse_duration, to_epoch_millis
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.snapshot_selection import TagRequest
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.metadata.time_travel import find_first_since_time, find_first_since_watermark
from paimon_orch.table.table import Table
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTagRequest(TagRequest):
    """The tag, and the snapshot that it keeps; by default, the newest snapshot."""

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


def plan(table: Table, request: CreateTagRequest) -> ChangePlan:
    """Find the snapshot to tag, and the one that the tag has now.

    Raises :class:`NotFoundError` without a suitable snapshot, or without the tag to move, and
    :class:`InputError` if several arguments select the snapshot or the tag exists.
    """
    stores, tags = table.stores, table.tags
    stores.check_step(StepKind.TAG)
    snapshot_id, tag = _find_snapshot(stores, request), escape_name(request.name)
    write, previous_id = tags.create, None
    action = f"create tag {tag} for snapshot {snapshot_id}"
    if request.replace:
        write, previous_id = tags.replace, tags.get(request.name).id
        action = f"move tag {tag} from snapshot {previous_id} to {snapshot_id}"
    else:
        tags.check_unused(request.name)
    return ChangePlan(
        request=request,
        values={"tag": request.name, "snapshot_id": snapshot_id},
        report=PlanReport(
            action=action,
            asks=previous_id not in (None, snapshot_id),
            undo="If the old snapshot has expired, its files can then be deleted.",
        ),
        done=f"tag {tag} keeps snapshot {snapshot_id}",
        apply=partial(write, request.name, snapshot_id, time_retained=request.time_retained),
    )


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


CREATE_TAG = build_change_step("create a tag of", plan)

DECLARATION = declare_step(
    CREATE_TAG,
    CreateTagRequest,
    help="The files of the snapshot are kept until the tag is deleted.",
    examples=["/lake db.orders release-7 --time-retained '30 d'"],
    asks=True,
    command="tag create",
)
