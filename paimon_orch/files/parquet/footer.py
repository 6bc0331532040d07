"""The footer of a Parquet file.

It combines the metadata that pyarrow returns with parts that pyarrow does not expose or write.

See docs/format/data-files.md#parquet.
"""

import inspect
import os
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_orch.decode_limits import check_batch_bytes, check_read, measure_stored_bytes
from paimon_orch.files.parquet.byte_ranges import ByteRange
from paimon_orch.files.parquet.thrift_compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    ValueSpan,
    decode_integer,
    decode_list,
    decode_list_header,
    decode_struct,
    decode_struct_with,
    encode_integer,
    encode_list,
    encode_struct,
)
from paimon_orch.format.bytes.varint import decode_varint

PARQUET_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # size of the footer length and the magic
_REMOTE_TAIL_BYTES = 1 << 16  # the first request usually includes the whole footer

# field numbers in the Thrift structs of the file, a row group, a column chunk and its metadata
_SCHEMA, _FILE_ROWS, _ROW_GROUPS, _ENCRYPTION = 2, 3, 4, 8
_BYTES_PER_COLUMN = 16 << 10  # of the objects for a column, and of its buffers while it is read
_CHILDREN, _MAX_DEPTH = 5, 100  # as newer releases of Arrow
_CHUNKS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_PATH, _START, _METADATA, _INDEX_OFFSET, _INDEX_LENGTH, _CRYPTO, _ENCRYPTED = 1, 2, 3, 4, 5, 8, 9
_TYPE, _CODEC, _VALUES, _COMPRESSED, _DATA_PAGES, _DICTIONARY, _SIZES = 1, 4, 5, 7, 9, 11, 16
_STATISTICS, _BOUNDS = 12, {1, 2, 5, 6}
_WIDTHS = {
    "BOOLEAN": 1,
    "INT32": 4,
    "INT64": 8,
    "INT96": 12,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 0,
}
"""The bytes of a value by type; other types have a length."""
_TYPES = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
)
_KEPT_FIELDS = (1, 2, 3, 4, 6)  # type, encodings, path, codec, uncompressed size

_ChunkFields = tuple[dict[int, ValueSpan], dict[int, ValueSpan]]


class StoredPages(NamedTuple):
    """The pages of a column chunk as Arrow finds them."""

    start: int
    end: int
    values: int
    codec: int

    @property
    def size(self) -> int:
        """Return the stored size in bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A leaf column in a row group."""

    pages: ByteRange
    """The byte range of the pages, including the dictionary."""

    values: int
    """The number of values, including nulls."""

    index: ByteRange | None = None
    """The byte range of the offset index, or None if the column chunk has none."""


