"""Plans the incremental clustering of append tables.

See docs/format/sort-compaction.md#incremental-clustering.
"""

from collections.abc import Iterable

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.options.core_options import BUCKET_APPEND_ORDERED, CLUSTERING_INCREMENTAL
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.sort.cluster_order import ClusterOrder
from paimon_orch.merge.tree.cluster_strategy import ClusterStrategy
from paimon_orch.steps.compaction.append_unit import ClusteringUnit
from paimon_orch.steps.compaction.plan import CompactionStrategy
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import has_data_evolution


def is_clustered(schema: TableSchema) -> bool:
    """Return whether compactions sort the rows of an append table."""
    return not schema.primary_keys and schema.typed_options.get(CLUSTERING_INCREMENTAL)


def check_not_clustered(schema: TableSchema, operation: str) -> None:
    """Raise :class:`UnsupportedError` if a rewrite would lose the levels of clustered files."""
    if is_clustered(schema):
        raise UnsupportedError(
            f"{operation} of tables with {CLUSTERING_INCREMENTAL.key!r} = true is not supported: "
            "the order of clustered files would be lost; use compact"
        )


def check_clusterable(schema: TableSchema) -> None:
    """Raise an error for options with which rows cannot be clustered."""
    ClusterOrder.of(schema)
    options = schema.typed_options
    name = CLUSTERING_INCREMENTAL.key
    if has_data_evolution(schema):
        raise UnsupportedError(
            f"{name!r} = true is not possible with 'data-evolution.enabled' = true: rows are "
            "ordered by row id"
        )
    if schema.is_bucket_unaware:
        return
    if options.get(BUCKET_APPEND_ORDERED):
        raise UnsupportedError(
            f"{name!r} = true in tables with buckets needs "
            f"{BUCKET_APPEND_ORDERED.key!r} = false: sorted rows are not in the order of their "
            "commits"
        )
    if options.has_deletion_vectors:
        raise UnsupportedError(
            f"{name!r} = true in tables with buckets is not possible with "
            "'deletion-vectors.enabled' = true"
        )


def select_candidates(buckets: LiveBuckets, strategy: CompactionStrategy) -> LiveBuckets:
    """Return the buckets that may have runs to sort, with all their files."""
    is_candidate = ClusterStrategy.of(buckets.schema).find_candidates(
        buckets.groups, full=strategy == "full"
    )
    return buckets.take(np.flatnonzero(is_candidate))


def plan_units(
    reader: FileReader, splits: Iterable[BucketSplit], strategy: CompactionStrategy
) -> list[ClusteringUnit]:
    """Return the units of buckets, one for each; reads only metadata."""
    schema = reader.schema
    select, order = ClusterStrategy.of(schema), ClusterOrder.of(schema)
    units = []
    for split in splits:
        selected = select.select(split.files, reader.schemas, full=strategy == "full")
        if selected is not None:
            files, selection = selected
            names = {file.file_name for file in files}
            vectors = [item for entry in split.vectors for item in entry.ranges or ()]
            with_vectors = {item.data_file for item in vectors}
            live = {file.file_name for file in split.files}
            units.append(
                ClusteringUnit(
                    partition=split.partition,
                    bucket=split.bucket,
                    total_buckets=split.total_buckets,
                    partition_text=format_partition(split.partition, schema),
                    reason=selection.reason,
                    groups=(tuple(files),),
                    vectors=tuple(split.vectors),
                    live_names=frozenset(live & with_vectors),
                    remaining_deleted_rows=sum(
                        item.cardinality or 0 for item in vectors if item.data_file in live - names
                    ),
                    level=selection.output_level,
                    order=order,
                )
            )
    return units
