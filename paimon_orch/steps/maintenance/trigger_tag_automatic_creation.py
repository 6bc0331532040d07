"""Create the tags that are due.

See docs/format/tags-branches-consumers.md#tags.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from paimon_orch.errors import CommitConflictError, InputError, UnsupportedError
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    TAG_AUTOMATIC_COMPLETION,
    TAG_AUTOMATIC_CREATION,
    TAG_CREATION_DELAY,
    TAG_DEFAULT_TIME_RETAINED,
    TAG_NUM_RETAINED_MAX,
)
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.common.step import (
    EmptyRequest,
    PlanOutcome,
    build_metadata_step,
    plan_and_run,
)
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.steps.expiration.delete_tag import delete_tags
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.tag_periods import TagPeriods, compute_tag_time, parse_tag_time_zone
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_MAX_DUE_TAGS = 100_000
_CREATION_MODES = ("process-time", "watermark")


@dataclass(frozen=True, slots=True, kw_only=True)
class TagCreationPlan:
    """The tags to create and to delete. The plan is falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    due: Mapping[str, int] = field(default_factory=dict)
    """The snapshots of the tags to create, by tag name."""
    time_retained: timedelta | None = None
    """The retention time of the new tags; None means no limit."""
    excess: tuple[str, ...] = ()
    """The oldest automatic tags above the limit ``tag.num-retained-max``, which are deleted."""

    def __bool__(self) -> bool:
        """Return whether any tag is created or deleted."""
        return bool(self.due or self.excess)

    @property
    def names(self) -> list[str]:
        """Return the names of the tags to create."""
        return list(self.due)

    def to_dict(self) -> dict[str, object]:
        """Return the names of the tags as JSON values."""
        return {"created_tags": self.names, "deleted_tags": list(self.excess)}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(action=self.format("create", "delete"), nothing="no tag is due")

    def format(self, create: str, delete: str) -> str:
        """Return the names of the tags after verbs: ``create 1 tag (2026-01-01)``."""
        changes = {create: self.names, delete: self.excess}
        return " and ".join(
            f"{verb} {describe_loss({'tag': names})}" for verb, names in changes.items() if names
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TagCreationResult(PlanOutcome[TagCreationPlan]):
    """The tags that were created and deleted."""

    def describe(self) -> list[str]:
        """Return the names of the tags."""
        return [self.plan.format("created", "deleted")] if self.plan else []


def plan(table: Table, request: EmptyRequest) -> TagCreationPlan:
    """Find the tags that ``tag.automatic-creation`` requires, and the tags to delete.

    Without automatic creation, there are none.
    """
    state = table.load()
    state.check_step(StepKind.TAG)
    options = state.schema.typed_options
    mode = options.get(TAG_AUTOMATIC_CREATION)
    if mode not in _CREATION_MODES:
        return TagCreationPlan(request=request)
    periods = TagPeriods.of(options)
    names = state.tags.names()
    due = _find_due_tags(state, names, mode, periods)
    excess = _find_excess_tags(options, periods, [*names, *due])
    if excess:
        state.check_step(StepKind.TAG | StepKind.DELETE)
    return TagCreationPlan(
        request=request,
        due=due,
        time_retained=options.get(TAG_DEFAULT_TIME_RETAINED),
        excess=tuple(excess),
    )


def _find_due_tags(
    state: TableState, names: Sequence[str], mode: str, periods: TagPeriods
) -> dict[str, int]:
    """Return the names and snapshots of the tags to create, beside those with ``names``."""
    options = state.schema.typed_options
    zone = parse_tag_time_zone(options, mode)
    delay = options.get(TAG_CREATION_DELAY)
    if delay >= periods.length:
        raise InputError("'tag.creation-delay' must be shorter than the period of tags")
    due: dict[str, int] = {}
    periods_left = _MAX_DUE_TAGS
    automatic = _select_automatic_tags(names, periods)
    last = max(automatic, default=None)
    first = 0 if last is None else state.tags.get(automatic[last]).id + 1
    numbers = [number for number in state.snapshots.ids() if number >= first]
    snapshots = map_concurrently(state.io, state.snapshots.get, numbers)
    for number, snapshot in zip(numbers, snapshots, strict=True):
        millis = snapshot.time_millis if mode == "process-time" else snapshot.watermark
        time = compute_tag_time(millis, zone)
        while time is not None and (last is None or time - delay >= last + 2 * periods.length):
            start = periods.before(time)
            if last is not None and options.get(TAG_AUTOMATIC_COMPLETION):
                start = last + periods.length
            due.setdefault(start.strftime(periods.name), number)
            last = start
            periods_left -= 1
            if not periods_left:  # a time of a snapshot may be centuries away
                raise UnsupportedError(
                    f"{state.identifier}: more than {_MAX_DUE_TAGS} tags are due up to snapshot "
                    f"{number} with the time {time}; correct its time, or set "
                    f"'{TAG_AUTOMATIC_COMPLETION.key}' = 'false'. Nothing was changed"
                )
    return {name: number for name, number in due.items() if name not in names}


def _select_automatic_tags(names: Iterable[str], periods: TagPeriods) -> dict[datetime, str]:
    times = {name: periods.parse_name(name) for name in names}
    return {time: name for name, time in times.items() if time is not None}


def _find_excess_tags(options: Options, periods: TagPeriods, names: Iterable[str]) -> list[str]:
    """Return the oldest automatic tags above the limit; ``names`` include the tags to create."""
    max_tags = options.get(TAG_NUM_RETAINED_MAX, 0)
    if max_tags < 1:
        return []
    automatic = _select_automatic_tags(names, periods)
    return [name for _, name in sorted(automatic.items())[:-max_tags]]


def _check_still_due(table: Table, plan: TagCreationPlan) -> TagCreationPlan:
    """Raise :class:`CommitConflictError` if tags or snapshots changed after the plan."""
    existing, snapshots = set(table.tags.names()), set(table.stores.snapshots.ids())
    is_created = not existing.isdisjoint(plan.due)
    is_deleted = not existing.issuperset(set(plan.excess) - plan.due.keys())
    if is_created or is_deleted or not snapshots.issuperset(plan.due.values()):
        raise CommitConflictError(
            f"{table.identifier}: tags or snapshots changed during the creation of tags; no tag "
            "was created"
        )
    return plan


def commit(table: Table, plan: TagCreationPlan) -> TagCreationResult:
    """Create the planned tags, then delete the oldest tags above the limit."""
    for name, snapshot_id in plan.due.items():
        table.tags.create(name, snapshot_id, time_retained=plan.time_retained)
    delete_tags(table, plan.excess)
    return TagCreationResult(plan=plan)


CREATE_TAGS = replace(build_metadata_step("create tags of", plan, commit), prepare=_check_still_due)


def create_tags(table: Table) -> list[str]:
    """Create the tags that ``tag.automatic-creation`` requires, and return their names.

    Deletes the oldest automatic tags if there are more than ``tag.num-retained-max``. Has no effect
    without the option ``tag.automatic-creation``.
    """
    return plan_and_run(CREATE_TAGS, table, EmptyRequest()).plan.names


DECLARATION = declare_step(
    CREATE_TAGS,
    EmptyRequest,
    help="The table's option 'tag.automatic-creation' defines the schedule. The oldest of these "
    "tags are deleted if there are more than 'tag.num-retained-max'.",
    examples=["/lake db.orders --dry-run"],
)
