"""Hash index files: which keys a dynamic bucket holds, by hash.

See docs/format/dynamic-buckets.md#hash-index.
"""

import numpy as np

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.arrays import Int32Array

_WIDTH = 4


def encode_hash_index(hashes: Int32Array) -> bytes:
    """Return the file of a bucket's hashes, each of them once."""
    return np.unique(hashes).astype(">i4").tobytes()


def decode_hash_index(data: bytes, path: str) -> Int32Array:
    """Return the hashes of a file; ``path`` is named in errors."""
    if len(data) % _WIDTH:
        raise CorruptFileError(
            path, f"a hash index of {len(data)} bytes is no list of 32-bit numbers"
        )
    return np.frombuffer(data, ">i4").astype(np.int32)
