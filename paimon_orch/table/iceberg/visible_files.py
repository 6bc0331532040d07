"""Which files of a snapshot Iceberg readers see, and their entries in Iceberg manifests.

See docs/format/iceberg-metadata.md#visible-files.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.iceberg.iceberg_file_stats import FileBoundsBuilder
from paimon_orch.format.iceberg.iceberg_manifest import Entry, EntryStatus, ManifestContent
from paimon_orch.format.iceberg.single_value import encode_partition_value
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    DeletionVectorRange,
    IndexManifestEntry,
)
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.paths import TablePaths, parse_file_format
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.iceberg.iceberg_settings import publishes_vectors
from paimon_orch.table.iceberg.metadata_store import normalize_path

ALL_LEVELS = range(1 << 31)
VISIBLE_LEVELS = "paimon-visible-levels"
"""The key of a snapshot summary that names the levels whose files are visible."""
PARQUET, AVRO = "parquet", "avro"
FILE_FORMATS = frozenset((PARQUET, "orc", AVRO))
"""The file formats that Iceberg readers know."""


def find_visible_levels(schema: TableSchema) -> range:
    """Return the levels whose files Iceberg readers see."""
    if not schema.primary_keys:
        return ALL_LEVELS
    if publishes_vectors(schema):
        return range(1, ALL_LEVELS.stop)
    return range(schema.top_level, schema.top_level + 1)


def describe_visible_levels(schema: TableSchema) -> str:
    """Return the value of :data:`VISIBLE_LEVELS`."""
    levels = find_visible_levels(schema)
    return f"{levels.start}+" if levels.stop == ALL_LEVELS.stop else str(levels.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergEntryBuilder:
    """Builds the entries of Iceberg manifests from Paimon's manifests."""

    paths: TablePaths
    schema: TableSchema
    read_schema: Callable[[int], TableSchema]
    location: str
    """The table directory, spelled as in the paths of the metadata."""
    _bounds: dict[int, FileBoundsBuilder] = field(default_factory=dict)
    _directories: dict[PartitionBucket, str] = field(default_factory=dict)
    _partitions: dict[bytes, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)

    def find_path(self, entry: ManifestEntry) -> str:
        """Return the path of a data file in Iceberg manifests."""
        if entry.file.external_path is not None:
            return entry.file.external_path
        bucket = entry.partition_bucket
        directory = self._directories.get(bucket)
        if directory is None:
            directory = self._relocate(self.paths.bucket_dir(self.schema, *bucket))
            self._directories[bucket] = directory
        return f"{directory}/{entry.file.file_name}"

    def _relocate(self, path: str) -> str:
        root = self.paths.root
        return self.location + path.removeprefix(root) if path.startswith(f"{root}/") else path

    def decode_partition(self, partition: bytes) -> tuple[Any, ...]:
        """Return the internal values of a partition."""
        return self._convert_partition(partition)[0]

    def encode_partition(self, partition: bytes) -> dict[str, Any]:
        """Return a partition as the record of an Iceberg manifest."""
        return self._convert_partition(partition)[1]

    def build_sort_key(self, partition: bytes) -> tuple[Any, ...]:
        """Return a key that orders partitions by their values, nulls first."""
        return build_sort_key(self.encode_partition(partition), self.schema.partition_keys)

    def _convert_partition(self, partition: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        known = self._partitions.get(partition)
        if known is not None:
            return known
        fields = self.schema.partition_fields
        values = self.schema.decode_partition(partition)
        record = {
            item.name: encode_partition_value(value, item.type)
            for item, value in zip(fields, values, strict=True)
        }
        self._partitions[partition] = values, record
        return values, record

    def build_data_entry(self, entry: ManifestEntry, snapshot_id: int) -> Entry:
        """Return the entry of a data file that becomes visible in a snapshot."""
        file = entry.file
        file_format = parse_file_format(file.file_name)
        path = self.find_path(entry)
        if file_format not in FILE_FORMATS:
            raise UnsupportedError(
                f"{path}: Iceberg readers cannot read the file format {file_format!r}"
            )
        bounds = self._find_bounds(file.schema_id).build(file)
        return self._build_entry(
            snapshot_id,
            {
                "content": ManifestContent.DATA,
                "file_path": path,
                "file_format": file_format,
                "partition": self.encode_partition(entry.partition),
                "record_count": file.row_count,
                "file_size_in_bytes": file.file_size,
                "null_value_counts": _build_map(bounds.null_value_counts),
                "lower_bounds": _build_map(bounds.lower_bounds),
                "upper_bounds": _build_map(bounds.upper_bounds),
            },
        )

    def _find_bounds(self, schema_id: int) -> FileBoundsBuilder:
        builder = self._bounds.get(schema_id)
        if builder is None:
            builder = self._bounds[schema_id] = FileBoundsBuilder(self.read_schema(schema_id))
        return builder

    def build_vector_entries(
        self,
        index: Iterable[IndexManifestEntry],
        data_paths: Mapping[tuple[bytes, int, str], str],
        snapshot_id: int,
    ) -> dict[str, Entry]:
        """Return the entries of the deletion vectors of visible files, by the path of the file.

        ``data_paths`` has the paths of the visible files by partition, bucket and name.
        """
        entries = {}
        for item in index:
            if item.index_type != DELETION_VECTORS_INDEX:
                continue
            for vector in item.ranges or ():
                path = data_paths.get((item.partition, item.bucket, vector.data_file))
                if path is not None:
                    entry = self._build_vector_entry(item, vector, path, snapshot_id)
                    entries[normalize_path(path)] = entry
        return entries

    def _build_vector_entry(
        self, item: IndexManifestEntry, vector: DeletionVectorRange, path: str, snapshot_id: int
    ) -> Entry:
        index_path = item.external_path
        if index_path is None:
            index_path = self._relocate(self.paths.index_file(self.schema, item))
        if vector.cardinality is None:
            raise UnsupportedError(
                f"{index_path}: the deletion vector of {vector.data_file} has no cardinality, "
                "which Iceberg needs; run a full compaction"
            )
        _check_64_bit(item, index_path)
        return self._build_entry(
            snapshot_id,
            {
                "content": ManifestContent.DELETES,
                "file_path": index_path,
                "file_format": "puffin",
                "partition": self.encode_partition(item.partition),
                "record_count": vector.cardinality,
                "file_size_in_bytes": item.file_size,
                "referenced_data_file": path,
                "content_offset": vector.offset,
                "content_size_in_bytes": vector.length,
            },
        )

    def _build_entry(self, snapshot_id: int, file: dict[str, Any]) -> Entry:
        return {
            "status": EntryStatus.ADDED,
            "snapshot_id": snapshot_id,
            "sequence_number": snapshot_id,
            "file_sequence_number": snapshot_id,
            "data_file": file,
        }


def build_sort_key(partition: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    """Return a key that orders the partitions of manifest entries by their values, nulls first."""
    values = (partition[name] for name in names)
    return tuple((False, 0) if value is None else (True, value) for value in values)


def _build_map(values: Mapping[int, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _check_64_bit(item: IndexManifestEntry, path: str) -> None:
    """Refuse 32-bit vectors, which a table keeps until its next compaction.

    The length of a 64-bit vector includes its 8 bytes of framing, so the next vector follows it.
    """
    ranges: Sequence[DeletionVectorRange] = sorted(item.ranges or (), key=lambda r: r.offset)
    ends = [*(following.offset for following in ranges[1:]), item.file_size]
    for vector, end in zip(ranges, ends, strict=True):
        if vector.offset + vector.length != end:
            raise UnsupportedError(
                f"{path}: the deletion vector of {vector.data_file} has the 32-bit encoding, which "
                "Iceberg readers cannot read; run a full compaction"
            )
