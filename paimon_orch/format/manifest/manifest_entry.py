"""Manifests: the data files that commits added and deleted.

See docs/format/manifest.md.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum
from itertools import chain
from typing import Any, TypeVar

from paimon_orch.errors import CorruptFileError, wrap_decode_errors
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest import avro_container as avro
from paimon_orch.format.manifest.additional_fields import (
    AdditionalFields,
    FieldDefinition,
    collect_known_fields,
    extend_schema,
)
from paimon_orch.format.manifest.manifest_format import (
    AVRO_ENCODING,
    ManifestEncoding,
    decode_records,
    encode_records,
)
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.format.row.simple_stats import EMPTY_STATS, SimpleStats

MANIFEST_VERSION = 2
_UNSAFE_NAMES = frozenset(("", ".", ".."))
_UNSAFE_CHARS = re.compile(r"[/\\\0]")

Shape = TypeVar("Shape")


class FileKind(IntEnum):
    """Whether an entry adds or deletes its file."""

    ADD = 0
    DELETE = 1


class FileSource(IntEnum):
    """The kind of operation that wrote a data file."""

    APPEND = 0
    COMPACT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileMeta:
    """Metadata of one data file. Keys are serialized rows of the trimmed primary key.

    ``creation_time`` is epoch milliseconds of the writer's local wall clock read as if it were UTC.
    """

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes = EMPTY_ROW
    max_key: bytes = EMPTY_ROW
    key_stats: SimpleStats = EMPTY_STATS
    value_stats: SimpleStats = EMPTY_STATS
    min_sequence_number: int = 0
    max_sequence_number: int = 0
    schema_id: int = 0
    level: int = 0
    extra_files: tuple[str, ...] = ()
    creation_time: int | None = None
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    file_source: int | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    additional: AdditionalFields | None = field(default=None, repr=False, compare=False)
    """Unknown fields of the file's manifest entry."""

    @property
    def last_row_id(self) -> int | None:
        """The id of the last row; None if the rows have no ids yet."""
        return None if self.first_row_id is None else self.first_row_id + self.row_count - 1

    def with_level(self, level: int) -> "DataFileMeta":
        """Return the same file on another level."""
        return replace(self, level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One added or deleted data file of a partition's bucket."""

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta = field(repr=False)

    @property
    def partition_bucket(self) -> PartitionBucket:
        """Return the bucket that the file belongs to."""
        return PartitionBucket(self.partition, self.bucket)

    @property
    def identity(self) -> tuple[object, ...]:
        """Return the key by which a DELETE entry matches an ADD entry.

        See docs/format/manifest.md#file-identity-and-merging.
        """
        file = self.file
        return (
            self.partition,
            self.bucket,
            file.level,
            file.file_name,
            file.extra_files,
            file.embedded_index,
            file.external_path,
        )

    def deleted(self) -> "ManifestEntry":
        """Return the entry that deletes this file."""
        return replace(self, kind=FileKind.DELETE)


def sum_file_sizes(files: Iterable[DataFileMeta]) -> int:
    """Return the size of all files in bytes."""
    return sum(file.file_size for file in files)


def build_entries(
    kind: FileKind,
    partition_bucket: PartitionBucket,
    total_buckets: int,
    files: Iterable[DataFileMeta],
) -> tuple[ManifestEntry, ...]:
    """Return an entry for each file of a bucket."""
    partition, bucket = partition_bucket
    return tuple(
        ManifestEntry(
            kind=kind, partition=partition, bucket=bucket, total_buckets=total_buckets, file=file
        )
        for file in files
    )


_STRING_ARRAY_SCHEMA = {"type": "array", "items": "string"}
_FILE_SCHEMA = avro.build_record_schema(
    "record__FILE",
    [
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_ROW_COUNT", "long"),
        ("_MIN_KEY", "bytes"),
        ("_MAX_KEY", "bytes"),
        ("_KEY_STATS", avro.build_simple_stats_schema("record__FILE__KEY_STATS")),
        ("_VALUE_STATS", avro.build_simple_stats_schema("record__FILE__VALUE_STATS")),
        ("_MIN_SEQUENCE_NUMBER", "long"),
        ("_MAX_SEQUENCE_NUMBER", "long"),
        ("_SCHEMA_ID", "long"),
        ("_LEVEL", "int"),
        ("_EXTRA_FILES", _STRING_ARRAY_SCHEMA),
        (
            "_CREATION_TIME",
            avro.union_with_null({"type": "long", "logicalType": "timestamp-millis"}),
        ),
        ("_DELETE_ROW_COUNT", avro.union_with_null("long")),
        ("_EMBEDDED_FILE_INDEX", avro.union_with_null("bytes")),
        ("_FILE_SOURCE", avro.union_with_null("int")),
        ("_VALUE_STATS_COLS", avro.union_with_null(_STRING_ARRAY_SCHEMA)),
        ("_EXTERNAL_PATH", avro.union_with_null("string")),
        ("_FIRST_ROW_ID", avro.union_with_null("long")),
        ("_WRITE_COLS", avro.union_with_null(_STRING_ARRAY_SCHEMA)),
    ],
)
MANIFEST_SCHEMA = avro.build_record_schema(
    avro.ROOT_RECORD,
    [
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        ("_BUCKET", "int"),
        ("_TOTAL_BUCKETS", "int"),
        ("_FILE", _FILE_SCHEMA),
    ],
)
MANIFEST_FIELDS = collect_known_fields(MANIFEST_SCHEMA)


def encode_manifest(
    entries: Iterable[ManifestEntry], encoding: ManifestEncoding = AVRO_ENCODING
) -> bytes:
    """Return a manifest file."""
    entries = list(entries)
    schema = extend_schema(MANIFEST_SCHEMA, [entry.file.additional for entry in entries])
    return encode_records(schema, map(_entry_to_avro, entries), encoding)


def decode_manifest(data: bytes, path: str) -> list[ManifestEntry]:
    """Decode a manifest record by record; fields that the file does not have are null.

    Scans use ``columnar_manifest.open_manifest``, which decodes most manifests as columns.
    """
    records = decode_records(data, path, MANIFEST_FIELDS)
    with wrap_decode_errors(path):
        for value in records.values:  # another version can have other types
            avro.check_record_version(value, MANIFEST_VERSION, path)
        check_values(records.values, _ENTRY_TYPES)
        files = [check_shape(value["_FILE"], dict, "_FILE") for value in records.values]
        check_values(files, _FILE_TYPES)
    return [_entry_from_avro(value, path, records.unknown) for value in records.values]


def stats_to_avro(stats: SimpleStats) -> dict[str, Any]:
    """Encode statistics as an Avro record."""
    counts = stats.null_counts
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        "_NULL_COUNTS": None if counts is None else list(counts),
    }


