"""Manifests of Iceberg: files of Java Paimon are read and written again without a change."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from support.golden import GOLDEN

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.iceberg_manifest import (
    ManifestContent,
    ManifestFormat,
    build_manifest_schema,
    decode_manifest,
    encode_manifest,
)
from paimon_orch.format.iceberg.iceberg_schema import (
    build_iceberg_schema,
    build_partition_avro_fields,
    build_partition_spec,
)
from paimon_orch.format.schema import TableSchema

METADATA = sorted(GOLDEN.glob("java-2.0/iceberg_*/warehouse/*/*/metadata"))
MANIFESTS = [path for folder in METADATA for path in sorted(folder.glob("*-m*.avro"))]
SPEC_KEYS = {
    "schema",
    "schema-id",
    "partition-spec",
    "partition-spec-id",
    "format-version",
    "content",
}


def read_raw(data: bytes) -> tuple[dict[str, Any], dict[str, str], list[dict[str, Any]]]:
    reader: Any = fastavro.reader(io.BytesIO(data))
    return json.loads(reader.metadata["avro.schema"]), reader.metadata, list(reader)


def format_of(path: Path, format_version: int) -> ManifestFormat:
    file = path.parents[1] / "schema" / "schema-0"
    schema = TableSchema.from_json(file.read_bytes(), str(file))
    return ManifestFormat(
        format_version=format_version,
        schema=build_iceberg_schema(schema, format_version),
        partition_spec=build_partition_spec(schema),
        partition_fields=build_partition_avro_fields(schema),
        codec="snappy",
        level=1,
    )


def test_golden_manifests_are_written_again_with_the_schema_and_records_of_java() -> None:
    assert len(MANIFESTS) >= 10
    for path in MANIFESTS:
        data = path.read_bytes()
        entries = decode_manifest(data, str(path))
        content = ManifestContent(entries[0]["data_file"]["content"])

        written = encode_manifest(entries, format_of(path, 2), content)

        java_schema, _, java_records = read_raw(data)
        schema, header, records = read_raw(written)
        assert schema == java_schema
        assert records == java_records
        assert header.keys() >= SPEC_KEYS


def test_manifests_of_version_3_have_row_ids_as_their_last_field() -> None:
    path = MANIFESTS[0]
    entries = decode_manifest(path.read_bytes(), str(path))
    entries[0]["data_file"]["first_row_id"] = 7

    written = encode_manifest(entries, format_of(path, 3), ManifestContent.DATA)

    schema, header, records = read_raw(written)
    data_file = next(field for field in schema["fields"] if field["name"] == "data_file")
    assert data_file["type"]["fields"][-1]["field-id"] == 142
    assert [record["data_file"]["first_row_id"] for record in records] == [
        7,
        *[None] * (len(records) - 1),
    ]
    assert header["format-version"] == "3"


def test_logical_values_are_read_as_they_are_stored() -> None:
    day = {"name": "day", "type": {"type": "int", "logicalType": "date"}}
    [entry] = decode_manifest(MANIFESTS[0].read_bytes(), "/m")[:1]
    entry["data_file"]["partition"] = {"day": 19_000}
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(build_manifest_schema([day], 2)), [entry])

    assert decode_manifest(sink.getvalue(), "/m") == [entry]


@pytest.mark.parametrize("end", [0, 3, 40, 900])
def test_a_truncated_manifest_is_reported(end: int) -> None:
    with pytest.raises(CorruptFileError, match="/m"):
        decode_manifest(MANIFESTS[0].read_bytes()[:end], "/m")
