"""Decoders return a value or raise a PaimonError for damaged bytes, and agree with each other."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.errors import CorruptFileError, PaimonError
from paimon_orch.format.deletion_vector import (
    DeletionVector,
    decode_deletion_vector_file,
    decode_deletion_vector_payload,
    encode_deletion_vector_file,
)
from paimon_orch.format.manifest import avro_container as avro
from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
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
from paimon_orch.format.manifest.manifest_list import (
    ManifestFileMeta,
    decode_manifest_list,
    encode_manifest_list,
)
from paimon_orch.format.row.simple_stats import EMPTY_STATS, SimpleStats
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

STATS = SimpleStats(b"\0" * 12, b"\1" * 20, (0, None, 5))
ENTRIES = [
    ManifestEntry(
        kind=FileKind(number % 2),
        partition=b"\0\0\0\0" + bytes(8),
        bucket=number,
        total_buckets=4,
        file=DataFileMeta(
            file_name=f"data-{number}.parquet",
            file_size=9,
            row_count=9,
            min_key=b"k",
            max_key=b"l",
            key_stats=STATS,
            value_stats=STATS,
            extra_files=("a", "b"),
        ),
    )
    for number in range(4)
]
RANGES = (DeletionVectorRange(data_file="data-0.parquet", offset=1, length=22, cardinality=1),)
INDEXES = [
    IndexManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        index_type=DELETION_VECTORS_INDEX,
        file_name="index-0",
        file_size=31,
        row_count=1,
        ranges=RANGES,
    )
]
LISTED = [
    ManifestFileMeta(
        file_name=f"manifest-{number}",
        file_size=9,
        num_added_files=1,
        num_deleted_files=0,
        partition_stats=EMPTY_STATS,
        schema_id=0,
    )
    for number in range(3)
]
SNAPSHOT = Snapshot(
    id=3,
    schema_id=0,
    base_manifest_list="base",
    delta_manifest_list="delta",
    commit_user="user",
    commit_identifier=7,
    commit_kind=CommitKind.APPEND,
    time_millis=1_700_000_000_000,
    total_record_count=5,
    delta_record_count=5,
)
SCHEMA = TableSchema(
    id=0,
    fields=(Field(id=0, name="id", type=AtomicType(False, TypeRoot.BIGINT)),),
    highest_field_id=0,
    partition_keys=(),
    primary_keys=("id",),
    options={"bucket": "1"},
    comment=None,
    time_millis=7,
)

FILE = "db.db/t/some/file"
Decoder = Callable[[bytes], object]
DECODERS: dict[str, tuple[bytes, Decoder]] = {
    "manifest": (encode_manifest(ENTRIES), lambda data: decode_manifest(data, FILE)),
    "plain manifest": (encode_manifest(ENTRIES, "null"), lambda data: decode_manifest(data, FILE)),
    "manifest list": (encode_manifest_list(LISTED), lambda data: decode_manifest_list(data, FILE)),
    "plain manifest list": (
        encode_manifest_list(LISTED, "null"),
        lambda data: decode_manifest_list(data, FILE),
    ),
    "index manifest": (
        encode_index_manifest(INDEXES, "null"),
        lambda data: decode_index_manifest(data, FILE),
    ),
    "snapshot": (SNAPSHOT.to_json(), lambda data: Snapshot.from_json(data, FILE)),
    "schema": (SCHEMA.to_json(), lambda data: TableSchema.from_json(data, FILE)),
}


def damaged(data: bytes) -> Iterator[bytes]:
    """Yield truncations and bit flips of the bytes, spread evenly."""
    for size in range(0, len(data), max(1, len(data) // 60)):
        yield data[:size]
    for number, at in enumerate(range(0, len(data), max(1, len(data) // 300))):
        yield data[:at] + bytes([data[at] ^ 1 << number % 8]) + data[at + 1 :]


def decoded(decode: Decoder, data: bytes) -> object:
    """Return the result of a decoder, or its error after checking that it names the file."""
    try:
        return decode(data)
    except PaimonError as error:
        found = error
    assert FILE in str(found)
    return found


@pytest.mark.parametrize("name", DECODERS)
def test_truncated_and_flipped_bytes(name: str) -> None:
    whole, decode = DECODERS[name]
    assert not isinstance(decoded(decode, whole), PaimonError)
    for data in damaged(whole):
        decoded(decode, data)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_spliced_bytes(name: str, data: st.DataObject) -> None:
    whole, decode = DECODERS[name]
    at, cut = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, 20))
    decoded(decode, whole[:at] + data.draw(st.binary(max_size=20)) + whole[at + cut :])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=9), st.integers(0, 9))
def test_columnar_decoding_of_damaged_manifests_agrees_with_the_records(
    place: int, inserted: bytes, cut: int
) -> None:
    whole = DECODERS["plain manifest"][0]
    at = place % len(whole)
    data = whole[:at] + inserted + whole[at + cut :]
    columns = ColumnarManifest.decode(data, FILE)
    if columns is not None:
        try:
            entries: object = columns.entries()
        except CorruptFileError:
            return
        assert entries == decode_manifest(data, FILE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["snapshot", "schema"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_json_of_another_shape(name: str, data: st.DataObject) -> None:
    whole, decode = DECODERS[name]
    value: dict[str, Any] = json.loads(whole)
    key = data.draw(st.sampled_from(sorted(value)))
    decoded(decode, json.dumps(value | {key: data.draw(JSON)}).encode())


@pytest.mark.parametrize("bitmap64", [False, True])
def test_damaged_deletion_vectors(bitmap64: bool) -> None:
    vector = DeletionVector.of([1, 5, 70_000, *range(100_000, 200_000)])
    whole, [found] = encode_deletion_vector_file({"data-0.parquet": vector}, bitmap64=bitmap64)
    assert decode_deletion_vector_file(whole, [found], FILE) == {"data-0.parquet": vector}
    for data in damaged(whole):
        error = decoded(lambda data: decode_deletion_vector_file(data, [found], FILE), data)
        assert isinstance(error, PaimonError), "a checksum tells"
    payload = vector.encode_payload(bitmap64=bitmap64)
    for data in damaged(payload):
        decoded(lambda data: decode_deletion_vector_payload(data, FILE), data)


@pytest.mark.parametrize(
    "schema",
    [
        "null",
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "name": "r", "fields": [{"name": "n", "type": "null"}]},
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "n", "type": {"type": "array", "items": "null"}}],
        },
    ],
)
def test_zero_length_records_are_refused(schema: Any) -> None:
    text = json.dumps(schema).encode()
    head = b"Obj\1" + b"\2" + b"\x16avro.schema" + _length(text) + text + b"\0" + b"s" * 16
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"  # number of records in an almost empty block
    with pytest.raises(CorruptFileError, match="zero-length"):
        avro.decode_avro_file(head + many + b"\x02\0" + b"s" * 16, FILE, {})


def _length(text: bytes) -> bytes:
    raw = 2 * len(text)
    return bytes([raw]) if raw < 0x80 else bytes([raw & 0x7F | 0x80, raw >> 7])
