"""Numbers in groups of seven bits."""

import pytest

from paimon_orch.format.bytes.varint import decode_varint, encode_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")],
)
def test_numbers_have_the_bytes_of_the_specification(value: int, encoded: str) -> None:
    assert encode_varint(value) == bytes.fromhex(encoded)
    assert decode_varint(b"\xff" + encode_varint(value), 1) == (value, 1 + len(encoded) // 2)


def test_numbers_that_do_not_end_are_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        decode_varint(b"\x80" * 11, 0)
    with pytest.raises(IndexError):
        decode_varint(b"\x80", 0)
