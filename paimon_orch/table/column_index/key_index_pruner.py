"""Selects the rows of primary-key tables that may match, by the indexes of their columns.

Only buckets whose files need no merge are pruned: a row that does not match may otherwise replace a
row that does.

See docs/format/global-index-files.md#use-on-read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import IndexSource, decode_index_source
from paimon_orch.format.row_range_set import RowRanges
from paimon_orch.table.column_index.global_index_evaluator import CoveredRows, GlobalIndexEvaluator
from paimon_orch.table.column_index.row_id_groups import is_sorted_index
from paimon_orch.table.scan.bucket_split import BucketSplit, is_raw_convertible


def prune_by_file_rows(
    splits: Iterable[BucketSplit],
    evaluator: GlobalIndexEvaluator,
    entries: Iterable[IndexManifestEntry],
) -> list[BucketSplit]:
    """Return the splits of a primary-key table without files that have no row to read."""
    by_bucket = defaultdict[PartitionBucket, list[tuple[IndexManifestEntry, IndexSource]]](list)
    for entry in entries:
        source = _decode_source(entry)
        if source is not None:
            by_bucket[entry.partition_bucket].append((entry, source))
    pruned = (
        _prune_split(split, evaluator, by_bucket[split.partition_bucket])
        if split.partition_bucket in by_bucket and _needs_no_merge(split, evaluator)
        else split
        for split in splits
    )
    return [split for split in pruned if split.files]


def _decode_source(entry: IndexManifestEntry) -> IndexSource | None:
    """Return the files of a usable index. Data files never change, so their names suffice."""
    if not is_sorted_index(entry):
        return None
    try:
        source = decode_index_source(entry)
    except UnsupportedError:
        return None
    meta = entry.global_index
    is_whole = meta is not None and meta.row_range_start == 0
    if source is None or not is_whole or entry.row_count != source.row_count:
        return None
    return source


def _needs_no_merge(split: BucketSplit, evaluator: GlobalIndexEvaluator) -> bool:
    if split.postponed_files or split.is_chained:
        return False
    is_clustered = evaluator.schema.typed_options.is_pk_clustering_override
    return not is_clustered and is_raw_convertible(split.files, evaluator.schema)


def _prune_split(
    split: BucketSplit,
    evaluator: GlobalIndexEvaluator,
    entries: Sequence[tuple[IndexManifestEntry, IndexSource]],
) -> BucketSplit:
    counts = np.array([file.row_count for file in split.files], np.int64)
    ends = np.cumsum(counts)
    starts = ends - counts  # the files are numbered as if they were one file
    places = {
        (file.file_name, file.row_count): start
        for file, start in zip(split.files, starts.tolist(), strict=True)
    }
    indexes = defaultdict[int, dict[str, list[CoveredRows]]](dict)
    for entry, source in entries:
        meta = entry.global_index
        assert meta is not None
        covered = _find_covered_rows(entry, source, places)
        if covered.current:
            by_type = indexes[meta.index_field_id]
            by_type.setdefault(entry.index_type, []).append(covered)
    rows = evaluator.evaluate(indexes, RowRanges.of(starts, ends))
    if rows is None:
        return split
    matches = rows.overlaps(starts, ends).tolist()
    kept = [
        (file, rows.clip(start, start + file.row_count).shift(-start))
        for file, start, is_match in zip(split.files, starts.tolist(), matches, strict=True)
        if is_match
    ]
    return replace(
        split,
        files=tuple(file for file, _ in kept),
        file_rows={file.file_name: of_file for file, of_file in kept},
    )


def _find_covered_rows(
    entry: IndexManifestEntry, source: IndexSource, places: Mapping[tuple[str, int], int]
) -> CoveredRows:
    counts = np.array([rows for _, rows in source.files], np.int64)
    starts = np.array([places.get(file, -1) for file in source.files], np.int64)
    is_read = starts >= 0
    return CoveredRows(
        entry=entry,
        positions=np.cumsum(counts) - counts,
        starts=starts,
        current=RowRanges.of(starts[is_read], (starts + counts)[is_read]),
    )
