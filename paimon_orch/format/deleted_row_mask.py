"""Converts deletion vectors into masks of batches."""

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
    """The deleted rows of one data file."""

    blocks: frozenset[int]
    """The numbers of the 65536-row blocks that have deleted rows."""
    read_kept_bits: Callable[[int], UInt8Array]
    """Returns the bits of a block, set for rows that are not deleted."""

    @classmethod
    def of(cls, vector: DeletionVector) -> "DeletedRowMask":
        """Return the deleted rows of a deletion vector."""
        blocks = {}
        for word, bitmap in vector.bitmaps.items():
            data = bytes(bitmap.serialize())
            for container in read_containers(data)[0]:
                blocks[(word << 16) + container.block] = container, data

        @lru_cache(maxsize=2)  # consecutive batches share at most one block
        def read_kept_bits(block: int) -> UInt8Array:
            container, data = blocks[block]
            return ~container.bits(data)

        return cls(frozenset(blocks), read_kept_bits)

    def build_live_mask(self, first: int, count: int) -> pa.BooleanArray | None:
        """Return which of ``count`` rows from row ``first`` are not deleted; None for all."""
        begin, end = first // BLOCK_SIZE, -(-(first + count) // BLOCK_SIZE)
        touched = [block for block in range(begin, end) if block in self.blocks]
        if not touched:
            return None
        bits = np.full((end - begin, BLOCK_SIZE // 8), 0xFF, np.uint8)
        for block in touched:
            bits[block - begin] = self.read_kept_bits(block)
        # bit sets and Arrow's masks have the same layout
        mask = pa.BooleanArray.from_buffers(
            pa.bool_(), count, [None, pa.py_buffer(bits)], offset=first - begin * BLOCK_SIZE
        )
        return mask if mask.false_count else None
