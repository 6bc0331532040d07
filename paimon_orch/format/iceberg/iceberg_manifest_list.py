"""Iceberg manifest lists: the manifests of an Iceberg snapshot.

See docs/format/iceberg-metadata.md#manifest-lists.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.format.iceberg.iceberg_manifest import (
    ROW_LINEAGE_VERSION,
    ManifestContent,
    build_field,
    build_record,
)
from paimon_orch.format.manifest.avro_container import (
    check_record,
    decode_raw_avro_file,
    encode_avro_file,
    union_with_null,
)

_COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")
_LEGACY_COUNTS = tuple(name.replace("_files_", "_data_files_") for name in _COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """The range of one partition column in a manifest; bounds are Iceberg single values."""

    contains_null: bool
    contains_nan: bool = False
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergManifestFile:
    """One manifest of a manifest list."""

    path: str
    length: int
    content: ManifestContent
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files: int
    existing_files: int
    deleted_files: int
    added_rows: int
    existing_rows: int
    deleted_rows: int
    partitions: tuple[PartitionSummary, ...] = ()
    first_row_id: int | None = None

    @property
    def live_files(self) -> int:
        """Return the number of files that belong to the snapshot."""
        return self.added_files + self.existing_files

    @property
    def live_rows(self) -> int:
        """Return the number of rows in files that belong to the snapshot."""
        return self.added_rows + self.existing_rows


def build_manifest_list_schema(format_version: int, *, legacy: bool) -> dict[str, Any]:
    """Return the Avro schema of a manifest list; ``legacy`` selects the old names of counts."""
    long = union_with_null("long")
    binary = union_with_null("bytes")
    summary = build_record(
        "r508",
        [
            build_field("contains_null", 509, "boolean"),
            build_field("contains_nan", 518, union_with_null("boolean")),
            build_field("lower_bound", 510, binary),
            build_field("upper_bound", 511, binary),
        ],
    )
    counts = _LEGACY_COUNTS if legacy else _COUNTS
    fields = [
        build_field("manifest_path", 500, "string"),
        build_field("manifest_length", 501, "long"),
        build_field("partition_spec_id", 502, "int"),
        build_field("content", 517, "int"),
        build_field("sequence_number", 515, "long"),
        build_field("min_sequence_number", 516, "long"),
        build_field("added_snapshot_id", 503, long),
        *(build_field(name, 504 + number, "int") for number, name in enumerate(counts)),
        build_field("added_rows_count", 512, "long"),
        build_field("existing_rows_count", 513, "long"),
        build_field("deleted_rows_count", 514, "long"),
        build_field(
            "partitions",
            507,
            union_with_null({"type": "array", "items": summary, "element-id": 508}),
        ),
    ]
    if format_version >= ROW_LINEAGE_VERSION:
        fields.append(build_field("first_row_id", 520, long))
    return build_record("manifest_file", fields)


def encode_manifest_list(
    manifests: Iterable[IcebergManifestFile],
    *,
    snapshot_id: int,
    parent_id: int | None,
    format_version: int,
    legacy: bool,
    codec: str,
    level: int,
) -> bytes:
    """Return a manifest list file."""
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(snapshot_id),
        "format-version": str(format_version),
    }
    schema = build_manifest_list_schema(format_version, legacy=legacy)
    counts = _LEGACY_COUNTS if legacy else _COUNTS
    records = [_to_record(manifest, counts) for manifest in manifests]
    return encode_avro_file(schema, records, codec, level, header=header)


def _to_record(manifest: IcebergManifestFile, counts: tuple[str, ...]) -> dict[str, Any]:
    files = (manifest.added_files, manifest.existing_files, manifest.deleted_files)
    return {
        "manifest_path": manifest.path,
        "manifest_length": manifest.length,
        "partition_spec_id": 0,
        "content": manifest.content,
        "sequence_number": manifest.sequence_number,
        "min_sequence_number": manifest.min_sequence_number,
        "added_snapshot_id": manifest.added_snapshot_id,
        **dict(zip(counts, files, strict=True)),
        "added_rows_count": manifest.added_rows,
        "existing_rows_count": manifest.existing_rows,
        "deleted_rows_count": manifest.deleted_rows,
        "partitions": [
            {
                "contains_null": summary.contains_null,
                "contains_nan": summary.contains_nan,
                "lower_bound": summary.lower_bound,
                "upper_bound": summary.upper_bound,
            }
            for summary in manifest.partitions
        ],
        "first_row_id": manifest.first_row_id,
    }


def has_legacy_counts(data: bytes) -> bool:
    """Return whether a manifest list has the old names of counts, from the schema in its header."""
    return f'"{_LEGACY_COUNTS[0]}"'.encode() in data


def decode_manifest_list(data: bytes, path: str) -> list[IcebergManifestFile]:
    """Return the manifests of a list, with either names of the counts.

    Error messages contain ``path``.
    """
    records = decode_raw_avro_file(data, path)
    with wrap_decode_errors(path):
        return [_from_record(record) for record in records]


_SCHEMAS = {
    legacy: build_manifest_list_schema(ROW_LINEAGE_VERSION, legacy=legacy)
    for legacy in (False, True)
}


def _from_record(record: dict[str, Any]) -> IcebergManifestFile:
    names = _COUNTS if _COUNTS[0] in record else _LEGACY_COUNTS
    check_record(record, _SCHEMAS[names is _LEGACY_COUNTS])
    added, existing, deleted = (record[name] for name in names)
    return IcebergManifestFile(
        path=record["manifest_path"],
        length=record["manifest_length"],
        content=ManifestContent(record["content"]),
        sequence_number=record["sequence_number"],
        min_sequence_number=record["min_sequence_number"],
        added_snapshot_id=record["added_snapshot_id"],
        added_files=added,
        existing_files=existing,
        deleted_files=deleted,
        added_rows=record["added_rows_count"],
        existing_rows=record["existing_rows_count"],
        deleted_rows=record["deleted_rows_count"],
        partitions=tuple(
            PartitionSummary(
                contains_null=summary["contains_null"],
                contains_nan=bool(summary["contains_nan"]),
                lower_bound=summary["lower_bound"],
                upper_bound=summary["upper_bound"],
            )
            for summary in record["partitions"] or ()
        ),
        first_row_id=record.get("first_row_id"),
    )
