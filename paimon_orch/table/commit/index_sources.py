"""Finds index files of columns that a commit makes stale.

See docs/format/commit.md#indexes-of-primary-key-tables.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import decode_index_source
from paimon_orch.format.manifest.manifest_entry import FileKind, FileSource, ManifestEntry
from paimon_orch.format.paths import is_blob_file
from paimon_orch.format.row_range_set import RowRanges


def find_stale_index_files(
    entries: Sequence[ManifestEntry],
    previous: Iterable[IndexManifestEntry],
    changes: Iterable[IndexManifestEntry],
) -> list[IndexManifestEntry]:
    """Return deletes of the previous index files that cover a changed level.

    An index file covers all compacted files of one level of a bucket. Java Paimon ignores an index
    file that covers other files, scans these files, and builds the index of the level again when it
    writes into the bucket.
    """
    with_source = [entry for entry in previous if entry.source_meta is not None]
    if not with_source:
        return []
    changed = _find_changed_levels(entries)
    dropped = {entry.file_name for entry in changes if entry.kind is FileKind.DELETE}
    stale = []
    for entry in with_source:
        levels = changed.get(entry.partition_bucket)
        if not levels or entry.file_name in dropped:
            continue
        source = decode_index_source(entry)
        if source is not None and source.level in levels:
            stale.append(entry.deleted())
    return stale


def find_indexes_of_removed_rows(
    entries: Iterable[ManifestEntry],
    previous: Iterable[IndexManifestEntry],
    changes: Iterable[IndexManifestEntry],
) -> list[IndexManifestEntry]:
    """Return deletes of the global indexes of rows that get new ids.

    The step that removes the ids also drops the indexes that it knows, but another commit may have
    added an index since then.
    """
    ranges = defaultdict[tuple[bytes, FileKind], list[tuple[int, int]]](list)
    for entry in entries:
        first = entry.file.first_row_id
        if first is not None and not is_blob_file(entry.file.file_name):
            ranges[entry.partition, entry.kind].append((first, first + entry.file.row_count))
    removed = {
        partition: _to_row_ranges(of_kind) - _to_row_ranges(ranges.get((partition, FileKind.ADD)))
        for (partition, kind), of_kind in list(ranges.items())
        if kind is FileKind.DELETE
    }
    dropped = {entry.file_name for entry in changes if entry.kind is FileKind.DELETE}
    return [
        entry.deleted()
        for entry in previous
        if entry.global_index is not None
        and entry.file_name not in dropped
        and (rows := removed.get(entry.partition))
        and rows & entry.row_range
    ]


def _to_row_ranges(ranges: Sequence[tuple[int, int]] | None) -> RowRanges:
    starts, ends = np.array(ranges or [], np.int64).reshape(-1, 2).T
    return RowRanges.of(starts, ends)


def _find_changed_levels(entries: Iterable[ManifestEntry]) -> dict[PartitionBucket, set[int]]:
    """Return the levels whose set of compacted files changes; a file may be replaced by itself."""
    files: dict[FileKind, set[tuple[PartitionBucket, int, str, int]]] = {
        FileKind.ADD: set(),
        FileKind.DELETE: set(),
    }
    for entry in entries:
        file = entry.file
        if file.file_source == FileSource.COMPACT and file.level > 0:
            key = (entry.partition_bucket, file.level, file.file_name, file.row_count)
            files[entry.kind].add(key)
    levels: dict[PartitionBucket, set[int]] = defaultdict(set)
    for bucket, level, _, _ in files[FileKind.ADD] ^ files[FileKind.DELETE]:
        levels[bucket].add(level)
    return levels
