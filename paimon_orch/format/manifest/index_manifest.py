"""Index manifests: hash indexes and deletion vectors of a snapshot.

See docs/format/manifest.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paimon_orch.errors import CommitConflictError, wrap_decode_errors
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest import avro_container as avro
from paimon_orch.format.manifest.additional_fields import (
    AdditionalFields,
    FieldDefinition,
    collect_known_fields,
    extend_schema,
)
from paimon_orch.format.manifest.manifest_entry import (
    FileKind,
    check_file_name,
    check_shape,
    check_values,
    list_value_types,
)
from paimon_orch.format.manifest.manifest_format import (
    AVRO_ENCODING,
    ManifestEncoding,
    decode_records,
    encode_records,
)
from paimon_orch.format.row_range_set import EMPTY_ROW_RANGES, MAX_ROW_ID, RowRanges

INDEX_MANIFEST_VERSION = 1
HASH_INDEX = "HASH"
DELETION_VECTORS_INDEX = "DELETION_VECTORS"
SOURCE_META = "_GLOBAL_INDEX._SOURCE_META"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorRange:
    """The position of one data file's deletion vector in an index file.

    See docs/format/deletion-vectors.md.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None
    additional: AdditionalFields | None = field(default=None, repr=False, compare=False)
    """Unknown fields of the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalIndexMeta:
    """Global index fields (1.4 and later), preserved but not interpreted."""

    row_range_start: int
    row_range_end: int
    index_field_id: int
    extra_field_ids: tuple[int, ...] | None
    index_meta: bytes | None

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Return the ids of all columns of the index."""
        return (self.index_field_id, *(self.extra_field_ids or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexManifestEntry:
    """One index file of a partition's bucket."""

    kind: FileKind
    partition: bytes
    bucket: int
    index_type: str
    file_name: str
    file_size: int
    row_count: int
    ranges: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    global_index: GlobalIndexMeta | None = None
    additional: AdditionalFields | None = field(default=None, repr=False, compare=False)
    """Unknown fields of the entry and of its global index."""

    @property
    def partition_bucket(self) -> PartitionBucket:
        """Return the bucket that the file belongs to."""
        return PartitionBucket(self.partition, self.bucket)

    @property
    def source_meta(self) -> bytes | None:
        """Return the encoded list of data files that the index covers (2.0), or None.

        It is one of the additional fields, so that only manifests with such indexes have it.
        """
        values = {} if self.additional is None else self.additional.values
        return values.get(SOURCE_META)

    @property
    def row_range(self) -> RowRanges:
        """Return the rows that a global index covers; none if these cannot be ids of rows."""
        index = self.global_index
        if index is None or not 0 <= index.row_range_start <= index.row_range_end < MAX_ROW_ID:
            return EMPTY_ROW_RANGES
        return RowRanges(np.array([index.row_range_start]), np.array([index.row_range_end + 1]))

    def deleted(self) -> "IndexManifestEntry":
        """Return the entry that removes this index file."""
        return replace(self, kind=FileKind.DELETE)


_RANGES_PREFIX = "_DELETIONS_VECTORS_RANGES."
_RANGE_SCHEMA = avro.build_record_schema(
    "record__DELETIONS_VECTORS_RANGES",
    [
        ("f0", "string"),
        ("f1", "int"),
        ("f2", "int"),
        ("_CARDINALITY", avro.union_with_null("long")),
    ],
)
_GLOBAL_INDEX_SCHEMA = avro.build_record_schema(
    "record__GLOBAL_INDEX",
    [
        ("_ROW_RANGE_START", "long"),
        ("_ROW_RANGE_END", "long"),
        ("_INDEX_FIELD_ID", "int"),
        ("_EXTRA_FIELD_IDS", avro.union_with_null({"type": "array", "items": "int"})),
        ("_INDEX_META", avro.union_with_null("bytes")),
    ],
)
INDEX_MANIFEST_SCHEMA = avro.build_record_schema(
    avro.ROOT_RECORD,
    [
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        ("_BUCKET", "int"),
        ("_INDEX_TYPE", "string"),
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_ROW_COUNT", "long"),
        (
            "_DELETIONS_VECTORS_RANGES",
            avro.union_with_null({"type": "array", "items": avro.union_with_null(_RANGE_SCHEMA)}),
        ),
        ("_EXTERNAL_PATH", avro.union_with_null("string")),
        ("_GLOBAL_INDEX", avro.union_with_null(_GLOBAL_INDEX_SCHEMA)),
    ],
)
INDEX_MANIFEST_FIELDS = collect_known_fields(INDEX_MANIFEST_SCHEMA)
_TYPES = list_value_types(INDEX_MANIFEST_SCHEMA)
_RANGE_TYPES = list_value_types(_RANGE_SCHEMA)
_GLOBAL_INDEX_TYPES = list_value_types(_GLOBAL_INDEX_SCHEMA)


def encode_index_manifest(
    entries: Iterable[IndexManifestEntry], encoding: ManifestEncoding = AVRO_ENCODING
) -> bytes:
    """Return an index manifest file."""
    entries = list(entries)
    ranges = [item.additional for entry in entries for item in entry.ranges or ()]
    schema = extend_schema(INDEX_MANIFEST_SCHEMA, [entry.additional for entry in entries], ranges)
    return encode_records(schema, map(_to_avro, entries), encoding)


def _to_avro(entry: IndexManifestEntry) -> dict[str, Any]:
    index = entry.global_index
    record = {
        "_VERSION": INDEX_MANIFEST_VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": entry.index_type,
        "_FILE_NAME": entry.file_name,
        "_FILE_SIZE": entry.file_size,
        "_ROW_COUNT": entry.row_count,
        "_DELETIONS_VECTORS_RANGES": None
        if entry.ranges is None
        else list(map(_range_to_avro, entry.ranges)),
        "_EXTERNAL_PATH": entry.external_path,
        "_GLOBAL_INDEX": None
        if index is None
        else {
            "_ROW_RANGE_START": index.row_range_start,
            "_ROW_RANGE_END": index.row_range_end,
            "_INDEX_FIELD_ID": index.index_field_id,
            "_EXTRA_FIELD_IDS": None
            if index.extra_field_ids is None
            else list(index.extra_field_ids),
            "_INDEX_META": index.index_meta,
        },
    }
    if entry.additional is not None:
        entry.additional.put(record)
    return record


def _range_to_avro(item: DeletionVectorRange) -> dict[str, Any]:
    record = {
        "f0": item.data_file,
        "f1": item.offset,
        "f2": item.length,
        "_CARDINALITY": item.cardinality,
    }
    if item.additional is not None:
        item.additional.put(record, _RANGES_PREFIX)
    return record


def decode_index_manifest(data: bytes, path: str) -> list[IndexManifestEntry]:
    """Return the entries of an index manifest file."""
    records = decode_records(data, path, INDEX_MANIFEST_FIELDS)
    of_ranges = {
        name: item for name, item in records.unknown.items() if name.startswith(_RANGES_PREFIX)
    }
    of_entries = {name: item for name, item in records.unknown.items() if name not in of_ranges}
    with wrap_decode_errors(path):
        for value in records.values:  # another version can have other types
            avro.check_record_version(value, INDEX_MANIFEST_VERSION, path)
        check_values(records.values, _TYPES)
        return [_from_avro(value, path, of_entries, of_ranges) for value in records.values]


def _from_avro(
    value: Mapping[str, Any],
    path: str,
    unknown: Mapping[str, FieldDefinition],
    unknown_of_ranges: Mapping[str, FieldDefinition],
) -> IndexManifestEntry:
    ranges, index = value.get("_DELETIONS_VECTORS_RANGES"), value.get("_GLOBAL_INDEX")
    return IndexManifestEntry(
        kind=FileKind(value["_KIND"]),
        partition=check_shape(value["_PARTITION"], bytes, "_PARTITION"),
        bucket=value["_BUCKET"],
        index_type=value["_INDEX_TYPE"],
        file_name=check_file_name(value["_FILE_NAME"], path),
        file_size=value["_FILE_SIZE"],
        row_count=value["_ROW_COUNT"],
        ranges=None if ranges is None else tuple(_ranges_from_avro(ranges, unknown_of_ranges)),
        external_path=value.get("_EXTERNAL_PATH"),
        global_index=None if index is None else _global_index_from_avro(index),
        additional=AdditionalFields.of(unknown, value),
    )


def _ranges_from_avro(
    values: object, unknown: Mapping[str, FieldDefinition]
) -> Iterator[DeletionVectorRange]:
    ranges = [
        check_shape(item, dict, "a range")
        for item in check_shape(values, list, "_DELETIONS_VECTORS_RANGES")
        if item is not None
    ]
    check_values(ranges, _RANGE_TYPES)
    for item in ranges:
        yield DeletionVectorRange(
            data_file=item["f0"],
            offset=item["f1"],
            length=item["f2"],
            cardinality=item.get("_CARDINALITY"),
            additional=AdditionalFields.of(unknown, item, _RANGES_PREFIX),
        )


def _global_index_from_avro(record: object) -> GlobalIndexMeta:
    value = check_shape(record, dict, "_GLOBAL_INDEX")
    check_values([value], _GLOBAL_INDEX_TYPES)
    extra = value.get("_EXTRA_FIELD_IDS")
    if extra is not None:
        for number in check_shape(extra, list, "_EXTRA_FIELD_IDS"):
            check_shape(number, int, "_EXTRA_FIELD_IDS")
    return GlobalIndexMeta(
        row_range_start=value["_ROW_RANGE_START"],
        row_range_end=value["_ROW_RANGE_END"],
        index_field_id=value["_INDEX_FIELD_ID"],
        extra_field_ids=None if extra is None else tuple(extra),
        index_meta=value.get("_INDEX_META"),
    )


def apply_index_changes(
    previous: Iterable[IndexManifestEntry],
    changes: Iterable[IndexManifestEntry],
    *,
    bucketed: bool,
) -> list[IndexManifestEntry]:
    """Apply index changes: DELETEs first, then ADDs.

    In bucketed tables an ADD replaces the bucket's file of the same type. In bucket-unaware tables
    deletion vectors are keyed by file name, and deleting a missing file is a conflict.

    See docs/format/manifest.md#lists-of-a-commit.
    """

    def key(entry: IndexManifestEntry) -> tuple[object, ...]:
        per_bucket = entry.index_type == HASH_INDEX or (
            entry.index_type == DELETION_VECTORS_INDEX and bucketed
        )
        if per_bucket:
            return entry.partition, entry.bucket, entry.index_type
        return (entry.file_name,)

    live: dict[tuple[object, ...], list[IndexManifestEntry]] = {}
    # a bucket can have several deletion vector files that old writers wrote
    for entry in previous:
        live.setdefault(key(entry), []).append(entry)
    changes = list(changes)
    for entry in changes:
        if entry.kind is FileKind.ADD:
            continue
        is_missing = live.pop(key(entry), None) is None
        if is_missing and len(key(entry)) == 1:
            raise CommitConflictError(
                f"index file {entry.file_name} is no longer part of the table: another commit "
                "changed the same deletion vectors. Read the table again and repeat the operation."
            )
    for entry in changes:
        if entry.kind is FileKind.ADD:
            live[key(entry)] = [entry]
    return [entry for entries in live.values() for entry in entries]
