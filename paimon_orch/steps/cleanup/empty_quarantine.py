"""Delete old quarantined files."""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from paimon_orch.format.display import format_count
from paimon_orch.format.times import parse_cutoff
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.argument import CUTOFF_HELP, Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step import StepOutcome
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table

_RETENTION = "7 d"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyQuarantineRequest(ParsedRequest):
    """Selects folders of quarantined files by their age."""

    older_than: Annotated[
        int | None, Argument(CUTOFF_HELP, parse=parse_cutoff, metavar="TIME", default=_RETENTION)
    ] = None
    """Epoch milliseconds; the files of folders that were created before it are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedFiles(StepOutcome):
    """The number of quarantined files that were deleted."""

    files: int

    def to_dict(self) -> dict[str, object]:
        """Return the number as a JSON value."""
        return {"files": self.files}

    def describe(self) -> list[str]:
        """Return the number as text."""
        return [f"deleted {format_count(self.files, 'file')}"]


def plan(table: Table, request: EmptyQuarantineRequest) -> ChangePlan:
    """Count the files of old folders."""
    quarantine = Quarantine.of(table)
    cutoff = request.older_than
    if cutoff is None:
        cutoff = parse_cutoff("older_than", _RETENTION)
    age = timedelta(seconds=max(0.0, time.time() - cutoff / 1000))
    folders = quarantine.find_expired_folders(age)
    files = quarantine.count(folders)
    return ChangePlan(
        request=request,
        values={"files": files},
        report=PlanReport(
            action=f"delete {format_count(files, 'quarantined file')}",
            nothing="" if files else "no quarantined file is old enough",
            asks=bool(files),
        ),
        apply=lambda: DeletedFiles(files=quarantine.delete(folders)),
    )


DECLARATION = declare_step(
    build_change_step("empty the quarantine of", plan),
    EmptyQuarantineRequest,
    examples=["/lake db.orders --older-than '7 d' --dry-run"],
    asks=True,
    command="quarantine empty",
)
