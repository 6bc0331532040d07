"""Hash index files: the hashes of the keys in a dynamic bucket.

See docs/format/dynamic-buckets.md#hash-index.
"""

import numpy as np

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.arrays import Int32Array

_WIDTH = 4


def encode_hash_index(hashes: Int32Array) -> bytes:
    """Return the file of a bucket's distinct hashes."""
    return np.unique(hashes).astype(">i4").tobytes()


def decode_hash_index(data: bytes, path: str) -> Int32Array:
    """Return the hashes of a file. Error messages contain ``path``."""
    if len(data) % _WIDTH:
        raise CorruptFileError(
            path, f"the length of a hash index must be a multiple of 4 bytes, got {len(data)}"
        )
    return np.frombuffer(data, ">i4").astype(np.int32)
