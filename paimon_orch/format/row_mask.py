"""The rows that remain after a deletion vector, as masks of batches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import UInt8Array
from paimon_orch.format.bytes.roaring import BLOCK_SIZE, read_containers
from paimon_orch.format.deletion_vector import DeletionVector


@dataclass(frozen=True, slots=True)
class DeletedRowMask:
    """The deleted rows of one data file.

    ``blocks`` are those of 65536 rows that have some; ``bits_of`` returns such a block with the
    kept rows as set bits.
    """

    blocks: frozenset[int]
    read_kept_bits: Callable[[int], UInt8Array]

    @classmethod
    def of(cls, vector: DeletionVector) -> "DeletedRowMask":
        """Return the deleted rows of a deletion vector."""
        stored = {}
        for word, bitmap in vector.bitmaps.items():
            data = bytes(bitmap.serialize())
            for container in read_containers(data)[0]:
                stored[(word << 16) + container.block] = container, data

        @lru_cache(maxsize=2)  # batches that follow each other share at most the block between them
        def bits_of(block: int) -> UInt8Array:
            container, data = stored[block]
            return ~container.bits(data)

        return cls(frozenset(stored), bits_of)

    def kept(self, first: int, count: int) -> pa.BooleanArray | None:
        """Return which of ``count`` rows from ``first`` on are not deleted; None for all of them."""
        begin, end = first // BLOCK_SIZE, -(-(first + count) // BLOCK_SIZE)
        touched = [block for block in range(begin, end) if block in self.blocks]
        if not touched:
            return None
        bits = np.full((end - begin, BLOCK_SIZE // 8), 0xFF, np.uint8)
        for block in touched:
            bits[block - begin] = self.read_kept_bits(block)
        # bit sets and Arrow's masks have the same layout
        kept = pa.BooleanArray.from_buffers(
            pa.bool_(), count, [None, pa.py_buffer(bits)], offset=first - begin * BLOCK_SIZE
        )
        return kept if kept.false_count else None
