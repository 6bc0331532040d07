"""Reads the header and the blocks of Avro container files, with limits from their sizes.

fastavro decompresses a block of any size, and trusts the number of records; so only the records of
a block are decoded by fastavro.

See docs/format/manifest.md#container.
"""

import bz2
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any, cast

import fastavro
import pyarrow as pa

from paimon_orch.decode_limits import (
    build_limit_error,
    check_read,
    get_allowed_batch_bytes,
    get_allowed_bytes,
    get_max_decompressed_bytes,
    measure_stored_bytes,
)
from paimon_orch.errors import wrap_library_errors
from paimon_orch.format.manifest.additional_fields import check_avro_schema
from paimon_orch.format.manifest.avro_memory import AvroMemory, estimate_record_memory

AVRO_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
HEADER_SCHEMA = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(AVRO_MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC_BYTES}},
    ],
}
_RAW_DEFLATE = -15
_MAX_CACHED_BYTES = 1 << 16  # of a schema
_FIRST_READ_BYTES = 1 << 16
_CHECKSUM_BYTES = 4  # after the data of snappy
_MAX_VARINT_BYTES = 10


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """One block: the number of its records, and their decompressed bytes."""

    num_records: int
    content: bytes


def _parse_schema(text: bytes) -> tuple[Any, Any, AvroMemory]:
    """Return a schema as written, the schema with full names of types, and its memory."""
    written = json.loads(text)
    check_avro_schema(written)
    with wrap_library_errors():
        schema: Any = fastavro.parse_schema(written, {}, _write_hint=False, _force=True)
    return written, schema, estimate_record_memory(schema)


_parse_schema_cached = lru_cache(maxsize=64)(_parse_schema)  # callers do not change the schema


@dataclass(frozen=True, slots=True)
class _PartReader:
    """A file whose parts have lengths that it declares."""

    source: IO[bytes]

    def read(self, size: int) -> bytes:
        check_read(size, f"a part of an Avro file has {size} bytes")
        return self.source.read(size)


class AvroContainer:
    """One open Avro file; its blocks can be read once.

    Raises ``ValueError`` for a damaged or hostile header, and errors of reading ``source``.

    :ivar written_schema: the schema as written
    :ivar schema: the schema with full names of types
    """

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._size = source.seek(0, os.SEEK_END)
        self._stored_bytes = measure_stored_bytes(source, self._size)
        source.seek(0)
        with wrap_library_errors():
            reader = cast(IO[bytes], _PartReader(source))
            header: Any = fastavro.schemaless_reader(reader, HEADER_SCHEMA)
        if header["magic"] != AVRO_MAGIC:
            raise ValueError("the file is not an Avro file")
        self._sync: bytes = header["sync"]
        self._codec = header["meta"].get("avro.codec", b"null").decode()
        text: bytes = header["meta"]["avro.schema"]
        parse = _parse_schema if len(text) > _MAX_CACHED_BYTES else _parse_schema_cached
        self.written_schema, self.schema, self._memory = parse(text)

    def read_blocks(self, *, together: bool) -> Iterator[AvroBlock]:
        """Yield the blocks; raises ``ValueError`` for damaged and hostile ones.

        ``together``: the records of all blocks are held in memory at the same time. Otherwise the
        limits apply to each block.
        """
        needed, held_bytes, stored_bytes = 0.0, 0, self._stored_bytes
        while (count := self._read_long(at_end=True)) is not None:
            size = cast(int, self._read_long())
            if count < 0 or not 0 <= size <= self._size - self._source.tell() - _SYNC_BYTES:
                raise ValueError(
                    f"a block declares {count} records in {size} bytes, but the file has "
                    f"{self._size} bytes"
                )
            stored = _PartReader(self._source).read(size)
            if self._source.read(_SYNC_BYTES) != self._sync:
                raise ValueError("a block does not end with the sync marker of the file")
            if not together:
                needed, held_bytes, stored_bytes = 0, 0, min(size, self._stored_bytes)
            allowed = (get_allowed_bytes if together else get_allowed_batch_bytes)(stored_bytes)
            content = self._decompress(stored, stored_bytes, held_bytes, allowed)
            held_bytes += len(content)
            needed += _estimate_block(count, content, self._memory)
            if needed > allowed:
                declared = f"a block declares {count} records in {len(content)} bytes"
                raise build_limit_error(declared, allowed, stored_bytes)
            yield AvroBlock(count, content)

    def _decompress(self, stored: bytes, stored_bytes: int, held_bytes: int, allowed: int) -> bytes:
        limit = int(allowed / (1 + self._memory.rate)) - held_bytes
        limit = min(limit, get_max_decompressed_bytes(stored_bytes) - held_bytes)
        if self._codec not in _CODECS:
            raise ValueError(f"the codec {self._codec!r} is unknown")
        with wrap_library_errors():
            content = _CODECS[self._codec](stored, max(0, limit) + 1)
        if len(content) > limit:
            text = f"a block of {len(stored)} bytes has more than {limit} decompressed bytes"
            raise build_limit_error(text, allowed, stored_bytes)
        return content

    def _read_long(self, *, at_end: bool = False) -> int | None:
        """Read a zigzag varint; return None for the end of the file, if it is allowed."""
        raw = shift = 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self._source.read(1)
            if not byte:
                if at_end and not index:
                    return None
                raise ValueError("the file ends inside of a block")
            raw |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                return (raw >> 1) ^ -(raw & 1)
        raise ValueError("a number has more than 10 bytes")


