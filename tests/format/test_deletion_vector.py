"""Deletion vectors, compared with the output of reference libraries."""

import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.packed_data import data_file

from paimon_orch.errors import CorruptFileError, InputError, PaimonError
from paimon_orch.format.deletion_vector import (
    EMPTY_DELETION_VECTOR,
    MAGIC_64,
    DeletionVector,
    decode_deletion_vector_file,
    decode_deletion_vector_payload,
    encode_deletion_vector_file,
)
from paimon_orch.format.manifest.additional_fields import AdditionalFields
from paimon_orch.format.manifest.index_manifest import DeletionVectorRange

DATA = json.loads(data_file("vectors/deletion_vectors.json"))


def positions_of(entry: dict[str, Any]) -> list[int]:
    value = entry["positions"]
    return (
        list(range(value["start"], value["stop"], value["step"]))
        if isinstance(value, dict)
        else value
    )


@pytest.mark.parametrize("entry", [pytest.param(e, id=e["name"]) for e in DATA["entries"]])
def test_deletion_vectors_are_encoded_byte_for_byte(entry: dict[str, Any]) -> None:
    vector = DeletionVector.of(positions_of(entry))

    data, (where,) = encode_deletion_vector_file(
        {"f": vector}, bitmap64=entry["format"] == "bitmap64"
    )

    assert (1, entry["manifest_length"], entry["cardinality"]) == (
        where.offset,
        where.length,
        where.cardinality,
    )
    hexadecimal = data[1:].hex()
    if "entry_hex" in entry:
        assert entry["entry_hex"] == hexadecimal
    else:
        assert hexadecimal.startswith(entry["entry_hex_prefix"])
        assert hexadecimal.endswith(entry["entry_hex_suffix"])
        assert entry["entry_length_bytes"] == len(data) - 1
    assert (
        positions_of(entry)
        == decode_deletion_vector_file(data, [where], "f")["f"].positions().tolist()
    )


@pytest.mark.parametrize("file", [pytest.param(f, id=f["name"]) for f in DATA["files"]])
def test_index_files_are_decoded(file: dict[str, Any]) -> None:
    ranges = [
        DeletionVectorRange(
            data_file=r["dataFileName"],
            offset=r["offset"],
            length=r["length"],
            cardinality=r["cardinality"],
        )
        for r in file["dv_ranges"]
    ]

    decoded = decode_deletion_vector_file(bytes.fromhex(file["file_hex"]), ranges, "index-0")

    assert file["contents"] == {name: v.positions().tolist() for name, v in decoded.items()}


@pytest.mark.parametrize(
    "file", [pytest.param(f, id=f["name"]) for f in DATA["files"] if f["format"] != "mixed"]
)
def test_index_files_are_encoded_byte_for_byte(file: dict[str, Any]) -> None:
    vectors = {name: DeletionVector.of(positions) for name, positions in file["contents"].items()}

    data, _ = encode_deletion_vector_file(vectors, bitmap64=file["format"] == "bitmap64")

    assert file["file_hex"] == data.hex()


@given(st.sets(st.integers(0, 2**33)), st.sets(st.integers(0, 2**33)))
def test_a_union_and_a_round_trip_preserve_every_position(
    positions: set[int], other_positions: set[int]
) -> None:
    union = DeletionVector.of(sorted(positions)) | DeletionVector.of(sorted(other_positions))

    again = decode_deletion_vector_payload(union.encode_payload(bitmap64=True), "f")

    np.testing.assert_array_equal(sorted(positions | other_positions), again.positions())
    assert len(positions | other_positions) == again.cardinality


def test_positions_can_be_unordered_and_repeated() -> None:
    vector = DeletionVector.of([7, 1 << 33, 3, 7, 3])

    assert vector.positions().tolist() == [3, 7, 1 << 33]
    repeated = DeletionVector.of(np.repeat(np.arange(9_000), 2))
    assert (repeated.cardinality, repeated.positions().tolist()) == (9_000, list(range(9_000)))
    with pytest.raises(InputError, match="-1 is negative"):
        DeletionVector.of([3, -1])


@pytest.mark.parametrize(
    "positions", [[2**31], [0, 2**31], [2**32], [0, 2**32], [5, 2**32 + 5, 2**33], [2**33]]
)
def test_positions_beyond_31_bits_are_refused_in_a_32_bit_vector(positions: list[int]) -> None:
    vector = DeletionVector.of(positions)

    with pytest.raises(InputError, match="bitmap64"):
        vector.encode_payload(bitmap64=False)

    payload = vector.encode_payload(bitmap64=True)
    assert decode_deletion_vector_payload(payload, "f").positions().tolist() == positions


@pytest.mark.parametrize("positions", [[], [0], [2**31 - 1], [0, 2**31 - 1]])
def test_positions_of_31_bits_are_stored_in_a_32_bit_vector(positions: list[int]) -> None:
    payload = DeletionVector.of(positions).encode_payload(bitmap64=False)

    assert decode_deletion_vector_payload(payload, "f").positions().tolist() == positions


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"length": 33}, "the index manifest says 33 bytes"),
        ({"length": -8}, "the index manifest says -8 bytes"),
        ({"offset": 0}, "the index manifest says"),
        ({"cardinality": 2}, "has 3 rows, but the index manifest says 2"),
        ({"cardinality": 4}, "has 3 rows, but the index manifest says 4"),
    ],
)
def test_a_range_that_differs_from_its_deletion_vector_is_damaged(
    changes: dict[str, Any], reason: str
) -> None:
    data, [entry] = encode_deletion_vector_file({"f": DeletionVector.of([1, 2, 9])})

    with pytest.raises(CorruptFileError, match=f"index-0: .*{reason}"):
        decode_deletion_vector_file(data, [replace(entry, **changes)], "index-0")


