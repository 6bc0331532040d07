"""Delete old snapshots and their files.

First, the hint EARLIEST is moved, so that no reader starts from an expiring snapshot. Then data
files are deleted, then metadata, and finally snapshot files. If a run is killed, the next run
completes it.

See docs/format/snapshot-expiration.md.
"""

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from paimon_orch.errors import CommitConflictError, NotFoundError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.options.core_options import (
    CONSUMER_CHANGELOG_ONLY,
    SNAPSHOT_CLEAN_EMPTY_DIRECTORIES,
)
from paimon_orch.format.options.engine_options import SNAPSHOT_EXPIRE_CLEAN_EMPTY_DIRECTORIES
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.file_deletion import DeletionResult, collect_deletions, run
from paimon_orch.steps.common.step import Step, run_step
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport, describe_refused_paths
from paimon_orch.steps.expiration.expire_changelogs import (
    EXPIRE_CHANGELOGS,
    ChangelogExpirationPlan,
    ExpireChangelogsRequest,
    plan_among_versions,
)
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    choose_first_retained,
    is_changelog_decoupled,
)
from paimon_orch.storage.concurrency import map_concurrently, start_call
from paimon_orch.table.cleanup.listed_state import ListedState, load_listed_state
from paimon_orch.table.cleanup.references import ReferenceReader
from paimon_orch.table.cleanup.retained_snapshots import (
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
    RetainedVersions,
)
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.cleanup.snapshot_deletion import SnapshotDeletionPlanner, UnreferencedFiles
from paimon_orch.table.iceberg.iceberg_settings import is_iceberg_enabled
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.metadata_io import read_json_to_copy
from paimon_orch.table.metadata.small_listings import list_newest_files
from paimon_orch.table.metadata.snapshot_store import EARLIEST, LATEST, SNAPSHOT_PREFIX
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.table_stores import TableStores

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
    state: TableState = field(repr=False, compare=False)
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
    planned_versions: Mapping[str, RetainedSnapshot] = field(
        default_factory=dict, repr=False, compare=False
    )
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

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        files, changelogs = self.files_to_delete, self.changelog_plan
        action = (
            f"expire {format_count(len(self.snapshots), 'snapshot')} with "
            f"{format_count(len(files), 'file')} ({format_count(files.bytes, 'byte')} of data)"
        )
        if changelogs:
            action += (
                f" and {format_count(len(changelogs.changelogs), 'changelog')} with "
                f"{format_count(len(changelogs.files_to_delete), 'file')}"
            )
        return PlanReport(
            action=action,
            lines=self.held_by,
            columns={"kind": "string", "path": "string"},
            items=self._list_items(),
            asks=bool(self) and self.request.replaces_options,
        )

    def _list_items(self) -> Iterator[dict[str, object]]:
        """Yield the files to delete, those of data before those of metadata."""
        files, changelogs = self.files_to_delete, self.changelog_plan
        kinds = {
            "snapshot": [self.state.snapshots.path(number) for number in self.snapshots],
            "data": [*files.data],
            "metadata": [*files.metadata, *files.lists],
        }
        if changelogs is not None:
            store, files = (
                ChangelogStore(self.state.io, self.state.paths),
                changelogs.files_to_delete,
            )
            kinds["changelog"] = [*map(store.path, changelogs.changelogs), *files.data]
            kinds["metadata"] += [*files.metadata, *files.lists]
        return ({"kind": kind, "path": path} for kind, paths in kinds.items() for path in paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotExpirationResult(DeletionResult):
    """The result of an expiration."""

    snapshots: int = 0
    data_files: int = 0
    metadata_files: int = 0

    def describe(self) -> list[str]:
        """Return what was deleted, and what was not."""
        text = (
            f"expired {format_count(self.snapshots, 'snapshot')}, deleted "
            f"{format_count(self.data_files, 'data file')} ({format_count(self.bytes, 'byte')}) and "
            f"{format_count(self.metadata_files, 'metadata file')}"
        )
        return [text, *describe_refused_paths(self.refused)]

    def count_io(self) -> StepIo:
        """Return the files that were deleted."""
        return StepIo(files_deleted=self.data_files + self.metadata_files, bytes_deleted=self.bytes)


def plan(table: Table, request: ExpireSnapshotsRequest) -> SnapshotExpirationPlan:
    """Select the snapshots to expire and the files that only they reference.

    A snapshot expires by age only if its successor also exceeds this age. Files that tags,
    branches, consumers and changelogs need are retained. Raises :class:`CorruptFileError` if
    metadata of a retained version cannot be read.
    """
    ages = _SnapshotAges.load(table)
    state = ages.listed.state
    state.check_step(StepKind.DELETE)
    now = int(time.time() * 1000) if request.now_millis is None else request.now_millis
    options = state.schema.typed_options
    retention = Retention.of_snapshots(options, now, request)
    read_consumers = start_call(state.io, state.open_consumers().read_progress)
    next_snapshots, expired = read_consumers()
    if options.get(CONSUMER_CHANGELOG_ONLY):
        next_snapshots = {}
    end = ages.find_first_retained(retention, next_snapshots.values())
    end_without_consumers = None
    if next_snapshots:
        end_without_consumers = ages.find_first_retained(retention)
    holders = tuple(
        f"consumer {path.rpartition('consumer-')[2]} retains snapshot {number} and all later ones"
        for path, number in sorted(next_snapshots.items())
        if end_without_consumers is not None and number < end_without_consumers
    )
    planned = SnapshotExpirationPlan(request=request, state=state, consumers=tuple(expired))
    if end is not None:
        keeps_changelog = is_changelog_decoupled(options, retention)
        planned = _select_files(replace(planned, end=end, keeps_changelog=keeps_changelog), ages)
    return replace(planned, held_by=(*holders, *planned.held_by))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SnapshotAges:
    """The snapshots of a branch; those whose age decides about an expiration are read."""

    listed: ListedState
    store: RetainedSnapshotStore

    @classmethod
    def load(cls, table: Table) -> "_SnapshotAges":
        """List the snapshots, read the newest one, and load the table with it."""
        store = _open_store(table.stores)
        newest = list_newest_files(table.io, table.stores.paths)
        return cls(listed=load_listed_state(table.stores, store, newest), store=store)

    def find_first_retained(
        self, retention: Retention, next_snapshots: Collection[int] = ()
    ) -> int | None:
        """Return the id of the oldest snapshot that is retained, or None if none expires."""
        latest = self.listed.state.snapshot
        if latest is None:
            return None
        return choose_first_retained(
            latest.id, list(self.listed.files), self._read_times, retention, next_snapshots
        )

    def _read_times(self, numbers: Iterable[int]) -> Iterator[int]:
        for version in map_concurrently(self.listed.state.io, self._read_snapshot, numbers):
            yield version.snapshot.time_millis

    def _read_snapshot(self, number: int) -> RetainedSnapshot:
        read, state = self.listed.read, self.listed.state
        if number not in read:
            version = self.store.read_snapshot(state.paths, number, self.listed.files[number])
            if version is None:
                raise _build_missing_error(state, number)
            read[number] = version
        return read[number]

    def read_all_versions(self) -> RetainedVersions:
        """Read all versions of the table, those that were read already only if they changed."""
        return self.store.all(
            {version.path: version for version in self.listed.read.values()},
            {self.listed.state.paths.snapshot_dir: self.listed.entries},
        )


def _open_store(state: TableStores) -> RetainedSnapshotStore:
    """Return the versions of a table whose schema was read for the plan."""
    return RetainedSnapshotStore(state.io, state.paths.root, with_schema=(state.paths.branch,))


def _build_missing_error(state: TableState, number: int) -> NotFoundError:
    return NotFoundError(
        f"snapshot {number} of {state.identifier} no longer exists; nothing was deleted"
    )


def _collect_files(
    state: TableState,
    expired: Sequence[RetainedSnapshot],
    end: RetainedSnapshot,
    retained: Sequence[RetainedSnapshot],
) -> UnreferencedFiles:
    """Return the files that the snapshots before ``end`` reference, and no retained version."""
    reader = ReferenceReader.of(state.io, state.paths.root)
    reader.read_ahead([*expired, *retained])
    collector = SnapshotDeletionPlanner(
        reader=reader, paths=state.paths, schema=state.schema, retained=retained
    )
    for version in [*expired[1:], end]:
        collector.add_deleted_files(version)
    for version in expired:
        collector.add_changelog_files(version)
    return collector.collect(expired)


def _select_files(plan: SnapshotExpirationPlan, ages: _SnapshotAges) -> SnapshotExpirationPlan:
    """Add the snapshots before the end of a plan and their files to the plan."""
    state, end = plan.state, plan.end
    assert end is not None
    versions = ages.read_all_versions()
    snapshots = {
        v.snapshot.id: v
        for v in versions.of_branch(state.paths.branch)
        if v.kind is RetainedSnapshotKind.SNAPSHOT
    }
    expired = [
        replace(v, is_complete=False, keeps_changelog=False)
        for number, v in sorted(snapshots.items())
        if number < end
    ]
    if not expired:
        return replace(plan, end=None, keeps_changelog=False)
    if end not in snapshots:
        raise _build_missing_error(state, end)
    paths = {v.path for v in expired}
    retained = [v for path, v in versions.by_path.items() if path not in paths]
    if plan.keeps_changelog:
        kind, store = RetainedSnapshotKind.CHANGELOG, ChangelogStore(state.io, state.paths)
        retained += [replace(v, kind=kind, path=store.path(v.snapshot.id)) for v in expired]
    files = _collect_files(state, expired, snapshots[end], retained)
    # Paths in metadata are not trusted: files outside of the table's directories are excluded.
    remover = SafeDeleter(io=state.io, roots=state.file_roots)
    refused = tuple(path for path in files.paths if not remover.has_safe_name(path))
    if refused:
        files = files.filter(remover.has_safe_name)
    changelog_plan = None
    if plan.keeps_changelog:
        changelog_plan = plan_among_versions(state, ExpireChangelogsRequest(), retained)
    return replace(
        plan,
        snapshots=tuple(v.snapshot.id for v in expired),
        files_to_delete=files,
        changelog_plan=changelog_plan,
        refused=refused,
        planned_versions=versions.by_path,
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


def advance_hint_and_recheck(
    table: Table, planned: SnapshotExpirationPlan
) -> SnapshotExpirationPlan:
    """Move the hint EARLIEST, then check whether newer versions need the files to delete.

    Returns the plan without files that newer snapshots reference again. Raises
    :class:`CommitConflictError` if a tag, branch or changelog was created after the plan. The
    creation of a tag checks the hint after writing the tag, so at least one of both detects the
    conflict. All versions are listed again after the hint has moved, and the files that are new or
    have been replaced since the plan are read.
    """
    assert planned.end is not None
    stores, old = table.stores, planned.planned_versions
    # again, because the plan can be old; in most cases, this asks for one missing file
    read_later_schema = start_call(
        table.io, partial(stores.schemas.latest_after, planned.state.schema.id)
    )
    newest = planned.state.snapshot
    # before the hint is written, which would hide the older snapshots if the newest one is lost
    stores.snapshots.require_latest_file(None if newest is None else newest.id)
    schema = read_later_schema() or planned.state.schema
    stores.snapshots.write_hint(EARLIEST, planned.end)
    if is_iceberg_enabled(schema):
        stores.publish_before_deletion()  # with the newest schema, also of a replaced table
    versions = _open_store(stores).all(old).by_path
    new = [v for path, v in versions.items() if path not in old or old[path].snapshot != v.snapshot]
    if not all(_is_newer(v, old) for v in new):
        raise _build_conflict_error(table)
    if stores.snapshots.path(planned.end) not in versions:
        raise _build_conflict_error(table)
    reader = ReferenceReader.of(table.io, table.paths.root)
    return _exclude_names(planned, _collect_file_names(reader, new))


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


def _is_newer(version: RetainedSnapshot, old: Mapping[str, RetainedSnapshot]) -> bool:
    """Return whether a version is a snapshot that is newer than all old ones of its branch."""
    directory = version.path.rpartition("/")[0]
    old_ids = [
        each.snapshot.id
        for path, each in old.items()
        if path.startswith(f"{directory}/{SNAPSHOT_PREFIX}")
    ]
    return bool(old_ids) and version.snapshot.id > max(old_ids)


def _delete_metadata(table: Table, planned: SnapshotExpirationPlan) -> int:
    assert planned.end is not None
    roots = table.stores.file_roots
    remover = SafeDeleter(io=table.io, roots=roots)
    directories = 0
    options = planned.state.schema.typed_options
    default = options.get(SNAPSHOT_EXPIRE_CLEAN_EMPTY_DIRECTORIES)
    if options.get(SNAPSHOT_CLEAN_EMPTY_DIRECTORIES, default):
        parents = {path.rpartition("/")[0] for path in planned.files_to_delete.data}
        directories = remover.delete_empty_dirs(parents, table.paths.root)
    remover.delete_many(planned.files_to_delete.metadata)
    remover.delete_many(planned.files_to_delete.lists)
    if planned.keeps_changelog:
        _retain_changelogs(table, planned.snapshots)
    remover.delete_many([table.stores.snapshots.path(number) for number in planned.snapshots])
    remover.delete_many(planned.consumers)
    return directories


def _retain_changelogs(table: Table, numbers: Sequence[int]) -> None:
    """Copy snapshot files to changelogs, several at the same time, and then write the hint.

    An existing changelog is kept: another one of its id is of a snapshot that was created too late,
    see docs/format/commit.md#late-creation.
    """
    store, snapshots = ChangelogStore(table.io, table.paths), table.stores.snapshots

    def copy(number: int) -> bool:
        try:
            data = read_json_to_copy(table.io, snapshots.path(number))
        except FileNotFoundError:  # another process expired it and retained its changelog
            return False
        path = store.path(number)
        return table.io.create(path, data) or table.io.read_bytes(path) == data

    is_copied = map_concurrently(table.io, copy, numbers)
    copied = [number for number, done in zip(numbers, is_copied, strict=True) if done]
    if copied:
        store.write_hint(LATEST, copied[-1])


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
        deleter.delete_many(plan.consumers)
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
    planner=plan,
    work=lambda table, plan: collect_deletions(
        table.io, table.stores.file_roots, plan.files_to_delete.data
    ),
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


@take_fields(ExpireSnapshotsRequest)
def expire_snapshots(
    table: Table,
    request: ExpireSnapshotsRequest,
    executor: Executor | None,
    progress: Progress | None,
) -> SnapshotExpirationResult:
    """Expire snapshots, with the limits of :class:`RetentionRequest`; after a failure, repeat it.

    Raises :class:`CommitConflictError` if tags or branches changed during each attempt.
    """
    return run_expiration(table, EXPIRE_SNAPSHOTS.plan(table, request), executor, progress=progress)


DECLARATION = declare_step(
    EXPIRE_SNAPSHOTS,
    ExpireSnapshotsRequest,
    run=run_expiration,
    help="A file is deleted if no remaining snapshot, tag, branch or changelog references it. "
    "--dry-run also lists the snapshots that a tag, branch or consumer retains. Asks if an option of "
    "the command replaces the retention of the table's options.",
    examples=["/lake db.orders --older-than '2 d' --dry-run"],
    asks=True,
)
