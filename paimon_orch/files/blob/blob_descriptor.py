"""Encodes and decodes BLOB descriptors: the file, the position and the length of a value.

See docs/format/blob.md#descriptors.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import Int64Array

_VERSION = 2
_MAGIC = b"CSEDBOLB"


@dataclass(frozen=True, slots=True)
class BlobDescriptor:
    """The bytes of a value in a file; a negative length reaches to the end of the file."""

    uri: str
    offset: int
    length: int

    @classmethod
    def decode(cls, encoded: bytes) -> "BlobDescriptor":
        """Decode one descriptor; raises ``ValueError``, or :class:`UnsupportedError`."""
        version = encoded[0] if encoded else 0
        if version > _VERSION:
            raise UnsupportedError(f"version {version} of BLOB descriptors is not supported")
        start = 9 if version > 1 else 1
        if version > 1 and encoded[1:9] != _MAGIC:
            raise ValueError("the value of a BLOB column is not a BLOB descriptor")
        length = int.from_bytes(encoded[start : start + 4], "little", signed=True)
        end = start + 4 + length
        if length < 0 or len(encoded) < end + 16:
            raise ValueError("a BLOB descriptor is shorter than it states")
        return cls(
            encoded[start + 4 : end].decode(),
            int.from_bytes(encoded[end : end + 8], "little", signed=True),
            int.from_bytes(encoded[end + 8 : end + 16], "little", signed=True),
        )


def is_descriptor(encoded: bytes) -> bool:
    """Return whether bytes are a descriptor with the marker of all but the first version."""
    return len(encoded) >= 9 and encoded[0] <= _VERSION and encoded[1:9] == _MAGIC


def encode_descriptors(uri: str, offsets: Int64Array, lengths: Int64Array) -> pa.BinaryArray:
    """Return the descriptors of values in one file."""
    name = uri.encode()
    prefix = bytes([_VERSION]) + _MAGIC + len(name).to_bytes(4, "little") + name
    numbers = np.stack([offsets, lengths], axis=1).astype("<i8").view(np.uint8)
    texts = np.broadcast_to(np.frombuffer(prefix, np.uint8), (len(offsets), len(prefix)))
    encoded = np.concatenate([texts, numbers.reshape(len(offsets), 16)], axis=1)
    ends = np.arange(len(offsets) + 1, dtype=np.int32) * (len(prefix) + 16)
    return pa.BinaryArray.from_buffers(
        pa.binary(),
        len(offsets),
        [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(encoded).ravel())],
    )
