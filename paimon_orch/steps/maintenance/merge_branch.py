"""Adds the files of one branch of an append table to another branch.

See docs/format/tags-branches-consumers.md#merging-branches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.display import Displayable
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import FIRST_SNAPSHOT_ID, CommitKind, Snapshot
from paimon_orch.steps.common.step import StepOutcome, build_metadata_step, run_step
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_APPEND_KINDS = (CommitKind.APPEND, CommitKind.ANALYZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBranchRequest:
    """Selects the branch whose files to add."""

    source: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBranchPlan(Displayable):
    """The files that the target lacks. The plan is falsy if there are none."""

    request: MergeBranchRequest
    state: TableState = field(repr=False, compare=False)
    target_id: int
    """The newest snapshot of the target."""
    entries: tuple[ManifestEntry, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any file to add."""
        return bool(self.entries)

    @property
    def rows(self) -> int:
        """Return the number of rows of the files."""
        return sum(entry.file.row_count for entry in self.entries)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {"files": len(self.entries), "rows": self.rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBranchResult(StepOutcome):
    """The result of a merge; ``snapshot`` is None if no file was added."""

    plan: MergeBranchPlan
    snapshot: Snapshot | None = None


def plan(table: Table, request: MergeBranchRequest) -> MergeBranchPlan:
    """Find the files of the source that the table lacks.

    Raises :class:`UnsupportedError` for branches that Java Paimon refuses to merge: files that one
    of them has deleted could appear again.
    """
    state, source = table.load(), request.source.load()
    state.check_step(StepKind.WRITE_ROWS)
    if source.paths.root != table.paths.root or source.paths.branch == table.paths.branch:
        raise InputError(
            f"{source.identifier} and {table.identifier} are not two branches of one table"
        )
    source_snapshot, target_snapshot = _check_history(source), _check_history(state)
    _check_schemas(source, state)
    existing = {entry.identity for entry in state.manifests.read_live_entries(target_snapshot)}
    entries = [
        entry
        for entry in source.manifests.read_live_entries(source_snapshot)
        if entry.identity not in existing
    ]
    _check_file_schemas(source, state, {entry.file.schema_id for entry in entries})
    return MergeBranchPlan(
        request=request,
        state=state,
        target_id=target_snapshot.id,
        entries=tuple(map(_clear_row_ids, entries)),
    )


def _check_history(table: TableState) -> Snapshot:
    """Return the newest snapshot of a branch whose complete history only appends files."""
    latest = table.snapshot
    if latest is None:
        raise InputError(f"{table.identifier} has no snapshot; it cannot be merged")
    earliest = table.snapshots.earliest_id() or FIRST_SNAPSHOT_ID
    existing = table.snapshots.find_many(range(earliest, latest.id)) | {latest.id: latest}
    for number in range(FIRST_SNAPSHOT_ID, latest.id + 1):
        snapshot = existing.get(number)
        if snapshot is None:
            raise UnsupportedError(
                f"{table.identifier} has no snapshot {number}; branches can be merged only if all "
                f"snapshots since {FIRST_SNAPSHOT_ID} exist. Nothing was changed."
            )
        if snapshot.commit_kind not in _APPEND_KINDS:
            raise UnsupportedError(
                f"snapshot {number} of {table.identifier} is of the kind "
                f"{snapshot.commit_kind.value}; branches can be merged only if all snapshots are "
                "of the kind APPEND or ANALYZE. Nothing was changed."
            )
    if latest.index_manifest is not None:
        raise UnsupportedError(
            f"{table.identifier} has index files, such as deletion vectors; branches with them "
            "cannot be merged. Nothing was changed."
        )
    return latest


def _check_schemas(source: TableState, target: TableState) -> None:
    schemas = source.schema, target.schema
    for table, schema in zip((source, target), schemas, strict=True):
        if schema.primary_keys or has_data_evolution(schema):
            kind = "a primary key" if schema.primary_keys else "data evolution"
            raise UnsupportedError(
                f"{table.identifier} has {kind}; only branches of append tables without it can be "
                "merged. Nothing was changed."
            )
    one, other = schemas
    if one.fields != other.fields:
        raise UnsupportedError(
            f"{source.identifier} and {target.identifier} have different columns; they cannot be "
            "merged. Nothing was changed."
        )
    if row_tracking_fields(one) != row_tracking_fields(other):
        raise UnsupportedError(
            f"only one of {source.identifier} and {target.identifier} has row tracking; they "
            "cannot be merged. Nothing was changed."
        )


def _check_file_schemas(source: TableState, target: TableState, ids: set[int]) -> None:
    """Refuse files whose schema id means another schema in the target."""
    known = set(target.schemas.ids())
    for number in sorted(ids):
        if number not in known or (source.schemas.get(number) != target.schemas.get(number)):
            raise UnsupportedError(
                f"files of {source.identifier} have the schema {number}, which "
                f"{target.identifier} does not have; the branches cannot be merged. Nothing was "
                "changed."
            )


def _clear_row_ids(entry: ManifestEntry) -> ManifestEntry:
    """Return an entry whose rows get new ids of the target."""
    return replace(entry, file=replace(entry.file, first_row_id=None))


def commit(
    _table: Table, plan: MergeBranchPlan, _results: Sequence[bytes] = ()
) -> MergeBranchResult:
    """Add the files in one snapshot; raises :class:`CommitConflictError` after another commit."""
    if not plan:
        return MergeBranchResult(plan=plan)
    changes = CommitChanges(
        kind=CommitKind.APPEND, entries=plan.entries, expected_latest=plan.target_id
    )
    snapshot = plan.state.new_commit(StepKind.WRITE_ROWS).commit(changes)
    return MergeBranchResult(plan=plan, snapshot=snapshot)


MERGE_BRANCH = build_metadata_step("merge a branch into", plan, commit)


def merge_branch(source: Table, target: Table) -> MergeBranchResult:
    """Add the files of one branch of an append table to another branch, in one snapshot.

    >>> merge_branch(catalog.table("db.log$branch_dev"), catalog.table("db.log"))
    """
    return run_step(MERGE_BRANCH, target, plan(target, MergeBranchRequest(source=source)))
