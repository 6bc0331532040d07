"""Deletion vectors, compared with the output of reference libraries."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.packed_data import data_file

from paimon_orch.errors import CorruptFileError, InputError, PaimonError
from paimon_orch.format.deletion_vector import (
    DeletionVector,
    decode_deletion_vector_file,
    decode_deletion_vector_payload,
    encode_deletion_vector_file,
)
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
    with pytest.raises(InputError, match="-1 is negative"):
        DeletionVector.of([3, -1])


def test_positions_beyond_32_bits_are_refused_in_a_32_bit_vector() -> None:
    with pytest.raises(PaimonError, match="bitmap64"):
        DeletionVector.of([2**31]).encode_payload(bitmap64=False)


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
