"""Bit slices of row numbers: slice ``i`` holds the rows whose number has bit ``i`` set."""

from collections.abc import Callable
from dataclasses import dataclass

from pyroaring import BitMap

from paimon_orch.format.arrays import SignedIntArray
from paimon_orch.format.bytes.roaring import serialize_mask


def serialize_bit_slices(numbers: SignedIntArray, count: int) -> list[bytes]:
    """Return the lowest ``count`` slices; rows without a number must have 0."""
    return [serialize_mask(numbers >> bit & 1 != 0) for bit in range(count)]


@dataclass(frozen=True)
class BitSlices:
    """Slices of non-negative numbers of the rows in ``existing``, read on demand."""

    existing: BitMap
    count: int
    slice: Callable[[int], BitMap]

    def find_equal(self, number: int) -> BitMap:
        """Return the rows with this number."""
        if number < 0 or number >> self.count:
            return BitMap()
        rows = self.existing
        for bit in reversed(range(self.count)):
            rows = rows & self.slice(bit) if number >> bit & 1 else rows - self.slice(bit)
            if not rows:
                break
        return rows

    def find_above(self, number: int) -> BitMap:
        """Return the rows whose number is larger."""
        if number < 0:
            return self.existing
        if number >> self.count:
            return BitMap()
        first = (~number & (number + 1)).bit_length() - 1  # the lowest bit that is not set
        if first >= self.count:
            return BitMap()
        rows = self.slice(first)
        for bit in range(first + 1, self.count):
            rows = rows & self.slice(bit) if number >> bit & 1 else rows | self.slice(bit)
        return rows & self.existing

    def find_largest(
        self, k: int, candidates: BitMap, *, smallest: bool = False
    ) -> tuple[BitMap, BitMap]:
        """Return rows that are among the ``k`` largest, and rows that tie for the remaining places.

        ``candidates`` must hold more than ``k`` rows.
        """
        selected, tied = BitMap(), candidates
        for bit in reversed(range(self.count)):
            best = tied - self.slice(bit) if smallest else tied & self.slice(bit)
            if len(selected) + len(best) > k:
                tied = best
            else:
                selected |= best
                tied = tied - best
        return selected, tied if len(selected) < k else BitMap()
