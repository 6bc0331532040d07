"""The changes of a commit by partition, for catalogs that count the files of partitions.

See docs/format/catalogs.md#commits-through-a-rest-catalog.
"""

from collections import defaultdict
from collections.abc import Iterable

from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.partition_path import format_partition_values
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.catalog_environment import PartitionStatistics


def count_partition_changes(
    entries: Iterable[ManifestEntry], schema: TableSchema
) -> list[PartitionStatistics]:
    """Return the added minus the deleted files, rows and bytes of each partition."""
    by_partition = defaultdict[bytes, list[ManifestEntry]](list)
    for entry in entries:
        by_partition[entry.partition].append(entry)
    return [
        _sum_entries(format_partition_row(partition, schema), changed)
        for partition, changed in by_partition.items()
    ]


def format_partition_row(partition: bytes, schema: TableSchema) -> dict[str, str]:
    """Return the text of each value of a serialized partition, as in its path but not escaped."""
    values = schema.decode_partition(partition)
    return format_partition_values(values, schema.partition_fields, schema.typed_options)


def _sum_entries(spec: dict[str, str], entries: list[ManifestEntry]) -> PartitionStatistics:
    signs = [1 if entry.kind is FileKind.ADD else -1 for entry in entries]
    pairs = list(zip(signs, (entry.file for entry in entries), strict=True))
    return PartitionStatistics(
        spec=spec,
        record_count=sum(sign * file.row_count for sign, file in pairs),
        file_size=sum(sign * file.file_size for sign, file in pairs),
        file_count=sum(signs),
        last_file_creation_millis=max(file.creation_time or 0 for _, file in pairs),
        total_buckets=entries[-1].total_buckets,
    )
