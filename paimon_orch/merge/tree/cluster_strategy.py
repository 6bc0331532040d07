"""Selects the runs of an append table with incremental clustering to sort together.

See docs/format/sort-compaction.md#incremental-clustering.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from paimon_orch.format.arrays import Int64Array, Mask
from paimon_orch.format.manifest.live_files import NO_TIME, BucketGroups
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import (
    COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT,
    COMPACTION_SIZE_RATIO,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.tree.bucket_levels import BucketLevels
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.merge.tree.levels import SortedRun
from paimon_orch.merge.tree.universal_compaction import (
    RunSelection,
    UniversalCompaction,
    select_full_compaction,
)


def build_clustered_runs(files: Iterable[DataFileMeta]) -> list[SortedRun]:
    """Return the runs of a bucket: each file of level 0, oldest first, then one run per level.

    Files of a level may overlap.
    """
    files = list(files)
    level0 = sorted(
        (file for file in files if file.level == 0),
        key=lambda file: (file.min_sequence_number, file.creation_time or 0, file.file_name),
    )
    runs = [SortedRun(0, (file,)) for file in level0]
    by_level = attrgetter("level")
    leveled = sorted((file for file in files if file.level > 0), key=by_level)
    return runs + [SortedRun(level, tuple(group)) for level, group in groupby(leveled, by_level)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStrategy:
    """Selects runs by universal compaction, or all runs that are not clustered yet."""

    schema: TableSchema
    universal: UniversalCompaction

    @classmethod
    def of(cls, schema: TableSchema) -> "ClusterStrategy":
        """Return the strategy for the options of a table."""
        options = schema.typed_options
        universal = UniversalCompaction(
            trigger=options.compaction_trigger,
            size_ratio=options.get(COMPACTION_SIZE_RATIO),
            max_amplification=options.get(COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT),
        )
        return cls(schema=schema, universal=universal)

    def find_candidates(
        self,
        groups: BucketGroups,
        with_vectors: Mask,
        *,
        full: bool,
        idle_before: int | None = None,
    ) -> Mask:
        """Return which buckets may have runs to select; :meth:`select` selects from no others.

        ``with_vectors``: the buckets with deletion vectors. Idle buckets are judged as with
        ``full``; see :meth:`find_newest_files`.
        """
        if not full and idle_before is not None:
            newest = self.find_newest_files(groups)
            is_idle: Mask = (newest != NO_TIME) & (newest < idle_before)
            return is_idle | self.find_candidates(groups, with_vectors, full=False)
        levels = BucketLevels(groups, self.schema)
        if not full:
            has_enough: Mask = levels.sorted_runs >= self.universal.trigger
            return has_enough
        top = self._count_levels(0) - 1
        is_unaware = self.schema.is_bucket_unaware
        is_at_top = levels.max_levels == top if is_unaware else levels.max_levels >= top
        is_current = (groups.files.schema_ids == self.schema.id).astype(np.int64)
        is_clustered: Mask = (levels.sorted_runs == 1) & is_at_top
        return ~is_clustered | (groups.sum(is_current) < groups.lengths) | with_vectors

    def select(
        self,
        files: Iterable[DataFileMeta],
        schemas: Mapping[int, TableSchema],
        with_vectors: Collection[str],
        *,
        full: bool,
    ) -> tuple[Sequence[DataFileMeta], RunSelection] | None:
        """Return the files to sort, and the level to write to; None if there is nothing to sort.

        With ``full``, only files with deleted rows are selected from rows that are clustered.

        :param schemas: the schemas of the files, by id
        :param with_vectors: the names of files with deletion vectors
        """
        runs = build_clustered_runs(files)
        num_levels = self._count_levels(max((run.level for run in runs), default=0))
        if not full:
            selection = self.universal.select_runs(num_levels, runs)
        elif self._is_clustered(runs, num_levels, schemas):
            deleted = [file for file in runs[0].files if file.file_name in with_vectors]
            selection = RunSelection(1, num_levels - 1, CompactReason.DELETED_ROWS)
            return (deleted, selection) if deleted else None
        else:
            selection = select_full_compaction(num_levels, runs)
        if selection is None:
            return None
        return [file for run in runs[: selection.count] for file in run.files], selection

    def find_newest_files(self, groups: BucketGroups) -> Int64Array:
        """Return the creation time of the newest file below the highest level, by bucket.

        It is in milliseconds of the local wall clock, or NO_TIME if there is no such file. A bucket
        is idle if it has such files and all of them are old.
        """
        is_below = groups.files.levels < self._count_levels(0) - 1
        return groups.max(np.where(is_below, groups.files.creation_times, NO_TIME))

    def is_idle(self, files: Iterable[DataFileMeta], idle_before: int | None) -> bool:
        """Return whether the files of one bucket are idle; see :meth:`find_newest_files`."""
        if idle_before is None:
            return False
        top = self._count_levels(0) - 1
        times = [f.creation_time for f in files if f.level < top and f.creation_time is not None]
        return bool(times) and max(times) < idle_before

    def _count_levels(self, highest: int) -> int:
        """Return the number of levels; only buckets keep levels above those of the options."""
        count = self.schema.typed_options.num_levels
        return count if self.schema.is_bucket_unaware else max(count, highest + 1)

    def _is_clustered(
        self, runs: Sequence[SortedRun], num_levels: int, schemas: Mapping[int, TableSchema]
    ) -> bool:
        """Return whether the rows are one run of the highest level, sorted by today's columns."""
        if len(runs) != 1 or runs[0].level != num_levels - 1:
            return False
        columns = self.schema.typed_options.clustering_columns
        ids = {file.schema_id for file in runs[0].files}
        return all(schemas[each].typed_options.clustering_columns == columns for each in ids)
