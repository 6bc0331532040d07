"""Selects the files of an append table to compact together.

See docs/format/append-table-compaction.md.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paimon_orch.format.arrays import Mask
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.live_files import BucketGroups
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, sum_file_sizes
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    COMPACTION_DELETE_RATIO_THRESHOLD,
    COMPACTION_FORCE_REWRITE_ALL_FILES,
    COMPACTION_MIN_FILE_NUM,
    COMPACTION_SMALL_FILE_RATIO,
    SOURCE_SPLIT_OPEN_FILE_COST,
)

FileGroup = tuple[DataFileMeta, ...]

_FULL_MIN_FILES = 3


@dataclass(frozen=True, slots=True)
class DeletionVectorRef:
    """The location of the deletion vector of a data file."""

    index_file: str
    cardinality: int | None
    """The number of deleted rows, or None if it is unknown."""


def collect_deletion_vector_refs(
    entries: Iterable[IndexManifestEntry],
) -> dict[str, DeletionVectorRef]:
    """Return the locations of deletion vectors by data file."""
    return {
        item.data_file: DeletionVectorRef(entry.file_name, item.cardinality)
        for entry in entries
        for item in entry.ranges or ()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCompactStrategy:
    """Selects files by size and by their deleted rows; sizes are in bytes."""

    target_size: int
    small_file_size: int
    min_files: int
    open_file_cost: int
    delete_ratio: float
    vectors: bool = False
    force_rewrite_all: bool = False

    @classmethod
    def of(cls, options: Options) -> "AppendCompactStrategy":
        """Return the strategy for the options of a table without primary key."""
        target = options.target_file_size(primary_key=False)
        return cls(
            target_size=target,
            small_file_size=int(target * options.get(COMPACTION_SMALL_FILE_RATIO)),
            min_files=max(2, options.get(COMPACTION_MIN_FILE_NUM)),
            open_file_cost=options.get(SOURCE_SPLIT_OPEN_FILE_COST),
            delete_ratio=options.get(COMPACTION_DELETE_RATIO_THRESHOLD),
            vectors=options.has_deletion_vectors,
            force_rewrite_all=options.get(COMPACTION_FORCE_REWRITE_ALL_FILES),
        )

    def find_candidates(
        self, groups: BucketGroups, with_vectors: Mask, *, full: bool, is_unaware: bool
    ) -> tuple[Mask, Mask]:
        """Return which files may be rewritten, and which buckets may have files to rewrite.

        ``with_vectors``: the buckets with deletion vectors; all their files may be rewritten.
        Includes all files and buckets from which :meth:`select_bucket_unaware` and
        :meth:`select_bucketed` would select.
        """
        files = groups.files
        forced = full and self.force_rewrite_all
        may_rewrite = (files.file_sizes < self.small_file_size) | forced
        may_rewrite[groups.rows] |= np.repeat(with_vectors, groups.lengths)
        counts = groups.sum(may_rewrite.astype(np.int64))
        if is_unaware:
            costs = np.where(may_rewrite, files.file_sizes + self.open_file_cost, 0)
            min_files = 1 if forced else 2 if full else self.min_files
            is_bin_full = (counts > 1) & (groups.sum(costs) >= 2 * self.target_size)
            return may_rewrite, with_vectors | (counts >= min_files) | is_bin_full
        if full:
            return may_rewrite, counts > 0
        # All files of a window but the last are together smaller than two target files.
        small = groups.sum((files.file_sizes < 2 * self.target_size).astype(np.int64))
        return may_rewrite, (groups.lengths >= self.min_files) & (small >= self.min_files - 1)

    def select_bucket_unaware(
        self,
        files: Iterable[DataFileMeta],
        vector_refs: Mapping[str, DeletionVectorRef],
        *,
        full: bool = False,
    ) -> list[FileGroup]:
        """Return the groups of files to rewrite in a partition without buckets.

        Files whose deletion vectors are in one index file are in one group, because the index file
        is rewritten. ``full`` selects every small file and every file with deleted rows.
        """
        selected = [
            file
            for file in files
            if self._should_rewrite(file, vector_refs.get(file.file_name), full=full)
        ]
        by_index_file: dict[str, list[DataFileMeta]] = {}
        for file in selected:
            if file.file_name in vector_refs:
                by_index_file.setdefault(vector_refs[file.file_name].index_file, []).append(file)
        index_groups = sorted(by_index_file.values(), key=sum_file_sizes)
        without_vectors = sorted(
            (f for f in selected if f.file_name not in vector_refs),
            key=lambda f: (f.file_size, f.min_sequence_number),
        )
        packed, remaining = self._pack_bins([[file] for file in without_vectors])
        min_files = 1 if full and self.force_rewrite_all else 2 if full else self.min_files
        if len(remaining) >= min_files:
            packed.append(remaining)
        with_deleted_rows, remaining = self._pack_bins(index_groups)
        return [tuple(group) for group in (*with_deleted_rows, remaining, *packed) if group]

    def _should_rewrite(
        self, file: DataFileMeta, vector_ref: DeletionVectorRef | None, *, full: bool
    ) -> bool:
        if file.file_size < self.small_file_size or (full and self.force_rewrite_all):
            return True
        if vector_ref is None:
            return False
        return (
            full
            or vector_ref.cardinality is None
            or vector_ref.cardinality > file.row_count * self.delete_ratio
        )

    def _pack_bins(
        self, items: Iterable[list[DataFileMeta]]
    ) -> tuple[list[list[DataFileMeta]], list[DataFileMeta]]:
        """Fill bins until each is large enough; return the bins and the remaining files."""
        packed, current, weight = [], list[DataFileMeta](), 0
        for item in items:
            current.extend(item)
            weight += sum_file_sizes(item) + self.open_file_cost * len(item)
            if len(current) > 1 and weight >= 2 * self.target_size:
                packed.append(current)
                current, weight = [], 0
        return packed, current

    def select_bucketed(
        self,
        files: Iterable[DataFileMeta],
        vector_refs: Mapping[str, DeletionVectorRef],
        *,
        full: bool = False,
    ) -> list[FileGroup]:
        """Return contiguous groups of files to rewrite in a bucket, to preserve the row order.

        Unlike in Java Paimon, a full compaction does not always rewrite a single last file that has
        no deleted rows.
        """
        ordered = sorted(files, key=lambda file: file.min_sequence_number)
        return (
            self._select_trailing(ordered, vector_refs) if full else self._select_windows(ordered)
        )

    def _select_windows(self, ordered: Sequence[DataFileMeta]) -> list[FileGroup]:
        groups, window = [], deque[DataFileMeta]()
        for file in ordered:
            window.append(file)
            if len(window) >= self.min_files:
                groups.append(tuple(window))
                window.clear()
            elif sum_file_sizes(window) >= 2 * self.target_size:
                window.popleft()
        return groups

    def _select_trailing(
        self, ordered: Sequence[DataFileMeta], vector_refs: Mapping[str, DeletionVectorRef]
    ) -> list[FileGroup]:
        def is_compacted(file: DataFileMeta) -> bool:
            large = file.file_size >= self.small_file_size and not self.force_rewrite_all
            return large and file.file_name not in vector_refs

        start = next(
            (index for index, file in enumerate(ordered) if not is_compacted(file)), len(ordered)
        )
        trailing = tuple(ordered[start:])
        has_deleted_rows = any(file.file_name in vector_refs for file in trailing)
        small = sum(file.file_size < self.small_file_size for file in trailing)
        is_selected = len(trailing) >= _FULL_MIN_FILES and small > len(trailing) - small
        is_selected |= (
            has_deleted_rows
            or (self.vectors and len(trailing) > 1)
            or (self.force_rewrite_all and bool(trailing))
        )
        return [trailing] if is_selected else []
