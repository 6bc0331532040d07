"""Removing files that nothing refers to, failing closed.

What is listed, old, and named by no version of any branch is an orphan. Files are listed, and manifests read, by work
units; names that are alike meet in one part, so that only orphans come back. After the listing, and again before anything
goes, the versions are looked at once more. Whatever cannot be read ends the step, with nothing deleted.

See docs/format/orphan-files.md.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.executor import Executor, InProcessExecutor, Progress
from paimon_orch.steps.common.file_deletion import DeletionResult, delete_files
from paimon_orch.steps.common.partition_selection import PartitionSpecs
from paimon_orch.table.cleanup.orphan_candidates import (
    DataRoots,
    ListingUnit,
    ManifestUnit,
    OrphanCandidate,
    OrphanListing,
    find_bucket_directories,
    find_unfinished_files,
    find_unreferenced_names,
    list_names_by_part,
    list_shared_directories,
)
from paimon_orch.table.cleanup.references import ReferencedFiles, RetainedSnapshotStore
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.filter.partition_spec import parse_partition_specs
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.table import Table

T = TypeVar("T")

logger = logging.getLogger(__name__)

DEFAULT_MIN_AGE_SECONDS = 24 * 3600
_MAX_PARTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOrphanFilesRequest:
    """Which files may be removed."""

    older_than: int | None = None
    """The time before which files must have been written last, in epoch milliseconds; None is a day ago."""
    partitions: PartitionSpecs | None = None
    """The partitions whose data files are listed; None lists all files of the table."""
    directories_per_unit: int = 64
    """The number of directories that one work unit lists."""
    manifests_per_unit: int = 16
    """The number of manifests that one work unit reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFilesPlan:
    """The orphans of a table; it is false when there are none. Also the dry run. Sizes are in bytes.

    ``skipped_external_paths`` are external paths that were not listed, each with the reason.
    """

    files: tuple[OrphanCandidate, ...] = ()
    directories: tuple[str, ...] = ()
    scanned: int = 0
    skipped_external_paths: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    used: ReferencedFiles | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        """Tell whether there is anything to remove."""
        return bool(self.files or self.directories)

    @property
    def bytes(self) -> int:
        """Return the size of all orphans."""
        return sum(file.size for file in self.files)

    def to_dict(self) -> dict[str, object]:
        """Return the plan in figures, and the paths."""
        return {
            "files": len(self.files),
            "bytes": self.bytes,
            "empty_directories": len(self.directories),
            "old_files": self.scanned,
            "skipped_external_paths": list(self.skipped_external_paths),
            "paths": [file.path for file in self.files],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFilesResult(DeletionResult):
    """What an orphan cleanup removed; ``quarantine`` is the folder that the files were moved to."""

    files: int = 0
    quarantine: str | None = None


def plan(
    table: Table,
    request: RemoveOrphanFilesRequest,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> OrphanFilesPlan:
    """Find the orphans that were last written before ``older_than`` (epoch milliseconds, by default a day ago).

    ``partitions`` limits the search to data files of partitions. Directories are listed, and manifests read, by the
    executor, a manifest a second time here if that fails there. Raises :class:`MissingFileError` or
    :class:`CorruptFileError`, naming the file, if anything that a version needs cannot be read, and
    :class:`UnsupportedError` if there are files but no version that refers to any.
    """
    table.stores.check_step(StepKind.DELETE)
    schema, before = table.schema, _compute_cutoff_seconds(request.older_than)
    partitions = request.partitions
    specs = None if partitions is None else parse_partition_specs(partitions, schema)
    store = RetainedSnapshotStore(table.io, table.paths.root)
    data = DataRoots.of(table.io, table.paths, schema)
    branches, used = store.branches(), ReferencedFiles(store=store)
    for paths in branches:
        SnapshotStore(table.io, paths).latest_id()  # the files of a lost snapshot are not orphans
    buckets = [
        b for root in data.roots for b in find_bucket_directories(table.io, root, schema, specs)
    ]
    directories = [info.path for info in buckets]
    if specs is None:
        directories += list_shared_directories(table.paths)
    found = _find_unused_files(
        table,
        executor or InProcessExecutor(),
        request=request,
        directories=directories,
        before=before,
        used=used,
        progress=progress,
    )
    used.update()  # after the listing: what is committed in between is read too
    files = [file for file in found.files if file.name not in used.names]
    if specs is None:
        files += [
            old for paths in branches for old in find_unfinished_files(table.io, paths, before)
        ]
    _check_has_references(table, used, files)
    old = {info.path for info in buckets if info.modified < before}
    empty = tuple(path for path in found.empty if path in old)
    return OrphanFilesPlan(
        files=tuple(files),
        directories=empty,
        scanned=found.scanned,
        skipped_external_paths=data.refused,
        roots=data.roots,
        used=used,
    )


def _compute_cutoff_seconds(older_than: int | None) -> float:
    """Return the time, in epoch seconds, before which files must have been written."""
    now = time.time()
    before = now - DEFAULT_MIN_AGE_SECONDS if older_than is None else older_than / 1000
    if before > now:
        raise InputError(
            "orphan files cannot be older than a time in the future: files that are being written would be deleted"
        )
    return before


def _find_unused_files(
    table: Table,
    executor: Executor,
    *,
    request: RemoveOrphanFilesRequest,
    directories: Sequence[str],
    before: float,
    used: ReferencedFiles,
    progress: Progress | None,
) -> OrphanListing:
    """Return the old files that no manifest names, as far as units could read them; ``used`` is told which they did."""
    listings = [
        ListingUnit(table.io, tuple(batch), before)
        for batch in _split(directories, request.directories_per_unit)
    ]
    manifests = [
        ManifestUnit(table.stores.manifests, tuple(batch))
        for batch in _split(used.list_unread_manifests(), request.manifests_per_unit)
    ]
    parts = max(1, min(len(manifests), _MAX_PARTS))
    found = OrphanListing.of(
        executor.shuffle(
            partial(list_names_by_part, parts=parts),
            [*listings, *manifests],
            find_unreferenced_names,
            parts=parts,
            label=f"list the files of {table.identifier} and read its manifests",
            progress=progress,
        )
    )
    used.mark_as_read(found.manifests)
    return found


def _split(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _check_has_references(
    table: Table, used: ReferencedFiles, found: Sequence[OrphanCandidate]
) -> None:
    if found and not used.names:
        raise UnsupportedError(
            f"{table.identifier} has {len(found)} files and no snapshot, tag or changelog that refers to any. "
            "Nothing was deleted: its snapshots may be lost. If it was never written to, drop and create it anew"
        )


def remove_orphan_files(
    table: Table,
    executor: Executor | None = None,
    *,
    older_than: int | None = None,
    partitions: PartitionSpecs | None = None,
    quarantine: bool = False,
    progress: Progress | None = None,
) -> OrphanFilesResult:
    """Plan and run an orphan cleanup; see :func:`plan` for the arguments.

    With ``quarantine`` files are moved to a dated folder of the table, from which they can be restored. Files are
    deleted one by one, never outside the table, never through a link. Done again after a failure it goes on.
    """
    started = time.monotonic()
    request = RemoveOrphanFilesRequest(older_than=older_than, partitions=partitions)
    planned = plan(table, request, executor=executor, progress=progress)
    return run(table, planned, executor, quarantine=quarantine, started=started)


def run(
    table: Table,
    planned: OrphanFilesPlan,
    executor: Executor | None = None,
    *,
    quarantine: bool = False,
    started: float | None = None,
) -> OrphanFilesResult:
    """Remove what was planned, but for what came into use since."""
    started = time.monotonic() if started is None else started
    planned = _exclude_files_used_since(planned)
    paths = [file.path for file in planned.files]
    folder = None
    if quarantine and paths:
        kept = Quarantine(table.io, table.paths.root, external_roots=planned.roots[1:])
        folder = kept.build_folder_name()
        refused = kept.put(folder, paths)
    else:
        label = f"remove orphan files of {table.identifier}"
        refused = delete_files(
            executor or InProcessExecutor(), table.io, planned.roots, paths, label=label
        )
    unsafe = set(refused)
    removed = [file for file in planned.files if file.path not in unsafe]
    logger.info("%s: removed %d orphan files", table.identifier, len(removed))
    return OrphanFilesResult(
        files=len(removed),
        bytes=sum(file.size for file in removed),
        directories=_delete_empty_directories(table, planned, removed),
        quarantine=folder,
        refused=tuple(refused),
        duration_seconds=time.monotonic() - started,
    )


def _exclude_files_used_since(planned: OrphanFilesPlan) -> OrphanFilesPlan:
    """Look at the versions again: a writer that took long may have committed old files."""
    used = planned.used
    if used is None or not used.update():
        return planned
    files = tuple(file for file in planned.files if file.name not in used.names)
    return replace(planned, files=files)


def _delete_empty_directories(
    table: Table, planned: OrphanFilesPlan, removed: Iterable[OrphanCandidate]
) -> int:
    """Remove bucket directories that hold nothing, and partitions that hold no bucket."""
    emptied = {file.path.rpartition("/")[0] for file in removed}
    buckets = {path for path in emptied if path.rpartition("/")[2].startswith("bucket-")}
    remover = SafeDeleter(io=table.io, roots=planned.roots)
    every = buckets | set(planned.directories)
    return sum(remover.delete_empty_dirs(every, root) for root in planned.roots)
