"""Delete a tag and the files that only it references.

A tag is deleted before its files, so a run that is killed leaves only orphan files.

See docs/format/tags-branches-consumers.md#tags.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paimon_orch.errors import CommitConflictError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import TablePaths
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import ParsedRequest
from paimon_orch.steps.common.conflict_retry import MAX_ATTEMPTS
from paimon_orch.steps.common.file_deletion import collect_deletions, run
from paimon_orch.steps.common.snapshot_selection import TagRequest
from paimon_orch.steps.common.step import PlanOutcome, RequestT, Step, plan_and_run, run_step
from paimon_orch.steps.common.step_declaration import CallOnExecutor, declare_step, take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.storage.concurrency import map_concurrently, run_concurrently
from paimon_orch.table.cleanup.references import ReferenceReader
from paimon_orch.table.cleanup.retained_snapshots import (
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.cleanup.snapshot_deletion import SnapshotDeletionPlanner, UnreferencedFiles
from paimon_orch.table.metadata.held_metadata import HeldManifestReader
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTagRequest(TagRequest):
    """The tag to delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagNames(ParsedRequest):
    """The tags that a step deletes together."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagDeletionPlan(Displayable):
    """Tags and the files that only they reference."""

    request: DeleteTagRequest | TagNames
    names: Sequence[str]
    """The tags: one for a :class:`DeleteTagRequest`."""
    files_to_delete: UnreferencedFiles = field(default_factory=UnreferencedFiles)
    """The files to delete; empty if the snapshot of a tag has not expired or has another tag."""
    versions: Mapping[str, RetainedSnapshot] = field(repr=False, compare=False)
    """All snapshots, tags and changelogs at the time of the plan, by path."""

    def __bool__(self) -> bool:
        """Return True, because the tags exist."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the name of the tag and the number of files as JSON values."""
        return {"tag": ", ".join(self.names), "files": len(self.files_to_delete)}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(action=f"delete {self.describe_tag()}", asks=True)

    def describe_tag(self) -> str:
        """Return the names of the tags, and the number of files."""
        files = format_count(len(self.files_to_delete), "file")
        return f"tag {', '.join(map(escape_name, self.names))} and {files}"


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
    versions = _read_versions(state)
    request = replace(request, name=state.tags.find(request.name))
    return _plan_deletion(state, request, [request.name], versions)


def _plan_names(table: Table, request: TagNames) -> TagDeletionPlan:
    state = table.load()
    state.check_step(StepKind.TAG | StepKind.DELETE)
    return _plan_deletion(state, request, request.names, _read_versions(state))


def _read_versions(state: TableState) -> Mapping[str, RetainedSnapshot]:
    store = RetainedSnapshotStore(state.io, state.paths.root, with_schema=(state.paths.branch,))
    return store.all().by_path


def _plan_deletion(
    state: TableState,
    request: DeleteTagRequest | TagNames,
    names: Sequence[str],
    versions: Mapping[str, RetainedSnapshot],
) -> TagDeletionPlan:
    files = _collect_files_to_delete(state, names, versions)
    return TagDeletionPlan(request=request, names=names, files_to_delete=files, versions=versions)


def _collect_files_to_delete(
    state: TableState, names: Sequence[str], versions: Mapping[str, RetainedSnapshot]
) -> UnreferencedFiles:
    paths = {state.tags.path(name): name for name in names}
    for path, name in paths.items():
        if path not in versions:
            state.tags.get(name)  # raises the error of a missing tag
            raise _build_changed_error(state, name)
    retained = [version for path, version in versions.items() if path not in paths]
    kept = {
        v.snapshot.id
        for v in retained
        if v.branch == state.paths.branch and v.kind is not RetainedSnapshotKind.CHANGELOG
    }
    # one of several tags of a snapshot stands for it
    tagged = {versions[path].snapshot.id: versions[path] for path in paths}
    expired = [version for number, version in tagged.items() if number not in kept]
    if not expired:
        return UnreferencedFiles()
    reader = ReferenceReader(HeldManifestReader(state.io, TablePaths(state.paths.root)))
    reader.read_ahead(versions.values())
    collector = SnapshotDeletionPlanner(
        reader=reader, paths=state.paths, schema=state.schema, retained=retained
    )
    for version in expired:
        collector.add_live_files(version)
        # the expiration of the snapshot retained these files for the tag
        collector.add_changelog_files(version)
    remover = SafeDeleter(io=state.io, roots=state.file_roots)
    return collector.collect(expired).filter(remover.has_safe_name)


def _build_changed_error(stores: TableStores, name: str) -> CommitConflictError:
    return CommitConflictError(
        f"{stores.identifier}: tag {name!r} was changed during its deletion; it was not deleted"
    )


def _delete_tags_and_recheck(table: Table, plan: TagDeletionPlan) -> TagDeletionPlan:
    """Delete the tags, then check whether newer versions may need their files.

    Raises :class:`CommitConflictError` if one was moved to another snapshot after the plan; then
    none is deleted.
    """
    paths = list(map(table.tags.path, plan.names))
    tagged = map_concurrently(table.io, table.tags.get, plan.names)
    for path, name, snapshot in zip(paths, plan.names, tagged, strict=True):
        if plan.versions[path].snapshot != snapshot:
            raise _build_changed_error(table.stores, name)
    run_concurrently(table.io, table.io.delete, paths)
    table.stores.report_deleted_tags(plan.names)
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


def _build_step(
    title: str, planner: Callable[[Table, RequestT], TagDeletionPlan], *, max_attempts: int
) -> Step[RequestT, TagDeletionPlan, Any, Any, Any, TagDeletionResult]:
    return Step(
        title=title,
        planner=planner,
        work=lambda table, plan: collect_deletions(
            table.io, table.stores.file_roots, plan.files_to_delete.paths
        ),
        run=run,
        decode=json.loads,
        commit=commit,
        prepare=_delete_tags_and_recheck,
        max_attempts=max_attempts,
    )


DELETE_TAG = _build_step("delete a tag of", plan, max_attempts=MAX_ATTEMPTS)


def delete_tags(table: Table, names: Sequence[str]) -> None:
    """Delete tags and the files that only they reference, for a step that has chosen them.

    Raises :class:`CommitConflictError` if one changes meanwhile, :class:`NotFoundError` if one is
    missing, and :class:`CorruptFileError` if metadata of other versions cannot be read; no tag is
    then deleted.
    """
    if names:
        step = _build_step("delete tags of", _plan_names, max_attempts=1)
        plan_and_run(step, table, TagNames(names=names))


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
