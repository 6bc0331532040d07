"""Delete a tag and the files that only it references.

The tag is deleted before its files, so a run that is killed leaves only orphan files.

See docs/format/tags-branches-consumers.md#tags.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_orch.errors import CommitConflictError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.file_deletion import collect_deletions, run
from paimon_orch.steps.common.snapshot_selection import TagRequest
from paimon_orch.steps.common.step import PlanOutcome, Step, run_step
from paimon_orch.steps.common.step_declaration import CallOnExecutor, declare_step, take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.cleanup.references import ReferenceReader
from paimon_orch.table.cleanup.retained_snapshots import (
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.cleanup.snapshot_deletion import SnapshotDeletionPlanner, UnreferencedFiles
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTagRequest(TagRequest):
    """The tag to delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagDeletionPlan(Displayable):
    """A tag and the files that only it references."""

    request: DeleteTagRequest
    files_to_delete: UnreferencedFiles = field(default_factory=UnreferencedFiles)
    """The files to delete; empty if the snapshot of the tag has not expired or has another tag."""
    versions: Mapping[str, RetainedSnapshot] = field(repr=False, compare=False)
    """All snapshots, tags and changelogs at the time of the plan, by path."""

    def __bool__(self) -> bool:
        """Return True, because the tag exists."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the name of the tag and the number of files as JSON values."""
        return {"tag": self.request.name, "files": len(self.files_to_delete)}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(action=f"delete {self.describe_tag()}", asks=True)

    def describe_tag(self) -> str:
        """Return the name of the tag, and the number of files."""
        files = format_count(len(self.files_to_delete), "file")
        return f"tag {escape_name(self.request.name)} and {files}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagDeletionResult(PlanOutcome[TagDeletionPlan]):
    """The executed plan, with the files that were deleted."""

    def describe(self) -> list[str]:
        """Return what was deleted."""
        return [f"deleted {self.plan.describe_tag()}"]

    def count_io(self) -> StepIo:
        """Return the files that were deleted."""
        return StepIo(
            files_deleted=len(self.plan.files_to_delete),
            bytes_deleted=self.plan.files_to_delete.bytes,
        )


def plan(table: Table, request: DeleteTagRequest) -> TagDeletionPlan:
    """Find the files that only a tag references.

    Raises :class:`NotFoundError` for an unknown tag, and :class:`CorruptFileError` if metadata of
    other versions cannot be read.
    """
    state = table.load()
    state.check_step(StepKind.TAG | StepKind.DELETE)
    versions = (
        RetainedSnapshotStore(state.io, state.paths.root, with_schema=(state.paths.branch,))
        .all()
        .by_path
    )
    request = replace(request, name=state.tags.find(request.name))
    files = _collect_files_to_delete(state, request.name, versions)
    return TagDeletionPlan(request=request, files_to_delete=files, versions=versions)


def _collect_files_to_delete(
    state: TableState, name: str, versions: Mapping[str, RetainedSnapshot]
) -> UnreferencedFiles:
    path = state.tags.path(name)
    tagged = versions[path].snapshot if path in versions else state.tags.get(name)
    retained = [version for other, version in versions.items() if other != path]
    if any(
        v.snapshot.id == tagged.id
        and v.branch == state.paths.branch
        and v.kind is not RetainedSnapshotKind.CHANGELOG
        for v in retained
    ):
        return UnreferencedFiles()
    reader = ReferenceReader.of(state.io, state.paths.root)
    reader.read_ahead(versions.values())
    collector = SnapshotDeletionPlanner(
        reader=reader, paths=state.paths, schema=state.schema, retained=retained
    )
    collector.add_live_files(versions[path])
    # the expiration of the snapshot retained these files for the tag
    collector.add_changelog_files(versions[path])
    remover = SafeDeleter(io=state.io, roots=state.file_roots)
    return collector.collect([versions[path]]).filter(remover.has_safe_name)


def _delete_tag_and_recheck(table: Table, plan: TagDeletionPlan) -> TagDeletionPlan:
    """Delete the tag, then check whether newer versions may need its files.

    Raises :class:`CommitConflictError` if the tag was moved to another snapshot after the plan.
    """
    name = plan.request.name
    path, tagged = table.tags.path(name), table.tags.get(name)
    if path not in plan.versions or plan.versions[path].snapshot != tagged:
        raise CommitConflictError(
            f"{table.identifier}: tag {name!r} was changed during its deletion; it was not deleted"
        )
    table.io.delete(path)
    table.stores.report_deleted_tags([name])
    table.stores.prepare_deletion()
    store = RetainedSnapshotStore(table.io, table.paths.root)
    if _has_new_versions(plan.versions, store.all(plan.versions).by_path):
        # A new branch or tag may reference the files. If not, the removal of orphan files deletes them.
        return replace(plan, files_to_delete=UnreferencedFiles())
    return plan


def _has_new_versions(
    versions: Mapping[str, RetainedSnapshot], current: Mapping[str, RetainedSnapshot]
) -> bool:
    return any(
        path not in versions or versions[path].snapshot != version.snapshot
        for path, version in current.items()
    )


def commit(
    _table: Table, plan: TagDeletionPlan, results: Sequence[Sequence[str]]
) -> TagDeletionResult:
    """Return the deleted files; ``results`` are the paths that were refused."""
    refused_paths = {path for paths in results for path in paths}
    deleted = plan.files_to_delete.filter(lambda path: path not in refused_paths)
    return TagDeletionResult(plan=replace(plan, files_to_delete=deleted))


DELETE_TAG = Step(
    title="delete a tag of",
    planner=plan,
    work=lambda table, plan: collect_deletions(
        table.io, table.stores.file_roots, plan.files_to_delete.paths
    ),
    run=run,
    decode=json.loads,
    commit=commit,
    prepare=_delete_tag_and_recheck,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTagCall(CallOnExecutor, DeleteTagRequest):
    """A call of :func:`delete_tag`."""


@take_fields(DeleteTagCall)
def delete_tag(table: Table, request: DeleteTagCall) -> UnreferencedFiles:
    """Delete a tag and the files that only it references; return these files.

    Raises :class:`CorruptFileError` if metadata of other versions cannot be read.
    """
    planned = DELETE_TAG.plan(table, request)
    result = run_step(DELETE_TAG, table, planned, request.executor, progress=request.progress)
    return result.plan.files_to_delete


DECLARATION = declare_step(
    DELETE_TAG,
    DeleteTagRequest,
    examples=["/lake db.orders release-7 --dry-run"],
    asks=True,
    command="tag delete",
)
