"""Delete all rows, snapshots, tags and branches.

See docs/format/orphan-files.md#purging-files.
"""

import time
from dataclasses import dataclass, field

from paimon_orch.errors import InputError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import MAIN_BRANCH
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.step import (
    EmptyRequest,
    StepOutcome,
    build_metadata_step,
    plan_and_run,
)
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.table.table import Table

_ALL = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePlan(Displayable):
    """What a purge deletes."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    rows: int = 0
    """The number of records of the newest snapshot."""
    snapshots: int = 0
    tags: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return True: a purge also deletes unreferenced files."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "rows": self.rows,
            "snapshots": self.snapshots,
            "tags": list(self.tags),
            "branches": list(self.branches),
            "consumers": list(self.consumers),
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"delete {self.describe_loss()}",
            consequence="its unreferenced files are deleted too",
            asks=True,
        )

    def describe_loss(self) -> str:
        """Return the numbers and names of what is deleted."""
        return describe_loss(
            {
                "row": self.rows,
                "snapshot": self.snapshots,
                "tag": self.tags,
                "branch": self.branches,
                "consumer": self.consumers,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult(StepOutcome):
    """The result of a purge."""

    plan: PurgePlan
    files: int = 0
    """The number of unreferenced files that were deleted at the end."""

    def to_dict(self) -> dict[str, object]:
        """Return what was deleted as JSON values."""
        return self.plan.to_dict() | {"files": self.files}

    def describe(self) -> list[str]:
        """Return what was deleted."""
        files = format_count(self.files, "unreferenced file")
        return [f"deleted {self.plan.describe_loss()}, and {files}"]

    def count_io(self) -> StepIo:
        """Return the files that were deleted."""
        return StepIo(files_deleted=self.files)


def plan(table: Table, request: EmptyRequest) -> PurgePlan:
    """List what a purge deletes; raises the errors of its parts before anything is deleted."""
    if table.paths.branch != MAIN_BRANCH:
        raise InputError(f"{table.identifier} is a branch; only whole tables can be purged")
    state = table.load()
    state.check_step(StepKind.WRITE_ROWS | StepKind.METADATA | StepKind.TAG | StepKind.DELETE)
    branches = state.branches.names()
    for name in branches:
        state.branches.check_can_delete(name)
    latest = state.snapshot
    return PurgePlan(
        request=request,
        rows=0 if latest is None else latest.total_record_count,
        snapshots=len(state.snapshots.ids()),
        tags=tuple(state.snapshots.tags()),
        branches=tuple(branches),
        consumers=tuple(state.open_consumers().find_matching()),
    )


def commit(table: Table, plan: PurgePlan) -> PurgeResult:
    """Delete branches, tags, consumers, rows, changelogs, old snapshots and unreferenced files."""
    stores, state = table.stores, table.load()
    for name in plan.branches:
        state.branches.delete(name)
    for name in plan.tags:
        state.tags.delete(name)
    state.open_consumers().delete(plan.consumers)
    table.truncate()
    compact_manifests(table)  # otherwise manifests still name the files, which keeps them
    stores.prepare_deletion()
    now = int(time.time() * 1000)
    expire_snapshots(table, retain_max=1, retain_min=1, older_than=now, max_deletes=_ALL)
    table.io.delete_dir(table.paths.changelog_dir)  # the expiration may have added changelogs
    removed = remove_orphan_files(table, older_than=now)
    return PurgeResult(plan=plan, files=removed.files)


PURGE_FILES = build_metadata_step("purge the files of", plan, commit, max_attempts=1)


def purge_files(table: Table) -> PurgeResult:
    """Delete everything of a table except its schemas, its newest snapshot and new files.

    No other job may write to the table during the call: its uncommitted files would be deleted. If
    the call failed, repeat it.
    """
    return plan_and_run(PURGE_FILES, table, EmptyRequest())


DECLARATION = declare_step(
    PURGE_FILES,
    EmptyRequest,
    help="The table, its schemas and its newest snapshot remain. No other job may write to the table, "
    "because files that are not committed yet are deleted too. This cannot be undone.",
    examples=["/lake db.t --dry-run"],
    asks=True,
)
