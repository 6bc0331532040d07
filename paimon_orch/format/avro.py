"""Avro containers of manifests (format section 4.1): records in, bytes out, and back."""

import io
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro

from paimon_orch.errors import UnsupportedError, corrupt_unless_decoded

NAMESPACE = "org.apache.paimon.avro.generated"
ROOT_RECORD = "record"
MAGIC = b"Obj\x01"

AvroRecord = Mapping[str, Any]


def record(name: str, fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a record schema; union fields default to null, which Java expects as first branch."""
    encoded = []
    for field_name, field_type in fields:
        field: dict[str, Any] = {"name": field_name, "type": field_type}
        if isinstance(field_type, list):
            field["default"] = None
        encoded.append(field)
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": encoded}


def nullable(schema: Any) -> list[Any]:
    """Return the union of null and a type, null first."""
    return ["null", schema]


def simple_stats_schema(name: str) -> dict[str, Any]:
    """Return the schema of a SimpleStats record (section 4.5)."""
    counts = nullable({"type": "array", "items": nullable("long")})
    return record(
        name, [("_MIN_VALUES", "bytes"), ("_MAX_VALUES", "bytes"), ("_NULL_COUNTS", counts)]
    )


def encode(
    schema: Any, records: Iterable[AvroRecord], codec: str = "zstandard", level: int = 1
) -> bytes:
    """Return a container file; no records make a valid, empty one."""
    buffer = io.BytesIO()
    compression = level if codec == "zstandard" else None
    fastavro.writer(buffer, schema, records, codec, codec_compression_level=compression)
    return buffer.getvalue()


def decode(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return all records of a container; ``path`` is named in errors."""
    with corrupt_unless_decoded(path):
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError("it is not an Avro file")
        return list(fastavro.reader(io.BytesIO(data)))  # type: ignore[arg-type]


def check_version(value: Mapping[str, Any], supported: int, path: str) -> None:
    """Refuse a record whose ``_VERSION`` means something else than what is implemented."""
    version = value["_VERSION"]
    if version != supported:
        raise UnsupportedError(
            f"{path}: record version {version} is not supported (only {supported} is); the table was "
            "written by a Paimon release that changed this file"
        )