class Footer:
    """The footer of an open file, read with as few bytes as possible."""

    def __init__(self, source: IO[bytes], *, remote: bool = False) -> None:
        size = source.seek(0, os.SEEK_END)
        end = _read_tail(source, size, _REMOTE_TAIL_BYTES if remote else _TAIL_BYTES)
        length = int.from_bytes(end[-_TAIL_BYTES:-4], "little") + _TAIL_BYTES
        if len(end) < length <= size:
            check_read(length, f"a footer has {length} bytes")
            end = _read_tail(source, size, length)
        self._tail, self._start = end[-length:], size - length
        self.file_size, self.stored_bytes = size, measure_stored_bytes(source, size)
        self._data = self._tail[:-_TAIL_BYTES]
        self._chunks_by_group = dict[int, list[_ChunkFields]]()

    @property
    def has_magic(self) -> bool:
        """Return whether the file ends like a Parquet file without encrypted footer."""
        return self._start >= len(PARQUET_MAGIC) and self._tail.endswith(PARQUET_MAGIC)

    @property
    def start(self) -> int:
        """Return the position of the footer in the file."""
        return self._start

    @property
    def data(self) -> bytes:
        """Return the bytes of the footer."""
        return self._data

    @cached_property
    def metadata(self) -> "pq.FileMetaData":
        """Return the footer as pyarrow decodes it; pyarrow raises an error if it is damaged.

        Raises ``ValueError`` for a schema of so many levels that pyarrow would end the process, and
        for too many columns.
        """
        if self.has_magic and not _limits_depth():
            self._check_depth()
        metadata = pq.read_metadata(pa.BufferReader(PARQUET_MAGIC + self._tail))
        columns = metadata.num_columns
        content = f"a Parquet file has {columns} columns"
        check_batch_bytes(columns * _BYTES_PER_COLUMN, self.stored_bytes, content)
        return metadata

    def _check_depth(self) -> None:
        elements = list(decode_list(self._data, self._file[_SCHEMA].start))
        remaining = list[int]()  # children of the groups that contain an element
        for element in elements if len(elements) > _MAX_DEPTH else ():
            fields = self._fields(element)
            if remaining:
                remaining[-1] -= 1
            if _CHILDREN in fields:
                remaining.append(self._decode_integer(fields[_CHILDREN]))
            if len(remaining) > _MAX_DEPTH:
                raise ValueError(f"more than {_MAX_DEPTH} columns are nested in each other")
            while remaining and remaining[-1] <= 0:
                remaining.pop()

    @property
    def size(self) -> int:
        """Return the bytes of the footer."""
        return len(self._data)

    @cached_property
    def _decoded(self) -> tuple[dict[int, ValueSpan], list[dict[int, ValueSpan]]]:
        """The fields of the file, and those of its row groups, whose bytes are most of the footer."""
        groups = list[dict[int, ValueSpan]]()

        def decode_groups(position: int) -> int:
            count, kind, position = decode_list_header(self._data, position)
            if count and kind != STRUCT:
                raise ValueError(f"the row groups of the footer have the Thrift type {kind}")
            groups.clear()
            for _ in range(count):
                fields, position = decode_struct(self._data, position)
                groups.append(fields)
            return position

        return decode_struct(self._data, lists={_ROW_GROUPS: decode_groups})[0], groups

    @property
    def _file(self) -> dict[int, ValueSpan]:
        return self._decoded[0]

    def _get_group(self, group: int) -> dict[int, ValueSpan]:
        return self._decoded[1][group]

    def _fields(self, value: ValueSpan) -> dict[int, ValueSpan]:
        return decode_struct(self._data, value.start)[0]

    def locate_pages(self, group: int, leaf: int) -> StoredPages:
        """Return where Arrow reads the pages of a leaf column, whose headers may be wrong.

        Raises ``ValueError`` or ``LookupError`` if they are not inside of the file.
        """
        _, metadata = self._list_chunks(group)[leaf]
        start, length, values = (
            self._decode_integer(_get(metadata, number, I64))
            for number in (_DATA_PAGES, _COMPRESSED, _VALUES)
        )
        codec = self._decode_integer(_get(metadata, _CODEC, I32))
        if _DICTIONARY in metadata:
            dictionary = self._decode_integer(_get(metadata, _DICTIONARY, I64))
            start = dictionary if 0 < dictionary < start else start
        if not 0 <= start <= start + length <= self.file_size:
            raise ValueError(f"a column chunk of {length} bytes at {start} is not inside the file")
        return StoredPages(start, start + length, values, codec)

    def column(self, group: int, leaf: int) -> "pq.ColumnChunkMetaData":
        """Return the metadata of a column chunk.

        Raises ``ValueError`` or ``LookupError`` for metadata with which pyarrow would end the
        process.
        """
        chunk, metadata = self._list_chunks(group)[leaf]
        if chunk.keys() & {_CRYPTO, _ENCRYPTED}:
            raise ValueError("the metadata of a column is encrypted")
        column = self.metadata.schema.column(leaf)
        expected = column.physical_type
        if self._decode_integer(_get(metadata, _TYPE, I32)) != _TYPES.index(expected):
            raise ValueError(f"the metadata of a column of type {expected} states another type")
        if _STATISTICS in metadata:
            bounds = self._fields(_get(metadata, _STATISTICS, STRUCT))
            self._check_bounds(bounds, _WIDTHS.get(expected, column.length))
        if _SIZES in metadata:
            self._check_sizes(self._fields(metadata[_SIZES]), leaf)
        return self.metadata.row_group(group).column(leaf)

    def _check_bounds(self, statistics: Mapping[int, ValueSpan], width: int) -> None:
        """Refuse bounds that are shorter than a value."""
        for number in statistics.keys() & _BOUNDS:
            length, _ = decode_varint(self._data, _get(statistics, number, BINARY).start)
            if length < width:
                raise ValueError(f"a bound of {length} bytes is shorter than {width} bytes")

    def _check_sizes(self, sizes: Mapping[int, ValueSpan], leaf: int) -> None:
        column = self.metadata.schema.column(leaf)
        levels = {2: column.max_repetition_level, 3: column.max_definition_level}
        for number, level in levels.items():
            if number in sizes:
                count = decode_list_header(self._data, sizes[number].start)[0]
                if count not in (0, level + 1):
                    raise ValueError(f"a column of {level + 1} levels has the counts of {count}")
        if 1 in sizes and column.physical_type != "BYTE_ARRAY":
            raise ValueError(f"a column of type {column.physical_type} has the size of texts")

    def _list_chunks(self, group: int) -> list[_ChunkFields]:
        """Return the fields of the column chunks of a row group, and of their metadata."""
        chunks = self._chunks_by_group.get(group)
        if chunks is None:
            start = _get(self._get_group(group), _CHUNKS, LIST).start
            count, kind, position = decode_list_header(self._data, start)
            if kind != STRUCT:
                raise ValueError(f"the columns of the footer have the Thrift type {kind}")
            chunks = list[_ChunkFields]()
            for _ in range(count):
                fields, metadata, position = decode_struct_with(self._data, position, _METADATA)
                _get(fields, _METADATA, STRUCT)
                chunks.append((fields, metadata))
            self._chunks_by_group[group] = chunks
        return chunks

    def chunks(self, group: int, leaves: Container[int]) -> dict[int, ColumnChunk]:
        """Return the chunks of leaf columns in a row group.

        Raises :class:`ValueError` if pages cannot be located.
        """
        if _ENCRYPTION in self._file:
            raise ValueError("columns may be encrypted")
        return {
            leaf: self._decode_chunk(*fields)
            for leaf, fields in enumerate(self._list_chunks(group))
            if leaf in leaves
        }

    def _decode_chunk(
        self, chunk: dict[int, ValueSpan], metadata: dict[int, ValueSpan]
    ) -> ColumnChunk:
        if chunk.keys() & {_PATH, _CRYPTO, _ENCRYPTED}:
            raise ValueError("the pages of a column are encrypted or in another file")
        starts = [
            self._decode_integer(metadata[number])
            for number in (_DATA_PAGES, _DICTIONARY)
            if number in metadata
        ]
        # writers store 0 for a missing dictionary page
        start = min(offset for offset in starts if offset > 0)
        pages = self._check_range(start, self._decode_integer(metadata[_COMPRESSED]))
        index = None
        if _INDEX_OFFSET in chunk and _INDEX_LENGTH in chunk:
            start, length = (
                self._decode_integer(chunk[number]) for number in (_INDEX_OFFSET, _INDEX_LENGTH)
            )
            index = self._check_range(start, length)
        return ColumnChunk(pages, self._decode_integer(metadata[_VALUES]), index)

    def _decode_integer(self, value: ValueSpan) -> int:
        return decode_integer(self._data, value.start)

    def _check_range(self, start: int, length: int) -> ByteRange:
        if start < len(PARQUET_MAGIC) or length < 0 or start + length > self._start:
            raise ValueError(
                f"the range of {length} bytes at {start} is not inside the data before the footer"
            )
        return start, start + length

    def encode_row_group_footer(
        self, group: int, rows: int, chunks: Mapping[int, ColumnChunk]
    ) -> bytes:
        """Return the footer of a file with one row group, in which some chunks are replaced.

        Readers must not read the other chunks.
        """
        old = self._get_group(group)
        written = [
            self._encode_chunk(value, chunks[leaf]) if leaf in chunks else self._bytes(value)
            for leaf, value in enumerate(decode_list(self._data, old[_CHUNKS].start))
        ]
        new_group = {
            _CHUNKS: (LIST, encode_list(written)),
            _GROUP_BYTES: (I64, self._bytes(old[_GROUP_BYTES])),
            _GROUP_ROWS: (I64, encode_integer(rows)),
        }
        footer = encode_struct(
            self._raw_fields(self._file, self._file)
            | {
                _FILE_ROWS: (I64, encode_integer(rows)),
                _ROW_GROUPS: (LIST, encode_list([encode_struct(new_group)])),
            }
        )
        return footer + len(footer).to_bytes(4, "little") + PARQUET_MAGIC

    def _encode_chunk(self, old: ValueSpan, chunk: ColumnChunk) -> bytes:
        start, end = chunk.pages
        metadata = self._raw_fields(self._fields(self._fields(old)[_METADATA]), _KEPT_FIELDS) | {
            _VALUES: (I64, encode_integer(chunk.values)),
            _COMPRESSED: (I64, encode_integer(end - start)),
            _DATA_PAGES: (I64, encode_integer(start)),  # the dictionary, if any, is the first page
        }
        return encode_struct(
            {_START: (I64, encode_integer(start)), _METADATA: (STRUCT, encode_struct(metadata))}
        )

    def _raw_fields(
        self, fields: Mapping[int, ValueSpan], numbers: Iterable[int]
    ) -> dict[int, tuple[int, bytes]]:
        return {n: (fields[n].kind, self._bytes(fields[n])) for n in numbers if n in fields}

    def _bytes(self, value: ValueSpan) -> bytes:
        return self._data[value.start : value.end]


def _get(fields: Mapping[int, ValueSpan], number: int, kind: int) -> ValueSpan:
    """Return a field of a kind, because Arrow ignores fields of other kinds."""
    value = fields[number]
    if value.kind != kind:
        raise ValueError(f"field {number} has the Thrift type {value.kind}")
    return value


@cache
def _limits_depth() -> bool:
    """Return whether pyarrow limits the levels of a schema, as newer releases do."""
    return "schema_depth_limit" in inspect.signature(pq.ParquetFile).parameters


def _read_tail(source: IO[bytes], size: int, length: int) -> bytes:
    source.seek(max(0, size - length))
    return source.read(length)
