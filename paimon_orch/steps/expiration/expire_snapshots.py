"""Expires snapshots: deletes the files that only they reference, and then the snapshots.

First, the hint EARLIEST is moved, so that no reader starts from an expiring snapshot. Then data
files are deleted, then metadata, and finally snapshot files. If a run is killed, the next run
completes it.

See docs/format/snapshot-expiration.md.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from paimon_orch.errors import CommitConflictError, NotFoundError
from paimon_orch.format.display import Displayable
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.options.core_options import (
    CONSUMER_CHANGELOG_ONLY,
    SNAPSHOT_CLEAN_EMPTY_DIRECTORIES,
)
from paimon_orch.format.options.engine_options import SNAPSHOT_EXPIRE_CLEAN_EMPTY_DIRECTORIES
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.file_deletion import (
    DeletionResult,
    DeletionScope,
    delete_in_threads,
    run,
    split_paths,
)
from paimon_orch.steps.common.step import Step, WorkUnits, run_step
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.expiration.expire_changelogs import (
    EXPIRE_CHANGELOGS,
    ChangelogExpirationPlan,
    ExpireChangelogsRequest,
    plan_among_versions,
)
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    find_first_retained_snapshot,
    is_changelog_decoupled,
)
from paimon_orch.table.cleanup.references import (
    ReferenceReader,
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.cleanup.snapshot_deletion import SnapshotDeletionPlanner, UnreferencedFiles
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.snapshot_store import EARLIEST
from paimon_orch.table.table import Table

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSnapshotsRequest(RetentionRequest):
    """Limits of an expiration of snapshots."""

    now_millis: int | None = None
    """The time at which the age of snapshots is measured; None means the current time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotExpirationPlan(Displayable):
    """The plan of an expiration. It is falsy if no snapshot expires."""

    request: ExpireSnapshotsRequest
    snapshots: tuple[int, ...] = ()
    end: int | None = None
    """The oldest snapshot that is retained."""
    files_to_delete: UnreferencedFiles = field(default_factory=UnreferencedFiles)
    consumers: tuple[str, ...] = ()
    keeps_changelog: bool = False
    changelog_plan: ChangelogExpirationPlan | None = None
    """The changelogs that expire with the snapshots, including changelogs of these snapshots."""
    refused: tuple[str, ...] = ()
    """Files that are not deleted because they are outside of the table's directories."""
    planned_versions: tuple[tuple[str, Snapshot], ...] = ()
    """All snapshots, tags and changelogs at the time of the plan, by path."""
    held_by: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any snapshot expires."""
        return bool(self.snapshots)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        changelogs = () if self.changelog_plan is None else self.changelog_plan.changelogs
        return {
            "snapshots": len(self.snapshots),
            "first": self.snapshots[0] if self.snapshots else None,
            "last": self.snapshots[-1] if self.snapshots else None,
            "data_files": len(self.files_to_delete.data),
            "metadata_files": len(self.files_to_delete.metadata) + len(self.files_to_delete.lists),
            "bytes": self.files_to_delete.bytes,
            "changelogs": len(changelogs),
            "consumers": len(self.consumers),
            "refused": list(self.refused),
            "held_by": list(self.held_by),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotExpirationResult(DeletionResult):
    """The result of an expiration."""

    snapshots: int = 0
    data_files: int = 0
    metadata_files: int = 0

    def count_io(self) -> StepIo:
        """Return the files that were deleted."""
        return StepIo(files_deleted=self.data_files + self.metadata_files, bytes_deleted=self.bytes)


def plan(table: Table, request: ExpireSnapshotsRequest) -> SnapshotExpirationPlan:
    """Select the snapshots to expire and the files that only they reference.

    A snapshot expires by age only if its successor also exceeds this age. Files that tags,
    branches, consumers and changelogs need are retained. Raises :class:`CorruptFileError` if
    metadata of a retained version cannot be read.
    """
    table.stores.check_step(StepKind.DELETE)
    now = int(time.time() * 1000) if request.now_millis is None else request.now_millis
    options = table.stores.get_schema().typed_options
    retention = Retention.of_snapshots(options, now, request)
    consumers = table.stores.open_consumers()
    next_snapshots = consumers.read_next_snapshots()
    expired = tuple(consumers.find_expired())
    if options.get(CONSUMER_CHANGELOG_ONLY):
        next_snapshots = {}
    end = find_first_retained_snapshot(table.stores.snapshots, retention, next_snapshots.values())
    end_without_consumers = None
    if next_snapshots:
        end_without_consumers = find_first_retained_snapshot(table.stores.snapshots, retention)
    holders = tuple(
        f"consumer {path.rpartition('consumer-')[2]} retains snapshot {number} and all later ones"
        for path, number in sorted(next_snapshots.items())
        if end_without_consumers is not None and number < end_without_consumers
    )
    if end is None:
        return SnapshotExpirationPlan(request=request, consumers=expired, held_by=holders)
    keeps_changelog = is_changelog_decoupled(options, retention)
    plan_without_files = SnapshotExpirationPlan(
        request=request, end=end, consumers=expired, keeps_changelog=keeps_changelog
    )
    planned = _select_files(table, plan_without_files)
    return replace(planned, held_by=(*holders, *planned.held_by))


def _select_files(table: Table, plan: SnapshotExpirationPlan) -> SnapshotExpirationPlan:
    """Add the snapshots before the end of a plan and their files to the plan."""
    end = plan.end
    assert end is not None
    versions = RetainedSnapshotStore(table.io, table.paths.root).all()
    on_branch = [v for v in versions.values() if v.branch == table.paths.branch]
    snapshots = {v.snapshot.id: v for v in on_branch if v.kind is RetainedSnapshotKind.SNAPSHOT}
    expired = [
        replace(v, is_complete=False, keeps_changelog=False)
        for number, v in sorted(snapshots.items())
        if number < end
    ]
    if not expired:
        return replace(plan, end=None, keeps_changelog=False)
    if end not in snapshots:
        raise NotFoundError(
            f"snapshot {end} of {table.identifier} no longer exists; nothing was deleted"
        )
    paths = {v.path for v in expired}
    retained = [v for path, v in versions.items() if path not in paths]
    if plan.keeps_changelog:
        retained += [_to_changelog(table, v) for v in expired]
    reader = ReferenceReader.of(table.io, table.paths.root)
    collector = SnapshotDeletionPlanner(
        reader=reader, paths=table.paths, schema=table.stores.get_schema(), retained=retained
    )
    for version in [*expired[1:], snapshots[end]]:
        collector.add_deleted_files(version)
    for version in expired:
        collector.add_changelog_files(version)
    files, refused = _exclude_outside_files(table, collector.collect(expired))
    changelog_plan = None
    if plan.keeps_changelog:
        changelog_plan = plan_among_versions(table, ExpireChangelogsRequest(), retained)
    return replace(
        plan,
        snapshots=tuple(v.snapshot.id for v in expired),
        files_to_delete=files,
        changelog_plan=changelog_plan,
        refused=refused,
        planned_versions=tuple((path, v.snapshot) for path, v in versions.items()),
        held_by=_find_holders(expired, retained),
    )


def _find_holders(
    expired: Iterable[RetainedSnapshot], retained: Iterable[RetainedSnapshot]
) -> tuple[str, ...]:
    """Return a message for each tag and branch that retains files of expired snapshots."""
    numbers = {v.snapshot.base_manifest_list: v.snapshot.id for v in expired}
    return tuple(
        f"{version} retains the files of snapshot {numbers[version.snapshot.base_manifest_list]}"
        for version in retained
        if version.kind is not RetainedSnapshotKind.CHANGELOG
        and version.snapshot.base_manifest_list in numbers
    )


def _to_changelog(table: Table, version: RetainedSnapshot) -> RetainedSnapshot:
    """Return the changelog that a snapshot becomes when it expires."""
    path = ChangelogStore(table.io, table.paths).path(version.snapshot.id)
    return replace(version, kind=RetainedSnapshotKind.CHANGELOG, path=path)


def _exclude_outside_files(
    table: Table, files: UnreferencedFiles
) -> tuple[UnreferencedFiles, tuple[str, ...]]:
    """Exclude files outside of the table's directories: paths in metadata are not trusted."""
    remover = SafeDeleter(io=table.io, roots=table.stores.file_roots)
    paths = (*files.data, *files.metadata, *files.lists)
    refused = tuple(path for path in paths if not remover.has_safe_name(path))
    return files.filter(remover.has_safe_name) if refused else files, refused


