"""Reads BLOB files: the values of one BLOB column, with an index of their lengths at the end.

See docs/format/blob.md.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np
import pyarrow as pa

from paimon_orch.decode_limits import check_read
from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.format.arrays import Indices, Int64Array, Mask, UInt8Array
from paimon_orch.format.types.arrow import build_record_batch
from paimon_orch.format.types.data_types import Field, is_blob

MAGIC = b"\xcf\x11\x4e\x58"
NULL_LENGTH = -1
PLACEHOLDER_LENGTH = -2
"""The length of a row that has its value in an older file."""

HEADER_BYTES = len(MAGIC)
_TRAILER_BYTES = 12  # the length of the record, and a CRC
RECORD_BYTES = HEADER_BYTES + _TRAILER_BYTES
"""The bytes of a record without its value."""
_FOOTER_BYTES = 5  # the length of the index, and the version
VERSION = 1
MAX_BLOB_BYTES = (1 << 31) - 1
"""The size of the values in one array of Arrow."""
_BATCH_BYTES = 32 << 20
_BYTES_PER_INDEX_BYTE = 48


class BlobFileReader:
    """One open BLOB file, read without older files of its rows.

    Its column has the name of the only BLOB column among ``fields``.
    """

    def __init__(self, source: IO[bytes], path: str, fields: Sequence[Field]) -> None:
        self._source, self._path = source, path
        self._lengths = read_blob_lengths(source, path)
        self.num_rows: int | None = len(self._lengths)
        self.names: Sequence[str] = [field.name for field in fields if is_blob(field.type)]

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the values of all rows; a row with its value in an older file is null."""
        starts = find_blob_starts(self._lengths)
        for begin, end in split_blobs(self._lengths, batch_rows):
            part = slice(begin, end)
            values = read_blobs(self._source, self._path, starts[part], self._lengths[part])
            yield build_record_batch([values] * len(columns), columns, end - begin)


def read_blob_lengths(source: IO[bytes], path: str) -> Int64Array:
    """Return the bytes of the record of each row, or a negative number for a row without one.

    Raises :class:`CorruptFileError`.
    """
    size = source.seek(0, 2)
    if size < _FOOTER_BYTES:
        raise CorruptFileError(path, f"has {size} bytes, which is not enough for a BLOB file")
    source.seek(size - _FOOTER_BYTES)
    footer = source.read(_FOOTER_BYTES)
    if footer[4] != VERSION:
        raise UnsupportedError(f"{path}: version {footer[4]} of BLOB files is not supported")
    index_size = int.from_bytes(footer[:4], "little", signed=True)
    records_size = size - _FOOTER_BYTES - index_size
    if index_size < 0 or records_size < 0:
        raise CorruptFileError(path, f"an index of {index_size} bytes in a file of {size} bytes")
    source.seek(records_size)
    check_read(
        _BYTES_PER_INDEX_BYTE * index_size, f"an index has {index_size} bytes, which need 48 each"
    )
    lengths = np.cumsum(_decode_varints(source.read(index_size), path))
    is_record = lengths >= 0
    if (
        (lengths < PLACEHOLDER_LENGTH).any()
        or (lengths[is_record] < RECORD_BYTES).any()
        or (lengths > records_size).any()
    ):
        raise CorruptFileError(path, "the index has a length that no record can have")
    if int(lengths[is_record].sum()) != records_size:
        raise CorruptFileError(
            path,
            f"the records have {records_size} bytes, but the index states "
            f"{int(lengths[is_record].sum())}",
        )
    return lengths


def _decode_varints(encoded: bytes, path: str) -> Int64Array:
    """Return signed numbers from groups of seven bits, lowest first."""
    groups = np.frombuffer(encoded, np.uint8)
    if not len(groups):
        return np.zeros(0, np.int64)
    is_last = groups < 0x80
    ends: Indices = np.flatnonzero(is_last)
    if not is_last[-1]:
        raise CorruptFileError(path, "the index ends within a number")
    starts = np.append(0, ends[:-1] + 1)
    if (ends - starts).max() > 9:
        raise CorruptFileError(path, "a number of the index has more than 64 bits")
    shifts = np.arange(len(groups)) - np.repeat(starts, ends - starts + 1)
    bits = (groups & 0x7F).astype(np.uint64) << (7 * shifts).astype(np.uint64)
    values = np.bitwise_or.reduceat(bits, starts)
    # the lowest bit is the sign
    return (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)


