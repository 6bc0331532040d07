"""The sink of a Parquet writer whose footer is changed before it is written."""

import io
from typing import IO

from paimon_orch.files.parquet.footer import PARQUET_MAGIC
from paimon_orch.files.parquet.repeated_columns import ChunkRepeater, RepeatedColumns
from paimon_orch.storage.copy_range import copy_range

_LENGTH_BYTES = 4  # size of the footer length


class FooterSink(io.RawIOBase):
    """Writes to a sink; after :meth:`hold`, buffers bytes until the footer is changed."""

    def __init__(self, sink: IO[bytes]) -> None:
        super().__init__()
        self._sink = sink
        self._held: bytearray | None = None
        self._has_own_magic = False
        self._repeater: ChunkRepeater | None = None
        self.copied_bytes = 0
        """The number of bytes before the current position that were not given to :meth:`write`."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: "bytes | memoryview[int]") -> int:  # type: ignore[override]
        """Write or buffer bytes."""
        if self._held is not None:
            self._held += data
        elif self._has_own_magic:
            # the first write of a Parquet writer is the magic, which precedes the copied bytes
            assert bytes(data) == PARQUET_MAGIC
            self._has_own_magic = False
        elif self._repeater is not None:
            self._repeater.write(bytes(data))
            if self._repeater.is_finished:
                self._repeater = None
        else:
            self._sink.write(data)
        return len(data)

    def start_row_group(self, columns: RepeatedColumns, rows: int) -> None:
        """Repeat columns of the row group that is written next; it has at least one row."""
        assert self._repeater is None
        self._repeater = ChunkRepeater(columns, rows, self._sink.write, self._insert)

    def _insert(self, data: bytes) -> None:
        self._sink.write(data)
        self.copied_bytes += len(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._sink.tell() + len(self._held or b"")

    def copy_from(self, source: IO[bytes], start: int, length: int) -> None:
        """Copy a range of another file; the Parquet writer does not know these bytes."""
        if not self._sink.tell():
            self._sink.write(PARQUET_MAGIC)
            self._has_own_magic = True
        copy_range(source, self._sink, start, length)
        self.copied_bytes += length

    def hold(self) -> None:
        """Buffer all further bytes: the end of the file."""
        assert self._repeater is None
        self._held = bytearray()

    def release(self) -> tuple[bytes, bytes]:
        """Return the buffered bytes before the footer, and the footer; do not buffer any more."""
        assert self._held is not None
        held, self._held = bytes(self._held), None
        end = len(held) - _LENGTH_BYTES - len(PARQUET_MAGIC)
        start = end - int.from_bytes(held[end : end + _LENGTH_BYTES], "little")
        return held[:start], held[start:end]