def stats_from_avro(value: object) -> SimpleStats:
    """Decode statistics."""
    stats = check_shape(value, dict, "statistics")
    counts = stats.get("_NULL_COUNTS")
    return SimpleStats(
        check_shape(stats["_MIN_VALUES"], bytes, "_MIN_VALUES"),
        check_shape(stats["_MAX_VALUES"], bytes, "_MAX_VALUES"),
        None if counts is None else _check_null_counts(counts),
    )


def _check_null_counts(value: object) -> tuple[int | None, ...]:
    counts = check_shape(value, list, "_NULL_COUNTS")
    for count in counts:
        if type(count) not in (int, type(None)):
            raise ValueError(f"_NULL_COUNTS has the invalid value {count!r}")
    return tuple(counts)


def check_shape(value: Any, expected: type[Shape], name: str) -> Shape:
    """Return a value of the expected type. Raises ``ValueError`` for other types."""
    if not isinstance(value, expected):
        raise ValueError(f"{name} has the invalid value {value!r}")  # noqa: TRY004 - damage
    return value


_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "int": (int,),
    "long": (int,),
    "string": (str,),
    "bytes": (bytes, type(None)),  # some writers have no keys in append tables
}


def list_value_types(schema: Mapping[str, Any]) -> dict[str, tuple[type, ...]]:
    """Return the types of the numbers, texts and bytes of a record, by the names of its fields."""
    types = dict[str, tuple[type, ...]]()
    for definition in schema["fields"]:
        name, kind = definition["name"], definition["type"]
        branches = kind if isinstance(kind, list) else [kind]
        is_checked = name != "_FILE_NAME"  # see check_file_name
        if is_checked and all(isinstance(branch, str) for branch in branches):
            types[name] = tuple(chain(*(_PYTHON_TYPES[branch] for branch in branches)))
    return types


def check_values(
    records: Sequence[Mapping[str, Any]], types: Mapping[str, tuple[type, ...]]
) -> None:
    """Raise ``ValueError`` for a value of another type: the schema is part of the file.

    Missing fields are not checked, because older releases do not write all of them.
    """
    for name, expected in types.items():
        # the types of a field in all records are compared at once, because lists are long
        values = [record[name] for record in records if name in record]
        if not set(map(type, values)).issubset(expected):
            wrong = next(value for value in values if type(value) not in expected)
            raise ValueError(f"{name} has the invalid value {wrong!r}")


def check_level(level: int) -> None:
    """Raise ``ValueError`` for a negative level: a merge would leave out the rows of the file."""
    if level < 0:
        raise ValueError(f"_LEVEL is {level}, which is out of range")


