"""File objects over an object store that send few range requests."""

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO

FetchRange = Callable[[int, int], bytes]
StartCall = Callable[[Callable[[], bytes]], Callable[[], bytes]]
READ_AHEAD_BYTES = 1 << 20
"""Bytes whose transfer takes about as long as the latency of one request."""
_END_BYTES = 256 << 10  # usually includes the whole footer
_MAX_KEPT_BYTES = 8 << 20  # a small object that was read as a whole is not read again
_MAX_PART_BYTES = 8 << 20  # longer ranges are fetched in parts, several at a time


def find_end_start(size: int) -> int:
    """Return the start of the bytes that are fetched when an object of known size is opened."""
    return 0 if size <= READ_AHEAD_BYTES else size - _END_BYTES


@dataclass(frozen=True, slots=True)
class _Part:
    """A range that is or will be in memory."""

    start: int
    end: int
    get: Callable[[], bytes]
    """Waits for the bytes."""


def _call_now(function: Callable[[], bytes]) -> Callable[[], bytes]:
    data = function()
    return lambda: data


class ObjectInput(io.RawIOBase):
    """Random reads of an object of known size by ``fetch(start, end)``.

    ``end`` are its last bytes, if they are known already. Small reads fetch and cache a block of
    ``read_ahead`` bytes, or of more in a sequence of such reads. Larger reads are not cached, except
    those of a small object as a whole.
    Who knows the ranges that it will read lets :meth:`expect` fetch them with ``start_call``.
    """

    def __init__(
        self,
        fetch: FetchRange,
        size: int,
        *,
        read_ahead: int = READ_AHEAD_BYTES,
        end: bytes = b"",
        start_call: StartCall = _call_now,
    ) -> None:
        super().__init__()
        self._fetch, self._read_ahead, self._start_call = fetch, read_ahead, start_call
        self.size = size
        self._position = 0
        self._block, self._block_start = b"", 0
        self._end = end
        self._parts: list[_Part] = []

    @property
    def kept_bytes(self) -> int:
        """Return the number of bytes that :meth:`reopen` passes on."""
        return len(self._end)

    def reopen(self) -> "ObjectInput":
        """Return a new file object that need not fetch the end again."""
        return ObjectInput(
            self._fetch,
            self.size,
            read_ahead=self._read_ahead,
            end=self._end,
            start_call=self._start_call,
        )

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Start to fetch ranges that will be read; drop those of earlier calls."""
        expected = {(part.start, part.end): part for part in self._parts}
        self._parts = [
            expected.get(span) or self._start_part(*span)
            for span in _split_ranges(ranges, self._end_start)
        ]

    def _start_part(self, start: int, end: int) -> _Part:
        return _Part(start, end, self._start_call(lambda: self._fetch(start, end)))

    @property
    def _end_start(self) -> int:
        return self.size - len(self._end)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position without reading."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the object."""
        start = self._position
        end = self.size if size is None or size < 0 else min(self.size, start + size)
        if start >= end:
            return b""
        data = self._read_range(start, end)
        if len(data) == self.size <= _MAX_KEPT_BYTES:
            self._end = data
        self._position = start + len(data)
        return data

    def readinto(self, buffer: "bytearray | memoryview[int]") -> int:  # type: ignore[override]
        """Fill a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read_range(self, start: int, end: int) -> bytes:
        known = self._read_known(start, end)
        if len(known) == end - start:
            return known
        start += len(known)
        last = min(end, self._end_start)
        if last - start >= self._read_ahead:
            data = self._fetch(start, last)
        else:
            is_sequential = start == self._block_start + len(self._block)
            length = max(self._read_ahead, 2 * len(self._block) if is_sequential else 0)
            length = min(length, max(self._read_ahead, _MAX_PART_BYTES))
            self._block = self._fetch(start, min(self._end_start, start + length))
            self._block_start = start
            data = self._block[: last - start]
        return known + data + self._end[: end - last]

    def _read_known(self, start: int, end: int) -> bytes:
        """Return the bytes from the start of a range that need no request."""
        pieces = list[bytes]()
        while start < end and (piece := self._find_known(start, end)):
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _find_known(self, start: int, end: int) -> bytes:
        offset = start - self._end_start
        if offset >= 0:
            return self._end[offset : offset + end - start]
        offset = start - self._block_start
        if 0 <= offset < len(self._block):
            return self._block[offset : offset + end - start]
        number = bisect_right(self._parts, start, key=lambda part: part.start) - 1
        if number < 0 or self._parts[number].end <= start:
            return b""
        part = self._parts[number]
        return part.get()[start - part.start : end - part.start]


def _split_ranges(ranges: Iterable[tuple[int, int]], limit: int) -> Iterator[tuple[int, int]]:
    """Yield ascending ranges before ``limit``, in parts; none overlaps another."""
    position = 0
    for start, end in sorted(ranges):
        position, last = max(position, start), min(end, limit)
        while position < last:
            part_end = min(last, position + _MAX_PART_BYTES)
            yield position, part_end
            position = part_end


class ObjectOutput(io.RawIOBase):
    """Writes a new object that becomes visible when it is closed."""

    def __init__(
        self, sink: IO[bytes], calling: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__()
        self._sink, self._wrap_errors = sink, calling
        self._written = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def write(self, data: "bytes | memoryview[int]") -> int:  # type: ignore[override]
        """Write bytes."""
        with self._wrap_errors():
            self._sink.write(data)
        length = memoryview(data).nbytes
        self._written += length
        return length

    def close(self) -> None:
        """Upload the rest; the object then becomes visible."""
        if self.closed:
            return
        try:
            with self._wrap_errors():
                self._sink.close()
        finally:
            super().close()
