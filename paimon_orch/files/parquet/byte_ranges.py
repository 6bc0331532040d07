"""Ranges of bytes in a file."""

from collections.abc import Iterable, Iterator
from typing import IO

from paimon_orch.storage.streams import ObjectInput

ByteRange = tuple[int, int]
"""The start and the end of a range."""


def read_ranges(source: IO[bytes], ranges: Iterable[ByteRange], gap: int) -> dict[ByteRange, bytes]:
    """Return the bytes of some ranges; ranges less than ``gap`` apart are read together.

    Raises :class:`ValueError` if the file is too short.
    """
    data_by_range = {}
    groups = list(join_ranges(ranges, gap))
    if isinstance(source, ObjectInput):
        source.expect([(first, last) for first, last, _ in groups])
    for first, last, joined in groups:
        source.seek(first)
        data = source.read(last - first)
        if len(data) != last - first:
            raise ValueError(f"the file ends before byte {last}")
        for start, end in joined:
            data_by_range[start, end] = data[start - first : end - first]
    return data_by_range


def join_ranges(
    ranges: Iterable[ByteRange], gap: int
) -> Iterator[tuple[int, int, list[ByteRange]]]:
    """Group ranges less than ``gap`` apart; yield start, end and ranges of each group."""
    group, first, last = list[ByteRange](), 0, 0
    for start, end in sorted(span for span in ranges if span[0] < span[1]):
        if group and start > last + gap:
            yield first, last, group
            group = []
        if not group:
            first = last = start
        group.append((start, end))
        last = max(last, end)
    if group:
        yield first, last, group
