"""Finds indexes of columns that do not cover the latest snapshot.

Readers ignore an index of a primary-key table that covers other files, and searches may skip rows
without an index. Both are states in which writers leave a table, not violations of the format. See
docs/format/commit.md#indexes-of-primary-key-tables.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.global_index_reader import SORTED_INDEX_TYPES
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import covers_data_files, decode_index_source
from paimon_orch.format.row_range_set import EMPTY_ROW_RANGES, RowRanges, unite_row_ranges
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.compaction.key_indexes import group_by_level, list_source
from paimon_orch.table.column_index.global_index_evaluator import is_indexable
from paimon_orch.table.column_index.row_id_groups import get_index_meta
from paimon_orch.table.scan.partition_selection import plan_live_buckets
from paimon_orch.table.table_state import TableState


def find_stale_indexes(state: TableState) -> Iterator[str]:
    """Yield a sentence for each index that does not cover the latest snapshot."""
    snapshot = state.snapshot
    if snapshot is None:
        return
    for_files = list[IndexManifestEntry]()
    of_row_ids = list[IndexManifestEntry]()
    for entry in state.manifests.read_index_entries(snapshot):
        if entry.global_index is not None:
            (for_files if covers_data_files(entry) else of_row_ids).append(entry)
    if for_files:
        yield from _find_stale_key_indexes(state, snapshot, for_files)
    if of_row_ids:
        yield from _find_rows_without_index(state, snapshot, of_row_ids)


def _find_stale_key_indexes(
    state: TableState, snapshot: Snapshot, entries: Sequence[IndexManifestEntry]
) -> Iterator[str]:
    buckets = plan_live_buckets(state, state.schema, snapshot, PartitionRequest())
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
    state: TableState, snapshot: Snapshot, entries: Sequence[IndexManifestEntry]
) -> Iterator[str]:
    """Yield the columns whose global indexes do not cover all rows, or have another type."""
    by_index = defaultdict[tuple[int, str], list[IndexManifestEntry]](list)
    for entry in entries:
        by_index[get_index_meta(entry).index_field_id, entry.index_type].append(entry)
    fields = {field.id: field for field in state.schema.fields}
    rows = _find_live_rows(state, snapshot)
    for (field_id, index_type), of_index in by_index.items():
        field = fields.get(field_id)
        name = f"with id {field_id}, which was dropped" if field is None else field.name
        label = f"stale index: the {index_type} index of column {name}"
        covered = unite_row_ranges([entry.row_range for entry in of_index]) & rows
        if covered.count < rows.count:
            yield (
                f"{label} covers {covered.count} of {rows.count} row ids; searches may skip the "
                "other rows"
            )
        is_sorted = index_type in SORTED_INDEX_TYPES and field is not None
        if is_sorted and field is not None and not is_indexable(field, state.schemas):
            yield f"{label} is not used, because the column had another type or cannot be indexed"


def _find_live_rows(state: TableState, snapshot: Snapshot) -> RowRanges:
    files = plan_live_buckets(state, state.schema, snapshot, PartitionRequest()).groups.files
    if files.first_row_ids is None:
        return EMPTY_ROW_RANGES
    starts = files.first_row_ids[files.first_row_ids >= 0]
    return RowRanges.of(starts, starts + files.row_counts[files.first_row_ids >= 0])