@pytest.mark.parametrize("more", [0, 8])
def test_the_length_of_a_range_may_include_the_size_and_the_checksum(more: int) -> None:
    """A 64-bit vector has this length; see docs/format/manifest.md#index-manifest-record."""
    vector = DeletionVector.of([1, 2, 9])
    data, [entry] = encode_deletion_vector_file({"f": vector})
    lengthened = replace(entry, length=entry.length + more)

    assert decode_deletion_vector_file(data, [lengthened], "index-0") == {"f": vector}


def test_a_cut_index_file_is_damaged() -> None:
    data, ranges = encode_deletion_vector_file({"f": DeletionVector.of([1, 2, 9])})

    for end in range(1, len(data)):
        reason = "" if end < 5 else f"the file has {end}"
        with pytest.raises(CorruptFileError, match=f"index-0: .*{reason}"):
            decode_deletion_vector_file(data[:end], ranges, "index-0")


@pytest.mark.parametrize("size", [3, 0, -1, -4])
def test_a_size_without_a_magic_is_damaged(size: int) -> None:
    data = b"\1" + struct.pack(">i", size) + bytes(20)
    entry = DeletionVectorRange(data_file="f", offset=1, length=size, cardinality=0)

    with pytest.raises(CorruptFileError, match=f"of f has {size} bytes at offset 1"):
        decode_deletion_vector_file(data, [entry], "index-0")


@pytest.mark.parametrize(("positions", "bitmap64"), [([], False), ([1 << 32], True)])
def test_empty_bitmaps_are_not_decoded(positions: list[int], bitmap64: bool) -> None:
    vector = DeletionVector.of(positions)

    payload = vector.encode_payload(bitmap64=bitmap64)

    assert decode_deletion_vector_payload(payload, "f") == vector


def test_unknown_fields_of_a_range_are_kept_with_its_deletion_vector() -> None:
    unknown = AdditionalFields({}, {"future": 1})
    data, [entry] = encode_deletion_vector_file({"f": DeletionVector.of([1])})

    decoded = decode_deletion_vector_file(data, [replace(entry, additional=unknown)], "index-0")

    assert encode_deletion_vector_file(decoded)[1][0].additional is unknown
    changed = decoded["f"] | DeletionVector.of([2])
    assert encode_deletion_vector_file({"f": changed})[1][0].additional is None


def test_the_number_of_rows_of_a_range_is_optional() -> None:
    vector = DeletionVector.of([1, 2, 9])
    data, [entry] = encode_deletion_vector_file({"f": vector})

    ranges = [replace(entry, cardinality=None)]

    assert decode_deletion_vector_file(data, ranges, "index-0") == {"f": vector}


def test_an_empty_64_bit_vector_has_no_bitmaps() -> None:
    payload = DeletionVector.of([]).encode_payload(bitmap64=True)

    assert payload == struct.pack("<iq", MAGIC_64, 0)
    assert decode_deletion_vector_payload(payload, "f") == EMPTY_DELETION_VECTOR


@pytest.mark.parametrize("count", [-1, (1 << 16) + 1])
def test_an_impossible_number_of_bitmaps_is_damaged(count: int) -> None:
    payload = struct.pack("<iq", MAGIC_64, count)

    with pytest.raises(CorruptFileError, match=f"cannot have {count} bitmaps"):
        decode_deletion_vector_payload(payload, "f")


def test_an_unknown_magic_is_damaged() -> None:
    with pytest.raises(CorruptFileError, match="unknown magic 00000007"):
        decode_deletion_vector_payload(b"\0\0\0\7" + bytes(20), "f")


@pytest.mark.parametrize(("data", "version"), [(b"", "missing"), (b"\2", "2")])
def test_the_first_byte_of_an_index_file_is_its_version(data: bytes, version: str) -> None:
    with pytest.raises(CorruptFileError, match=f"must be 1, its version, but is {version}"):
        decode_deletion_vector_file(data, [], "index-0")


def test_the_checksum_detects_a_flipped_bit() -> None:
    data, ranges = encode_deletion_vector_file({"f": DeletionVector.of([1, 2, 3])})
    damaged = bytearray(data)
    damaged[-6] ^= 1

    with pytest.raises(CorruptFileError, match=r"index-7: .*checksum"):
        decode_deletion_vector_file(bytes(damaged), ranges, "index-7")


@given(st.binary(max_size=200), st.integers(-5, 300), st.integers(-5, 300))
def test_damaged_deletion_vectors_raise_corrupt_file_errors(
    data: bytes, offset: int, length: int
) -> None:
    with pytest.raises(PaimonError):
        decode_deletion_vector_file(
            b"\x01" + data,
            [DeletionVectorRange(data_file="f", offset=offset, length=length, cardinality=77_777)],
            "index-0",
        )
