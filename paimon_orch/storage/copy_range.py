"""Copies a range of bytes from one open file to another."""

import io
import os
from typing import IO

_PART_BYTES = 8 << 20  # the memory of a copy through this process


def copy_range(source: IO[bytes], sink: IO[bytes], start: int, length: int) -> None:
    """Append ``length`` bytes of ``source`` from ``start`` to ``sink``.

    Between local files, the operating system copies the bytes, or shares them if the file system
    can. Raises :class:`EOFError` if the source is too short.
    """
    copied = _copy_in_kernel(source, sink, start, length)
    source.seek(start + copied)
    while copied < length:
        part = source.read(min(_PART_BYTES, length - copied))
        if not part:
            raise EOFError(f"the file ends before byte {start + length}")
        sink.write(part)
        copied += len(part)


def _copy_in_kernel(source: IO[bytes], sink: IO[bytes], start: int, length: int) -> int:
    """Return the number of bytes that the operating system has copied."""
    is_local = isinstance(source, io.BufferedReader) and isinstance(sink, io.BufferedWriter)
    if not is_local or not hasattr(os, "copy_file_range"):
        return 0
    sink.flush()
    copied = 0
    try:
        while copied < length:
            part = os.copy_file_range(
                source.fileno(), sink.fileno(), length - copied, offset_src=start + copied
            )
            if not part:
                break
            copied += part
    except OSError:  # not between these file systems; other errors occur again when writing
        pass
    return copied
