"""Many byte strings in one Arrow array, joined and measured without a loop over them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Int64Array, UInt8Array


def build_binary_array(data: UInt8Array | bytes, lengths: Int64Array) -> pa.LargeBinaryArray:
    """Return byte strings that follow each other in a buffer."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(bytes(data))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)


def join_binary(*arrays: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Concatenate the byte strings of each row."""
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", pa.large_binary()))


def encode_varints(numbers: Int64Array) -> pa.LargeBinaryArray:
    """Return numbers in groups of seven bits, lowest first; all but the last have the high bit."""
    data, lengths = encode_varint_bytes(numbers)
    return build_binary_array(data, lengths)


def encode_varint_bytes(numbers: Int64Array) -> tuple[UInt8Array, Int64Array]:
    """Return the bytes of :func:`encode_varints` and the length of each number."""
    numbers = np.asarray(numbers, np.int64)
    lengths = np.ones(len(numbers), np.int64)
    for shift in range(7, 63, 7):
        lengths += numbers >> shift > 0
    starts = np.cumsum(lengths) - lengths
    data = np.empty(int(lengths.sum()), np.uint8)
    for byte in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > byte)
        bits = numbers[rows] >> 7 * byte & 0x7F
        data[starts[rows] + byte] = bits | (lengths[rows] > byte + 1) * 0x80
    return data, lengths


def get_offsets(array: pa.LargeBinaryArray) -> Int64Array:
    """Return the offsets of byte strings in their buffer."""
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, np.int64)[array.offset : array.offset + len(array) + 1]
