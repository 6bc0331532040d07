"""File objects over an object store that send few range requests."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO

FetchRange = Callable[[int, int], bytes]
READ_AHEAD_BYTES = 1 << 20
"""Bytes whose transfer takes about as long as the latency of one request."""


class ObjectInput(io.RawIOBase):
    """Random reads of an object of known size by ``fetch(start, end)``.

    Small reads fetch and cache a block of ``read_ahead`` bytes. Larger reads are not cached,
    because their callers (Parquet with ``pre_buffer``) already merge ranges.
    """

    def __init__(self, fetch: FetchRange, size: int, *, read_ahead: int = READ_AHEAD_BYTES) -> None:
        super().__init__()
        self._fetch, self._size, self._read_ahead = fetch, size, read_ahead
        self._position = 0
        self._block, self._block_start = b"", 0

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
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the object."""
        start = self._position
        end = self._size if size is None or size < 0 else min(self._size, start + size)
        if start >= end:
            return b""
        data = self._read_range(start, end)
        self._position = start + len(data)
        return data

    def readinto(self, buffer: "bytearray | memoryview[int]") -> int:  # type: ignore[override]
        """Fill a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read_range(self, start: int, end: int) -> bytes:
        offset = start - self._block_start
        if offset >= 0 and end <= self._block_start + len(self._block):
            return self._block[offset : offset + end - start]
        if end - start >= self._read_ahead:
            return self._fetch(start, end)
        self._block = self._fetch(start, min(self._size, start + self._read_ahead))
        self._block_start = start
        return self._block[: end - start]


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
