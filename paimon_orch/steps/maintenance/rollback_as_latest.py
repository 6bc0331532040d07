"""Commits the state of an older snapshot as a new snapshot; deletes no snapshot and no tag.

See docs/format/rollback.md#rollback-procedures.
"""

from dataclasses import dataclass, field
from uuid import uuid4

from paimon_orch.errors import CommitOutcomeUnknownError, InputError, PaimonError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.step import StepOutcome, build_metadata_step, plan_and_run
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.state_replacement import (
    StateReplacement,
    compute_difference,
    find_moved_files,
)
from paimon_orch.table.metadata.rollback import find_rollback_target
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.older_state import check_same_rows_under_newest_options
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAsLatestRequest:
    """Selects the snapshot whose state to commit."""

    selector: SnapshotSelector
    expected_latest: int | None = None
    """The newest snapshot that the rollback takes back; a commit after it is a conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAsLatestPlan(Displayable):
    """The target and the changes of files."""

    request: RollbackAsLatestRequest
    state: TableState = field(repr=False, compare=False)
    target: Snapshot
    previous_id: int
    added_files: int = 0
    removed_files: int = 0
    moves_files: bool = False
    """Whether files return to the level that they had in the target."""

    def __bool__(self) -> bool:
        """Return True: a snapshot is committed even if no file changes, as in Java Paimon."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "target_snapshot_id": self.target.id,
            "previous_snapshot_id": self.previous_id,
            "added_files": self.added_files,
            "removed_files": self.removed_files,
        }

    def describe_changes(self) -> str:
        """Return the numbers of files."""
        return f"{format_count(self.added_files, 'file')} added, {self.removed_files} removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAsLatestResult(StepOutcome):
    """The new snapshot, and the tag that keeps the files of its target."""

    plan: RollbackAsLatestPlan
    snapshot: Snapshot
    tag: str = field(default="")

    def to_dict(self) -> dict[str, object]:
        """Return the plan, the new snapshot and the tag as JSON values."""
        return self.plan.to_dict() | {"snapshot_id": self.snapshot.id, "tag": self.tag}

    def describe(self) -> list[str]:
        """Return the new snapshot; an undo says before which changes it takes back."""
        is_undo = self.plan.request.expected_latest is not None
        changes = "" if is_undo else f" ({self.plan.describe_changes()})"
        snapshots = f"snapshot {self.plan.target.id} as snapshot {self.snapshot.id}"
        return [f"committed the state of {snapshots}{changes}; tag {self.tag} keeps its files"]


def plan(table: Table, request: RollbackAsLatestRequest) -> RollbackAsLatestPlan:
    """Find the target and compare its files with those of the newest snapshot."""
    state = table.load()
    state.check_step(StepKind.WRITE_ROWS | StepKind.METADATA)
    latest = state.snapshot
    if latest is None:
        raise InputError(f"{table.identifier} has no snapshot to roll back from")
    target = find_rollback_target(state.snapshots, request.selector)
    check_same_rows_under_newest_options(state, target)
    entries = compute_difference(state.manifests, state.schema, latest, target)
    added = sum(entry.kind is FileKind.ADD for entry in entries)
    return RollbackAsLatestPlan(
        request=request,
        state=state,
        target=target,
        previous_id=latest.id,
        added_files=added,
        removed_files=len(entries) - added,
        moves_files=bool(find_moved_files(entries)),
    )


def commit(table: Table, plan: RollbackAsLatestPlan) -> RollbackAsLatestResult:
    """Commit the state in one snapshot.

    The target must keep a tag as long as a snapshot before the new one exists: when a snapshot
    that deleted its files expires in Java Paimon, only a tag protects them.
    """
    state, selector = plan.state, plan.request.selector
    tag, is_new = selector.tag, selector.tag is None
    if tag is None:
        tag = f"rollback-to-as-latest-{plan.target.id}-{uuid4()}"
        state.tags.create(tag, plan.target.id)
    changes = CommitChanges(
        kind=CommitKind.OVERWRITE,
        replacement=StateReplacement(plan.target),
        expected_latest=plan.request.expected_latest,
    )
    committing = state.new_commit(StepKind.METADATA)
    try:
        snapshot = committing.commit(changes)
    except CommitOutcomeUnknownError:
        raise
    except PaimonError:
        if is_new and committing.created is None:
            state.tags.delete(tag)
        raise
    if plan.moves_files:
        _drop_deleted_entries(table)
    return RollbackAsLatestResult(plan=plan, snapshot=snapshot, tag=tag)


def _drop_deleted_entries(table: Table) -> None:
    """Merge the manifests: after the next compaction, Java would leave out the files that moved."""
    try:
        compact_manifests(table)
    except PaimonError as error:
        logger.warning(
            "%s: compact its manifests before Java Paimon compacts the table, which would lose rows: %s",
            table.identifier,
            error,
        )


ROLLBACK_AS_LATEST = build_metadata_step(
    "roll back as the latest snapshot of", plan, commit, max_attempts=1
)


def rollback_as_latest(
    table: Table, snapshot_id: int | None = None, *, tag: str | None = None
) -> RollbackAsLatestResult:
    """Commit the state of a snapshot or of a tag as a new snapshot.

    Unlike :meth:`Table.rollback`, this keeps later snapshots and tags, and other jobs may write to
    the table meanwhile. Without a tag, one is created; delete it only when no snapshot before the
    new one is left.
    """
    request = RollbackAsLatestRequest(selector=SnapshotSelector(snapshot_id, tag))
    return plan_and_run(ROLLBACK_AS_LATEST, table, request)
