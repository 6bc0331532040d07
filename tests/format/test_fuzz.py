"""Decoders return a value or raise a PaimonError for damaged bytes, and agree with each other."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.decoder_samples import DECODERS, FILE, Decoder

from paimon_orch.errors import CorruptFileError, PaimonError
from paimon_orch.format.deletion_vector import (
    DeletionVector,
    decode_deletion_vector_file,
    decode_deletion_vector_payload,
    encode_deletion_vector_file,
)
from paimon_orch.format.manifest import avro_container as avro
from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest
from paimon_orch.format.manifest.manifest_entry import decode_manifest


def yield_damaged(data: bytes) -> Iterator[bytes]:
    """Yield truncations and bit flips of the bytes, spread evenly."""
    for size in range(0, len(data), max(1, len(data) // 60)):
        yield data[:size]
    for number, position in enumerate(range(0, len(data), max(1, len(data) // 300))):
        yield data[:position] + bytes([data[position] ^ 1 << number % 8]) + data[position + 1 :]


def decode_or_error(decode: Decoder, data: bytes) -> object:
    """Return the result of a decoder, or its error, which must name the file."""
    try:
        return decode(data)
    except PaimonError as error:
        refusal = error
    assert FILE in str(refusal)
    return refusal


@pytest.mark.parametrize("name", DECODERS)
def test_truncated_and_flipped_bytes_raise_expected_errors(name: str) -> None:
    sample, decode = DECODERS[name]
    kind = type(decode(sample))
    for data in yield_damaged(sample):
        assert isinstance(decode_or_error(decode, data), (kind, PaimonError))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_spliced_bytes_raise_expected_errors(name: str, data: st.DataObject) -> None:
    sample, decode = DECODERS[name]
    position, cut = data.draw(st.integers(0, len(sample))), data.draw(st.integers(0, 20))
    inserted = data.draw(st.binary(max_size=20))
    spliced = sample[:position] + inserted + sample[position + cut :]
    assert isinstance(decode_or_error(decode, spliced), (type(decode(sample)), PaimonError))


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=9), st.integers(0, 9))
def test_columnar_decoding_of_damaged_manifests_agrees_with_the_records(
    place: int, inserted: bytes, cut: int
) -> None:
    sample = DECODERS["plain manifest"][0]
    position = place % len(sample)
    data = sample[:position] + inserted + sample[position + cut :]
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["snapshot", "schema"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_json_with_another_structure_raises_expected_errors(name: str, data: st.DataObject) -> None:
    sample, decode = DECODERS[name]
    value: dict[str, Any] = json.loads(sample)
    key = data.draw(st.sampled_from(sorted(value)))
    changed = json.dumps(value | {key: data.draw(JSON)}).encode()
    assert isinstance(decode_or_error(decode, changed), (type(decode(sample)), PaimonError))


@pytest.mark.parametrize("bitmap64", [False, True])
def test_damaged_deletion_vector_files_raise_expected_errors(bitmap64: bool) -> None:
    vector = DeletionVector.of([1, 5, 70_000, *range(100_000, 200_000)])
    content, [entry] = encode_deletion_vector_file({"data-0.parquet": vector}, bitmap64=bitmap64)
    assert decode_deletion_vector_file(content, [entry], FILE) == {"data-0.parquet": vector}
    for data in yield_damaged(content):
        error = decode_or_error(lambda data: decode_deletion_vector_file(data, [entry], FILE), data)
        assert isinstance(error, PaimonError), "the checksum differs"
    payload = vector.encode_payload(bitmap64=bitmap64)
    for data in yield_damaged(payload):
        result = decode_or_error(lambda data: decode_deletion_vector_payload(data, FILE), data)
        assert isinstance(result, (DeletionVector, PaimonError))


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
    # This is a large number of records for an almost empty block.
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    with pytest.raises(CorruptFileError, match="zero-length"):
        avro.decode_avro_file(head + many + b"\x02\0" + b"s" * 16, FILE, {})


def _length(text: bytes) -> bytes:
    raw = 2 * len(text)
    return bytes([raw]) if raw < 0x80 else bytes([raw & 0x7F | 0x80, raw >> 7])
