"""Iceberg manifests: the data files, or the deletion vectors, of an Iceberg snapshot.

Entries are Avro records with the field names and ids of the Iceberg specification. Values are as
stored: a date is a number of days, a decimal is its bytes.

See docs/format/iceberg-metadata.md#manifests.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.format.manifest.avro_container import (
    avro_file_contains,
    check_record,
    decode_raw_avro_file,
    encode_avro_file,
    union_with_null,
)

Entry = dict[str, Any]
"""One record of a manifest; its ``data_file`` is a nested record."""

ROW_LINEAGE_VERSION = 3
"""The format version from which entries and manifests have ``first_row_id``."""


class EntryStatus(IntEnum):
    """The state of a file in the snapshot that wrote the manifest."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class ManifestContent(IntEnum):
    """The kind of the files in a manifest."""

    DATA = 0
    DELETES = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFormat:
    """The properties that all manifests of one commit share."""

    format_version: int
    schema: Mapping[str, Any]
    """The current Iceberg schema, as JSON values."""
    partition_spec: Sequence[Mapping[str, Any]]
    """The fields of partition spec 0, as JSON values."""
    partition_fields: Sequence[Mapping[str, Any]]
    """The Avro fields of a partition."""
    codec: str
    level: int
    """The compression level of the codec ``zstandard``."""

    def build_header(self, content: ManifestContent) -> dict[str, str]:
        """Return the keys that the Iceberg specification requires in the header of a manifest."""
        return {
            "schema": json.dumps(self.schema),
            "schema-id": str(self.schema["schema-id"]),
            "partition-spec": json.dumps(self.partition_spec),
            "partition-spec-id": "0",
            "format-version": str(self.format_version),
            "content": "deletes" if content is ManifestContent.DELETES else "data",
        }


def build_field(name: str, field_id: int, schema: Any) -> dict[str, Any]:
    """Return an Avro field with its Iceberg id; a field with a union defaults to null."""
    field: dict[str, Any] = {"name": name, "type": schema}
    if isinstance(schema, list):
        field["default"] = None
    field["field-id"] = field_id
    return field


def build_record(name: str, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an Avro record schema."""
    return {"type": "record", "name": name, "fields": list(fields)}


def _build_map(key_id: int, value_id: int, value_type: str) -> list[Any]:
    """Return the nullable type of a map with integer keys, which Iceberg stores as an array."""
    fields = [build_field("key", key_id, "int"), build_field("value", value_id, value_type)]
    items = build_record(f"k{key_id}_v{value_id}", fields)
    return union_with_null({"type": "array", "items": items, "logicalType": "map"})


def build_manifest_schema(
    partition_fields: Sequence[Mapping[str, Any]], format_version: int
) -> dict[str, Any]:
    """Return the Avro schema of a manifest."""
    long = union_with_null("long")
    data_file = [
        build_field("content", 134, "int"),
        build_field("file_path", 100, "string"),
        build_field("file_format", 101, "string"),
        build_field("partition", 102, build_record("r102", partition_fields)),
        build_field("record_count", 103, "long"),
        build_field("file_size_in_bytes", 104, "long"),
        build_field("null_value_counts", 110, _build_map(121, 122, "long")),
        build_field("lower_bounds", 125, _build_map(126, 127, "bytes")),
        build_field("upper_bounds", 128, _build_map(129, 130, "bytes")),
        build_field("referenced_data_file", 143, union_with_null("string")),
        build_field("content_offset", 144, long),
        build_field("content_size_in_bytes", 145, long),
    ]
    if format_version >= ROW_LINEAGE_VERSION:
        data_file.append(build_field("first_row_id", 142, long))
    return build_record(
        "manifest_entry",
        [
            build_field("status", 0, "int"),
            build_field("snapshot_id", 1, long),
            build_field("sequence_number", 3, long),
            build_field("file_sequence_number", 4, long),
            build_field("data_file", 2, build_record("r2", data_file)),
        ],
    )


def encode_manifest(
    entries: Iterable[Entry], manifest_format: ManifestFormat, content: ManifestContent
) -> bytes:
    """Return a manifest file."""
    schema = build_manifest_schema(manifest_format.partition_fields, manifest_format.format_version)
    return encode_avro_file(
        schema,
        entries,
        manifest_format.codec,
        manifest_format.level,
        header=manifest_format.build_header(content),
    )


_ENTRY_SCHEMA = build_manifest_schema((), ROW_LINEAGE_VERSION)


def decode_manifest(data: bytes, path: str) -> list[Entry]:
    """Return the entries of a manifest. Error messages contain ``path``."""
    entries = decode_raw_avro_file(data, path)
    with wrap_decode_errors(path):
        for entry in entries:
            check_record(entry, _ENTRY_SCHEMA)
            EntryStatus(entry["status"])
            ManifestContent(entry["data_file"]["content"])
            partition = entry["data_file"]["partition"].values()
            if any(isinstance(value, dict | list) for value in partition):
                raise ValueError("a value of a partition is a record, a list or a map")
    return entries


def may_contain_file(data: bytes, path: str, names: Iterable[str]) -> bool:
    """Return whether a manifest may have an entry of a file with one of these names.

    Faster than decoding: names of data files contain a UUID. Error messages contain ``path``.
    """
    return avro_file_contains(data, path, [name.encode() for name in names])


def is_live(entry: Entry) -> bool:
    """Return whether the file of an entry belongs to the snapshot."""
    return bool(entry["status"] != EntryStatus.DELETED)
