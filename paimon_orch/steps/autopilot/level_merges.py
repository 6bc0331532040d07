"""Merges of the newest sorted runs of buckets, as candidates of the autopilot.

Universal compaction waits for a number of sorted runs. The autopilot may merge the runs up to any
level before: few bytes if only small runs are merged, which saves as many sorted runs of a read as
a merge with the large runs of the higher levels. The step that merges them is
:func:`paimon_orch.merge.tree.universal_compaction.select_levels`.
"""

from dataclasses import dataclass

import numpy as np

from paimon_orch.format.arrays import Float64Array, Indices, Int64Array, Mask


@dataclass(frozen=True, slots=True)
class LevelMerges:
    """The merge of all runs up to each level; one row per bucket, one column per level."""

    files: Int64Array
    """The number of files that are merged; 0 if there are less than two runs."""
    bytes: Int64Array
    remaining_runs: Int64Array
    """The number of sorted runs after the merge."""

    @classmethod
    def compute(cls, files: Int64Array, sizes: Int64Array) -> "LevelMerges":
        """Compute the merges of buckets with the files and bytes of each of their levels."""
        runs = np.minimum(files, 1)
        runs[:, 0] = files[:, 0]
        counts = [np.cumsum(each, axis=1) for each in (runs, files, sizes)]
        if files.shape[1] > 1:
            for each in counts:  # the output of level 0 is level 1, whose run is merged too
                each[:, 0] = np.where(runs[:, 1] > 0, each[:, 1], each[:, 0])
        is_merge = counts[0] > 1
        saved = np.where(is_merge, counts[0] - 1, 0)
        return cls(
            files=np.where(is_merge, counts[1], 0),
            bytes=np.where(is_merge, counts[2], 0),
            remaining_runs=runs.sum(axis=1)[:, np.newaxis] - saved,
        )


def choose_candidates(
    partitions: Int64Array, scores: Float64Array, is_preferred: Mask, min_score: float
) -> Indices:
    """Return one candidate per partition: a preferred one if it is worth it, or the best one.

    :param partitions: the partition of each candidate, as a number
    :param is_preferred: full compactions of idle partitions
    """
    is_first_choice = is_preferred & (scores >= min_score)
    order = np.lexsort((-scores, ~is_first_choice, partitions))
    is_first = np.ones(len(order), bool)
    is_first[1:] = partitions[order][1:] != partitions[order][:-1]
    chosen: Indices = order[is_first]
    return chosen
