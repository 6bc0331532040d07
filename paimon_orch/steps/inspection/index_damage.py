"""Finds index files that are missing, and deletion vectors of files that are not live any more.

See docs/format/deletion-vectors.md and docs/format/dynamic-buckets.md#hash-index.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    DeletionVectorRange,
    IndexManifestEntry,
)
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.inspection.stored_files import StoredFiles
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.table_state import TableState

_MAX_DIRECTORIES = 64
"""Index files in more directories are checked only by ``check``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDamage:
    """What is wrong with the indexes of a snapshot."""

    stale: tuple[DeletionVectorRange, ...] = ()
    """The deletion vectors of files that are not live."""
    missing_vectors: tuple[IndexManifestEntry, ...] = ()
    """The index files of deletion vectors that do not exist."""
    unindexed_buckets: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """The dynamic buckets without a hash index file, as indices of the buckets."""

    @property
    def stale_bytes(self) -> int:
        """Return the size of the deletion vectors of files that are not live."""
        return sum(item.length for item in self.stale)


def find_index_damage(state: TableState, snapshot: Snapshot, live: LiveBuckets) -> IndexDamage:
    """Compare the index files of a snapshot with its live files and with the storage."""
    entries = state.manifests.read_index_entries(snapshot)
    missing = set(_find_missing_files(state, entries))
    vectors = [entry for entry in entries if entry.index_type == DELETION_VECTORS_INDEX]
    hash_indexes = [
        entry
        for entry in entries
        if entry.index_type == HASH_INDEX and entry.file_name not in missing
    ]
    return IndexDamage(
        stale=find_stale_vectors(vectors, live),
        missing_vectors=tuple(entry for entry in vectors if entry.file_name in missing),
        unindexed_buckets=_find_unindexed_buckets(hash_indexes, live),
    )


def find_stale_vectors(
    entries: Sequence[IndexManifestEntry], live: LiveBuckets
) -> tuple[DeletionVectorRange, ...]:
    """Return the deletion vectors of files that are not live."""
    ranges = [item for entry in entries for item in entry.ranges or ()]
    names = live.groups.files.names
    if not ranges or names is None:
        return ()
    is_live = pc.is_in(pa.array([item.data_file for item in ranges]), value_set=names)
    stale = np.flatnonzero(~is_live.to_numpy(zero_copy_only=False))
    return tuple(ranges[index] for index in stale.tolist())


def _find_missing_files(state: TableState, entries: Sequence[IndexManifestEntry]) -> list[str]:
    paths = [state.paths.index_file(state.schema, entry) for entry in entries]
    if len({path.rpartition("/")[0] for path in paths}) > _MAX_DIRECTORIES:
        return []
    stored = StoredFiles(state.io)
    stored.read_ahead(path.rpartition("/")[0] for path in paths)
    return [
        entry.file_name
        for entry, path in zip(entries, paths, strict=True)
        if any(rule == "missing-file" for rule, _ in stored.check_file(path, None))
    ]


def _find_unindexed_buckets(entries: Sequence[IndexManifestEntry], live: LiveBuckets) -> Indices:
    schema, groups = live.schema, live.groups
    if not schema.is_bucket_dynamic or schema.cross_partition:
        return np.zeros(0, np.int64)
    codes = {partition: code for code, partition in enumerate(groups.files.partitions)}
    indexed = [
        (codes[entry.partition] << 32) + entry.bucket
        for entry in entries
        if entry.partition in codes
    ]
    numbers = (groups.partition_codes.astype(np.int64) << 32) + groups.buckets
    return np.flatnonzero((groups.buckets >= 0) & ~np.isin(numbers, indexed))