def _entry_to_avro(entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    record = {
        "_VERSION": MANIFEST_VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            "_FILE_NAME": file.file_name,
            "_FILE_SIZE": file.file_size,
            "_ROW_COUNT": file.row_count,
            "_MIN_KEY": file.min_key,
            "_MAX_KEY": file.max_key,
            "_KEY_STATS": stats_to_avro(file.key_stats),
            "_VALUE_STATS": stats_to_avro(file.value_stats),
            "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
            "_SCHEMA_ID": file.schema_id,
            "_LEVEL": file.level,
            "_EXTRA_FILES": list(file.extra_files),
            "_CREATION_TIME": file.creation_time,
            "_DELETE_ROW_COUNT": file.delete_row_count,
            "_EMBEDDED_FILE_INDEX": file.embedded_index,
            "_FILE_SOURCE": file.file_source,
            "_VALUE_STATS_COLS": _to_list(file.value_stats_cols),
            "_EXTERNAL_PATH": file.external_path,
            "_FIRST_ROW_ID": file.first_row_id,
            "_WRITE_COLS": _to_list(file.write_cols),
        },
    }
    if file.additional is not None:
        file.additional.put(record)
    return record


def _to_list(value: tuple[str, ...] | None) -> list[str] | None:
    return None if value is None else list(value)


def _to_tuple(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = check_shape(value, list, "a list of columns")
    return tuple(check_shape(name, str, "a list of columns") for name in names)


_ENTRY_TYPES, _FILE_TYPES = list_value_types(MANIFEST_SCHEMA), list_value_types(_FILE_SCHEMA)


def _entry_from_avro(
    value: Mapping[str, Any], path: str, unknown: Mapping[str, FieldDefinition]
) -> ManifestEntry:
    with wrap_decode_errors(path):
        file = value["_FILE"]
        check_level(file["_LEVEL"])
        meta = DataFileMeta(
            file_name=check_file_name(file["_FILE_NAME"], path),
            file_size=file["_FILE_SIZE"],
            row_count=file["_ROW_COUNT"],
            min_key=_to_key(file["_MIN_KEY"]),
            max_key=_to_key(file["_MAX_KEY"]),
            key_stats=stats_from_avro(file["_KEY_STATS"]),
            value_stats=stats_from_avro(file["_VALUE_STATS"]),
            min_sequence_number=file["_MIN_SEQUENCE_NUMBER"],
            max_sequence_number=file["_MAX_SEQUENCE_NUMBER"],
            schema_id=file["_SCHEMA_ID"],
            level=file["_LEVEL"],
            extra_files=tuple(
                check_file_name(name, path)
                for name in check_shape(file["_EXTRA_FILES"], list, "_EXTRA_FILES")
            ),
            creation_time=_to_epoch_millis(file.get("_CREATION_TIME")),
            delete_row_count=file.get("_DELETE_ROW_COUNT"),
            embedded_index=file.get("_EMBEDDED_FILE_INDEX"),
            file_source=file.get("_FILE_SOURCE"),
            value_stats_cols=_to_tuple(file.get("_VALUE_STATS_COLS")),
            external_path=file.get("_EXTERNAL_PATH"),
            first_row_id=file.get("_FIRST_ROW_ID"),
            write_cols=_to_tuple(file.get("_WRITE_COLS")),
            additional=AdditionalFields.of(unknown, value),
        )
        return ManifestEntry(
            kind=FileKind(value["_KIND"]),
            partition=check_shape(value["_PARTITION"], bytes, "_PARTITION"),
            bucket=value["_BUCKET"],
            total_buckets=value["_TOTAL_BUCKETS"],
            file=meta,
        )


def _to_key(value: bytes | None) -> bytes:
    return EMPTY_ROW if value is None else value


def _to_epoch_millis(value: object) -> int | None:
    """Return epoch milliseconds; fastavro decodes the logical type to a datetime."""
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    return None if value is None else check_shape(value, int, "_CREATION_TIME")


def is_safe_file_name(name: object) -> bool:
    """Return whether a value is a file name without a path."""
    if not isinstance(name, str):
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return name not in _UNSAFE_NAMES and not _UNSAFE_CHARS.search(name)


def check_file_name(name: str, path: str) -> str:
    """Return a checked file name.

    Error messages contain ``path``, the file that contains the name.
    """
    if not is_safe_file_name(name):
        raise CorruptFileError(path, f"names the file {name!r}, which is outside its directory")
    return name


def check_file_names(names: Sequence[str], path: str) -> None:
    """Check file names as :func:`check_file_name` does."""
    # one check of the joined names is faster than a check of each name
    is_text = set(map(type, names)) <= {str}
    if is_text and _UNSAFE_NAMES.isdisjoint(names) and is_safe_file_name("|".join(names)):
        return
    for name in names:
        check_file_name(name, path)
