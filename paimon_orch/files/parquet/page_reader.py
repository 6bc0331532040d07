"""Reads single pages of Parquet files: only the pages with selected rows.

The Python APIs of pyarrow, arro3, DuckDB and Polars do not read selected pages or rows. This module
finds pages with the offset index of the file, which Java Paimon always writes and this library
writes for files with row-level indexes. pyarrow then decodes a file of one row group that is
assembled in memory: the unchanged pages after their dictionary, and a footer for these pages only.
The offset index is checked against the footer and the header of each page.

Compared with reading whole row groups with pyarrow, reading one row in a thousand needs 1/11 of the
CPU time and 1/34 of the bytes (``benchmarks/hand_written_files.py``).
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_orch.files.parquet.byte_ranges import ByteRange, join_ranges, read_ranges
from paimon_orch.files.parquet.footer import PARQUET_MAGIC, ColumnChunk, Footer
from paimon_orch.files.parquet.list_entries import compare_list_entries, count_list_entries
from paimon_orch.files.parquet.page_check import PageCheck, ReadPlan
from paimon_orch.files.parquet.thrift_compact import (
    LIST,
    STRUCT,
    decode_integer,
    decode_list_header,
    decode_struct,
)
from paimon_orch.format.arrays import Int64Array, Positions, to_arrow_array

_ASSUMED_PAGE_BITS = 9  # pages are assumed to have 2**9 rows until they are located
_MAX_PAGE_BYTES = 64 << 20  # maximum size of the pages in memory
_DATA_PAGES = (0, 3)  # page types, by version of the page header
_TYPE, _SIZE, _HEAD, _HEAD_V2 = 1, 3, 5, 8
_VALUES, _ROWS_V2 = 1, 3
_LIST_FIRST = 1 << 4 | LIST  # first byte of an offset index
# these bytes precede each of the three numbers of a page location and end the location
_LOCATION_TOKENS = [0x16, 0x15, 0x16, 0]
_TOKENS_PER_LOCATION = 7  # these four bytes and three numbers
_MAX_VARINT_BYTES = 9  # maximum length of an unsigned varint


class PageIndexError(ValueError):
    """The offset index of a file does not describe its pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCosts:
    """Costs, as the number of bytes that can be read in the same time."""

    request_cost: int
    """The cost of a separate request."""

    lookup_cost: int
    """The cost of locating the pages of a row group."""

    footer_cost_factor: int = 32
    """The cost of decoding a footer, as a multiple of its size."""

    max_read_share: float = 0.75
    """The share of a row group, in rows and bytes, above which reading pages saves too little."""

    def is_small_enough(self, part: int, total: int) -> bool:
        """Return whether reading only a part saves enough."""
        return part <= self.max_read_share * total