def advance_hint_and_recheck(
    table: Table, planned: SnapshotExpirationPlan
) -> SnapshotExpirationPlan:
    """Move the hint EARLIEST, then check whether newer versions need the files to delete.

    Returns the plan without files that newer snapshots reference again. Raises
    :class:`CommitConflictError` if a tag, branch or changelog was created after the plan. The
    creation of a tag checks the hint after writing the tag, so at least one of both detects the
    conflict.
    """
    assert planned.end is not None
    table.stores.snapshots.require_latest_file()
    table.stores.snapshots.write_hint(EARLIEST, planned.end)
    table.stores.prepare_deletion()
    old = dict(planned.planned_versions)
    versions = RetainedSnapshotStore(table.io, table.paths.root).all()
    new = [v for path, v in versions.items() if old.get(path) != v.snapshot]
    if not all(_is_newer(v, old) for v in new):
        raise _build_conflict_error(table)
    if table.stores.snapshots.path(planned.end) not in versions:
        raise _build_conflict_error(table)
    names = _collect_file_names(ReferenceReader.of(table.io, table.paths.root), new)
    return _exclude_names(planned, names)


def _exclude_names(
    planned: SnapshotExpirationPlan, names: Collection[str]
) -> SnapshotExpirationPlan:
    def is_unused(path: str) -> bool:
        return path.rpartition("/")[2] not in names

    changelog_plan = planned.changelog_plan
    if changelog_plan is not None:
        files = changelog_plan.files_to_delete.filter(is_unused)
        changelog_plan = replace(changelog_plan, files_to_delete=files)
    files = planned.files_to_delete.filter(is_unused)
    return replace(planned, files_to_delete=files, changelog_plan=changelog_plan)


