"""Delete unreferenced files.

These are old files that no snapshot, tag or changelog of any branch references.

Work units list files and read manifests. A shuffle by file name compares both, so that only orphans
are returned to the driver. Versions that are committed meanwhile are read after the listing, and
again before files are deleted. If any metadata cannot be read, nothing is deleted.

See docs/format/orphan-files.md.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, TypeVar

from paimon_orch.errors import CorruptFileError, InputError, UnsupportedError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.times import parse_cutoff
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.argument import CUTOFF_HELP, Argument, ParsedRequest
from paimon_orch.steps.common.executor import (
    Executor,
    InProcessExecutor,
    Progress,
    ThresholdExecutor,
)
from paimon_orch.steps.common.file_deletion import DeletionResult, collect_deletions, run
from paimon_orch.steps.common.manifest_units import count_entries, split_manifests
from paimon_orch.steps.common.partition_request import require_partitions, select_partitions
from paimon_orch.steps.common.step import Step, run_step
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport, describe_refused_paths
from paimon_orch.table.cleanup.data_roots import DataRoots
from paimon_orch.table.cleanup.listed_state import load_listed_state
from paimon_orch.table.cleanup.orphan_candidates import (
    FileTree,
    ListedUnit,
    ListingUnit,
    ManifestUnit,
    OrphanCandidate,
    OrphanListing,
    OrphanSearch,
    find_partition_directories,
    find_unfinished_files,
    find_unreferenced_names,
    list_names_by_part,
    list_old_names,
    list_shared_directories,
)
from paimon_orch.table.cleanup.references import ReferencedFiles
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshotStore
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.filter.partition_spec import PartitionSpec, parse_partition_specs
from paimon_orch.table.iceberg.iceberg_settings import find_external_directory
from paimon_orch.table.iceberg.orphan_metadata import find_orphan_iceberg_files
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.scan.partition_selection import PartitionSpecs
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState, load_newest_state
from paimon_orch.table.table_stores import TableStores

T = TypeVar("T")

logger = get_logger(__name__)

DEFAULT_MIN_AGE_SECONDS = 24 * 3600
_MAX_PARTS = 200
_NAMES_PER_PART = 100_000
_MAX_LISTING_UNITS = 1_024
_MAX_TREE_ENTRIES = 20_000
"""The manifest entries of a table whose files are listed at once: 20 requests."""
_MIN_DIRECTORIES = 4_096
"""Units list partitions and buckets themselves below this number of directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOrphanFilesRequest(ParsedRequest):
    """Selects the orphan files to remove."""

    older_than: Annotated[
        int | None,
        Argument(
            f"{CUTOFF_HELP} Must exceed the duration of the slowest write.",
            parse=parse_cutoff,
            metavar="TIME",
            default="1 d",
        ),
    ] = None
    """Only files modified before this time are removed (epoch milliseconds; None: one day ago)."""
    partitions: Annotated[
        PartitionSpecs | None,
        select_partitions(
            "Partitions in which to search data files.",
            partial(require_partitions, with_directories=True),
            default="all files of the table",
        ),
    ] = None
    directories_per_unit: int = 64
    """The number of directories that one work unit lists; more in very large tables."""
    manifests_per_unit: int = 16
    """The maximum number of manifests that one work unit reads."""
    quarantine: Annotated[
        bool, Argument("Move the files to a quarantine instead of deleting them.")
    ] = False
    """Moves files to a dated folder of the table, from which they can be restored."""

    def parse_partitions(self, schema: TableSchema) -> Sequence[PartitionSpec] | None:
        """Return the partitions to search; None means all files of the table."""
        return None if self.partitions is None else parse_partition_specs(self.partitions, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFilesPlan(Displayable):
    """The orphan files of a table. The plan is falsy if there are none."""

    request: RemoveOrphanFilesRequest
    files: tuple[OrphanCandidate, ...] = ()
    directories: tuple[str, ...] = ()
    """Empty bucket directories."""
    scanned: int = 0
    """The number of files that are old enough to be orphans."""
    skipped_external_paths: tuple[str, ...] = ()
    """External paths that were not searched, each with the reason."""
    roots: tuple[str, ...] = ()
    """The table's directory and the external paths that were searched."""
    references: ReferencedFiles | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        """Return whether there is anything to remove."""
        return bool(self.files or self.directories)

    @property
    def bytes(self) -> int:
        """Return the total size of the orphan files in bytes."""
        return sum(file.size for file in self.files)

    def to_dict(self) -> dict[str, object]:
        """Return counts, bytes and paths as JSON values."""
        return {
            "files": len(self.files),
            "bytes": self.bytes,
            "empty_directories": len(self.directories),
            "old_files": self.scanned,
            "skipped_external_paths": list(self.skipped_external_paths),
            "paths": [file.path for file in self.files],
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        quarantine, cutoff = self.request.quarantine, self.request.older_than
        files = format_count(len(self.files), "file")
        may_be_new = cutoff is not None and cutoff > _compute_cutoff_seconds(None) * 1000
        return PlanReport(
            action=f"{'move' if quarantine else 'delete'} {files} of "
            f"{format_count(self.bytes, 'byte')}",
            consequence="files that running jobs have written may be among them"
            if may_be_new
            else "",
            lines=[
                *(file.path for file in self.files),
                *_describe_skipped(self.skipped_external_paths),
            ],
            columns={"path": "string", "bytes": "int"},
            items=({"path": file.path, "bytes": file.size} for file in self.files),
            asks=bool(self) and may_be_new and not quarantine,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFilesResult(DeletionResult):
    """The result of a removal of orphan files."""

    files: int = 0
    quarantine: str | None = None
    """The quarantine folder that the files were moved to."""
    skipped_external_paths: tuple[str, ...] = ()
    """External paths that were not searched, each with the reason."""

    def describe(self) -> list[str]:
        """Return what was deleted or moved, and what was not."""
        verb = "deleted" if self.quarantine is None else f"moved to quarantine {self.quarantine}:"
        size = format_count(self.bytes, "byte")
        return [
            *_describe_skipped(self.skipped_external_paths),
            f"{verb} {format_count(self.files, 'file')} of {size}",
            *describe_refused_paths(self.refused),
        ]

    def count_io(self) -> StepIo:
        """Return the files that were deleted; those in quarantine are not."""
        return (
            StepIo(files_deleted=self.files, bytes_deleted=self.bytes)
            if self.quarantine is None
            else StepIo()
        )


def _describe_skipped(paths: Sequence[str]) -> list[str]:
    return [f"skipped: {text}" for text in paths]


def plan(
    table: Table,
    request: RemoveOrphanFilesRequest,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> OrphanFilesPlan:
    """Find orphan files; the executor lists directories and reads manifests.

    Raises :class:`MissingFileError` or :class:`CorruptFileError` if metadata cannot be read that
    may reference an old file, and :class:`UnsupportedError` if the table has files but no version
    references any.
    """
    store = RetainedSnapshotStore(table.io, table.paths.root, with_schema=(table.paths.branch,))
    references, tree = ReferencedFiles(store=store), None
    if request.partitions is None:  # a small table is listed before its snapshots are read
        tree = FileTree.read_small(table.io, table.paths.root)
    state = _load_state(table.stores, references, tree)
    state.check_step(StepKind.DELETE)
    state.snapshots.require_file(None if state.snapshot is None else state.snapshot.id)
    before = _compute_cutoff_seconds(request.older_than)
    specs = request.parse_partitions(state.schema)
    data = DataRoots.of(state.io, state.paths, state.schema, state.owns_directory)
    if specs is None and (tree is None or len(data.roots) > 1):
        tree = _list_tree(state, data.roots, references)
    listed, listing = None, None
    if tree is not None:
        listed = ListedUnit(tuple(tree.find_files(state.paths, data.roots, state.schema)))
        listing = _confirm_references(state, listed, tree, references, before=before)
    if listing is None:
        listing = _find_unreferenced_files(
            state,
            executor or InProcessExecutor(),
            request=request,
            listings=[listed] if listed else _split_directories(state, request, data.roots, specs),
            before=before,
            references=references,
            progress=progress,
        )
    _require_latest_files(state, references)
    files = [file for file in listing.files if file.name not in references.names]
    if specs is None:
        files += _find_other_files(state, references, before, tree)
    _check_has_references(table, references, files)
    return OrphanFilesPlan(
        request=request,
        files=tuple(files),
        directories=tuple(listing.empty),
        scanned=listing.scanned,
        skipped_external_paths=data.refused,
        roots=(*data.roots, *filter(None, [find_external_directory(state.schema, state.paths)])),
        references=references,
    )


def _load_state(
    stores: TableStores, references: ReferencedFiles, tree: FileTree | None
) -> TableState:
    """Load the table, from the listing of all its files if there is one."""
    if tree is None:
        return load_newest_state(stores)
    newest = tree.find_newest_files(stores.paths)
    listed = load_listed_state(stores, references.store, newest)
    references.add_read_versions(listed.read.values())
    return listed.state


def _require_latest_files(state: TableState, references: ReferencedFiles) -> None:
    for paths in references.branches:
        if paths.branch != state.paths.branch:
            state.get_branch_snapshots(paths.branch).require_latest_file()


def _find_other_files(
    state: TableState, references: ReferencedFiles, before: float, tree: FileTree | None
) -> list[OrphanCandidate]:
    """Return the old unfinished files of all branches, and those of Iceberg metadata."""
    files: list[OrphanCandidate] = []
    for paths in references.branches:
        files += find_unfinished_files(state.io, paths, before, tree)
    infos = find_orphan_iceberg_files(state.io, state.paths, state.schema, before)
    return files + [OrphanCandidate(info.path, info.size) for info in infos]


def _list_tree(
    state: TableState, roots: Sequence[str], references: ReferencedFiles
) -> FileTree | None:
    """List all files with few requests; return None for large tables, or if directories exist."""
    if state.io.capabilities.has_directories:
        return None
    entries = 0 if state.snapshot is None else references.count_entries(state.snapshot)
    is_small = entries is not None and entries <= _MAX_TREE_ENTRIES
    return FileTree.read(state.io, roots) if is_small else None


def _confirm_references(
    state: TableState,
    listed: ListedUnit,
    tree: FileTree,
    references: ReferencedFiles,
    *,
    before: float,
) -> OrphanListing | None:
    """Return a listing without orphans if the newest versions reference all old files, else None.

    Then the lists and manifests of the others need not be read.
    """
    names = list_old_names(state.io, listed, before)
    versions = tree.list_versions(state.paths.root)
    is_complete = references.read_until_referenced(names, versions)
    return OrphanListing(scanned=len(names)) if is_complete else None


def _split_directories(
    state: TableState,
    request: RemoveOrphanFilesRequest,
    roots: Iterable[str],
    specs: Sequence[PartitionSpec] | None,
) -> list[ListingUnit]:
    directories = [
        directory
        for root in roots
        for directory in find_partition_directories(
            state.io, root, state.schema, specs=specs, enough=_MIN_DIRECTORIES
        )
    ]
    if specs is None:
        directories += list_shared_directories(state.paths)
    size = max(request.directories_per_unit, len(directories) // _MAX_LISTING_UNITS)
    return [
        ListingUnit(tuple(directories[start : start + size]))
        for start in range(0, len(directories), size)
    ]


def _compute_cutoff_seconds(older_than: int | None) -> float:
    """Return the cutoff in epoch seconds: only files modified before it may be removed."""
    now = time.time()
    before = now - DEFAULT_MIN_AGE_SECONDS if older_than is None else older_than / 1000
    if before > now:
        raise InputError(
            "the age limit of orphan files is in the future: files that are being written would be "
            "deleted"
        )
    return before


def _find_unreferenced_files(
    state: TableState,
    executor: Executor,
    *,
    request: RemoveOrphanFilesRequest,
    listings: Sequence[ListingUnit | ListedUnit],
    before: float,
    references: ReferencedFiles,
    progress: Progress | None,
) -> OrphanListing:
    """Return the old files that no manifest references; mark read manifests in ``references``."""
    metas = references.list_unread_manifests()
    manifests = [
        ManifestUnit(tuple(meta for _, meta in unit.manifests))
        for unit in split_manifests(enumerate(metas), request.manifests_per_unit)
    ]
    search = OrphanSearch(
        io=state.io,
        reader=ManifestReader(state.io, state.paths),  # not cached, because files are deleted
        before=before,
        partition_fields=tuple(state.schema.partition_fields),
    )
    parts = max(1, min(max(len(manifests), count_entries(metas) // _NAMES_PER_PART), _MAX_PARTS))
    listing = OrphanListing.of(
        executor.shuffle(
            partial(list_names_by_part, search, parts=parts),
            [*listings, *manifests],
            find_unreferenced_names,
            parts=parts,
            label=f"list the files of {state.identifier} and read its manifests",
            progress=progress,
        )
    )
    references.mark_as_read(listing.manifests)
    # This reads versions that were committed during the listing. The files of a tree were listed
    # before the versions.
    references.update(is_listed=any(isinstance(unit, ListedUnit) for unit in listings))
    return listing


def _check_has_references(
    table: Table, references: ReferencedFiles, files: Sequence[OrphanCandidate]
) -> None:
    if files and not references.names:
        raise UnsupportedError(
            f"{table.identifier} has {len(files)} files, but no snapshot, tag or changelog "
            "references any of them. Its snapshots may be lost; nothing was deleted. If the table "
            "was never written to, drop it and create it again"
        )


def _exclude_newly_referenced(table: Table, plan: OrphanFilesPlan) -> OrphanFilesPlan:
    """Exclude files of new versions, because a slow writer may have committed old files."""
    if plan.files:
        table.stores.prepare_deletion()
    references = plan.references
    if references is None:
        return plan
    references.update()
    files = tuple(file for file in plan.files if file.name not in references.names)
    return replace(plan, files=files)


def commit(
    table: Table, plan: OrphanFilesPlan, results: Sequence[Sequence[str]]
) -> OrphanFilesResult:
    """Delete empty directories after the units deleted files, or move the files to quarantine.

    :param results: the paths that were refused
    """
    folder, refused = None, [path for paths in results for path in paths]
    if plan.request.quarantine and plan.files:
        quarantine = Quarantine(table.io, table.paths.root, external_roots=plan.roots[1:])
        folder = quarantine.build_folder_name()
        refused = quarantine.put(folder, [file.path for file in plan.files])
    refused_paths = set(refused)
    removed = [file for file in plan.files if file.path not in refused_paths]
    logger.info("%s: removed %d orphan files", table.identifier, len(removed))
    return OrphanFilesResult(
        files=len(removed),
        bytes=sum(file.size for file in removed),
        directories=_delete_empty_directories(table, plan, removed),
        quarantine=folder,
        refused=tuple(refused),
        skipped_external_paths=plan.skipped_external_paths,
    )


def _delete_empty_directories(
    table: Table, planned: OrphanFilesPlan, removed: Iterable[OrphanCandidate]
) -> int:
    """Remove empty bucket directories, and partition directories without buckets."""
    parents = {file.path.rpartition("/")[0] for file in removed}
    buckets = {path for path in parents if path.rpartition("/")[2].startswith("bucket-")}
    remover = SafeDeleter(io=table.io, roots=planned.roots)
    directories = buckets | set(planned.directories)
    return sum(remover.delete_empty_dirs(directories, root) for root in planned.roots)


REMOVE_ORPHAN_FILES = Step(
    title="remove orphan files of",
    planner=plan,
    work=lambda table, plan: collect_deletions(
        table.io,
        plan.roots,
        [] if plan.request.quarantine else [file.path for file in plan.files],
    ),
    run=run,
    decode=json.loads,
    commit=commit,
    prepare=_exclude_newly_referenced,
    max_attempts=1,
)


@take_fields(RemoveOrphanFilesRequest)
def remove_orphan_files(
    table: Table,
    request: RemoveOrphanFilesRequest,
    executor: Executor | None,
    progress: Progress | None,
) -> OrphanFilesResult:
    """Plan and run a removal of orphan files; see :class:`RemoveOrphanFilesRequest`.

    Files outside the table's directories or behind links are never deleted. Can be repeated after a
    failure.
    """
    planned = plan(table, request, executor=executor, progress=progress)
    return run_step(REMOVE_ORPHAN_FILES, table, planned, executor)


def _plan_with_few_jobs(
    table: Table, request: RemoveOrphanFilesRequest, *, executor: Executor
) -> OrphanFilesPlan:
    """Plan in this process unless the table has many directories."""
    return plan(table, request, executor=ThresholdExecutor(lambda: executor))


def _remove_from_undamaged_table(
    table: Table, plan: OrphanFilesPlan, executor: Executor, *, progress: Progress | None = None
) -> OrphanFilesResult:
    _require_undamaged(table, executor)
    return run_step(REMOVE_ORPHAN_FILES, table, plan, executor, progress=progress)


def _require_undamaged(table: Table, executor: Executor) -> None:
    """Raise :class:`CorruptFileError` if files are missing or the metadata is inconsistent.

    Without a person who looks at the plan, files of a damaged table must remain for its repair.
    """
    from paimon_orch.steps.inspection.check_table import check

    report = check(table, executor=executor)
    if not report:
        raise CorruptFileError(
            table.paths.root,
            f"no orphan file is removed from a damaged table (findings: {len(report.findings)}, "
            f"the first: {report.findings[0]})",
        )


DECLARATION = declare_step(
    REMOVE_ORPHAN_FILES,
    RemoveOrphanFilesRequest,
    plan=_plan_with_few_jobs,
    run=_remove_from_undamaged_table,
    help="These are files in the table's directories that no snapshot, tag, branch or changelog "
    "references. By default, files of the last day are kept, because running jobs may still commit "
    "them; with a later --older-than, the command asks before it deletes files.",
    examples=[
        "/lake db.orders --older-than '3 d' --dry-run",
        "/lake db.orders --quarantine",
    ],
    asks=True,
)