def find_blob_starts(lengths: Int64Array) -> Int64Array:
    """Return the position of the record of each row in its file."""
    sizes = np.maximum(lengths, 0)
    return np.cumsum(sizes) - sizes


def split_blobs(lengths: Int64Array, batch_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of batches that are limited by rows and by bytes."""
    totals = np.cumsum(np.maximum(lengths, 0))
    start, before = 0, 0
    while start < len(lengths):
        end = int(np.searchsorted(totals, before + _BATCH_BYTES, "right"))
        end = min(max(end, start + 1), start + batch_rows)
        yield start, end
        start, before = end, int(totals[end - 1])


def read_blobs(
    source: IO[bytes], path: str, starts: Int64Array, lengths: Int64Array
) -> pa.BinaryArray:
    """Return the values of records in ascending order; a negative length is null.

    Raises :class:`CorruptFileError`, also for wrong checksums.
    """
    is_value = lengths >= 0
    starts, sizes = starts[is_value], lengths[is_value]
    if int(sizes.sum()) > MAX_BLOB_BYTES:
        raise UnsupportedError(
            f"{path}: a BLOB of {int(sizes.max())} bytes is too large to be read as bytes; set "
            "'blob-as-descriptor' = true to read its descriptor, also in other readers of the table"
        )
    if not len(starts):
        return pa.nulls(len(lengths), pa.binary())
    records = _read_records(source, path, starts, sizes)
    ends = np.cumsum(sizes)
    begins = ends - sizes
    _check_records(path, records, begins, sizes)
    _check_sums(path, records, begins, ends)
    # Elements of an array with the headers and trailers between values; the values are taken.
    offsets = np.stack([begins + HEADER_BYTES, ends - _TRAILER_BYTES], axis=1).ravel()
    parts = pa.BinaryArray.from_buffers(
        pa.binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(records)],
    )
    positions = np.zeros(len(lengths), np.int64)
    positions[is_value] = 2 * np.arange(len(sizes))
    values: pa.BinaryArray = parts.take(pa.array(positions, mask=~is_value))
    return values


def _read_records(
    source: IO[bytes], path: str, starts: Int64Array, sizes: Int64Array
) -> UInt8Array:
    """Return the bytes of records; adjacent records are read at once."""
    is_first: Mask = np.append(True, starts[1:] != (starts + sizes)[:-1])
    firsts: Indices = np.flatnonzero(is_first)
    run_ends = (starts + sizes)[np.append(firsts[1:], len(starts)) - 1]
    runs = []
    for start, end in zip(starts[firsts].tolist(), run_ends.tolist(), strict=True):
        source.seek(start)
        run = source.read(end - start)
        if len(run) != end - start:
            raise CorruptFileError(path, f"ends within the record at position {start}")
        runs.append(np.frombuffer(run, np.uint8))
    return runs[0] if len(runs) == 1 else np.concatenate(runs)


def _check_sums(path: str, records: UInt8Array, begins: Int64Array, ends: Int64Array) -> None:
    view = np.ascontiguousarray(records).data
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if zlib.crc32(view[begin : end - 4]) != int.from_bytes(view[end - 4 : end], "little"):
            raise CorruptFileError(path, f"a BLOB of {end - begin} bytes has a wrong checksum")


def _check_records(path: str, records: UInt8Array, begins: Int64Array, sizes: Int64Array) -> None:
    magic = records[begins[:, None] + np.arange(HEADER_BYTES)]
    stored = records[(begins + sizes - _TRAILER_BYTES)[:, None] + np.arange(8)]
    is_damaged = (magic != np.frombuffer(MAGIC, np.uint8)).any(axis=1)
    is_damaged |= np.ascontiguousarray(stored).view("<i8")[:, 0] != sizes
    if is_damaged.any():
        number = int(np.flatnonzero(is_damaged)[0])
        raise CorruptFileError(
            path, f"the record of {int(sizes[number])} bytes does not begin and end as a BLOB"
        )
