"""Encodes and decodes the Avro containers of manifests.

See docs/format/manifest.md#container.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from paimon_orch.errors import UnsupportedError, wrap_decode_errors
from paimon_orch.format.manifest.additional_fields import (
    FieldDefinition,
    KnownFields,
    find_unknown_fields,
    strip_logical_types,
)
from paimon_orch.format.manifest.avro_blocks import AvroContainer, BlockDecoder

NAMESPACE = "org.apache.paimon.avro.generated"
ROOT_RECORD = "record"
# Java Paimon uses this block size. The default of fastavro is smaller, and smaller blocks compress
# worse.
_BLOCK_BYTES = 64_000

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
        container = AvroContainer(io.BytesIO(data))
        unknown = find_unknown_fields(known_fields, container.schema)
        if not unknown:
            return DecodedRecords(_read_records(container, container.written_schema), {})
        records = _read_verbatim(container, unknown, return_named_type=True)
        return DecodedRecords(records, unknown)


def decode_raw_avro_file(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return all records with their values as stored: logical types are not converted.

    Error messages contain ``path``.
    """
    with wrap_decode_errors(path):
        container = AvroContainer(io.BytesIO(data))
        schema = container.schema
        if not isinstance(schema, dict) or schema["type"] != "record":
            raise ValueError("the file does not contain records")
        names = [field["name"] for field in schema["fields"]]
        return _read_verbatim(container, names, return_named_type=False)


def avro_file_contains(data: bytes, path: str, texts: Iterable[bytes]) -> bool:
    """Return whether some records may contain one of the byte strings, without decoding them.

    Error messages contain ``path``.
    """
    texts = list(texts)
    with wrap_decode_errors(path):
        for block in AvroContainer(io.BytesIO(data)).read_blocks(together=False):
            if any(text in block.content for text in texts):
                return True
    return False


def _read_records(container: AvroContainer, schema: Any, **options: Any) -> list[dict[str, Any]]:
    decoder = BlockDecoder(schema, **options)
    records: list[dict[str, Any]] = []
    for block in container.read_blocks(together=True):
        records += decoder.decode(block)
    return records


def _read_verbatim(
    container: AvroContainer, unknown: Iterable[str], *, return_named_type: bool
) -> list[dict[str, Any]]:
    """Return the records without conversion of logical types of unknown fields."""
    return _read_records(
        container,
        strip_logical_types(container.written_schema, unknown),
        return_named_type=return_named_type,
        return_named_type_override=True,
    )


_PYTHON_TYPES: Mapping[str, type] = {
    "boolean": bool,
    "bytes": bytes,
    "int": int,
    "long": int,
    "string": str,
}


def check_record(record: Any, schema: Mapping[str, Any]) -> None:
    """Check the values of a record, because the schema in a file may be any; add missing nulls.

    Raises ``ValueError`` for a value of another type than that of ``schema``.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{record!r} is not a record")  # noqa: TRY004 - damage, not a bug
    for field in schema["fields"]:
        name, kind = field["name"], field["type"]
        if name not in record and isinstance(kind, list):
            record[name] = None
        _check_value(record[name], kind, name)


def _check_value(value: Any, kind: Any, name: str) -> None:
    if isinstance(kind, list):
        if value is None:
            return
        [kind] = [branch for branch in kind if branch != "null"]
    if isinstance(kind, str):
        if type(value) is not _PYTHON_TYPES[kind]:
            raise ValueError(f"{name} has the invalid value {value!r}")
    elif kind["type"] == "record":
        check_record(value, kind)
    else:
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")  # noqa: TRY004 - damage, not a bug
        for item in value:
            _check_value(item, kind["items"], name)


def check_record_version(value: Mapping[str, Any], supported: int, path: str) -> None:
    """Raise :class:`UnsupportedError` for a record with an unsupported ``_VERSION``."""
    version = value["_VERSION"]
    if version != supported:
        raise UnsupportedError(
            f"{path}: record version {version} is not supported (only version {supported} is); the "
            "table was written by a Paimon release that changed this file"
        )
