"""Manifest lists: the manifests of a snapshot, with statistics for pruning.

See docs/format/manifest.md#manifest-list-record.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.format.manifest import avro_container as avro
from paimon_orch.format.manifest.additional_fields import (
    AdditionalFields,
    collect_known_fields,
    extend_schema,
)
from paimon_orch.format.manifest.manifest_entry import (
    MANIFEST_VERSION,
    FileKind,
    ManifestEntry,
    check_file_names,
    check_level,
    check_values,
    list_value_types,
    stats_from_avro,
    stats_to_avro,
)
from paimon_orch.format.manifest.manifest_format import (
    AVRO_ENCODING,
    ManifestEncoding,
    decode_records,
    encode_records,
)
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.format.row.simple_stats import ColumnStats, SimpleStats
from paimon_orch.format.types.data_types import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFileMeta:
    """One manifest of a list; partition statistics cover ADD and DELETE entries."""

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None
    additional: AdditionalFields | None = field(default=None, repr=False, compare=False)
    """Unknown fields of the record."""

    @classmethod
    def of(
        cls,
        file_name: str,
        file_size: int,
        entries: Sequence[ManifestEntry],
        partition_fields: Sequence[Field],
        schema_id: int,
    ) -> "ManifestFileMeta":
        """Summarize the entries of a manifest; ``schema_id`` is used if it has none."""
        levels = [entry.file.level for entry in entries]
        buckets = [entry.bucket for entry in entries]
        deleted = sum(entry.kind is FileKind.DELETE for entry in entries)
        first_ids = [id_ for entry in entries if (id_ := entry.file.first_row_id) is not None]
        last_ids = [id_ for entry in entries if (id_ := entry.file.last_row_id) is not None]
        all_have_ids = bool(first_ids) and len(first_ids) == len(entries)
        return cls(
            file_name=file_name,
            file_size=file_size,
            num_added_files=len(entries) - deleted,
            num_deleted_files=deleted,
            partition_stats=compute_partition_stats(entries, partition_fields),
            schema_id=max((entry.file.schema_id for entry in entries), default=schema_id),
            min_bucket=min(buckets, default=None),
            max_bucket=max(buckets, default=None),
            min_level=min(levels, default=None),
            max_level=max(levels, default=None),
            min_row_id=min(first_ids) if all_have_ids else None,
            max_row_id=max(last_ids) if all_have_ids else None,
        )


def compute_partition_stats(
    entries: Sequence[ManifestEntry], fields: Sequence[Field]
) -> SimpleStats:
    """Return untruncated bounds and null counts of the partition columns over the entries."""
    types = [column.type for column in fields]
    rows = [deserialize_row(data, types) for data in {entry.partition for entry in entries}]
    per_entry = [deserialize_row(entry.partition, types) for entry in entries]
    columns = []
    for index in range(len(fields)):
        values: list[Any] = [row[index] for row in rows if row[index] is not None]
        columns.append(
            ColumnStats(
                min(values, default=None),
                max(values, default=None),
                sum(row[index] is None for row in per_entry),
            )
        )
    return SimpleStats.of(columns, types)


MANIFEST_LIST_SCHEMA = avro.build_record_schema(
    avro.ROOT_RECORD,
    [
        ("_VERSION", "int"),
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_NUM_ADDED_FILES", "long"),
        ("_NUM_DELETED_FILES", "long"),
        ("_PARTITION_STATS", avro.build_simple_stats_schema("record__PARTITION_STATS")),
        ("_SCHEMA_ID", "long"),
        ("_MIN_BUCKET", avro.union_with_null("int")),
        ("_MAX_BUCKET", avro.union_with_null("int")),
        ("_MIN_LEVEL", avro.union_with_null("int")),
        ("_MAX_LEVEL", avro.union_with_null("int")),
        ("_MIN_ROW_ID", avro.union_with_null("long")),
        ("_MAX_ROW_ID", avro.union_with_null("long")),
    ],
)
MANIFEST_LIST_FIELDS = collect_known_fields(MANIFEST_LIST_SCHEMA)
_TYPES = list_value_types(MANIFEST_LIST_SCHEMA)
_MAX_ENTRIES = (1 << 31) - 1  # of a manifest: it is read at once


def encode_manifest_list(
    manifests: Iterable[ManifestFileMeta], encoding: ManifestEncoding = AVRO_ENCODING
) -> bytes:
    """Return a manifest list file."""
    manifests = list(manifests)
    schema = extend_schema(MANIFEST_LIST_SCHEMA, [manifest.additional for manifest in manifests])
    return encode_records(schema, map(_to_avro, manifests), encoding)


def _to_avro(manifest: ManifestFileMeta) -> dict[str, Any]:
    record = {
        "_VERSION": MANIFEST_VERSION,
        "_FILE_NAME": manifest.file_name,
        "_FILE_SIZE": manifest.file_size,
        "_NUM_ADDED_FILES": manifest.num_added_files,
        "_NUM_DELETED_FILES": manifest.num_deleted_files,
        "_PARTITION_STATS": stats_to_avro(manifest.partition_stats),
        "_SCHEMA_ID": manifest.schema_id,
        "_MIN_BUCKET": manifest.min_bucket,
        "_MAX_BUCKET": manifest.max_bucket,
        "_MIN_LEVEL": manifest.min_level,
        "_MAX_LEVEL": manifest.max_level,
        "_MIN_ROW_ID": manifest.min_row_id,
        "_MAX_ROW_ID": manifest.max_row_id,
    }
    if manifest.additional is not None:
        manifest.additional.put(record)
    return record


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFileMeta]:
    """Return the manifests of a list file."""
    records = decode_records(data, path, MANIFEST_LIST_FIELDS)
    with wrap_decode_errors(path):
        _check_records(records.values, path)
        return [
            ManifestFileMeta(
                file_name=value["_FILE_NAME"],
                file_size=value["_FILE_SIZE"],
                num_added_files=value["_NUM_ADDED_FILES"],
                num_deleted_files=value["_NUM_DELETED_FILES"],
                partition_stats=stats_from_avro(value["_PARTITION_STATS"]),
                schema_id=value["_SCHEMA_ID"],
                min_bucket=value.get("_MIN_BUCKET"),
                max_bucket=value.get("_MAX_BUCKET"),
                min_level=value.get("_MIN_LEVEL"),
                max_level=value.get("_MAX_LEVEL"),
                min_row_id=value.get("_MIN_ROW_ID"),
                max_row_id=value.get("_MAX_ROW_ID"),
                additional=AdditionalFields.of(records.unknown, value),
            )
            for value in records.values
        ]


def _check_records(records: Sequence[Mapping[str, Any]], path: str) -> None:
    for value in records:
        avro.check_record_version(value, MANIFEST_VERSION, path)
    check_values(records, _TYPES)
    for name in ("_NUM_ADDED_FILES", "_NUM_DELETED_FILES"):
        counts = [value[name] for value in records]
        for count in (min(counts, default=0), max(counts, default=0)):
            if not 0 <= count <= _MAX_ENTRIES:
                raise ValueError(f"{name} is {count}, which is out of range")
    check_level(min((value.get("_MAX_LEVEL") or 0 for value in records), default=0))
    names = [value["_FILE_NAME"] for value in records]
    check_file_names(names, path)
    check_distinct_manifests(names)


def check_distinct_manifests(names: Collection[str]) -> None:
    """Raise ``ValueError`` for a manifest that is named twice: its rows would be read twice."""
    if len(set(names)) < len(names):
        [(name, count)] = Counter(names).most_common(1)
        raise ValueError(f"the manifest {name} is named {count} times")
