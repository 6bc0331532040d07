"""Finds commits whose manifests are stored, but that are in no snapshot.

On a store without exclusive creation, a writer can overwrite the snapshot of another one before
anything else has read it. The table then fits the new snapshot, and only the manifests of the lost
one remain. A commit that was interrupted or rolled back, or whose branch was deleted, looks the
same; most of these are recognized because no snapshot was committed at about the same time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from paimon_orch.errors import PaimonError, raise_if_temporary
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.storage import FileInfo
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.cleanup.retained_snapshots import (
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.table import Table

_LIST_PREFIX = "manifest-list-"
_MIN_AGE_SECONDS = 600
"""Younger lists can be those of a running commit."""
_MAX_DISTANCE_SECONDS = 300
"""The time between two commits of the same snapshot, including the difference of the clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFiles:
    """Data files that only commits without a snapshot added."""

    files: int
    rows: int
    bytes: int
    time: float
    """When the newest of the manifest lists was written, in epoch seconds."""


def find_lost_files(table: Table, now: float) -> LostFiles | None:
    """Return the data files of lost commits; None if there are none, or if snapshots are damaged.

    Manifest lists that are older than the oldest snapshot can be leftovers of an expiration. A
    snapshot was overwritten only if another one was committed at about the same time. Files that a
    snapshot has are not lost: writers repeat a commit whose outcome they do not know.
    """
    stored = [
        info
        for info in table.io.list_dir(table.paths.manifest_dir)
        if info.name.startswith(_LIST_PREFIX) and info.modified < now - _MIN_AGE_SECONDS
    ]
    errors = list[PaimonError]()
    versions = (
        RetainedSnapshotStore(table.io, table.paths.root, errors.append).all().by_path.values()
    )
    if errors or not versions:
        return None
    unread = list(_select_unread(stored, versions))
    if not unread:
        return None
    manifests = ManifestReader(table.io, table.paths)  # not cached: files may be missing
    known = {meta.file_name: meta for meta in _read_metas(manifests, versions)}
    lost = {
        meta.file_name: meta
        for meta in _read_lists(manifests, [info.name for info in unread])
        if meta.file_name not in known
    }
    return _count_files(manifests, lost.values(), known.values(), max(i.modified for i in unread))


def _select_unread(
    stored: Iterable[FileInfo], versions: Iterable[RetainedSnapshot]
) -> Iterator[FileInfo]:
    """Yield the manifest lists that no version names, but that were written when one was."""
    names, times = set[str](), list[float]()
    for version in versions:
        lists = (*version.state_lists, *version.changelog_list)
        snapshot = version.snapshot
        names |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        names |= {name for name, _ in lists}
        if version.kind is RetainedSnapshotKind.SNAPSHOT:
            times.append(snapshot.time_millis / 1000)
    committed = np.array(times)
    for info in stored:
        if info.name not in names and len(committed):
            distance = np.abs(committed - info.modified).min()
            if distance <= _MAX_DISTANCE_SECONDS and info.modified >= committed.min():
                yield info


def _read_metas(
    manifests: ManifestReader, versions: Iterable[RetainedSnapshot]
) -> Iterator[ManifestFileMeta]:
    lists = {
        name
        for version in versions
        if not version.may_lack_state
        for name, _ in (*version.state_lists, *version.changelog_list)
    }
    yield from _read_lists(manifests, sorted(lists))


def _read_lists(manifests: ManifestReader, names: Sequence[str]) -> Iterator[ManifestFileMeta]:
    for metas in map_concurrently(manifests.io, partial(_read_list, manifests), names):
        yield from metas


def _read_list(manifests: ManifestReader, name: str) -> list[ManifestFileMeta]:
    try:
        return manifests.manifest_list(name)
    except (PaimonError, OSError) as error:  # the check reports it if a snapshot has it
        raise_if_temporary(error)
        return []


def _open(manifests: ManifestReader, meta: ManifestFileMeta) -> Manifest | None:
    try:
        return manifests.open(meta)
    except (PaimonError, OSError) as error:
        raise_if_temporary(error)
        return None


def _count_files(
    manifests: ManifestReader,
    lost: Iterable[ManifestFileMeta],
    known: Iterable[ManifestFileMeta],
    time: float,
) -> LostFiles | None:
    """Return the files that only the lost manifests add."""
    added = dict[str, tuple[int, int]]()
    for manifest in map_concurrently(manifests.io, partial(_open, manifests), lost):
        if manifest is None:
            continue
        is_added = manifest.kinds == FileKind.ADD
        counts = manifest.read_file_numbers("_ROW_COUNT")
        sizes = manifest.read_file_numbers("_FILE_SIZE")
        for index in np.flatnonzero(is_added).tolist():
            added[manifest.names[index]] = int(counts[index]), int(sizes[index])
    opened = map_concurrently(manifests.io, partial(_open, manifests), known if added else ())
    for manifest in opened:
        for name in () if manifest is None else manifest.names:
            added.pop(name, None)
    if not added:
        return None
    return LostFiles(
        files=len(added),
        rows=sum(rows for rows, _ in added.values()),
        bytes=sum(size for _, size in added.values()),
        time=time,
    )
