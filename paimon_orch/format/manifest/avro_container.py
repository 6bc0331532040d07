"""Encodes and decodes the Avro containers of manifests.

See docs/format/manifest.md#container.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import fastavro

from paimon_orch.errors import UnsupportedError, wrap_decode_errors, wrap_library_errors
from paimon_orch.format.manifest.additional_fields import (
    FieldDefinition,
    KnownFields,
    check_avro_schema,
    find_unknown_fields,
    strip_logical_types,
)

NAMESPACE = "org.apache.paimon.avro.generated"
ROOT_RECORD = "record"
AVRO_MAGIC = b"Obj\x01"
# Java Paimon uses this block size. The default of fastavro is smaller, and smaller blocks compress
# worse.
_BLOCK_BYTES = 64_000

HEADER_SCHEMA = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(AVRO_MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}
AvroRecord = Mapping[str, Any]


def build_record_schema(name: str, fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a record schema; union fields default to null, the first branch."""
    encoded = []
    for field_name, field_type in fields:
        field: dict[str, Any] = {"name": field_name, "type": field_type}
        if isinstance(field_type, list):
            field["default"] = None
        encoded.append(field)
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": encoded}


def union_with_null(schema: Any) -> list[Any]:
    """Return the union of null and a type, null first."""
    return ["null", schema]


def build_simple_stats_schema(name: str) -> dict[str, Any]:
    """Return the schema of a SimpleStats record.

    See docs/format/manifest.md#simplestats-record.
    """
    counts = union_with_null({"type": "array", "items": union_with_null("long")})
    return build_record_schema(
        name, [("_MIN_VALUES", "bytes"), ("_MAX_VALUES", "bytes"), ("_NULL_COUNTS", counts)]
    )


def encode_avro_file(
    schema: Any,
    records: Iterable[AvroRecord],
    codec: str = "zstandard",
    level: int = 1,
    *,
    header: Mapping[str, str] | None = None,
) -> bytes:
    """Return a container file; ``records`` may be empty. ``header`` has additional keys."""
    buffer = io.BytesIO()
    compression = level if codec == "zstandard" else None
    fastavro.writer(
        buffer,
        schema,
        records,
        codec,
        _BLOCK_BYTES,
        metadata=None if header is None else dict(header),
        codec_compression_level=compression,
    )
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """The records of a file, and the definitions of unknown fields by dotted path."""

    values: list[dict[str, Any]]
    unknown: Mapping[str, FieldDefinition]


def decode_avro_file(data: bytes, path: str, known_fields: KnownFields) -> DecodedRecords:
    """Return all records of a container. Error messages contain ``path``."""
    with wrap_decode_errors(path):
        reader = _open_container(data)
        unknown = find_unknown_fields(known_fields, reader.writer_schema)
        if unknown:
            reader = _open_verbatim_reader(data, unknown, return_named_type=True)
        return DecodedRecords(_read_records(reader), unknown)


def decode_raw_avro_file(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return all records with their values as stored: logical types are not converted.

    Error messages contain ``path``.
    """
    with wrap_decode_errors(path):
        schema = _open_container(data).writer_schema
        if not isinstance(schema, dict) or schema["type"] != "record":
            raise ValueError("the file does not contain records")
        names = [field["name"] for field in schema["fields"]]
        return _read_records(_open_verbatim_reader(data, names, return_named_type=False))


def avro_file_contains(data: bytes, path: str, texts: Iterable[bytes]) -> bool:
    """Return whether some records may contain one of the byte strings, without decoding them.

    Error messages contain ``path``.
    """
    texts = list(texts)
    with wrap_decode_errors(path):
        for block in iterate_blocks(_open_container(data)):
            content = block.bytes_.read()
            if any(text in content for text in texts):
                return True
    return False


def _open_container(data: bytes) -> Any:
    if data[: len(AVRO_MAGIC)] != AVRO_MAGIC:
        raise ValueError("the file is not an Avro file")
    reader = open_block_reader(io.BytesIO(data))
    _refuse_zero_length_types(reader.writer_schema)
    return reader


def _read_records(reader: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for block in iterate_blocks(reader):
        with wrap_library_errors():
            records += block
        if remaining := len(block.bytes_.read()):
            raise ValueError(f"{remaining} bytes follow the {block.num_records} records of a block")
    return records


def open_block_reader(source: IO[bytes], **options: Any) -> Any:
    """Return fastavro's reader of the blocks of a container.

    Raises ``ValueError`` for a damaged header, and errors of reading ``source``.
    """
    with wrap_library_errors():
        reader: Any = fastavro.block_reader(source, **options)
    check_avro_schema(reader.writer_schema)
    return reader


def iterate_blocks(reader: Any) -> Iterator[Any]:
    """Yield the blocks of a container. Raises ``ValueError`` for damaged ones."""
    with wrap_library_errors():
        yield from reader


def _open_verbatim_reader(data: bytes, unknown: Iterable[str], *, return_named_type: bool) -> Any:
    """Return a reader that does not convert logical types of unknown fields."""
    source = io.BytesIO(data)
    with wrap_library_errors():
        header: Any = fastavro.schemaless_reader(source, HEADER_SCHEMA)
    schema = strip_logical_types(json.loads(header["meta"]["avro.schema"]), unknown)
    changed = {**header["meta"], "avro.schema": json.dumps(schema).encode()}
    target = io.BytesIO()
    fastavro.schemaless_writer(target, HEADER_SCHEMA, {**header, "meta": changed})
    target.write(data[source.tell() :])
    target.seek(0)
    return open_block_reader(
        target, return_named_type=return_named_type, return_named_type_override=True
    )


def _refuse_zero_length_types(schema: Any) -> None:
    """Refuse zero-length records and array items: a small file could contain any number of them."""
    for part in _iterate_types(schema):
        if part.get("type") == "array" and not _has_nonzero_length(part["items"]):
            raise ValueError("the Avro schema has a zero-length array item")
    if not _has_nonzero_length(schema):
        raise ValueError("the Avro schema has a zero-length record")


def _iterate_types(schema: Any) -> Iterator[Mapping[str, Any]]:
    parts = schema if isinstance(schema, list) else []
    if isinstance(schema, dict):
        yield schema
        parts = [schema.get("items"), schema.get("values"), schema.get("type")]
        parts += [field["type"] for field in schema.get("fields", ())]
    for part in parts:
        yield from _iterate_types(part)


def _has_nonzero_length(schema: Any) -> bool:
    if isinstance(schema, list):
        return True
    if not isinstance(schema, dict):
        return bool(schema != "null")
    if schema["type"] == "record":
        return any(_has_nonzero_length(field["type"]) for field in schema["fields"])
    return schema.get("size") != 0 and _has_nonzero_length(schema["type"])


def check_record_version(value: Mapping[str, Any], supported: int, path: str) -> None:
    """Raise :class:`UnsupportedError` for a record with an unsupported ``_VERSION``."""
    version = value["_VERSION"]
    if version != supported:
        raise UnsupportedError(
            f"{path}: record version {version} is not supported (only version {supported} is); the "
            "table was written by a Paimon release that changed this file"
        )
