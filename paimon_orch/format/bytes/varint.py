"""Unsigned numbers in groups of seven bits, as in Thrift, Protobuf and Avro."""

BytesLike = bytes | bytearray
_MAX_BYTES = 10  # of a number of 64 bits


def decode_varint(data: BytesLike, position: int) -> tuple[int, int]:
    """Return the unsigned number at ``position``, and its end."""
    value = 0
    for shift in range(0, 7 * _MAX_BYTES, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number is longer than 64 bits")


def encode_varint(value: int) -> bytes:
    """Encode an unsigned number in groups of seven bits."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
