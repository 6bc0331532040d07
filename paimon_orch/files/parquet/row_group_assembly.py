"""Assembles a Parquet file of row groups that are encoded and row groups that are copied.

See docs/format/append-table-compaction.md#row-groups-that-are-copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_orch.files.parquet.byte_ranges import ByteRange, join_ranges
from paimon_orch.files.parquet.footer_fields import (
    CHUNKS,
    COLUMN_INDEX,
    COLUMN_INDEX_LENGTH,
    FILE_ROWS,
    METADATA,
    OFFSET_INDEX,
    OFFSET_INDEX_LENGTH,
    ROW_GROUPS,
    SCHEMA,
    ChunkFields,
    FooterFields,
    GroupFields,
)
from paimon_orch.files.parquet.footer_sink import FooterSink
from paimon_orch.files.parquet.repeated_columns import RepeatedColumns
from paimon_orch.files.parquet.row_group_source import RowGroupSource, shift_offset_index
from paimon_orch.files.parquet.thrift_compact import (
    I32,
    I64,
    LIST,
    STRUCT_END,
    ThriftFields,
    encode_fields,
    encode_integer,
    encode_list,
)


@dataclass(slots=True)
class _CopiedChunk:
    head: bytes
    """The fields before the page index."""
    column_index: bytes | None
    offset_index: bytes | None


@dataclass(slots=True)
class _CopiedGroup:
    chunks: list[_CopiedChunk]
    rest: bytes
    """The fields after the column chunks."""


@dataclass(slots=True)
class RowGroupAssembly:
    """The row groups of a file in their order."""

    sink: FooterSink
    has_copies: bool = False
    _groups: list[_CopiedGroup | int] = field(default_factory=list)
    """Copied row groups; for a row group that is encoded, the number of bytes copied before it."""
    _copied_rows: int = 0

    def add_encoded(self) -> None:
        """Note that a writer encodes the next row group at the current position."""
        self._groups.append(self.sink.copied_bytes)

    def copy(self, source: RowGroupSource) -> None:
        """Copy all row groups of a file."""
        self.has_copies = True
        chunks = [chunk for group in source.groups for chunk in group.chunks]
        pages = self._copy_ranges(source, [chunk.pages for chunk in chunks])
        # Bloom filters follow their row groups; only the page index must be at the end, where some
        # readers fetch all of it with one request
        filters = self._copy_ranges(
            source, [chunk.bloom_filter for chunk in chunks if chunk.bloom_filter is not None]
        )
        for group in source.groups:
            copied = [self._move_chunk(source, chunk, pages, filters) for chunk in group.chunks]
            first, _ = group.chunks[0].pages
            rest = group.encode_rest(pages[first] - first, len(self._groups))
            self._groups.append(_CopiedGroup(copied, rest))
        self._copied_rows += source.rows

    def _copy_ranges(self, source: RowGroupSource, ranges: Sequence[ByteRange]) -> dict[int, int]:
        """Copy byte ranges; return the new start of each by its old start."""
        starts = {}
        for first, last, joined in join_ranges(ranges, 0):
            self.sink.copy_from(source.source, first, last - first)
            shift = self.sink.tell() - last
            starts.update({start: start + shift for start, _ in joined})
        return starts

    def _move_chunk(
        self,
        source: RowGroupSource,
        chunk: ChunkFields,
        pages: dict[int, int],
        filters: dict[int, int],
    ) -> _CopiedChunk:
        start, _ = chunk.pages
        shift = pages[start] - start
        column, offset = chunk.column_index, chunk.offset_index
        bloom_filter = None if chunk.bloom_filter is None else filters[chunk.bloom_filter[0]]
        return _CopiedChunk(
            head=chunk.encode_head(shift, bloom_filter),
            column_index=None if column is None else source.indexes[column],
            offset_index=(
                None
                if offset is None
                else shift_offset_index(source.indexes[offset], chunk.pages, shift)
            ),
        )

    def encode_footer(self, footer: bytes, empty_footer: bytes, columns: RepeatedColumns) -> bytes:
        """Write the page index of the copied row groups; return the footer with all row groups.

        ``footer`` is that of the writer, which knows only the row groups that it encoded, without
        repeated columns. ``empty_footer`` is that of a file with all columns.
        """
        empty = FooterFields.decode(empty_footer)
        encoded = iter(FooterFields.decode(footer).groups)
        chunks = [
            chunk
            for group in self._groups
            if isinstance(group, _CopiedGroup)
            for chunk in group.chunks
        ]
        column_indexes = iter([self._write_index(chunk.column_index) for chunk in chunks])
        offset_indexes = iter([self._write_index(chunk.offset_index) for chunk in chunks])
        groups, rows = [], self._copied_rows
        for ordinal, group in enumerate(self._groups):
            if isinstance(group, _CopiedGroup):
                values = [
                    _encode_copied_chunk(chunk, next(column_indexes), next(offset_indexes))
                    for chunk in group.chunks
                ]
                rest = group.rest
            else:
                own = next(encoded)
                rows += own.rows
                values, repeated = _encode_own_chunks(own, columns, group)
                rest = own.encode_rest(group, ordinal if self.has_copies else None, repeated)
            groups.append(encode_fields({CHUNKS: (LIST, encode_list(values))}) + rest)
        changed = {
            FILE_ROWS: (I64, encode_integer(rows)),
            ROW_GROUPS: (LIST, encode_list(groups)),
        }
        return empty.head + encode_fields(changed, SCHEMA) + empty.tail

    def _write_index(self, index: bytes | None) -> ByteRange | None:
        """Write a part of the page index, and return its position and its length."""
        if index is None:
            return None
        start = self.sink.tell()
        self.sink.write(index)
        return start, len(index)


def _encode_own_chunks(
    group: GroupFields, columns: RepeatedColumns, shift: int
) -> tuple[list[bytes], list[ChunkFields]]:
    """Return the encoded column chunks of a row group, and the chunks that are repeated.

    ``shift`` is the number of bytes before the row group that its writer does not know.
    """
    values, repeated, end = list[bytes](), list[ChunkFields](), 0
    encoded, chunk_by_name = iter(group.chunks), dict[str, ChunkFields]()
    for name in columns.names if columns.sources else ():
        source = columns.sources.get(name)
        if source is None:
            chunk = chunk_by_name[name] = next(encoded)
            values.append(chunk.encode_head(shift) + STRUCT_END)
            end = chunk.pages[1] + shift
        else:
            chunk = chunk_by_name[source]
            start, stop = chunk.pages
            values.append(chunk.encode_renamed_head(end - start, name) + STRUCT_END)
            repeated.append(chunk)
            shift += stop - start
            end += stop - start
    # a nested column has more than one chunk, but is never followed by a repeated column
    values += [chunk.encode_head(shift) + STRUCT_END for chunk in encoded]
    return values, repeated


def _encode_copied_chunk(
    chunk: _CopiedChunk, column_index: ByteRange | None, offset_index: ByteRange | None
) -> bytes:
    fields: ThriftFields = {}
    if offset_index is not None:
        fields[OFFSET_INDEX] = (I64, encode_integer(offset_index[0]))
        fields[OFFSET_INDEX_LENGTH] = (I32, encode_integer(offset_index[1]))
    if column_index is not None:
        fields[COLUMN_INDEX] = (I64, encode_integer(column_index[0]))
        fields[COLUMN_INDEX_LENGTH] = (I32, encode_integer(column_index[1]))
    return chunk.head + encode_fields(fields, METADATA) + STRUCT_END
