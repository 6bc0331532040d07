"""Manifest lists of Iceberg: lists of Java Paimon are read and written again without a change."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from support.golden import GOLDEN

from paimon_orch.format.iceberg.iceberg_manifest import ManifestContent
from paimon_orch.format.iceberg.iceberg_manifest_list import (
    decode_manifest_list,
    encode_manifest_list,
)

LISTS = sorted(GOLDEN.glob("java-2.0/iceberg_*/warehouse/*/*/metadata/snap-*.avro"))


def read_raw(data: bytes) -> tuple[dict[str, Any], dict[str, str], list[dict[str, Any]]]:
    reader: Any = fastavro.reader(io.BytesIO(data))
    return json.loads(reader.metadata["avro.schema"]), reader.metadata, list(reader)


def write_again(data: bytes, *, format_version: int = 2, legacy: bool = False) -> bytes:
    return encode_manifest_list(
        decode_manifest_list(data, "/list"),
        snapshot_id=5,
        parent_id=4,
        format_version=format_version,
        legacy=legacy,
        codec="snappy",
        level=1,
    )


def test_golden_lists_are_written_again_with_the_schema_and_records_of_java() -> None:
    assert len(LISTS) >= 15
    for path in LISTS:
        data = path.read_bytes()

        schema, header, records = read_raw(write_again(data))

        java_schema, _, java_records = read_raw(data)
        assert (schema, records) == (java_schema, java_records)
        assert (header["snapshot-id"], header["parent-snapshot-id"]) == ("5", "4")


def test_legacy_lists_have_the_old_names_and_are_read_as_the_new_ones() -> None:
    data = next(path.read_bytes() for path in LISTS if decode_manifest_list(path.read_bytes(), ""))

    legacy = write_again(data, legacy=True)

    names = [field["name"] for field in read_raw(legacy)[0]["fields"]]
    assert "added_data_files_count" in names
    assert "added_files_count" not in names
    assert decode_manifest_list(legacy, "/list") == decode_manifest_list(data, "/list")


def test_delete_manifests_keep_their_content() -> None:
    contents = {
        manifest.content
        for path in LISTS
        for manifest in decode_manifest_list(path.read_bytes(), "")
    }

    assert contents == {ManifestContent.DATA, ManifestContent.DELETES}


@pytest.mark.parametrize("format_version", [2, 3])
def test_only_lists_of_version_3_have_row_ids(format_version: int) -> None:
    schema = read_raw(write_again(LISTS[0].read_bytes(), format_version=format_version))[0]

    ids = [field["field-id"] for field in schema["fields"]]
    assert (520 in ids) == (format_version == 3)
