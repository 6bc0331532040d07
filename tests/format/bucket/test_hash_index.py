"""Hash index files: distinct big-endian hashes in any order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.bucket.hash_index import decode_hash_index, encode_hash_index


def test_hashes_are_stored_as_big_endian_integers() -> None:
    data = encode_hash_index(np.array([1465514398, -101922419], np.int32))

    assert {data[:4].hex(), data[4:].hex()} == {"5759f99e", "f9ecc98d"}


@given(arrays(np.int32, st.integers(0, 50), elements=st.integers(-(2**31), 2**31 - 1)))
def test_duplicate_hashes_are_stored_once(hashes: np.ndarray) -> None:
    decoded = decode_hash_index(encode_hash_index(hashes), "index-0")

    assert sorted(decoded.tolist()) == sorted(set(hashes.tolist()))
    assert decoded.dtype == np.int32


def test_a_truncated_file_is_corrupt() -> None:
    with pytest.raises(
        CorruptFileError,
        match="index-0: the length of a hash index must be a multiple of 4 bytes, got 7",
    ):
        decode_hash_index(bytes(7), "index-0")