def _estimate_block(count: int, content: bytes, memory: AvroMemory) -> float:
    """Check the record count of a block; return the memory that its records need."""
    most = len(content) // memory.min_length
    if count > most:
        raise ValueError(
            f"a block declares {count} records, but its {len(content)} bytes can contain at most "
            f"{most}"
        )
    return count * memory.fixed_bytes + len(content) * (1 + memory.rate)


class BlockDecoder:
    """Decodes the records of a block as one Avro array, which takes one call of fastavro."""

    def __init__(self, schema: Any, reader_schema: Any = None, **options: Any) -> None:
        self._writer_schema = _build_array_schema(schema)
        self._reader_schema = None if reader_schema is None else _build_array_schema(reader_schema)
        self._options = options

    def decode(self, block: AvroBlock) -> list[Any]:
        """Return the records. Raises ``ValueError`` for damaged ones."""
        source = io.BytesIO()
        if block.num_records:
            fastavro.schemaless_writer(source, "long", block.num_records)
        source.write(block.content)
        source.write(b"\0")  # an item count of 0 ends an array
        size = source.tell()
        source.seek(0)
        with wrap_library_errors():
            records: Any = fastavro.schemaless_reader(
                source, self._writer_schema, self._reader_schema, **self._options
            )
        if left_over := size - source.tell():
            raise ValueError(f"{left_over} bytes follow the {block.num_records} records of a block")
        return cast(list[Any], records)


_XZ_BYTES = 128 << 20
"""The memory of a decompressor of xz besides its result: a dictionary of 64 MiB, the largest one."""


def _build_array_schema(items: Any) -> Any:
    with wrap_library_errors():
        return fastavro.parse_schema({"type": "array", "items": items})


def _decompress_zstandard(data: bytes, limit: int) -> bytes:
    parts, size, step = [], 0, _FIRST_READ_BYTES
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while size < limit and (part := stream.read(min(step, limit - size))):
            parts.append(part)
            size += len(part)
            if len(part) < step:  # the end
                break
            step = size  # a read allocates what it is asked for
    return b"".join(parts)


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    data = data[:-_CHECKSUM_BYTES]
    size = shift = 0
    for byte in data[:_MAX_VARINT_BYTES]:  # the decompressed length
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size >= limit:
        raise ValueError(f"a block of {len(data)} bytes declares {size} decompressed bytes")
    return bytes(pa.decompress(data, size, codec="snappy", asbytes=True))


_CODECS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _: data,
    "deflate": lambda data, limit: zlib.decompressobj(_RAW_DEFLATE).decompress(data, limit),
    "bzip2": lambda data, limit: bz2.BZ2Decompressor().decompress(data, limit),
    "xz": lambda data, limit: lzma.LZMADecompressor(memlimit=_XZ_BYTES).decompress(data, limit),
    "zstandard": _decompress_zstandard,
    "snappy": _decompress_snappy,
}
