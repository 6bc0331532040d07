"""Finds files of several levels that readers merged when they were written, and do not merge now.

With deletion vectors or ``first-row``, readers do not merge the levels of a bucket. Java Paimon
enables these for tables with rows to merge, and a rollback or a writer with the older options
can bring such rows back: readers then see several rows of a key.

See docs/format/merge-tree-reads.md#visibility-of-level-0.
"""

from collections.abc import Collection, Iterable

import numpy as np

from paimon_orch.format.arrays import Indices
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.tree.levels import split_into_sections
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.table_state import TableState


def find_unmerged_levels(state: TableState, live: LiveBuckets) -> Indices:
    """Return the buckets that have such files with overlapping ranges of keys.

    The options of a file are those of its schema. Compactions under the newest options keep the
    rows of a key in one file, or delete the older ones by deletion vectors.
    """
    if not _skips_merges(state.schema):
        return np.zeros(0, np.int64)
    older = read_merging_schemas(state, {*live.schema_ids} - {state.schema.id})
    groups, files = live.groups, live.groups.files
    is_merged = np.isin(files.schema_ids, [*older]) & (files.levels > 0) & (files.buckets >= 0)
    highest = groups.max(np.where(is_merged, files.levels, 0))
    highest_below_0 = groups.max(np.where(is_merged, -files.levels, np.iinfo(np.int32).min))
    suspects = np.flatnonzero((highest > 0) & (-highest_below_0 < highest)).tolist()
    return np.array([bucket for bucket in suspects if _has_overlap(live, bucket, older)], np.int64)


def read_merging_schemas(state: TableState, numbers: Iterable[int]) -> dict[int, TableSchema]:
    """Return those of some schemas by which readers merge levels."""
    schemas = {number: state.schemas.get(number) for number in numbers}
    return {number: schema for number, schema in schemas.items() if not _skips_merges(schema)}


def _skips_merges(schema: TableSchema) -> bool:
    return schema.skips_level_0 and not schema.typed_options.is_pk_clustering_override


def _has_overlap(live: LiveBuckets, bucket: int, older: Collection[int]) -> bool:
    [split] = live.build_splits(np.array([bucket]))
    files = [file for file in split.files if file.level > 0 and file.schema_id in older]
    sections = split_into_sections(files, live.schema.key_fields)
    return any(len({file.level for run in runs for file in run}) > 1 for runs in sections)
