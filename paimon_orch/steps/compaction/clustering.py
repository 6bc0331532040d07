"""Plans the incremental clustering of append tables.

See docs/format/sort-compaction.md#incremental-clustering.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.options.core_options import BUCKET_APPEND_ORDERED, CLUSTERING_INCREMENTAL
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.sort.cluster_order import ClusterOrder
from paimon_orch.merge.tree.cluster_strategy import ClusterStrategy
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.steps.compaction.append_unit import ClusteringUnit
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import has_data_evolution


def check_not_clustered(schema: TableSchema, operation: str) -> None:
    """Raise :class:`UnsupportedError` if a rewrite would lose the levels of clustered files."""
    if schema.is_clustered:
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


def select_candidates(
    buckets: LiveBuckets, strategy: CompactionStrategy, idle_before: int | None = None
) -> LiveBuckets:
    """Return the buckets that may have runs to sort, with all their files.

    Idle buckets are sorted as a whole; see :func:`find_idle_limit`.
    """
    with_vectors = np.zeros(len(buckets), bool)
    with_vectors[[number for number, _ in buckets.iterate_vectors()]] = True
    is_candidate = ClusterStrategy.of(buckets.schema).find_candidates(
        buckets.groups, with_vectors, full=strategy == "full", idle_before=idle_before
    )
    return buckets.take(np.flatnonzero(is_candidate))


def find_idle_limit(now: datetime, idle_for: timedelta | None) -> int | None:
    """Return the creation time before which files are idle, in local milliseconds."""
    if idle_for is None:
        return None
    local = now.astimezone().replace(tzinfo=UTC)
    return int((local - idle_for).timestamp() * 1000)


def plan_units(
    reader: FileReader,
    splits: Iterable[BucketSplit],
    strategy: CompactionStrategy,
    idle_before: int | None = None,
) -> list[ClusteringUnit]:
    """Return the units of buckets, one for each; reads only metadata."""
    schema = reader.schema
    select, order = ClusterStrategy.of(schema), ClusterOrder.of(schema)
    units = []
    for split in splits:
        vectors = [item for entry in split.vectors for item in entry.ranges or ()]
        with_vectors = {item.data_file for item in vectors}
        is_idle = strategy != "full" and select.is_idle(split.files, idle_before)
        is_full = is_idle or strategy == "full"
        selected = select.select(split.files, reader.schemas, with_vectors, full=is_full)
        if selected is not None:
            files, selection = selected
            names = {file.file_name for file in files}
            live = {file.file_name for file in split.files}
            units.append(
                ClusteringUnit(
                    partition=split.partition,
                    bucket=split.bucket,
                    total_buckets=split.total_buckets,
                    partition_text=format_partition(split.partition, schema),
                    reason=CompactReason.IDLE if is_idle else selection.reason,
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
