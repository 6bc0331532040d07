"""Counts the rows of a scan, from metadata if possible.

See docs/format/scan.md.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_orch.format.types.data_types import AtomicType, Field, is_blob
from paimon_orch.format.types.predicate import collect_columns
from paimon_orch.table.scan.base_scan import ROW_KIND
from paimon_orch.table.scan.bucket_split import (
    BucketSplit,
    count_deleted_rows,
    count_visible_rows,
    has_known_retracts,
)
from paimon_orch.table.scan.data_evolution import (
    find_anchor_file,
    group_files_by_rows,
    has_data_evolution,
)
from paimon_orch.table.scan.partition_pruner import filter_partitions

if TYPE_CHECKING:
    from paimon_orch.table.scan.scan import Scan


def count_rows(scan: "Scan") -> int:
    """Count the rows that a scan returns.

    Reads only metadata for buckets that need neither a merge nor a filter, and one column of the
    other buckets, besides the columns of the merge and of the filter.
    """
    whole = replace(scan, limit=None, order=(), fields=_select_fields(scan))
    counts = [(split, _count_split(whole, split)) for split in _select_splits(whole)]
    total: int = sum(count for _, count in counts if count is not None)
    unknown = [split for split, count in counts if count is None]
    total += sum(batch.num_rows for batch in whole.read_splits(unknown))
    return total if scan.limit is None else max(0, min(total, scan.limit))


def _select_fields(scan: "Scan") -> tuple[Field, ...]:
    """Return the fields to read: a column that is small, or read in any case."""
    schema = scan.schema
    names = [*schema.identifying_names]
    if scan.predicate is not None:
        names = [
            *(name for name in schema.names if name in collect_columns(scan.predicate)),
            *names,
        ]
    atoms = [f for f in schema.fields if isinstance(f.type, AtomicType) and not is_blob(f.type)]
    names += [field.name for field in sorted(atoms, key=_has_variable_length)]
    field = schema.field(names[0]) if names else schema.fields[0]
    return (ROW_KIND, field) if scan.is_audit_log else (field,)


def _has_variable_length(field: Field) -> bool:
    assert isinstance(field.type, AtomicType)
    return field.type.name.endswith(("CHAR", "BINARY"))


def _select_splits(scan: "Scan") -> Iterator[BucketSplit]:
    """Yield the files to count; a filter on partitions excludes all others."""
    splits = scan.plan()
    if scan.predicate is None or not scan.has_no_row_filter:
        yield from splits
        return
    matching = filter_partitions([split.partition for split in splits], scan.schema, scan.predicate)
    yield from (split for split in splits if split.partition in matching)


def _count_split(scan: "Scan", split: BucketSplit) -> int | None:
    """Return the number of rows of a bucket, or None if it must be read."""
    if not scan.has_no_row_filter or split.is_fallback or split.origins:
        return None
    schema = scan.schema
    if has_data_evolution(schema):
        return _count_row_ids(split)
    return count_visible_rows(split, schema) if has_known_retracts(split.files, schema) else None


def _count_row_ids(split: BucketSplit) -> int | None:
    """Count rows whose columns may be in several files; deletion vectors belong to the oldest."""
    anchors = [find_anchor_file(group) for group in group_files_by_rows(split.files)]
    deleted = count_deleted_rows(split, {file.file_name for file in anchors})
    return None if deleted is None else sum(file.row_count for file in anchors) - deleted
