"""The fields of a Parquet footer, in its encoded bytes.

Everything in a footer must be understood, so that positions in its bytes can be replaced.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from paimon_orch.files.parquet.byte_ranges import ByteRange
from paimon_orch.files.parquet.footer_schema import (
    FIXED_LEN_BYTE_ARRAY,
    SchemaLayout,
    decode_schema_layout,
)
from paimon_orch.files.parquet.thrift_compact import (
    BINARY,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    STRUCT_END,
    IntegerSpan,
    StructPattern,
    ValueSpan,
    decode_integer,
    decode_list,
    decode_list_header,
    encode_fields,
    encode_integer,
    encode_list,
    encode_text,
    find_values,
    locate_fields,
    locate_integer,
    replace_integers,
    split_struct,
)

# field numbers of the structs in a footer
SCHEMA, FILE_ROWS, ROW_GROUPS, _KEY_VALUES, _CREATED_BY, _COLUMN_ORDERS = 2, 3, 4, 5, 6, 7
CHUNKS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_COMPRESSED, _ORDINAL = 1, 2, 3, 5, 6, 7
_CHUNK_OFFSET, METADATA = 2, 3
OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH = 4, 5, 6, 7
_CHUNK_TYPE, _ENCODINGS, _PATH, _CODEC = 1, 2, 3, 4
# The fields of a column chunk and of its metadata are in one dictionary, so the numbers of the
# latter begin after this one.
_METADATA_START = 100
_VALUES, _COMPRESSED, _DATA_PAGES, _DICTIONARY, _BLOOM_FILTER, _BLOOM_FILTER_LENGTH = (
    _METADATA_START + number for number in (5, 7, 9, 11, 14, 15)
)
_UNCOMPRESSED = _METADATA_START + 6
_STATISTICS = _METADATA_START + 12
# the sizes of a row group are the sums of those of its column chunks
_SIZES = ((_GROUP_BYTES, _UNCOMPRESSED), (_GROUP_COMPRESSED, _COMPRESSED))
_EXACT_MAX, _EXACT_MIN = 7, 8

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
    _METADATA_START + number: kind
    for number, kind in {
        _CHUNK_TYPE: I32,
        _ENCODINGS: LIST,
        _PATH: LIST,
        _CODEC: I32,
        5: I64,
        6: I64,
        7: I64,
        8: LIST,
        9: I64,
        11: I64,
        12: STRUCT,
        13: LIST,
        14: I64,
        15: I32,
        16: STRUCT,
    }.items()
}
_PAGE_INDEX_FIELDS = (OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH)

_COPIED_ENCODINGS = {0, 2, 3, 4, 8}  # plain, dictionary and levels
# the key of Arrow's schema, after its length; the Parquet schema has the same information
_ARROW_SCHEMA = b"\x0cARROW:schema"
_MAX_ORDINAL = 2**15 - 1
_MAX_PATTERNS = 8  # of the column chunks of one column

# Readers correct damaged statistics or pages of older versions, which they know by this text. It
# follows its length, which is one byte.
_TRUSTED_WRITERS = re.compile(
    rb"[\x00-\x7f](?:"
    rb"parquet-(?:mr|java) version 1\.[1-9]\d|"
    rb"parquet-cpp-arrow version (?:[4-9]|[1-9]\d)\.|"
    rb"parquet-rs version [5-9]\d\.)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPattern:
    """The pattern of a column chunk in a footer."""

    struct: StructPattern
    numbers: list[int]
    """The number of the field of each value; 0 for values in nested structs."""
    next_value: tuple[int, int] | None
    """The first value after the start of the statistics, and its constant distance from there."""

    def locate(self, data: bytes, position: int) -> tuple[dict[int, int], int] | None:
        """Return the start of the fields that are needed, and the end; None without a match."""
        starts = self.struct.locate(data, position)
        if starts is None:
            return None
        fields = dict(zip(self.numbers, starts, strict=False))
        if self.next_value is not None:
            index, distance = self.next_value
            fields[_STATISTICS] = starts[index] - distance
        return fields, starts[-1]


@dataclass(slots=True, kw_only=True)
class ColumnLayout:
    """What the column chunks of one column have in common."""

    path: bytes
    type: bytes
    codec: bytes
    """The encoded number of the codec in the Parquet format."""
    patterns: list["ChunkPattern"] = field(default_factory=list)

    def add_pattern(self, data: bytes, start: int, end: int, fields: Mapping[int, int]) -> None:
        """Add the pattern of a column chunk; only the fields that were checked are constant."""
        checked = range(fields[METADATA], fields[_VALUES])
        values = [
            value
            for value in find_values(data, ValueSpan(STRUCT, start, end))
            if value.start not in checked
        ]
        number_by_start = {position: number for number, position in fields.items()}
        next_value = None
        if (statistics := fields.get(_STATISTICS)) is not None:
            index = sum(value.start <= statistics for value in values)
            next_start = values[index].start if index < len(values) else end
            next_value = index, next_start - statistics
        self.patterns.append(
            ChunkPattern(
                struct=StructPattern(data, start, end, values),
                numbers=[number_by_start.get(value.start, 0) for value in values],
                next_value=next_value,
            )
        )

    def check_decoder(self, metadata: bytes) -> None:
        """Raise ValueError unless the decoder of this column can decode a column chunk."""
        fields = split_struct(metadata)
        encodings = fields[_ENCODINGS][1]
        is_decodable = (
            (fields[_PATH][1], fields[_CHUNK_TYPE][1], fields[_CODEC][1])
            == (self.path, self.type, self.codec)
            and {decode_integer(encodings, span.start) for span in decode_list(encodings, 0)}
            <= _COPIED_ENCODINGS
            # Java Paimon 0.9 cannot read dictionaries of long decimals
            and not (self.type == FIXED_LEN_BYTE_ARRAY and _DICTIONARY - _METADATA_START in fields)
        )
        if not is_decodable:
            raise ValueError("a column chunk needs another decoder")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """What the row groups of one file have in common."""

    schema: SchemaLayout
    columns: list[ColumnLayout]
    column_orders: bytes
    head: bytes
    """The fields before the number of rows in a footer of our writer."""
    tail: bytes
    """The fields after the row groups."""

    @classmethod
    def of_footer(cls, footer: bytes, codec: int) -> "FileLayout":
        """Return the layout of a footer."""
        parts = FooterFields.decode(footer)
        column_orders = decode_tail(parts.tail)
        assert column_orders is not None, "this version of pyarrow is not a trusted writer"
        schema, encoded_codec = decode_schema_layout(parts.head), encode_integer(codec)
        return cls(
            schema=schema,
            columns=[
                ColumnLayout(path=path, type=kind, codec=encoded_codec)
                for path, kind in zip(schema.leaf_paths, schema.leaf_types, strict=True)
            ],
            column_orders=column_orders,
            head=parts.head,
            tail=parts.tail,
        )


@dataclass(slots=True, kw_only=True)
class ChunkFields:
    """A column chunk in a footer; only the positions in its bytes are decoded and replaced."""

    footer: bytes = field(repr=False)
    fields: Mapping[int, int]
    """The start of each field of the column chunk and of its metadata in the footer."""
    head: ByteRange
    """The range of the fields before the page index."""
    pages: ByteRange
    positions: list[IntegerSpan]
    """The numbers of the head that are positions of pages."""
    bloom_filter: ByteRange | None
    column_index: ByteRange | None
    offset_index: ByteRange | None

    @classmethod
    def decode(
        cls, data: bytes, position: int, column: ColumnLayout | None = None
    ) -> tuple["ChunkFields", int]:
        """Return the column chunk at a position, and its end.

        Raises ValueError if it has fields that are not understood, or not the layout of a column.
        """
        fields, end = _locate_chunk(data, position, column)
        positions = [locate_integer(data, fields[_DATA_PAGES])]
        if _DICTIONARY in fields:
            positions += _locate_position(data, fields[_DICTIONARY])
        starts = [start for start, _, _ in positions]
        pages = min(starts), min(starts) + decode_integer(data, fields[_COMPRESSED])
        if max(starts) >= pages[1]:
            raise ValueError(f"no page can be at {max(starts)}, after the column chunk")
        if _CHUNK_OFFSET in fields:
            positions = _locate_position(data, fields[_CHUNK_OFFSET]) + positions
        indexes = [fields[number] for number in _PAGE_INDEX_FIELDS if number in fields]
        chunk = cls(
            footer=data,
            fields=fields,
            head=(position, min(indexes, default=end) - 1),
            pages=pages,
            positions=positions,
            # without a length, the end is known only after decoding the header
            bloom_filter=_get_range(data, fields, _BLOOM_FILTER, _BLOOM_FILTER_LENGTH),
            column_index=_get_range(data, fields, COLUMN_INDEX, COLUMN_INDEX_LENGTH),
            offset_index=_get_range(data, fields, OFFSET_INDEX, OFFSET_INDEX_LENGTH),
        )
        return chunk, end

    @property
    def has_exact_bounds(self) -> bool:
        """Return False if the writer states that the bounds are truncated."""
        if _STATISTICS not in self.fields:
            return True
        statistics = split_struct(self.footer, self.fields[_STATISTICS])
        flags = [statistics.get(number) for number in (_EXACT_MAX, _EXACT_MIN)]
        return not any(flag is not None and flag[0] == FALSE for flag in flags)

    @property
    def values(self) -> int:
        """Return the number of values, including nulls."""
        return decode_integer(self.footer, self.fields[_VALUES])

    def encode_head(self, shift: int, bloom_filter_start: int | None = None) -> bytes:
        """Encode the fields before the page index, with the pages moved by ``shift`` bytes."""
        moved = [(number, number[0] + shift) for number in self.positions]
        if bloom_filter_start is not None:
            old = locate_integer(self.footer, self.fields[_BLOOM_FILTER])
            moved.append((old, bloom_filter_start))
        return replace_integers(self.footer, self.head, moved)

    def encode_renamed_head(self, shift: int, name: str) -> bytes:
        """Encode the fields like :meth:`encode_head`, as those of a column that is not nested."""
        start = self.fields[_METADATA_START + _PATH]
        *_, last_name = decode_list(self.footer, start)
        moved = [(number, number[0] + shift) for number in self.positions]
        before = [number for number in moved if number[0][1] < start]
        first, end = self.head
        return (
            replace_integers(self.footer, (first, start), before)
            + encode_list([encode_text(name)], BINARY)
            + replace_integers(self.footer, (last_name.end, end), moved[len(before) :])
        )


def _locate_chunk(
    data: bytes, position: int, column: ColumnLayout | None
) -> tuple[dict[int, int], int]:
    """Return the start of each field of a column chunk and of its metadata, and the end.

    Most chunks have the pattern of another chunk of the column, which was checked.
    """
    if column is not None:
        for pattern in column.patterns:
            if (located := pattern.locate(data, position)) is not None:
                return located
    fields, start = locate_fields(data, position, _CHUNK_KINDS, until=METADATA)
    metadata, metadata_end = locate_fields(data, start, _METADATA_KINDS, after=_METADATA_START)
    indexes, end = locate_fields(data, metadata_end, _CHUNK_KINDS, after=METADATA)
    fields |= metadata | indexes
    if column is not None:
        column.check_decoder(data[start:metadata_end])
        if len(column.patterns) < _MAX_PATTERNS:
            column.add_pattern(data, position, end, fields)
    return fields, end


@dataclass(slots=True, kw_only=True)
class GroupFields:
    """A row group in a footer."""

    footer: bytes = field(repr=False)
    chunks: list[ChunkFields]
    fields: Mapping[int, int]
    """The start of each field after the column chunks."""
    end: int

    @classmethod
    def decode(
        cls, data: bytes, position: int, columns: Sequence[ColumnLayout] | None
    ) -> tuple["GroupFields", int]:
        """Return the row group at a position, and its end.

        Raises ValueError if it has fields that are not understood, or not the layout of the
        columns.
        """
        _, position = locate_fields(data, position, _GROUP_KINDS, until=CHUNKS)
        count, position = decode_count(data, position)
        if columns is not None and count != len(columns):
            raise ValueError(f"a row group has {count} column chunks")
        chunks = []
        for index in range(count):
            column = None if columns is None else columns[index]
            chunk, position = ChunkFields.decode(data, position, column)
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
        if _GROUP_OFFSET not in self.fields:
            return []
        return _locate_position(self.footer, self.fields[_GROUP_OFFSET])

    @property
    def size(self) -> int:
        """Return the size of the column chunks in bytes."""
        return sum(end - start for start, end in (chunk.pages for chunk in self.chunks))

    def encode_rest(
        self, shift: int, ordinal: int | None, more_chunks: Sequence[ChunkFields] = ()
    ) -> bytes:
        """Encode the fields after the column chunks, and the end of the struct.

        The row group has no ordinal if ``ordinal`` is None, as with pyarrow. ``more_chunks`` are
        column chunks that it has in addition to its own.
        """
        numbers = sorted(self.fields.keys() - {_ORDINAL})  # the ordinal is the last field
        end = self.fields.get(_ORDINAL, self.end) - 1
        changed = [(number, number[0] + shift) for number in self.positions]
        for of_group, of_chunk in _SIZES if more_chunks else ():
            size = locate_integer(self.footer, self.fields[of_group])
            more = sum(decode_integer(self.footer, chunk.fields[of_chunk]) for chunk in more_chunks)
            changed.append((size, size[0] + more))
        changed.sort(key=lambda number: number[0][1])
        rest = replace_integers(self.footer, (self.fields[numbers[0]] - 1, end), changed)
        if ordinal is not None and ordinal <= _MAX_ORDINAL:
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
    def decode(cls, data: bytes, layout: FileLayout | None = None) -> "FooterFields":
        """Decode a footer.

        Raises ValueError if it has fields that are not understood, or not the columns of a layout.
        """
        columns, head, last = None, b"", 0
        if layout is not None:
            columns = layout.columns
            if data.startswith(layout.head):
                head, last = layout.head, SCHEMA
        fields, position = locate_fields(data, len(head), _FILE_KINDS, after=last, until=ROW_GROUPS)
        count, position = decode_count(data, position)
        groups = []
        for _ in range(count):
            group, position = GroupFields.decode(data, position, columns)
            groups.append(group)
        return cls(
            head=head or data[: fields[FILE_ROWS] - 1],
            rows=decode_integer(data, fields[FILE_ROWS]),
            groups=groups,
            tail=data[position:],
        )


@lru_cache(maxsize=32)
def decode_tail(tail: bytes) -> bytes | None:
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
    if _TRUSTED_WRITERS.match(created_by) is None:
        return None
    return fields[_COLUMN_ORDERS][1]


def decode_count(data: bytes, position: int) -> tuple[int, int]:
    """Return the number of structs in a list, and the start of the first one."""
    count, kind, position = decode_list_header(data, position)
    if count and kind != STRUCT:
        raise ValueError(f"the elements of a list have the Thrift type {kind}")
    return count, position


def _get_range(
    data: bytes, fields: Mapping[int, int], offset: int, length: int
) -> ByteRange | None:
    if offset not in fields and length not in fields:
        return None
    start = decode_integer(data, fields[offset])
    return start, start + decode_integer(data, fields[length])


def _locate_position(data: bytes, start: int) -> list[IntegerSpan]:
    """Return a number if it is a position; writers store 0 for pages that do not exist."""
    position = locate_integer(data, start)
    return [position] if position[0] else []
