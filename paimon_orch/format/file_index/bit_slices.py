"""Numbers of rows as bit slices: slice ``i`` holds the rows whose number has bit ``i`` set."""

from collections.abc import Callable
from dataclasses import dataclass

from pyroaring import BitMap

from paimon_orch.format.arrays import SignedIntArray
from paimon_orch.format.bytes.roaring import serialize_mask


def serialize_bit_slices(numbers: SignedIntArray, count: int) -> list[bytes]:
    """Return the lowest ``count`` slices of the rows' numbers; rows without a number must have 0."""
    return [serialize_mask(numbers >> bit & 1 != 0) for bit in range(count)]


@dataclass(frozen=True)
class BitSlices:
    """Slices of non-negative numbers of the rows in ``existing``, read on demand."""

    existing: BitMap
    count: int
    slice: Callable[[int], BitMap]

    def equal(self, number: int) -> BitMap:
        """Return the rows with this number."""
        if number < 0 or number >> self.count:
            return BitMap()
        found = self.existing
        for bit in reversed(range(self.count)):
            found = found & self.slice(bit) if number >> bit & 1 else found - self.slice(bit)
            if not found:
                break
        return found

    def above(self, number: int) -> BitMap:
        """Return the rows whose number is larger."""
        if number < 0:
            return self.existing
        if number >> self.count:
            return BitMap()
        first = (~number & (number + 1)).bit_length() - 1  # the lowest bit that is not set
        if first >= self.count:
            return BitMap()
        found = self.slice(first)
        for bit in range(first + 1, self.count):
            found = found & self.slice(bit) if number >> bit & 1 else found | self.slice(bit)
        return found & self.existing

    def largest(self, k: int, among: BitMap, *, smallest: bool = False) -> tuple[BitMap, BitMap]:
        """Return the rows that are certainly among the ``k`` largest, and the rows that tie for the last places.

        There are more than ``k`` rows to choose from.
        """
        sure, tied = BitMap(), among
        for bit in reversed(range(self.count)):
            having = tied - self.slice(bit) if smallest else tied & self.slice(bit)
            if len(sure) + len(having) > k:
                tied = having
            else:
                sure |= having
                tied = tied - having
        return sure, tied if len(sure) < k else BitMap()