def _collect_file_names(reader: ReferenceReader, versions: Iterable[RetainedSnapshot]) -> set[str]:
    """Return the names of data and index files that versions add or reference."""
    names: set[str] = set()
    for version in versions:
        for entry in reader.manifests.read_delta_entries(version.snapshot):
            if entry.kind is FileKind.ADD:
                names |= {entry.file.file_name, *entry.file.extra_files}
        names |= {item.file_name for item in reader.index(version)}
        names |= {version.index_manifest or "", version.statistics or ""}
    return names


def _build_conflict_error(table: Table) -> CommitConflictError:
    return CommitConflictError(
        f"{table.identifier}: tags or branches changed during the expiration of snapshots; "
        "no file was deleted. Try again"
    )


def _is_newer(version: RetainedSnapshot, old: Mapping[str, Snapshot]) -> bool:
    """Return whether a version is a snapshot that is newer than all old ones of its branch."""
    directory = version.path.rpartition("/")[0]
    old_ids = [
        snapshot.id for path, snapshot in old.items() if path.startswith(f"{directory}/snapshot-")
    ]
    return bool(old_ids) and version.snapshot.id > max(old_ids)


def _delete_metadata(table: Table, planned: SnapshotExpirationPlan) -> int:
    assert planned.end is not None
    roots = table.stores.file_roots
    remover = SafeDeleter(io=table.io, roots=roots)
    directories = 0
    options = table.stores.get_schema().typed_options
    default = options.get(SNAPSHOT_EXPIRE_CLEAN_EMPTY_DIRECTORIES)
    if options.get(SNAPSHOT_CLEAN_EMPTY_DIRECTORIES, default):
        parents = {path.rpartition("/")[0] for path in planned.files_to_delete.data}
        directories = remover.delete_empty_dirs(parents, table.paths.root)
    delete_in_threads(remover, planned.files_to_delete.metadata)
    delete_in_threads(remover, planned.files_to_delete.lists)
    if planned.keeps_changelog:
        for number in planned.snapshots:
            _write_decoupled_changelog(table, number)
    delete_in_threads(
        remover, [table.stores.snapshots.path(number) for number in planned.snapshots]
    )
    delete_in_threads(remover, planned.consumers)
    return directories


