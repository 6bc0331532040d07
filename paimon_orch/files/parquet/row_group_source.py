"""The row groups of a Parquet file that can be copied to another file without decoding them.

A row group is copied only if everything in its footer is understood, and only if a decoder that
expects the row groups of our writer reads it: the same columns, codec and kinds of encodings.

See docs/format/append-table-compaction.md#row-groups-that-are-copied.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, NamedTuple

from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.parquet.byte_ranges import ByteRange, read_ranges
from paimon_orch.files.parquet.footer import PARQUET_MAGIC, Footer
from paimon_orch.files.parquet.thrift_compact import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    STRUCT_END,
    IntegerSpan,
    ThriftFields,
    decode_integer,
    decode_list,
    decode_list_header,
    encode_fields,
    encode_integer,
    encode_list,
    locate_fields,
    locate_integer,
    replace_integers,
    split_struct,
)

# field numbers of the structs in a footer
SCHEMA, FILE_ROWS, ROW_GROUPS, _KEY_VALUES, _CREATED_BY, _COLUMN_ORDERS = 2, 3, 4, 5, 6, 7
_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 2, 3, 4, 5, 6, 10
_FIELD_ID = 9
CHUNKS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSET, METADATA = 2, 3
OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH = 4, 5, 6, 7
_CHUNK_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _COMPRESSED = 1, 2, 3, 4, 5, 7
_DATA_PAGES, _DICTIONARY, _BLOOM_FILTER, _BLOOM_FILTER_LENGTH = 9, 11, 14, 15

# The kinds of the fields that are understood; files with other fields are not copied.
_FILE_KINDS = {  # without encryption
    1: I32,
    SCHEMA: LIST,
    FILE_ROWS: I64,
    ROW_GROUPS: LIST,
    _KEY_VALUES: LIST,
    _CREATED_BY: BINARY,
    _COLUMN_ORDERS: LIST,
}
_GROUP_KINDS = {
    CHUNKS: LIST,
    2: I64,
    _GROUP_ROWS: I64,
    4: LIST,
    _GROUP_OFFSET: I64,
    6: I64,
    _ORDINAL: I16,
}
_CHUNK_KINDS = {  # without another file and without encryption
    _CHUNK_OFFSET: I64,
    METADATA: STRUCT,
    OFFSET_INDEX: I64,
    OFFSET_INDEX_LENGTH: I32,
    COLUMN_INDEX: I64,
    COLUMN_INDEX_LENGTH: I32,
}
_METADATA_KINDS = {  # without index pages
    _CHUNK_TYPE: I32,
    _ENCODINGS: LIST,
    _PATH: LIST,
    _CODEC: I32,
    _VALUES: I64,
    6: I64,
    _COMPRESSED: I64,
    8: LIST,
    _DATA_PAGES: I64,
    _DICTIONARY: I64,
    12: STRUCT,
    13: LIST,
    _BLOOM_FILTER: I64,
    _BLOOM_FILTER_LENGTH: I32,
    16: STRUCT,
}
_OFFSET_INDEX_KINDS = {1: LIST, 2: LIST}
_PAGE_KINDS = {1: I64, 2: I32, 3: I64}
_ELEMENT_FIELDS = frozenset(range(1, 11))

_INT96, _FIXED_LEN_BYTE_ARRAY = encode_integer(3), encode_integer(7)
_REPEATED, _MAP_KEY_VALUE = encode_integer(2), encode_integer(2)
_COPIED_ENCODINGS = {0, 2, 3, 4, 8}  # plain, dictionary and levels
# the key of Arrow's schema, after its length; the Parquet schema has the same information
_ARROW_SCHEMA = b"\x0cARROW:schema"
_MAX_ORDINAL = 2**15 - 1
_INDEX_GAP = 64 << 10  # parts of the page index that are closer are read together
_MAX_SMALL_FILE_BYTES = 8 << 20  # a small file is read at once instead of part by part
_MAX_INDEX_BYTES = 64 << 20  # they are in memory until the new file is complete

# Readers correct damaged statistics or pages of older versions, which they know by this text.
_TRUSTED_WRITERS = re.compile(
    rb"(parquet-mr|parquet-java) version 1\.[1-9]\d|"
    rb"parquet-cpp-arrow version ([4-9]|[1-9]\d)\.|"
    rb"parquet-rs version [5-9]\d\."
)


class ElementSignature(NamedTuple):
    """What a reader needs to know of an element of a Parquet schema."""

    type: bytes | None
    length: bytes | None
    repetition: bytes | None
    name: bytes
    children: bytes | None
    annotations: tuple[tuple[int, bytes], ...]


class SchemaLayout(NamedTuple):
    """The columns of a Parquet file; files with equal layouts have the same columns."""

    elements: tuple[ElementSignature, ...]
    leaf_types: tuple[bytes, ...]
    leaf_paths: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """What the row groups of one file have in common."""

    schema: SchemaLayout
    column_orders: bytes
    codec: bytes
    """The encoded number of the codec in the Parquet format."""
    head: bytes
    """The fields before the number of rows in a footer of our writer."""
    tail: bytes
    """The fields after the row groups."""

    @classmethod
    def of_footer(cls, footer: bytes, codec: int) -> "FileLayout":
        """Return the layout of a footer."""
        parts = FooterFields.decode(footer)
        column_orders = _decode_tail(parts.tail)
        assert column_orders is not None, "this version of pyarrow is not a trusted writer"
        return cls(
            schema=_decode_head(parts.head),
            column_orders=column_orders,
            codec=encode_integer(codec),
            head=parts.head,
            tail=parts.tail,
        )


@dataclass(slots=True, kw_only=True)
class ChunkFields:
    """A column chunk in a footer; only the positions in its bytes are decoded and replaced."""

    footer: bytes = field(repr=False)
    head: ByteRange
    """The range of the fields before the page index."""
    decoder_fields: bytes
    """The fields that decide how values are decoded: type, encodings, path and codec."""
    metadata: Mapping[int, int]
    """The start of each field of the metadata in the footer."""
    pages: ByteRange
    positions: list[IntegerSpan]
    """The numbers of the head that are positions of pages."""
    bloom_filter: ByteRange | None
    column_index: ByteRange | None
    offset_index: ByteRange | None

    @classmethod
    def decode(cls, data: bytes, position: int) -> tuple["ChunkFields", int]:
        """Return the column chunk at a position, and its end.

        Raises ValueError if it has fields that are not understood.
        """
        fields, start = locate_fields(data, position, _CHUNK_KINDS, until=METADATA)
        metadata, head_end = locate_fields(data, start, _METADATA_KINDS)
        indexes, end = locate_fields(data, head_end, _CHUNK_KINDS, after=METADATA)
        positions = [locate_integer(data, metadata[_DATA_PAGES])]
        positions += _locate_positions(data, metadata, _DICTIONARY)
        starts = [number.value for number in positions]
        pages = min(starts), min(starts) + decode_integer(data, metadata[_COMPRESSED])
        if max(starts) >= pages[1]:
            raise ValueError(f"no page can be at {max(starts)}, after the column chunk")
        chunk = cls(
            footer=data,
            head=(position, head_end),
            decoder_fields=data[start : metadata[_VALUES] - 1],
            metadata=metadata,
            pages=pages,
            positions=_locate_positions(data, fields, _CHUNK_OFFSET) + positions,
            # without a length, the end is known only after decoding the header
            bloom_filter=_get_range(data, metadata, _BLOOM_FILTER, _BLOOM_FILTER_LENGTH),
            column_index=_get_range(data, indexes, COLUMN_INDEX, COLUMN_INDEX_LENGTH),
            offset_index=_get_range(data, indexes, OFFSET_INDEX, OFFSET_INDEX_LENGTH),
        )
        return chunk, end

    @property
    def values(self) -> int:
        """Return the number of values, including nulls."""
        return decode_integer(self.footer, self.metadata[_VALUES])

    @property
    def has_dictionary(self) -> bool:
        """Return whether a field has the position of a dictionary page, or 0."""
        return _DICTIONARY in self.metadata

    def encode_head(self, shift: int, bloom_filter_start: int | None = None) -> bytes:
        """Encode the fields before the page index, with the pages moved by ``shift`` bytes."""
        moved = [(number, number.value + shift) for number in self.positions]
        if bloom_filter_start is not None:
            old = locate_integer(self.footer, self.metadata[_BLOOM_FILTER])
            moved.append((old, bloom_filter_start))
        return replace_integers(self.footer, self.head, moved)


@dataclass(slots=True, kw_only=True)
class GroupFields:
    """A row group in a footer."""

    footer: bytes = field(repr=False)
    chunks: list[ChunkFields]
    fields: Mapping[int, int]
    """The start of each field after the column chunks."""
    end: int

    @classmethod
    def decode(cls, data: bytes, position: int) -> tuple["GroupFields", int]:
        """Return the row group at a position, and its end.

        Raises ValueError if it has fields that are not understood.
        """
        _, position = locate_fields(data, position, _GROUP_KINDS, until=CHUNKS)
        count, position = _decode_count(data, position)
        chunks = []
        for _ in range(count):
            chunk, position = ChunkFields.decode(data, position)
            chunks.append(chunk)
        fields, end = locate_fields(data, position, _GROUP_KINDS, after=CHUNKS)
        return cls(footer=data, chunks=chunks, fields=fields, end=end), end

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return decode_integer(self.footer, self.fields[_GROUP_ROWS])

    @property
    def positions(self) -> list[IntegerSpan]:
        """Return the numbers after the column chunks that are positions of pages."""
        return _locate_positions(self.footer, self.fields, _GROUP_OFFSET)

    def encode_rest(self, shift: int, ordinal: int) -> bytes:
        """Encode the fields after the column chunks, and the end of the struct."""
        numbers = sorted(self.fields.keys() - {_ORDINAL})  # the ordinal is the last field
        end = self.fields.get(_ORDINAL, self.end) - 1
        moved = [(number, number.value + shift) for number in self.positions]
        rest = replace_integers(self.footer, (self.fields[numbers[0]] - 1, end), moved)
        if ordinal <= _MAX_ORDINAL:
            rest += encode_fields({_ORDINAL: (I16, encode_integer(ordinal))}, numbers[-1])
        return rest + STRUCT_END


@dataclass(slots=True, kw_only=True)
class FooterFields:
    """A footer, of which only the row groups are decoded."""

    head: bytes
    """The fields before the number of rows."""
    rows: int
    groups: list[GroupFields]
    tail: bytes
    """The fields after the row groups, and the end of the struct."""

    @classmethod
    def decode(cls, data: bytes, known_head: bytes = b"") -> "FooterFields":
        """Decode a footer, which may begin with a known head.

        Raises ValueError if it has fields that are not understood.
        """
        is_known = bool(known_head) and data.startswith(known_head)
        start, last = (len(known_head), SCHEMA) if is_known else (0, 0)
        fields, position = locate_fields(data, start, _FILE_KINDS, after=last, until=ROW_GROUPS)
        count, position = _decode_count(data, position)
        groups = []
        for _ in range(count):
            group, position = GroupFields.decode(data, position)
            groups.append(group)
        return cls(
            head=known_head if is_known else data[: fields[FILE_ROWS] - 1],
            rows=decode_integer(data, fields[FILE_ROWS]),
            groups=groups,
            tail=data[position:],
        )


def _decode_count(data: bytes, position: int) -> tuple[int, int]:
    """Return the number of structs in a list, and the start of the first one."""
    count, kind, position = decode_list_header(data, position)
    if count and kind != STRUCT:
        raise ValueError(f"the elements of a list have the Thrift type {kind}")
    return count, position


def _locate_positions(data: bytes, fields: Mapping[int, int], number: int) -> list[IntegerSpan]:
    """Return a field if it is a position; writers store 0 for pages that do not exist."""
    if number not in fields:
        return []
    position = locate_integer(data, fields[number])
    return [position] if position.value else []


def _get_range(
    data: bytes, fields: Mapping[int, int], offset: int, length: int
) -> ByteRange | None:
    if offset not in fields and length not in fields:
        return None
    start = decode_integer(data, fields[offset])
    return start, start + decode_integer(data, fields[length])


@dataclass(slots=True, kw_only=True)
class RowGroupSource:
    """An open file, all row groups of which can be copied."""

    source: IO[bytes]
    groups: list[GroupFields]
    rows: int
    size: int
    """The size of the file in bytes."""
    indexes: Mapping[ByteRange, bytes] = field(repr=False)
    """The parts of the page index by their ranges in the file."""

    @classmethod
    def open(
        cls, source: IO[bytes], layout: FileLayout, sizes: BatchSizes, *, remote: bool
    ) -> "RowGroupSource | None":
        """Return the row groups of a file, or None if the file must be decoded.

        They must have the minimum ``sizes`` of row groups that are copied. A damaged footer is not
        an error, because decoding the file then finds the damage.
        """
        size = source.seek(0, os.SEEK_END)
        if size <= _MAX_SMALL_FILE_BYTES:
            source.seek(0)
            source = io.BytesIO(source.read(size))
        try:
            footer = Footer(source, remote=remote)
            return cls._decode(source, footer, layout, sizes)
        except (ValueError, LookupError, RecursionError):
            return None

    @classmethod
    def _decode(
        cls, source: IO[bytes], footer: Footer, layout: FileLayout, sizes: BatchSizes
    ) -> "RowGroupSource | None":
        if not footer.has_magic:
            return None
        fields = FooterFields.decode(footer.data, layout.head)
        if not _is_understood(fields, layout):
            return None
        groups, rows = fields.groups, fields.rows
        pages_size = _check_chunks(groups, layout, footer.start)
        min_group_size = max(
            sizes.min_copied_group_bytes,
            sizes.min_copied_chunk_bytes * len(layout.schema.leaf_types),
        )
        is_large = bool(groups) and pages_size >= min_group_size * len(groups)
        if not is_large or rows != sum(group.rows for group in groups):
            return None
        chunks = [chunk for group in groups for chunk in group.chunks]
        filters = [chunk.bloom_filter for chunk in chunks if chunk.bloom_filter is not None]
        ranges = [
            span
            for chunk in chunks
            for span in (chunk.column_index, chunk.offset_index)
            if span is not None
        ]
        is_inside = all(
            len(PARQUET_MAGIC) <= start < end <= footer.start for start, end in (*ranges, *filters)
        )
        if not is_inside or sum(end - start for start, end in ranges) > _MAX_INDEX_BYTES:
            return None
        indexes = read_ranges(source, ranges, _INDEX_GAP)
        for chunk in chunks:
            if chunk.offset_index is not None:
                _locate_pages(indexes[chunk.offset_index], chunk.pages)
        return cls(source=source, groups=groups, rows=rows, size=footer.file_size, indexes=indexes)


def _is_understood(footer: FooterFields, layout: FileLayout) -> bool:
    """Return whether a file has the columns of a layout, a known writer and no extra metadata."""
    return (footer.head == layout.head or _decode_head(footer.head) == layout.schema) and (
        footer.tail == layout.tail or _decode_tail(footer.tail) == layout.column_orders
    )


@lru_cache(maxsize=32)
def _decode_head(head: bytes) -> SchemaLayout:
    _, schema = split_struct(head + STRUCT_END)[SCHEMA]
    root, *elements = (split_struct(schema, span.start) for span in decode_list(schema, 0))
    remaining = iter(elements)
    leaves = [
        leaf
        for _ in range(decode_integer(root[_CHILDREN][1], 0))
        for leaf in _find_leaves(remaining, ())
    ]
    return SchemaLayout(
        tuple(map(_sign_element, elements)),
        tuple(kind for kind, _ in leaves),
        tuple(encode_list(path, BINARY) for _, path in leaves),
    )


def _find_leaves(
    elements: Iterator[ThriftFields], parent: tuple[bytes, ...]
) -> Iterator[tuple[bytes, tuple[bytes, ...]]]:
    """Yield the types and the paths of the leaves of the next element."""
    element = next(elements, None)
    if element is None:
        raise ValueError("the schema has fewer elements than its groups have children")
    path = (*parent, element[_NAME][1])
    if _TYPE in element:
        yield element[_TYPE][1], path
        return
    for _ in range(decode_integer(element[_CHILDREN][1], 0)):
        yield from _find_leaves(elements, path)


def _sign_element(element: ThriftFields) -> ElementSignature:
    if not element.keys() <= _ELEMENT_FIELDS:
        raise ValueError(f"unknown fields of a column: {sorted(element.keys() - _ELEMENT_FIELDS)}")
    values = {number: value for number, (_, value) in element.items()}
    kind = values.get(_TYPE)
    ignored = {_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _FIELD_ID}
    if kind is None and values.get(_CONVERTED) == _MAP_KEY_VALUE:
        ignored.add(_CONVERTED)  # Java annotates the entries of a map, pyarrow does not
    return ElementSignature(
        type=kind,
        length=values.get(_TYPE_LENGTH) if kind == _FIXED_LEN_BYTE_ARRAY else None,
        repetition=values.get(_REPETITION),
        name=values[_NAME],
        children=values.get(_CHILDREN),
        annotations=tuple(sorted((n, v) for n, v in values.items() if n not in ignored)),
    )


@lru_cache(maxsize=32)
def _decode_tail(tail: bytes) -> bytes | None:
    """Return the column orders, or None for unknown writers and for extra metadata."""
    locate_fields(tail, 0, _FILE_KINDS, after=ROW_GROUPS)
    fields = split_struct(tail, after=ROW_GROUPS)
    if _KEY_VALUES in fields:
        entries = fields[_KEY_VALUES][1]
        for span in decode_list(entries, 0):
            _, key = split_struct(entries, span.start)[1]
            if key != _ARROW_SCHEMA:
                return None
    _, created_by = fields[_CREATED_BY]
    if _TRUSTED_WRITERS.search(created_by, 0, 64) is None:
        return None
    return fields[_COLUMN_ORDERS][1]


def _check_chunks(groups: list[GroupFields], layout: FileLayout, end: int) -> int:
    """Return the total size of the column chunks.

    Raises ValueError if a chunk is not where a chunk can be, or if it needs another decoder.
    """
    schema = layout.schema
    last, size = len(PARQUET_MAGIC), 0
    for group in groups:
        rows = group.rows
        if rows < 1 or len(group.chunks) != len(schema.leaf_paths):
            raise ValueError(f"a row group has {rows} rows and {len(group.chunks)} column chunks")
        _check_positions(group.positions, end)
        leaves = zip(schema.leaf_paths, schema.leaf_types, group.chunks, strict=True)
        for path, kind, chunk in leaves:
            start, stop = chunk.pages
            if not last <= start < stop <= end:
                raise ValueError(f"no column chunk can be at {start} to {stop}")
            last, size = stop, size + stop - start
            _check_positions(chunk.positions, end)
            is_decodable = (
                _is_decodable(chunk.decoder_fields, path, kind, layout.codec)
                # Java Paimon 0.9 cannot read dictionaries of long decimals
                and not (kind == _FIXED_LEN_BYTE_ARRAY and chunk.has_dictionary)
            )
            if not is_decodable or chunk.values < rows:
                raise ValueError("a column chunk needs to be decoded")
    return size


def _check_positions(positions: Iterable[IntegerSpan], end: int) -> None:
    for position in positions:
        if not 0 < position.value < end:
            raise ValueError(f"no page can be at {position.value}")


@lru_cache(maxsize=1_024)
def _is_decodable(decoder_fields: bytes, path: bytes, kind: bytes, codec: bytes) -> bool:
    """Return whether a column chunk has the path, type and codec, and no other encodings."""
    fields = split_struct(decoder_fields + STRUCT_END)
    return (
        fields[_PATH][1] == path
        and fields[_CHUNK_TYPE][1] == kind
        and fields[_CODEC][1] == codec
        and _has_copied_encodings(fields[_ENCODINGS][1])
    )


def _has_copied_encodings(data: bytes) -> bool:
    return {decode_integer(data, span.start) for span in decode_list(data, 0)} <= _COPIED_ENCODINGS


def _locate_pages(index: bytes, pages: ByteRange) -> list[IntegerSpan]:
    """Return the positions of the pages in an offset index.

    Raises ValueError if the index has other positions, or a page outside its column chunk.
    """
    fields, _ = locate_fields(index, 0, _OFFSET_INDEX_KINDS)
    count, start = _decode_count(index, fields[1])
    positions = []
    for _ in range(count):
        location, start = locate_fields(index, start, _PAGE_KINDS)
        position, size = locate_integer(index, location[1]), decode_integer(index, location[2])
        if not pages[0] <= position.value <= position.value + size <= pages[1]:
            raise ValueError(f"no page can be at {position.value}")
        positions.append(position)
    return positions


def shift_offset_index(index: bytes, pages: ByteRange, shift: int) -> bytes:
    """Return the offset index of a column chunk whose pages are moved by ``shift`` bytes."""
    moved = [(position, position.value + shift) for position in _locate_pages(index, pages)]
    return replace_integers(index, (0, len(index)), moved)
