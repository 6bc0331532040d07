"""Selects the rows of data-evolution tables that may match, by global indexes.

Rows without an index, and rows whose values may have changed since, are always read: the result
does not depend on ``global-index.search-mode``.

See docs/format/global-index-files.md#use-on-read.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.table.column_index.global_index_evaluator import CoveredRows, GlobalIndexEvaluator
from paimon_orch.table.column_index.row_id_groups import (
    RowIdGroups,
    get_index_meta,
    is_sorted_index,
)
from paimon_orch.table.scan.bucket_split import BucketSplit

IndexPruner = Callable[
    [Iterable[BucketSplit], GlobalIndexEvaluator, Iterable[IndexManifestEntry]], list[BucketSplit]
]
"""Returns splits without files that have no row to read."""


def prune_by_row_ids(
    splits: Iterable[BucketSplit],
    evaluator: GlobalIndexEvaluator,
    entries: Iterable[IndexManifestEntry],
) -> list[BucketSplit]:
    """Return the splits of a data-evolution table without files that have no row to read."""
    by_partition = defaultdict[bytes, list[IndexManifestEntry]](list)
    for entry in entries:
        if is_sorted_index(entry):
            by_partition[entry.partition].append(entry)
    pruned = (
        _prune_split(split, evaluator, by_partition[split.partition])
        if split.partition in by_partition
        else split
        for split in splits
    )
    return [split for split in pruned if split.files]


def _prune_split(
    split: BucketSplit, evaluator: GlobalIndexEvaluator, entries: Sequence[IndexManifestEntry]
) -> BucketSplit:
    groups = RowIdGroups.of(split.files, evaluator.schema, evaluator.schemas)
    indexes = defaultdict[int, dict[str, list[CoveredRows]]](dict)
    for entry in entries:
        covered = _find_covered_rows(entry, groups)
        if covered.current:
            by_type = indexes[get_index_meta(entry).index_field_id]
            by_type.setdefault(entry.index_type, []).append(covered)
    rows = evaluator.evaluate(indexes, groups.rows)
    if rows is None:
        return split
    matches = rows.overlaps(groups.starts, groups.ends).tolist()
    kept = {
        file.file_name
        for group, is_match in zip(groups.groups, matches, strict=True)
        if is_match
        for file in group
    }
    files = (file for file in split.files if file.first_row_id is None or file.file_name in kept)
    return replace(split, files=tuple(files), row_ids=rows)


def _find_covered_rows(entry: IndexManifestEntry, groups: "RowIdGroups") -> CoveredRows:
    rows = entry.row_range
    return CoveredRows(
        entry=entry,
        positions=np.array([0]),
        starts=rows.starts,
        current=rows & groups.find_current_rows(entry),
    )