def _write_decoupled_changelog(table: Table, number: int) -> None:
    try:
        data = table.io.read_bytes(table.stores.snapshots.path(number))
    except FileNotFoundError:  # another process expired it and retained its changelog
        return
    ChangelogStore(table.io, table.paths).add(number, data)


def _collect_work(
    table: Table, plan: SnapshotExpirationPlan
) -> WorkUnits[DeletionScope, Sequence[str]]:
    scope = DeletionScope(table.io, table.stores.file_roots)
    return WorkUnits(shared=scope, units=split_paths(plan.files_to_delete.data))


def commit(
    table: Table,
    plan: SnapshotExpirationPlan,
    results: Sequence[Sequence[str]],
    *,
    executor: Executor | None = None,
) -> SnapshotExpirationResult:
    """Delete metadata, snapshots and expired consumers, after the units deleted the data files.

    :param results: the paths that were refused
    :param executor: expires changelogs that are retained longer than their snapshots
    """
    if not plan:
        deleter = SafeDeleter(io=table.io, roots=(table.paths.root,))
        delete_in_threads(deleter, plan.consumers)
        return SnapshotExpirationResult()
    refused = [path for paths in results for path in paths]
    refused_paths = set(refused)
    deleted = plan.files_to_delete.filter(lambda path: path not in refused_paths)
    directories = _delete_metadata(table, plan)
    if plan.changelog_plan is not None:
        run_step(EXPIRE_CHANGELOGS, table, plan.changelog_plan, executor)
    logger.info("%s: expired %d snapshots", table.identifier, len(plan.snapshots))
    return SnapshotExpirationResult(
        snapshots=len(plan.snapshots),
        data_files=len(deleted.data),
        metadata_files=len(plan.files_to_delete.metadata) + len(plan.files_to_delete.lists),
        bytes=deleted.bytes,
        directories=directories,
        refused=(*plan.refused, *refused),
    )


EXPIRE_SNAPSHOTS = Step(
    title="expire snapshots of",
    plan=plan,
    work=_collect_work,
    run=run,
    decode=json.loads,
    commit=commit,
    prepare=advance_hint_and_recheck,
)


def run_expiration(
    table: Table,
    plan: SnapshotExpirationPlan,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
) -> SnapshotExpirationResult:
    """Execute the plan of an expiration; see :func:`expire_snapshots`."""
    step = replace(EXPIRE_SNAPSHOTS, commit=partial(commit, executor=executor))
    return run_step(step, table, plan, executor, progress=progress)


def expire_snapshots(
    table: Table,
    executor: Executor | None = None,
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: int | None = None,
    max_deletes: int | None = None,
    progress: Progress | None = None,
) -> SnapshotExpirationResult:
    """Expire snapshots, with the limits of :class:`RetentionRequest`; after a failure, repeat it.

    Raises :class:`CommitConflictError` if tags or branches changed during each attempt.
    """
    request = ExpireSnapshotsRequest(
        retain_max=retain_max, retain_min=retain_min, older_than=older_than, max_deletes=max_deletes
    )
    return run_expiration(table, plan(table, request), executor, progress=progress)
