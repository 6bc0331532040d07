"""All implementations of Paimon's murmur3 return the same hashes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.format.bytes.murmur3 import hash_bytes, hash_fixed_rows, hash_variable_rows


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=9), min_size=1))
def test_rows_of_words_have_the_same_hashes_as_their_bytes(rows: list[list[int]]) -> None:
    expected = [hash_bytes(np.array(row, "<u4").tobytes()) for row in rows]
    words = np.array([word for row in rows for word in row], np.uint32)
    counts = np.array([len(row) for row in rows], np.int64)

    assert hash_variable_rows(words, np.cumsum(counts) - counts, counts).tolist() == expected
    for row, hashed in zip(rows, expected, strict=True):
        assert hash_fixed_rows(np.array([row], np.uint32)).tolist() == [hashed]
