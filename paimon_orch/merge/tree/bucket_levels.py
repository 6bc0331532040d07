"""Levels and sorted runs of many buckets, computed with the columns of their live files.

:mod:`paimon_orch.merge.tree.levels` has the rules for the files of one bucket.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np

from paimon_orch.format.arrays import Indices, Int64Array, Mask
from paimon_orch.format.manifest.live_files import NO_TIME, BucketGroups
from paimon_orch.format.options.core_options import (
    COMPACTION_FORCE_REWRITE_ALL_FILES,
    COMPACTION_FORCE_UP_LEVEL_0,
    RECORD_LEVEL_EXPIRE_TIME,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.tree.universal_compaction import UniversalCompaction, min_level0_files


@dataclass(frozen=True)
class BucketLevels:
    """The levels of buckets of a primary-key table; arrays have one item per bucket."""

    groups: BucketGroups
    schema: TableSchema

    @cached_property
    def level0_files(self) -> Int64Array:
        """The number of files on level 0."""
        return self.groups.sum((self.groups.files.levels == 0).astype(np.int64))

    @cached_property
    def sorted_runs(self) -> Int64Array:
        """The number of sorted runs: one per file on level 0, and one per higher level.

        Files that are sorted by ``clustering.columns`` are one run. Files of one level may overlap;
        see :meth:`find_possible_overlaps`.
        """
        if self.schema.typed_options.is_pk_clustering_override:
            return self.level0_files + (self.level0_files < self.groups.lengths)
        groups, levels = self._leveled
        is_first = np.ones(len(groups), bool)
        is_first[1:] = (groups[1:] != groups[:-1]) | (levels[1:] != levels[:-1])
        return self.level0_files + np.bincount(groups[is_first], minlength=len(self.groups))

    @cached_property
    def max_levels(self) -> Int64Array:
        """The highest level that has files."""
        return self.groups.max(self.groups.files.levels)

    def find_possible_overlaps(self) -> Indices:
        """Return the buckets for which the key prefixes do not show that no level has overlaps."""
        if self.schema.typed_options.is_pk_clustering_override or not len(self.groups):
            return np.zeros(0, np.int64)
        files = self.groups.files
        assert files.min_keys is not None
        assert files.max_keys is not None
        rows, groups = self._leveled_rows
        levels, low, high = files.levels[rows], files.min_keys[rows], files.max_keys[rows]
        order = np.lexsort((low[:, 1], low[:, 0], levels, groups))
        groups, levels, low, high = groups[order], levels[order], low[order], high[order]
        is_same_level = (groups[1:] == groups[:-1]) & (levels[1:] == levels[:-1])
        end, start = high[:-1], low[1:]
        is_apart = (end[:, 0] < start[:, 0]) | (
            (end[:, 0] == start[:, 0]) & (end[:, 1] < start[:, 1])
        )
        return np.unique(groups[1:][is_same_level & ~is_apart])

    def may_compact(self, *, is_full: bool, now: datetime) -> Mask:
        """Return which buckets may have runs to compact; deletion vectors are not considered.

        A bucket without runs to compact may be included. ``now`` has a time zone.
        """
        options = self.schema.typed_options
        if options.is_pk_clustering_override:
            return np.ones(len(self.groups), bool)
        top = np.maximum(options.num_levels - 1, self.max_levels)
        if is_full:
            expires = options.get(RECORD_LEVEL_EXPIRE_TIME) is not None
            if expires or options.get(COMPACTION_FORCE_REWRITE_ALL_FILES):
                return np.ones(len(self.groups), bool)
            return (self.sorted_runs > 1) | (self.max_levels < top)
        universal = UniversalCompaction.of(options, now.replace(tzinfo=None))
        may_compact = self.sorted_runs >= universal.trigger
        may_compact |= (self.sorted_runs > 1) & self._is_full_compaction_due(universal, top)
        if options.needs_lookup:
            may_compact |= self.level0_files >= min_level0_files(options)
        elif options.get(COMPACTION_FORCE_UP_LEVEL_0):
            may_compact |= self.level0_files > 0
        return may_compact

    def _is_full_compaction_due(self, universal: UniversalCompaction, top: Int64Array) -> Mask:
        files, groups = self.groups.files, self.groups
        is_due = np.zeros(len(groups), bool)
        on_top = np.zeros(len(files), bool)
        on_top[groups.rows] = files.levels[groups.rows] == np.repeat(top, groups.lengths)
        if universal.full_compaction_before is not None:
            times = np.where(on_top, files.creation_times, NO_TIME)
            newest = groups.max(times)
            is_due |= (newest == NO_TIME) | (newest < universal.full_compaction_before)
        if universal.total_size_threshold is not None:
            is_due |= groups.sum(files.file_sizes) < universal.total_size_threshold
        if universal.incremental_size_threshold is not None:
            sizes = groups.sum(np.where(on_top, 0, files.file_sizes))
            is_due |= sizes > universal.incremental_size_threshold
        return is_due

    @cached_property
    def _leveled_rows(self) -> tuple[Indices, Indices]:
        """Return the files above level 0, and their buckets."""
        rows = self.groups.rows
        is_leveled = self.groups.files.levels[rows] > 0
        groups = np.repeat(np.arange(len(self.groups)), self.groups.lengths)
        return rows[is_leveled], groups[is_leveled]

    @cached_property
    def _leveled(self) -> tuple[Indices, Int64Array]:
        """Return the buckets and the levels of the files above level 0, sorted by both."""
        rows, groups = self._leveled_rows
        levels = self.groups.files.levels[rows]
        order = np.lexsort((levels, groups))
        return groups[order], levels[order]
