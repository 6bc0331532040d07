"""The row groups of a Parquet file that can be copied to another file without decoding them.

A row group is copied only if everything in its footer is understood, and only if a decoder that
expects the row groups of our writer reads it: the same columns, codec and kinds of encodings.

See docs/format/append-table-compaction.md#row-groups-that-are-copied.
"""

import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import IO

from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.parquet.byte_ranges import ByteRange, read_ranges
from paimon_orch.files.parquet.footer import PARQUET_MAGIC, Footer
from paimon_orch.files.parquet.footer_fields import (
    FileLayout,
    FooterFields,
    GroupFields,
    decode_count,
    decode_tail,
)
from paimon_orch.files.parquet.footer_schema import (
    SchemaLayout,
    decode_schema_layout,
    number_leaves,
)
from paimon_orch.files.parquet.thrift_compact import (
    I32,
    I64,
    LIST,
    IntegerSpan,
    decode_integer,
    locate_fields,
    locate_integer,
    replace_integers,
)

_OFFSET_INDEX_KINDS = {1: LIST, 2: LIST}
_PAGE_KINDS = {1: I64, 2: I32, 3: I64}
_INDEX_GAP = 64 << 10  # parts of the page index that are closer are read together
_MAX_SMALL_FILE_BYTES = 8 << 20  # a small file is read at once instead of part by part
_MAX_INDEX_BYTES = 64 << 20  # they are in memory until the new file is complete


@dataclass(slots=True, kw_only=True)
class RowGroupSource:
    """An open file, all row groups of which can be copied."""

    source: IO[bytes]
    footer: Footer = field(repr=False)
    schema: SchemaLayout
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
        fields = FooterFields.decode(footer.data, layout)
        if not _is_understood(fields, layout):
            return None
        groups, rows = fields.groups, fields.rows
        pages_size = _check_chunks(groups, footer.start)
        min_group_size = max(
            sizes.min_copied_group_bytes,
            sizes.min_copied_chunk_bytes * len(layout.columns),
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
        return cls(
            source=source,
            footer=footer,
            schema=layout.schema,
            groups=groups,
            rows=rows,
            size=footer.file_size,
            indexes=indexes,
        )

    def find_leaf(self, name: str) -> int:
        """Return the number of the column chunk of a column that is not nested."""
        return number_leaves(self.schema.leaf_paths)[name]

    def select(self, number: int) -> "RowGroupSource":
        """Return one row group of the file."""
        group = self.groups[number]
        return replace(self, groups=[group], rows=group.rows)


def _is_understood(footer: FooterFields, layout: FileLayout) -> bool:
    """Return whether a file has the columns of a layout, a known writer and no extra metadata."""
    return (footer.head == layout.head or decode_schema_layout(footer.head) == layout.schema) and (
        footer.tail == layout.tail or decode_tail(footer.tail) == layout.column_orders
    )


def _check_chunks(groups: list[GroupFields], end: int) -> int:
    """Return the total size of the column chunks.

    Raises ValueError if a chunk is not where a chunk can be, or if it has too few values.
    """
    last, size = len(PARQUET_MAGIC), 0
    for group in groups:
        rows = group.rows
        if rows < 1:
            raise ValueError(f"a row group has {rows} rows")
        _check_positions(group.positions, group.chunks[0].pages)
        for chunk in group.chunks:
            start, stop = chunk.pages
            if not last <= start < stop <= end:
                raise ValueError(f"no column chunk can be at {start} to {stop}")
            last, size = stop, size + stop - start
            _check_positions(chunk.positions, chunk.pages)
            if chunk.values < rows:
                raise ValueError(f"a column chunk has {chunk.values} values in {rows} rows")
    return size


def _check_positions(positions: Iterable[IntegerSpan], pages: ByteRange) -> None:
    """Raise ValueError for positions elsewhere, which would be negative or of other pages if moved.

    Some writers state the end of a column chunk, where they repeat its metadata.
    """
    for position, _, _ in positions:
        if not pages[0] <= position <= pages[1]:
            raise ValueError(f"no page can be at {position}")


def _locate_pages(index: bytes, pages: ByteRange) -> list[IntegerSpan]:
    """Return the positions of the pages in an offset index.

    Raises ValueError if the index has other positions, or a page outside its column chunk.
    """
    fields, _ = locate_fields(index, 0, _OFFSET_INDEX_KINDS)
    count, start = decode_count(index, fields[1])
    positions = []
    for _ in range(count):
        location, start = locate_fields(index, start, _PAGE_KINDS)
        position = locate_integer(index, location[1])
        first, size = position[0], decode_integer(index, location[2])
        if not pages[0] <= first <= first + size <= pages[1]:
            raise ValueError(f"no page can be at {first}")
        positions.append(position)
    return positions


def shift_offset_index(index: bytes, pages: ByteRange, shift: int) -> bytes:
    """Return the offset index of a column chunk whose pages are moved by ``shift`` bytes."""
    moved = [(position, position[0] + shift) for position in _locate_pages(index, pages)]
    return replace_integers(index, (0, len(index)), moved)
