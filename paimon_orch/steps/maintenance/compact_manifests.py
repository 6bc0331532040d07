"""Merge small manifests of the newest snapshot.

Drops deleted entries; rows do not change.

See docs/format/procedures.md#compact-manifests.
"""

from dataclasses import dataclass, field

from paimon_orch.errors import MissingFileError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.core_options import MANIFEST_FORMAT, MANIFEST_TARGET_FILE_SIZE
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.step import (
    CommittedPlan,
    EmptyRequest,
    build_metadata_step,
    plan_and_run,
)
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestCompactionPlan(Displayable):
    """The manifests of the latest snapshot. The plan is falsy if a merge would have no effect."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    state: TableState = field(repr=False, compare=False)
    manifests: int = 0
    small: int = 0
    deleted_entries: int = 0
    other_formats: int = 0
    """The number of manifests and index manifests that Java cannot read (``manifest.format``)."""
    bytes: int = 0
    names: frozenset[str] = field(default=frozenset(), repr=False)

    def __bool__(self) -> bool:
        """Return whether there is anything to merge."""
        return self.small > 1 or self.deleted_entries > 0 or self.other_formats > 0

    def to_dict(self) -> dict[str, object]:
        """Return the metrics as JSON values."""
        names = ("manifests", "small", "deleted_entries", "other_formats", "bytes")
        return {name: getattr(self, name) for name in names}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"merge {self.describe_manifests()}",
            nothing=f"nothing to merge: {self.describe_manifests()}",
        )

    def describe_manifests(self) -> str:
        """Return the numbers of manifests and deleted entries."""
        deleted = format_count(self.deleted_entries, "deleted entry", "deleted entries")
        return f"{format_count(self.manifests, 'manifest')} ({self.small} of them small, {deleted})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestCompactionResult(CommittedPlan[ManifestCompactionPlan]):
    """The result of a merge."""

    merged_files: int = 0
    merged_bytes: int = 0
    written_files: int = 0
    written_bytes: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values."""
        names = ("merged_files", "merged_bytes", "written_files", "written_bytes")
        committed = super(ManifestCompactionResult, self).to_dict()
        return committed | {name: getattr(self, name) for name in names}

    def describe(self) -> list[str]:
        """Return what was merged."""
        if self.snapshot is None:
            return []
        return [f"{self.plan.describe_manifests()}; merged in snapshot {self.snapshot.id}"]

    def count_io(self) -> StepIo:
        """Return the manifests that were merged and written."""
        return StepIo(
            files_read=self.merged_files,
            files_written=self.written_files,
            bytes_read=self.merged_bytes,
            bytes_written=self.written_bytes,
        )


def plan(
    table: Table, request: EmptyRequest, *, state: TableState | None = None
) -> ManifestCompactionPlan:
    """Count the manifests of the latest snapshot; reads its manifest lists and their formats.

    ``state`` is the table, if the caller has loaded it.
    """
    state = state or table.load()
    state.check_step(StepKind.METADATA)
    snapshot = state.snapshot
    if snapshot is None:
        return ManifestCompactionPlan(request=request, state=state)
    metas = state.manifests.manifests(snapshot)
    others = filter(None, [snapshot.base_manifest_list, snapshot.index_manifest])
    names = [*(meta.file_name for meta in metas), *others]
    options = state.schema.typed_options
    formats = map_concurrently(state.io, state.manifests.find_format, names)
    target = options.get(MANIFEST_TARGET_FILE_SIZE)
    return ManifestCompactionPlan(
        request=request,
        state=state,
        manifests=len(metas),
        small=sum(meta.file_size < target for meta in metas),
        deleted_entries=sum(meta.num_deleted_files for meta in metas),
        other_formats=sum(name != options.get(MANIFEST_FORMAT) for name in formats),
        bytes=sum(meta.file_size for meta in metas),
        names=frozenset(meta.file_name for meta in metas),
    )


def commit(_table: Table, plan: ManifestCompactionPlan) -> ManifestCompactionResult:
    """Merge the manifests in one snapshot."""
    if not plan:
        return ManifestCompactionResult(plan=plan)
    changes = CommitChanges(kind=CommitKind.COMPACT, merge_manifests=True)
    snapshot = plan.state.new_commit(StepKind.METADATA).commit(changes)
    return _build_result(plan, snapshot)


def _build_result(plan: ManifestCompactionPlan, snapshot: Snapshot) -> ManifestCompactionResult:
    try:
        metas = plan.state.manifests.manifests(snapshot)
    except MissingFileError:
        logger.warning(
            "snapshot %d has expired already, so its manifests are not counted", snapshot.id
        )
        return ManifestCompactionResult(plan=plan, snapshot=snapshot)
    kept = [meta.file_size for meta in metas if meta.file_name in plan.names]
    return ManifestCompactionResult(
        plan=plan,
        snapshot=snapshot,
        merged_files=plan.manifests - len(kept),
        merged_bytes=plan.bytes - sum(kept),
        written_files=len(metas) - len(kept),
        written_bytes=sum(meta.file_size for meta in metas) - sum(kept),
    )


COMPACT_MANIFESTS = build_metadata_step("compact manifests of", plan, commit, max_attempts=1)


def compact_manifests(table: Table) -> Snapshot | None:
    """Merge the manifests in one snapshot; return None if there is nothing to do."""
    return plan_and_run(COMPACT_MANIFESTS, table, EmptyRequest()).snapshot


DECLARATION = declare_step(COMPACT_MANIFESTS, EmptyRequest, examples=["/lake db.orders --dry-run"])
