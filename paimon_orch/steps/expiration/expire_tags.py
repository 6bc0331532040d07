"""Delete expired tags and their files.

See docs/format/tags-branches-consumers.md#tags.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

from paimon_orch.errors import CommitConflictError, NotFoundError, wrap_decode_errors
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.text import parse_json_object
from paimon_orch.format.times import parse_cutoff
from paimon_orch.safe_text import format_names
from paimon_orch.steps.common.argument import CUTOFF_HELP, Argument, ParsedRequest
from paimon_orch.steps.common.step import PlanOutcome, build_metadata_step, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.steps.expiration.delete_tag import delete_tags
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.metadata_io import read_metadata_file
from paimon_orch.table.metadata.tags import parse_tag_time
from paimon_orch.table.table import Table


def parse_local_cutoff(name: str, value: object) -> datetime:
    """Return the local time, which tags store, of a point in time or a minimum age."""
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)
    return datetime.fromtimestamp(parse_cutoff(name, value) / 1000)  # noqa: DTZ006


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireTagsRequest(ParsedRequest):
    """Selects the tags to delete."""

    older_than: Annotated[
        datetime | None, Argument(CUTOFF_HELP, parse=parse_local_cutoff, metavar="TIME")
    ] = None
    """Local time; tags that were created before it are also deleted."""
    now: datetime | None = None
    """The local time at which the age of tags is measured; None means the current time."""


@dataclass(frozen=True, slots=True)
class ExpiredTag:
    """A tag to delete, and the modification time of its file in epoch seconds."""

    name: str
    modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TagExpirationPlan:
    """The tags to delete. The plan is falsy if there are none."""

    request: ExpireTagsRequest
    tags: tuple[ExpiredTag, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any tag is deleted."""
        return bool(self.tags)

    @property
    def names(self) -> list[str]:
        """Return the names of the tags."""
        return [tag.name for tag in self.tags]

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {"tags": self.names}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"delete {describe_loss({'tag': self.names})}",
            asks=bool(self) and self.request.older_than is not None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TagExpirationResult(PlanOutcome[TagExpirationPlan]):
    """The tags that were deleted."""

    def describe(self) -> list[str]:
        """Return the names of the tags."""
        return [f"deleted {describe_loss({'tag': self.plan.names})}"]


@dataclass(frozen=True, slots=True)
class TagTimes:
    """The creation time of a tag, and the time for which it is retained."""

    created: datetime | None
    """The local wall clock time of the writer."""
    retained: timedelta | None


def read_tag_times(table: Table, name: str) -> TagTimes:
    """Read the times of a tag; both are None for a tag that never expires."""
    path = table.tags.path(name)
    try:
        data = read_metadata_file(table.io, path)
    except FileNotFoundError:
        raise NotFoundError(f"{table.identifier}: tag {name!r} was deleted meanwhile") from None
    Snapshot.from_json(data, path)  # a tag that cannot be read is not deleted
    with wrap_decode_errors(path):
        value = parse_json_object(data)
        retained = value.get("tagTimeRetained")
        seconds = _parse_seconds(retained)
        created = parse_tag_time(value.get("tagCreateTime"))
    return TagTimes(created, None if seconds is None else timedelta(seconds=seconds))


def _parse_seconds(value: object) -> float | None:
    """Return the seconds of a number or an ISO 8601 duration such as ``PT24H``."""
    if value is None or isinstance(value, int | float):
        return value
    import pendulum

    duration = pendulum.parse(str(value))
    if not isinstance(duration, pendulum.Duration):
        raise ValueError(f"{value!r} is not a duration")  # noqa: TRY004 - damage, not a bug
    return duration.total_seconds()


def plan(table: Table, request: ExpireTagsRequest) -> TagExpirationPlan:
    """Find the expired tags, and the tags created before ``older_than``."""
    table.stores.check_step(StepKind.TAG | StepKind.DELETE)
    current_time = datetime.now() if request.now is None else request.now
    modified = _read_modification_times(table)
    expired = []
    # another process may have created others after the listing
    names = [name for name in table.tags.names() if name in modified]
    read_times = map_concurrently(table.io, partial(read_tag_times, table), names)
    for name, times in zip(names, read_times, strict=True):
        created = times.created or datetime.fromtimestamp(modified[name])  # noqa: DTZ006 - local
        has_times = times.created is not None and times.retained is not None
        is_over = has_times and current_time - created > (times.retained or timedelta(0))
        if is_over or (request.older_than is not None and created < request.older_than):
            expired.append(ExpiredTag(name, modified[name]))
    return TagExpirationPlan(request=request, tags=tuple(expired))


def _read_modification_times(table: Table) -> dict[str, float]:
    """Return the modification time of the file of each tag, by tag name."""
    infos = table.io.list_dir(table.paths.tag_dir)
    return {info.name.removeprefix("tag-"): info.modified for info in infos}


def _check_unchanged(table: Table, plan: TagExpirationPlan) -> TagExpirationPlan:
    """Raise :class:`CommitConflictError` if a tag was changed or deleted after the plan."""
    modified = _read_modification_times(table)
    changed = [tag.name for tag in plan.tags if modified.get(tag.name) != tag.modified]
    if changed:
        raise CommitConflictError(
            f"{table.identifier}: the tags {format_names(changed)} were changed during the expiration "
            "of tags; no tag was deleted"
        )
    return plan


def commit(table: Table, plan: TagExpirationPlan) -> TagExpirationResult:
    """Delete the tags, and the files that only they reference."""
    delete_tags(table, plan.names)
    return TagExpirationResult(plan=plan)


EXPIRE_TAGS = replace(build_metadata_step("expire tags of", plan, commit), prepare=_check_unchanged)


@take_fields(ExpireTagsRequest)
def expire_tags(table: Table, request: ExpireTagsRequest) -> list[str]:
    """Delete expired tags, and return their names; see :func:`plan`."""
    return plan_and_run(EXPIRE_TAGS, table, request).plan.names


DECLARATION = declare_step(
    EXPIRE_TAGS,
    ExpireTagsRequest,
    help="With --older-than, also deletes tags that have not expired, and asks before.",
    examples=["/lake db.orders --dry-run"],
    asks=True,
)
