"""Key prefixes sort like keys, and say nothing where they cannot know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.format.bytes.binary_batch import BinaryBatch
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.row.key_prefix import encode_key_prefixes
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.merge.sort.key_order import decode_key

UNKNOWN = 7
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "TINYINT": st.integers(-128, 127),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "STRING": st.text("a\0é\U0001f600z", max_size=20),
    "BYTES": st.binary(max_size=20),
    "DOUBLE": st.floats(allow_nan=False),
}
SHAPES = [["BIGINT"], ["STRING"], ["BYTES"], ["TINYINT", "STRING"], ["INT", "BIGINT", "STRING"], ["STRING", "INT"], ["INT", "DOUBLE"], ["DOUBLE", "INT"]]  # fmt: skip


def encode(keys: list[bytes], types: list[Any]) -> list[tuple[int, ...]]:
    # a key that other bytes follow, as in a manifest
    batch = BinaryBatch.of([*keys, bytes(16)])
    some = BinaryBatch(batch.data, batch.starts[:-1], batch.lengths[:-1])
    return list(map(tuple, encode_key_prefixes(some, types, unknown=UNKNOWN).tolist()))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.sampled_from(SHAPES), st.data())
def test_smaller_prefixes_belong_to_smaller_keys(names: list[str], data: st.DataObject) -> None:
    types = [parse_type(f"{name} NOT NULL") for name in names]
    fields = [Field(id=i, name=f"k{i}", type=kind) for i, kind in enumerate(types)]
    rows = st.tuples(*(VALUES[name] for name in names))
    keys = [serialize_row(row, types) for row in data.draw(st.lists(rows, min_size=2, max_size=6))]
    prefixes = encode(keys, types)
    for key, prefix in zip(keys, prefixes, strict=True):
        for other, other_prefix in zip(keys, prefixes, strict=True):
            if prefix < other_prefix:
                assert decode_key(key, fields) < decode_key(other, fields)


def test_numbers_and_short_texts_have_different_prefixes() -> None:
    types = [parse_type("BIGINT NOT NULL")]
    assert len(set(encode([serialize_row([n], types) for n in range(-5, 5)], types))) == 10
    types = [parse_type("STRING NOT NULL")]
    texts = ["", "a", "b", "customer-7", "customer-8", "customer-0000007"]
    assert len(set(encode([serialize_row([text], types) for text in texts], types))) == 6


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\0" * 12,
        serialize_row([1, 2], [parse_type("BIGINT"), parse_type("BIGINT")]),
        serialize_row([None], [parse_type("BIGINT")]),
    ],
    ids=["no bytes", "no fields", "two fields", "null"],
)
def test_an_unexpected_key_is_unknown(key: bytes) -> None:
    types = [parse_type("BIGINT NOT NULL")]
    good = serialize_row([1], types)
    prefixes = encode([good, key, good], types)
    assert prefixes[1] == (UNKNOWN, UNKNOWN)
    assert prefixes[0] == prefixes[2] != (UNKNOWN, UNKNOWN)


def test_a_text_outside_its_key_is_unknown() -> None:
    types = [parse_type("STRING NOT NULL")]
    key = bytearray(serialize_row(["a text of more than seven bytes"], types))
    key[12:16] = (10_000).to_bytes(4, "little")
    assert encode([bytes(key)], types) == [(UNKNOWN, UNKNOWN)]
