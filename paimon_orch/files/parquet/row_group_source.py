"""The row groups of a Parquet file that can be copied to another file without decoding them.

A row group is copied only if everything in its footer is understood, and only if a decoder that
expects the row groups of our writer reads it: the same columns, codec and kinds of encodings.

See docs/format/append-table-compaction.md#row-groups-that-are-copied.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, NamedTuple

from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.parquet.byte_ranges import ByteRange, read_ranges
from paimon_orch.files.parquet.footer import PARQUET_MAGIC, Footer
from paimon_orch.files.parquet.thrift_compact import (
    BINARY,
    I16,
    I64,
    LIST,
    STRUCT,
    ThriftFields,
    decode_integer,
    decode_list,
    decode_list_header,
    encode_fields,
    encode_integer,
    encode_list,
    encode_struct,
    split_struct,
)

# field numbers of the structs in a footer
_SCHEMA, _FILE_ROWS, ROW_GROUPS, _KEY_VALUES, _CREATED_BY, _COLUMN_ORDERS = 2, 3, 4, 5, 6, 7
_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 2, 3, 4, 5, 6, 10
_FIELD_ID = 9
CHUNKS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSET, METADATA = 2, 3
OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH = 4, 5, 6, 7
_CHUNK_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _COMPRESSED = 1, 2, 3, 4, 5, 7
_DECODER_FIELDS = (_CHUNK_TYPE, _ENCODINGS, _PATH, _CODEC)
_DATA_PAGES, _DICTIONARY, _BLOOM_FILTER, _BLOOM_FILTER_LENGTH = 9, 11, 14, 15

# the fields that are understood; files with other fields are not copied
_FILE_FIELDS = frozenset(range(1, 8))  # without encryption
_ELEMENT_FIELDS = frozenset(range(1, 11))
_GROUP_FIELDS = frozenset(range(1, 8))
_CHUNK_FIELDS = frozenset(range(2, 8))  # without another file and without encryption
_METADATA_FIELDS = frozenset({*range(1, 10), 11, 12, 13, 14, 15, 16})  # without index pages
_OFFSET_INDEX_FIELDS = frozenset({1, 2})

_INT96, _FIXED_LEN_BYTE_ARRAY = encode_integer(3), encode_integer(7)
_REPEATED, _MAP_KEY_VALUE = encode_integer(2), encode_integer(2)
_COPIED_ENCODINGS = {0, 2, 3, 4, 8}  # plain, dictionary and levels
# the key of Arrow's schema, after its length; the Parquet schema has the same information
_ARROW_SCHEMA = b"\x0cARROW:schema"
_MAX_ORDINAL = 2**15 - 1
_INDEX_GAP = 64 << 10  # parts of the page index that are closer are read together
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

    @classmethod
    def of_footer(cls, footer: bytes, codec: int) -> "FileLayout":
        """Return the layout of a footer."""
        fields = decode_fields(footer)
        schema = _decode_schema(fields[_SCHEMA][1])
        return cls(
            schema=schema, column_orders=fields[_COLUMN_ORDERS][1], codec=encode_integer(codec)
        )


@lru_cache(maxsize=32)
def _decode_schema(data: bytes) -> SchemaLayout:
    root, *elements = (decode_fields(data, span.start) for span in decode_list(data, 0))
    remaining = iter(elements)
    leaves = [
        leaf for _ in range(_get_integer(root, _CHILDREN)) for leaf in _find_leaves(remaining, ())
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
    for _ in range(_get_integer(element, _CHILDREN)):
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


def decode_fields(data: bytes, start: int = 0) -> ThriftFields:
    """Return the fields of the struct at a position."""
    return split_struct(data, start)[0]


@dataclass(slots=True, kw_only=True)
class ChunkFields:
    """A column chunk in a footer."""

    fields: ThriftFields
    metadata: ThriftFields
    pages: ByteRange
    bloom_filter: ByteRange | None = None
    column_index: ByteRange | None = None
    offset_index: ByteRange | None = None

    @classmethod
    def decode(cls, data: bytes, position: int) -> tuple["ChunkFields", int]:
        """Return the column chunk at a position, and its end.

        Raises ValueError if it has fields that are not understood.
        """
        metadata: ThriftFields = {}

        def decode_metadata(start: int) -> int:
            nonlocal metadata
            metadata, end = split_struct(data, start)
            return end

        fields, end = split_struct(data, position, {METADATA: decode_metadata})
        _check_fields(fields, _CHUNK_FIELDS)
        _check_fields(metadata, _METADATA_FIELDS)
        start = _get_integer(metadata, _DATA_PAGES)
        # writers store 0 for a missing dictionary page
        start = min(start, _get_integer(metadata, _DICTIONARY, 0) or start)
        chunk = cls(
            fields=fields,
            metadata=metadata,
            pages=(start, start + _get_integer(metadata, _COMPRESSED)),
            column_index=_get_range(fields, COLUMN_INDEX, COLUMN_INDEX_LENGTH),
            offset_index=_get_range(fields, OFFSET_INDEX, OFFSET_INDEX_LENGTH),
        )
        if _BLOOM_FILTER in metadata:
            # without a length, the end is known only after decoding the header
            chunk.bloom_filter = _get_range(metadata, _BLOOM_FILTER, _BLOOM_FILTER_LENGTH)
        return chunk, end

    def encode_head(self, shift: int, bloom_filter_start: int | None = None) -> bytes:
        """Encode the fields before the page index, with the pages moved by ``shift`` bytes."""
        metadata = dict(self.metadata)
        for number in (_DATA_PAGES, _DICTIONARY):
            _shift_offset(metadata, number, shift)
        if bloom_filter_start is not None:
            metadata[_BLOOM_FILTER] = (I64, encode_integer(bloom_filter_start))
        head = {METADATA: (STRUCT, encode_struct(metadata))}
        if _CHUNK_OFFSET in self.fields:
            head[_CHUNK_OFFSET] = self.fields[_CHUNK_OFFSET]
            _shift_offset(head, _CHUNK_OFFSET, shift)
        return encode_fields(head)


@dataclass(slots=True, kw_only=True)
class GroupFields:
    """A row group in a footer."""

    fields: ThriftFields
    """The fields except for the column chunks."""

    chunks: list[ChunkFields]

    @classmethod
    def decode(cls, data: bytes, position: int) -> tuple["GroupFields", int]:
        """Return the row group at a position, and its end.

        Raises ValueError if it has fields that are not understood.
        """
        chunks: list[ChunkFields] = []

        def decode_chunks(start: int) -> int:
            count, _, chunk_start = decode_list_header(data, start)
            for _ in range(count):
                chunk, chunk_start = ChunkFields.decode(data, chunk_start)
                chunks.append(chunk)
            return chunk_start

        fields, end = split_struct(data, position, {CHUNKS: decode_chunks})
        return cls(fields=_check_fields(fields, _GROUP_FIELDS), chunks=chunks), end

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return _get_integer(self.fields, _GROUP_ROWS)

    def encode_rest(self, shift: int, ordinal: int) -> bytes:
        """Encode the fields after the column chunks, and the end of the struct."""
        rest = dict(self.fields)
        _shift_offset(rest, _GROUP_OFFSET, shift)
        rest.pop(_ORDINAL, None)
        if ordinal <= _MAX_ORDINAL:
            rest[_ORDINAL] = (I16, encode_integer(ordinal))
        return encode_fields(rest, CHUNKS) + b"\0"


def decode_footer(data: bytes) -> tuple[ThriftFields, list[GroupFields]]:
    """Return the fields of a footer except for the row groups, and the row groups."""
    groups: list[GroupFields] = []

    def decode_groups(start: int) -> int:
        count, _, position = decode_list_header(data, start)
        for _ in range(count):
            group, position = GroupFields.decode(data, position)
            groups.append(group)
        return position

    fields, _ = split_struct(data, 0, {ROW_GROUPS: decode_groups})
    return _check_fields(fields, _FILE_FIELDS), groups


def _check_fields(fields: ThriftFields, understood: frozenset[int]) -> ThriftFields:
    if not fields.keys() <= understood:
        raise ValueError(f"fields {sorted(fields.keys() - understood)} are not understood")
    return fields


def _get_integer(fields: ThriftFields, number: int, default: int | None = None) -> int:
    if number in fields or default is None:
        return decode_integer(fields[number][1], 0)
    return default


def _get_range(fields: ThriftFields, offset: int, length: int) -> ByteRange | None:
    if offset not in fields and length not in fields:
        return None
    start = _get_integer(fields, offset)
    return start, start + _get_integer(fields, length)


def _shift_offset(fields: ThriftFields, number: int, shift: int) -> None:
    """Add to an offset; a missing offset, or 0 in its place, remains."""
    if number in fields and (offset := decode_integer(fields[number][1], 0)):
        fields[number] = (I64, encode_integer(offset + shift))


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
        fields, groups = decode_footer(footer.data)
        if not _is_understood(fields, layout):
            return None
        rows = sum(group.rows for group in groups)
        pages_size = _check_chunks(groups, layout, footer.start)
        min_group_size = max(
            sizes.min_copied_group_bytes,
            sizes.min_copied_chunk_bytes * len(layout.schema.leaf_types),
        )
        is_large = bool(groups) and pages_size >= min_group_size * len(groups)
        if not is_large or rows != _get_integer(fields, _FILE_ROWS):
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
                _check_offset_index(indexes[chunk.offset_index], chunk.pages)
        return cls(source=source, groups=groups, rows=rows, size=footer.file_size, indexes=indexes)


def _is_understood(fields: ThriftFields, layout: FileLayout) -> bool:
    """Return whether a file has the columns of a layout, a known writer and no extra metadata."""
    if _KEY_VALUES in fields:
        entries = fields[_KEY_VALUES][1]
        for span in decode_list(entries, 0):
            _, key = decode_fields(entries, span.start)[1]
            if key != _ARROW_SCHEMA:
                return False
    _, created_by = fields[_CREATED_BY]
    return (
        _TRUSTED_WRITERS.search(created_by, 0, 64) is not None
        and fields[_COLUMN_ORDERS][1] == layout.column_orders
        and _decode_schema(fields[_SCHEMA][1]) == layout.schema
    )


def _check_chunks(groups: list[GroupFields], layout: FileLayout, end: int) -> int:
    """Return the total size of the column chunks.

    Raises ValueError if a chunk is not where a chunk can be, or if it needs another decoder.
    """
    offsets = range(end)
    position, size = len(PARQUET_MAGIC), 0
    for group in groups:
        rows = group.rows
        if rows < 1 or _get_integer(group.fields, _GROUP_OFFSET, 0) not in offsets:
            raise ValueError("a row group has no rows or is not before the footer")
        for leaf, chunk in enumerate(group.chunks):
            start, stop = chunk.pages
            metadata = chunk.metadata
            is_inside = (
                position <= start < stop <= end
                and start <= _get_integer(metadata, _DATA_PAGES) < stop
                and _get_integer(metadata, _DICTIONARY, 0) < stop
                and _get_integer(chunk.fields, _CHUNK_OFFSET, 0) in offsets
            )
            if not is_inside:
                raise ValueError(f"no column chunk can be at {start} to {stop}")
            position, size = stop, size + stop - start
            kind, encodings, path, codec = (metadata[n][1] for n in _DECODER_FIELDS)
            is_decodable = (
                path == layout.schema.leaf_paths[leaf]
                and kind == layout.schema.leaf_types[leaf]
                and codec == layout.codec
                and _has_copied_encodings(encodings)
                # Java Paimon 0.9 cannot read dictionaries of long decimals
                and not (kind == _FIXED_LEN_BYTE_ARRAY and _DICTIONARY in metadata)
                and (_BLOOM_FILTER in metadata) == (chunk.bloom_filter is not None)
            )
            if not is_decodable or _get_integer(metadata, _VALUES) < rows:
                raise ValueError("a column chunk needs to be decoded")
        if len(group.chunks) != len(layout.schema.leaf_paths):
            raise ValueError(f"a row group has {len(group.chunks)} column chunks")
    return size


@lru_cache(maxsize=64)
def _has_copied_encodings(data: bytes) -> bool:
    return {decode_integer(data, span.start) for span in decode_list(data, 0)} <= _COPIED_ENCODINGS


def _check_offset_index(data: bytes, pages: ByteRange) -> None:
    """Raise ValueError if an offset index cannot be moved or has pages outside its chunk."""
    fields = _check_fields(decode_fields(data), _OFFSET_INDEX_FIELDS)
    for offset, size, _ in _decode_page_locations(fields[1][1]):
        if not pages[0] <= offset <= offset + size <= pages[1]:
            raise ValueError(f"no page can be at {offset}")


def _decode_page_locations(data: bytes) -> Iterator[tuple[int, int, ThriftFields]]:
    for span in decode_list(data, 0):
        location = decode_fields(data, span.start)
        yield _get_integer(location, 1), _get_integer(location, 2), location


def shift_offset_index(data: bytes, shift: int) -> bytes:
    """Return an offset index whose pages are moved by ``shift`` bytes."""
    fields = decode_fields(data)
    locations = [
        encode_struct({**location, 1: (I64, encode_integer(offset + shift))})
        for offset, _, location in _decode_page_locations(fields[1][1])
    ]
    return encode_struct({**fields, 1: (LIST, encode_list(locations))})
