"""Move quarantined files back."""

from dataclasses import dataclass
from typing import Annotated

from paimon_orch.format.display import format_count
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step import StepOutcome
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreQuarantineRequest(ParsedRequest):
    """Selects a folder of quarantined files."""

    folder: Annotated[str | None, Argument("Folder to restore.", metavar="NAME", default="all")] = (
        None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredFiles(StepOutcome):
    """The numbers of files that were moved back, and of those that could not be."""

    files: int
    remaining_files: int

    def to_dict(self) -> dict[str, object]:
        """Return the numbers as JSON values."""
        return {"files": self.files, "remaining_files": self.remaining_files}

    def describe(self) -> list[str]:
        """Return the numbers as text."""
        text = f"restored {format_count(self.files, 'file')}"
        if self.remaining_files:
            text += (
                f"; {self.remaining_files} remain: their paths are taken or lead through a "
                "symbolic link"
            )
        return [text]


def plan(table: Table, request: RestoreQuarantineRequest) -> ChangePlan:
    """Count the files. Raises :class:`NotFoundError` for an unknown folder."""
    quarantine = Quarantine.of(table)
    names = quarantine.select_folders(request.folder)
    files = quarantine.count(names)

    def restore() -> RestoredFiles:
        restored = quarantine.restore(request.folder)
        return RestoredFiles(files=restored, remaining_files=quarantine.count(names))

    return ChangePlan(
        request=request,
        values={"files": files},
        report=PlanReport(
            action=f"restore {format_count(files, 'file')}",
            nothing="" if files else "the quarantine is empty",
        ),
        apply=restore,
    )


DECLARATION = declare_step(
    build_change_step("restore quarantined files of", plan),
    RestoreQuarantineRequest,
    help="A file is not moved back if its old path is taken or leads through a symbolic link.",
    examples=["/lake db.orders --dry-run"],
    command="quarantine restore",
)
