"""Delete old changelogs and their files.

See docs/format/snapshot-expiration.md#changelogs.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.file_deletion import collect_deletions, run
from paimon_orch.steps.common.step import PlanOutcome, Step, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    find_first_retained_changelog,
)
from paimon_orch.table.cleanup.references import ReferenceReader
from paimon_orch.table.cleanup.retained_snapshots import (
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.cleanup.snapshot_deletion import SnapshotDeletionPlanner, UnreferencedFiles
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireChangelogsRequest(RetentionRequest):
    """Limits of an expiration of changelogs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogExpirationPlan(Displayable):
    """The changelogs to expire. The plan is falsy if there are none."""

    request: ExpireChangelogsRequest
    changelogs: tuple[int, ...] = ()
    end: int | None = None
    """The oldest changelog that is retained."""
    files_to_delete: UnreferencedFiles = field(default_factory=UnreferencedFiles)

    def __bool__(self) -> bool:
        """Return whether any changelog expires."""
        return bool(self.changelogs)

    def to_dict(self) -> dict[str, object]:
        """Return counts and bytes as JSON values."""
        return {
            "changelogs": len(self.changelogs),
            "data_files": len(self.files_to_delete.data),
            "metadata_files": len(self.files_to_delete.metadata) + len(self.files_to_delete.lists),
            "bytes": self.files_to_delete.bytes,
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"expire {self.describe_changelogs()}",
            asks=bool(self) and self.request.replaces_options,
        )

    def describe_changelogs(self) -> str:
        """Return the numbers of changelogs and files."""
        files = format_count(len(self.files_to_delete), "file")
        return f"{format_count(len(self.changelogs), 'changelog')} with {files}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogExpirationResult(PlanOutcome[ChangelogExpirationPlan]):
    """The result of an expiration."""

    plan: ChangelogExpirationPlan
    """The executed plan, without files that were not deleted because they are outside of the
    table.
    """

    def describe(self) -> list[str]:
        """Return what was deleted."""
        return [f"expired {self.plan.describe_changelogs()}"]

    def count_io(self) -> StepIo:
        """Return the files that were deleted."""
        return StepIo(
            files_deleted=len(self.plan.files_to_delete),
            bytes_deleted=self.plan.files_to_delete.bytes,
        )


def plan(table: Table, request: ExpireChangelogsRequest) -> ChangelogExpirationPlan:
    """Select the changelogs to expire, and the files that only they reference.

    Options for changelogs default to the options for snapshots. The newest changelog is retained.
    """
    state = table.load()
    state.check_step(StepKind.DELETE)
    versions = RetainedSnapshotStore(
        state.io, state.paths.root, with_schema=(state.paths.branch,)
    ).all()
    return plan_among_versions(state, request, list(versions.by_path.values()))


def plan_among_versions(
    state: TableState, request: ExpireChangelogsRequest, versions: Sequence[RetainedSnapshot]
) -> ChangelogExpirationPlan:
    """Return the plan for a table that has exactly these versions."""
    options = state.schema.typed_options
    changelogs = {
        v.snapshot.id: v
        for v in versions
        if v.kind is RetainedSnapshotKind.CHANGELOG and v.branch == state.paths.branch
    }
    latest = state.snapshot
    if not changelogs or latest is None:
        return ChangelogExpirationPlan(request=request)
    retention = Retention.of_changelogs(options, int(time.time() * 1000), request)
    next_snapshots = state.open_consumers().read_next_snapshots().values()
    times = {number: v.snapshot.time_millis for number, v in sorted(changelogs.items())}
    end = find_first_retained_changelog(times, latest.id, retention, next_snapshots)
    expired = [
        replace(v, is_complete=False) for number, v in sorted(changelogs.items()) if number < end
    ]
    if not expired:
        return ChangelogExpirationPlan(request=request)
    expired_paths = {v.path for v in expired}
    retained = [v for v in versions if v.path not in expired_paths]
    files = _collect_files_to_delete(state, expired, retained)
    return ChangelogExpirationPlan(
        request=request,
        changelogs=tuple(v.snapshot.id for v in expired),
        end=end,
        files_to_delete=files,
    )


def _collect_files_to_delete(
    state: TableState, expired: Sequence[RetainedSnapshot], retained: Sequence[RetainedSnapshot]
) -> UnreferencedFiles:
    reader = ReferenceReader.of(state.io, state.paths.root)
    reader.read_ahead([*expired, *retained])
    collector = SnapshotDeletionPlanner(
        reader=reader, paths=state.paths, schema=state.schema, retained=retained
    )
    for version in expired:
        if version.changelog_list:
            collector.add_changelog_files(version)
        else:  # without a changelog file, the appended rows are the changelog
            collector.add_deleted_files(version)
    return collector.collect(expired)


def _advance_hint(table: Table, plan: ChangelogExpirationPlan) -> ChangelogExpirationPlan:
    """Move the hint EARLIEST, so that no reader starts from an expiring changelog."""
    assert plan.end is not None
    table.stores.snapshots.require_latest_file()
    ChangelogStore(table.io, table.paths).write_hint(EARLIEST, plan.end)
    return plan


def commit(
    table: Table, plan: ChangelogExpirationPlan, results: Sequence[Sequence[str]]
) -> ChangelogExpirationResult:
    """Delete metadata and changelogs, after the units deleted the data files.

    :param results: the paths that were refused
    """
    if not plan:
        return ChangelogExpirationResult(plan=plan)
    store, files = ChangelogStore(table.io, table.paths), plan.files_to_delete
    remover = SafeDeleter(io=table.io, roots=table.stores.file_roots)
    remover.delete_many(files.metadata)
    remover.delete_many(files.lists)
    remover.delete_many(list(map(store.path, plan.changelogs)))
    refused_paths = {path for paths in (*results, remover.refused) for path in paths}
    deleted = files.filter(lambda path: path not in refused_paths)
    return ChangelogExpirationResult(plan=replace(plan, files_to_delete=deleted))


EXPIRE_CHANGELOGS = Step(
    title="expire changelogs of",
    planner=plan,
    work=lambda table, plan: collect_deletions(
        table.io, table.stores.file_roots, plan.files_to_delete.data
    ),
    run=run,
    decode=json.loads,
    commit=commit,
    prepare=_advance_hint,
    max_attempts=1,
)


@take_fields(ExpireChangelogsRequest)
def expire_changelogs(
    table: Table,
    request: ExpireChangelogsRequest,
    executor: Executor | None,
    progress: Progress | None,
) -> ChangelogExpirationPlan:
    """Expire changelogs and return the executed plan; after a failure, repeat the call.

    The limits override the table's options; ``older_than`` is in epoch milliseconds.
    """
    return plan_and_run(EXPIRE_CHANGELOGS, table, request, executor, progress=progress).plan


DECLARATION = declare_step(
    EXPIRE_CHANGELOGS,
    ExpireChangelogsRequest,
    help="Applies to tables that keep changelogs longer than snapshots. Asks if an option of the "
    "command replaces the retention of the table's options.",
    examples=["/lake db.orders --dry-run"],
    asks=True,
)
