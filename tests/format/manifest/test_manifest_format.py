"""Manifests of every container hold the same records."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest import index_manifest, manifest_list
from paimon_orch.format.manifest import manifest_entry as manifest
from paimon_orch.format.manifest.additional_fields import KnownFields
from paimon_orch.format.manifest.index_manifest import (
    DeletionVectorRange,
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    decode_manifest,
    encode_manifest,
)
from paimon_orch.format.manifest.manifest_format import (
    AVRO_CODECS,
    ManifestEncoding,
    decode_records,
    find_format,
)
from paimon_orch.format.manifest.manifest_list import (
    ManifestFileMeta,
    decode_manifest_list,
    encode_manifest_list,
)
from paimon_orch.format.options import Options
from paimon_orch.format.row.simple_stats import SimpleStats

STATS = SimpleStats(b"\1\2", b"\3\4", (None, 0, 5))
ENTRIES = [
    ManifestEntry(
        kind=FileKind.ADD,
        partition=b"\0\0",
        bucket=1,
        total_buckets=2,
        file=DataFileMeta(
            file_name="a",
            file_size=1,
            row_count=2,
            min_key=b"k",
            max_key=b"l",
            key_stats=STATS,
            value_stats=STATS,
        ),
    ),
    ManifestEntry(
        kind=FileKind.DELETE,
        partition=b"",
        bucket=0,
        total_buckets=-1,
        file=DataFileMeta(
            file_name="b",
            file_size=5,
            row_count=6,
            creation_time=1_700_000_000_123,
            extra_files=("b.index",),
            delete_row_count=3,
            embedded_index=b"x",
            file_source=1,
        ),
    ),
]
MANIFESTS = [
    ManifestFileMeta(
        file_name="manifest-1",
        file_size=10,
        num_added_files=2,
        num_deleted_files=1,
        partition_stats=STATS,
        schema_id=3,
    )
]
INDEXES = [
    IndexManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        index_type="DELETION_VECTORS",
        file_name="index-1",
        file_size=9,
        row_count=1,
        ranges=(DeletionVectorRange(data_file="a", offset=1, length=22),),
    ),
    IndexManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        index_type="HASH",
        file_name="index-2",
        file_size=9,
        row_count=1,
    ),
]
LATER = {
    "_EXTERNAL_PATH",
    "_FIRST_ROW_ID",
    "_WRITE_COLS",
    "_VALUE_STATS_COLS",
    "_GLOBAL_INDEX",
    "_CARDINALITY",
    *("_MIN_BUCKET", "_MAX_BUCKET", "_MIN_LEVEL", "_MAX_LEVEL", "_MIN_ROW_ID", "_MAX_ROW_ID"),
}


def as_container(data: bytes, kind: str, known_fields: KnownFields) -> bytes:
    """Return the records of an Avro file in another container, as written by Java Paimon 0.9."""
    table = pa.Table.from_pylist(
        [_early(record) for record in decode_records(data, "x", known_fields).values]
    )
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink)
    else:
        orc.write_table(table, sink)
    return sink.getvalue()


def _early(value: object) -> object:
    if isinstance(value, dict):
        return {key: _early(item) for key, item in value.items() if key not in LATER}
    return [_early(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_the_manifest_format_is_detected_by_its_first_bytes(kind: str) -> None:
    entries = as_container(encode_manifest(ENTRIES), kind, manifest.MANIFEST_FIELDS)
    assert decode_manifest(entries, "manifest-0") == ENTRIES
    manifests = as_container(
        encode_manifest_list(MANIFESTS), kind, manifest_list.MANIFEST_LIST_FIELDS
    )
    assert decode_manifest_list(manifests, "manifest-list-0") == MANIFESTS
    indexes = as_container(
        encode_index_manifest(INDEXES), kind, index_manifest.INDEX_MANIFEST_FIELDS
    )
    assert decode_index_manifest(indexes, "index-manifest-0") == INDEXES


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("avro", codec) for codec in AVRO_CODECS),
        *((kind, name) for kind in ("orc", "parquet") for name in ("uncompressed", "GZIP", "lz4")),
        ("orc", "zlib"),
        ("parquet", "lz4_raw"),
        ("parquet", "brotli"),
    ],
)
def test_manifests_of_all_compressions_are_read(kind: str, name: str) -> None:
    options = Options({"manifest.format": kind, "manifest.compression": name})
    data = encode_manifest(ENTRIES, ManifestEncoding.of(options))
    assert find_format(data) == kind
    assert decode_manifest(data, "manifest-0") == ENTRIES


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"ORC", b"Obj\1", b"{}", b"PAR1" + bytes(40), b"ORC" + bytes(40)]
)
def test_errors_contain_the_name_of_the_damaged_manifest(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="manifest-7"):
        decode_manifest(data, "manifest-7")