LOCAL_COSTS = ReadCosts(request_cost=4 << 10, lookup_cost=128 << 10)
REMOTE_COSTS = ReadCosts(request_cost=1 << 20, lookup_cost=1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeafPages:
    """The pages of a leaf column in a row group."""

    number: int
    """The index of the leaf column."""

    chunk: ColumnChunk

    starts: Int64Array
    """The start of each page in the file, and the end of the last page."""

    rows: Int64Array
    """The first row of each page, followed by the number of rows of the row group."""

    is_flat: bool
    """Whether each row has one value."""


@dataclass(frozen=True, slots=True)
class _SelectedPages:
    """The pages of a leaf column to read."""

    leaf: _LeafPages
    pages: Int64Array

    @property
    def ranges(self) -> list[ByteRange]:
        """Return the ranges of the dictionary and the pages; adjacent pages are one range."""
        starts, ends = self.leaf.starts[self.pages], self.leaf.starts[self.pages + 1]
        apart = np.flatnonzero(starts[1:] != ends[:-1])
        firsts, lasts = starts[[0, *(apart + 1)]], ends[[*apart, -1]]
        pages = list(zip(firsts.tolist(), lasts.tolist(), strict=True))
        begin, end = self.leaf.chunk.pages[0], int(self.leaf.starts[0])
        return [(begin, end), *pages] if begin < end else pages


@dataclass(frozen=True, slots=True)
class _ColumnPages:
    """The pages of a column to read."""

    name: str
    leaves: list[_SelectedPages]
    rows: int
    """The number of rows of the pages."""

    row_indices: Int64Array
    """The selected rows, among the rows of the pages."""


@dataclass(frozen=True, slots=True)
class RowGroupPages:
    """The pages of a row group that have the selected rows."""

    group: int
    columns: list[_ColumnPages]
    bytes: int
    """The number of bytes to read."""

    @property
    def leaves(self) -> Iterator[_SelectedPages]:
        """Yield the pages of every leaf column."""
        return (leaf for column in self.columns for leaf in column.leaves)


class PageReader:
    """Reads single pages of one open file.

    ``leaves`` maps each column to the numbers of its leaf columns.
    """

    def __init__(
        self, source: IO[bytes], footer: Footer, leaves: Mapping[str, range], costs: ReadCosts
    ) -> None:
        self._source, self._footer, self._leaves, self._costs = source, footer, leaves, costs

    def plan(
        self, columns: Sequence[str], selected: Mapping[int, Positions]
    ) -> dict[int, RowGroupPages]:
        """Return the pages to read, for the row groups where this saves enough.

        ``selected`` are row positions within each row group. Raises :class:`PageIndexError`.
        """
        sparse = {
            group: rows
            for group, rows in selected.items()
            if self._costs.is_small_enough(
                _estimate_touched_rows(rows), self._footer.metadata.row_group(group).num_rows
            )
        }
        leaves = {leaf for name in columns for leaf in self._leaves[name]}
        footer_cost = self._footer.size * self._costs.footer_cost_factor
        # The bytes of single columns are known only if the footer is undamaged.
        metadata = self._footer.metadata
        size = sum(metadata.row_group(group).total_byte_size for group in sparse)
        if size * len(leaves) / max(1, metadata.num_columns) < footer_cost:
            return {}
        try:
            chunks = self._chunks(leaves, sparse)
            indexes_of_chunks = (c.index for group in chunks.values() for c in group.values())
            ranges = [index for index in indexes_of_chunks if index is not None]
            if sum(end - start for start, end in ranges) > _MAX_PAGE_BYTES:
                raise ValueError("the offset indexes are too long")
            indexes = self._fetch(ranges)
            return {
                group: plan
                for group in chunks
                if (
                    plan := self._plan_row_group(
                        group, columns, rows=sparse[group], chunks=chunks[group], indexes=indexes
                    )
                )
            }
        except (LookupError, ValueError, RecursionError) as error:
            raise PageIndexError(f"{type(error).__name__}: {error}") from error

    def _chunks(self, leaves: set[int], groups: Iterable[int]) -> dict[int, dict[int, ColumnChunk]]:
        """Return the chunks of the row groups that have an index and are large enough."""
        chunks_by_group = ((group, self._footer.chunks(group, leaves)) for group in groups)
        return {
            group: chunks
            for group, chunks in chunks_by_group
            if any(chunk.index for chunk in chunks.values())
            and _total_bytes(chunks) > self._costs.lookup_cost
        }

    def _plan_row_group(
        self,
        group: int,
        columns: Sequence[str],
        rows: Positions,
        chunks: Mapping[int, ColumnChunk],
        indexes: Mapping[ByteRange, bytes],
    ) -> RowGroupPages | None:
        column_pages = []
        for name in columns:
            numbers = self._leaves[name]
            leaves = [
                self._locate_leaf_pages(group, leaf, chunks[leaf], indexes) for leaf in numbers
            ]
            column_pages.append(_plan_column(name, leaves, rows))
        ranges = [span for column in column_pages for leaf in column.leaves for span in leaf.ranges]
        gap, total_bytes = self._costs.request_cost, _total_bytes(chunks)
        read_bytes = sum(max(gap, last - first) for first, last, _ in join_ranges(ranges, gap))
        max_read = min(_MAX_PAGE_BYTES, total_bytes - self._costs.lookup_cost)
        if read_bytes > max_read or not self._costs.is_small_enough(read_bytes, total_bytes):
            return None
        return RowGroupPages(group, column_pages, read_bytes)

    def _locate_leaf_pages(
        self, group: int, number: int, chunk: ColumnChunk, indexes: Mapping[ByteRange, bytes]
    ) -> _LeafPages:
        is_flat = self._footer.metadata.schema.column(number).max_repetition_level == 0
        rows = self._footer.metadata.row_group(group).num_rows
        if chunk.index is None:
            starts, firsts = np.array(chunk.pages), np.array([0, rows])
        else:
            starts, firsts = _decode_locations(indexes[chunk.index], chunk, rows)
        return _LeafPages(number=number, chunk=chunk, starts=starts, rows=firsts, is_flat=is_flat)

    def _fetch(self, ranges: Iterable[ByteRange]) -> dict[ByteRange, bytes]:
        """Return the bytes of some ranges of the file."""
        return read_ranges(self._source, ranges, self._costs.request_cost)

    def read(self, plan: RowGroupPages) -> pa.Table:
        """Return the selected rows of a row group; raises :class:`PageIndexError`."""
        try:
            data = self._assemble_file(plan)
            file = pq.ParquetFile(pa.BufferReader(data))
            self._check_pages(plan, data)
            columns = [_take_rows(file, column) for column in plan.columns]
        except (LookupError, ValueError, RecursionError) as error:
            raise PageIndexError(f"{type(error).__name__}: {error}") from error
        schema = file.schema_arrow
        return pa.table(columns, pa.schema([schema.field(column.name) for column in plan.columns]))

    def _check_pages(self, plan: RowGroupPages, data: bytearray) -> None:
        """Raise :class:`PageIndexError` for pages that must be read in parts, if at all."""
        source = io.BytesIO(data)
        stored_bytes = self._footer.stored_bytes
        limits = PageCheck(source, Footer(source), stored_bytes, has_all_rows=False)
        rows = max(column.rows for column in plan.columns)
        leaves = [selected.leaf.number for selected in plan.leaves]
        if limits.plan([0], leaves, rows) != ReadPlan(rows):
            raise PageIndexError("the pages have long texts")

    def _assemble_file(self, plan: RowGroupPages) -> bytearray:
        """Return a file that has only the selected pages."""
        data = self._fetch(span for leaf in plan.leaves for span in leaf.ranges)
        file, chunks = bytearray(PARQUET_MAGIC), {}
        for selected in plan.leaves:
            start = len(file)
            for span in selected.ranges:
                file += data[span]
            values = _count_values(file, selected)
            chunks[selected.leaf.number] = ColumnChunk((start, len(file)), values)
        file += self._footer.encode_row_group_footer(
            plan.group, max(c.rows for c in plan.columns), chunks
        )
        return file


def _take_rows(file: pq.ParquetFile, column: _ColumnPages) -> pa.ChunkedArray:
    """Return the selected rows of the selected pages."""
    pages = file.read_row_group(0, columns=[column.name], use_threads=False)
    if pages.num_rows != column.rows:
        raise ValueError(f"column {column.name} has {pages.num_rows} rows instead of {column.rows}")
    chunks = file.metadata.row_group(0)
    lists = [selected.leaf for selected in column.leaves if not selected.leaf.is_flat]
    compare_list_entries(
        sum(map(count_list_entries, pages.column(0).chunks)),
        sum(chunks.column(leaf.number).num_values for leaf in lists),
    )
    return pages.column(0).take(to_arrow_array(column.row_indices))


def _plan_column(name: str, leaves: list[_LeafPages], rows: Positions) -> _ColumnPages:
    """Select the pages of a column, whose leaf columns rarely have pages with the same rows."""
    bounds = reduce(np.intersect1d, [np.unique(leaf.rows) for leaf in leaves])
    parts, part_of = np.unique(np.searchsorted(bounds, rows, "right") - 1, return_inverse=True)
    lengths = bounds[parts + 1] - bounds[parts]
    before = np.cumsum(lengths) - lengths
    selected = []
    for leaf in leaves:
        is_selected = np.isin(np.searchsorted(bounds, leaf.rows[:-1], "right") - 1, parts)
        # pyarrow writes a page without rows when the dictionary of a list is full, and cannot read
        # such a page
        selected.append(
            _SelectedPages(leaf, np.flatnonzero(is_selected & (np.diff(leaf.rows) > 0)))
        )
    return _ColumnPages(
        name, selected, int(lengths.sum()), rows - (bounds[parts] - before)[part_of]
    )


def _count_values(file: bytearray, selected: _SelectedPages) -> int:
    """Return the number of values of the pages at the end of a file.

    Raises ``ValueError`` if the pages differ from the index.
    """
    leaf, pages = selected.leaf, selected.pages
    if leaf.chunk.index is None:
        return leaf.chunk.values
    sizes, rows = np.diff(leaf.starts)[pages], np.diff(leaf.rows)[pages]
    starts = len(file) - int(sizes.sum()) + np.cumsum(sizes) - sizes
    return sum(
        _count_page_values(file, start, size, count, is_flat=leaf.is_flat)
        for start, size, count in zip(starts.tolist(), sizes.tolist(), rows.tolist(), strict=True)
    )


def _count_page_values(file: bytearray, start: int, size: int, rows: int, *, is_flat: bool) -> int:
    page, end = decode_struct(file, start)
    head, _ = decode_struct(file, page[_HEAD_V2 if _HEAD_V2 in page else _HEAD].start)
    values = decode_integer(file, head[_VALUES].start)
    is_page = decode_integer(file, page[_TYPE].start) in _DATA_PAGES
    is_as_indexed = values == rows if is_flat else values >= rows
    if _HEAD_V2 in page:
        is_as_indexed &= decode_integer(file, head[_ROWS_V2].start) == rows
    if (
        not is_page
        or not is_as_indexed
        or end - start + decode_integer(file, page[_SIZE].start) != size
    ):
        raise ValueError(f"a page of {size} bytes and {rows} rows has an unexpected header")
    return values


def _decode_locations(index: bytes, chunk: ColumnChunk, rows: int) -> tuple[Int64Array, Int64Array]:
    """Return the start of each page in bytes and in rows, and the end of the last page.

    The pages must fill their chunk.
    """
    starts, sizes, firsts = _decode_offset_index(index)
    begin, end = chunk.pages
    starts, firsts = np.append(starts, end), np.append(firsts, rows)
    fills = begin <= starts[0] and starts.max() <= end and (starts[:-1] + sizes == starts[1:]).all()
    ascends = firsts[0] == 0 and (np.diff(firsts) >= 0).all()
    if not fills or not ascends or sizes.min() <= 0:
        raise ValueError(f"the offset index of the pages from {begin} to {end} is damaged")
    return starts, firsts


def _decode_offset_index(index: bytes) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Decode the offset, the size and the first row of all pages.

    An offset index is a list of structs of three numbers each.
    """
    count, kind, position = decode_list_header(index, 1)
    data = np.frombuffer(index, np.uint8, offset=position)
    ends = np.flatnonzero(data < 0x80)[: count * _TOKENS_PER_LOCATION] + 1
    if (
        index[0] != _LIST_FIRST
        or kind != STRUCT
        or not count
        or len(ends) != count * _TOKENS_PER_LOCATION
    ):
        raise ValueError("an offset index has an unknown form")
    tokens = np.append(0, ends[:-1]).reshape(count, _TOKENS_PER_LOCATION)
    lengths = ends.reshape(count, _TOKENS_PER_LOCATION)[:, 1::2] - tokens[:, 1::2]
    if (data[tokens[:, ::2]] != _LOCATION_TOKENS).any() or lengths.max() > _MAX_VARINT_BYTES:
        raise ValueError("the location of a page has an unknown form")
    raw, numbers = np.zeros(lengths.shape, np.int64), tokens[:, 1::2]
    for byte in range(int(lengths.max())):
        has_byte = byte < lengths
        raw[has_byte] |= (data[numbers[has_byte] + byte] & 0x7F).astype(np.int64) << (7 * byte)
    offsets, sizes, rows = (raw >> 1 ^ -(raw & 1)).T
    return offsets, sizes, rows


def _total_bytes(chunks: Mapping[int, ColumnChunk]) -> int:
    return sum(end - start for start, end in (chunk.pages for chunk in chunks.values()))


def _estimate_touched_rows(rows: Positions) -> int:
    """Estimate the number of rows in the pages of sorted rows."""
    return int(1 + np.count_nonzero(np.diff(rows >> _ASSUMED_PAGE_BITS))) << _ASSUMED_PAGE_BITS
