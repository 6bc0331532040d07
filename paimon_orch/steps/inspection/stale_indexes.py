"""Finds indexes of columns that do not cover the latest snapshot.

Readers ignore an index of a primary-key table that covers other files, and searches may skip rows
without an index. Both are states in which writers leave a table, not violations of the format. See
docs/format/commit.md#indexes-of-primary-key-tables.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import decode_index_source
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.common.partition_selection import PartitionRequest, plan_live_buckets
from paimon_orch.steps.compaction.key_indexes import group_by_level, list_source
from paimon_orch.table.table import Table


def find_stale_indexes(table: Table) -> Iterator[str]:
    """Yield a sentence for each index that does not cover the latest snapshot."""
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return
    entries = [
        entry
        for entry in table.stores.manifests.read_index_entries(snapshot)
        if entry.global_index is not None
    ]
    if entries:
        of_keys = [entry for entry in entries if table.schema.primary_keys]
        yield from _find_stale_key_indexes(table, snapshot, of_keys)
        if not table.schema.primary_keys:
            yield from _find_rows_without_index(table.schema, snapshot, entries)


def _find_stale_key_indexes(
    table: Table, snapshot: Snapshot, entries: Sequence[IndexManifestEntry]
) -> Iterator[str]:
    if not entries:
        return
    buckets = plan_live_buckets(table, table.schema, snapshot, PartitionRequest())
    levels = {
        split.partition_bucket: group_by_level(split.files) for split in buckets.build_splits()
    }
    for entry in entries:
        try:
            source = decode_index_source(entry)
        except UnsupportedError as error:
            yield f"stale index: {error}"
            continue
        if source is not None:
            files = levels.get(entry.partition_bucket, {}).get(source.level, ())
            if source != list_source(source.level, files):
                yield (
                    f"stale index: {entry.file_name} of type {entry.index_type} does not cover the "
                    f"files of level {source.level} of bucket {entry.bucket}; readers ignore it"
                )


def _find_rows_without_index(
    schema: TableSchema, snapshot: Snapshot, entries: Sequence[IndexManifestEntry]
) -> Iterator[str]:
    """Yield the columns whose global indexes do not cover all row ids."""
    ranges = defaultdict[tuple[int, str], list[tuple[int, int]]](list)
    for entry in entries:
        index = entry.global_index
        if index is not None:
            key = (index.index_field_id, entry.index_type)
            ranges[key].append((index.row_range_start, index.row_range_end + 1))
    names = {field.id: field.name for field in schema.fields}
    total = snapshot.next_row_id or 0
    for (field_id, index_type), of_column in ranges.items():
        covered = position = 0
        for start, end in sorted(of_column):
            covered += max(0, end - max(start, position))
            position = max(position, end)
        if covered < total:
            name = names.get(field_id, f"with id {field_id}, which was dropped")
            yield (
                f"stale index: the {index_type} index of column {name} covers {covered} of {total} "
                "row ids; searches may skip the other rows"
            )
