"""Single pages of Parquet files: only the pages with selected rows are fetched and decoded.

The Python APIs of pyarrow, arro3, DuckDB and Polars do not read selected pages or rows. This module finds pages with the
offset index of their file, which Java Paimon always writes and this library writes where it saves time. pyarrow then
decodes a file of one row group that is assembled in memory: the unchanged pages after their dictionary, and a footer
for these pages only. The offset index is checked against the footer and the header of each page.

For one row in a thousand this needs 1/11 of the CPU time, and reads 1/34 of the bytes, of whole row groups with pyarrow:
see ``benchmarks/hand_written_files.py``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_orch.files.parquet.footer import PARQUET_MAGIC, ByteRange, ColumnChunk, Footer
from paimon_orch.files.parquet.thrift_compact import (
    LIST,
    STRUCT,
    decode_integer,
    decode_list_header,
    decode_struct,
)
from paimon_orch.format.arrays import Int64Array, Positions

_ASSUMED_PAGE_BITS = 9  # while pages are unknown, a chosen row is taken to bring 2**9 rows with it
_FOOTER_COST_FACTOR = 32  # looking into a footer takes as long as decoding so many times its bytes
_MAX_PAGE_BYTES = 64 << 20  # bytes of pages that are held at once
_DATA_PAGES = (0, 3)  # the types of pages, by the version of their heads
_TYPE, _SIZE, _HEAD, _HEAD_V2 = 1, 3, 5, 8
_VALUES, _ROWS_V2 = 1, 3
_LIST_FIRST = 1 << 4 | LIST  # how an offset index begins
_LOCATION_TOKENS = [
    0x16,
    0x15,
    0x16,
    0,
]  # what stands around the three numbers of a page's location
_TOKENS_PER_LOCATION, _MAX_VARINT_BYTES = (
    7,
    9,
)  # these and the numbers; bytes of a number without sign


class PageIndexError(ValueError):
    """The pages of a file are not where its offset index says, or not what it says."""


@dataclass(frozen=True, slots=True)
class ReadCosts:
    """What takes as long as reading so many bytes: asking once more, and looking for the pages of a row group."""

    request_cost: int
    lookup_cost: int


LOCAL_COSTS, REMOTE_COSTS = ReadCosts(4 << 10, 128 << 10), ReadCosts(1 << 20, 1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeafPages:
    """A leaf column in a row group: where each of its pages begins, in the file and in rows; the end is the last."""

    number: int
    chunk: ColumnChunk
    starts: Int64Array
    rows: Int64Array
    is_flat: bool


@dataclass(frozen=True, slots=True)
class _SelectedPages:
    """Which pages of a leaf column are read."""

    leaf: _LeafPages
    pages: Int64Array

    @property
    def ranges(self) -> list[ByteRange]:
        """Return where the dictionary and the pages are; what touches comes as one."""
        starts, ends = self.leaf.starts[self.pages], self.leaf.starts[self.pages + 1]
        apart = np.flatnonzero(starts[1:] != ends[:-1])
        firsts, lasts = starts[[0, *(apart + 1)]], ends[[*apart, -1]]
        pages = list(zip(firsts.tolist(), lasts.tolist(), strict=True))
        begin, end = self.leaf.chunk.pages[0], int(self.leaf.starts[0])
        return [(begin, end), *pages] if begin < end else pages


@dataclass(frozen=True, slots=True)
class _ColumnPages:
    """What is read of a column, and which of these rows are the chosen ones."""

    name: str
    leaves: list[_SelectedPages]
    rows: int
    row_indices: Int64Array


@dataclass(frozen=True, slots=True)
class RowGroupPages:
    """The pages of a row group that hold the chosen rows; ``bytes`` are read for them."""

    group: int
    columns: list[_ColumnPages]
    bytes: int

    @property
    def leaves(self) -> Iterator[_SelectedPages]:
        """Yield what is read of every leaf column."""
        return (leaf for column in self.columns for leaf in column.leaves)


class PageReader:
    """Reads single pages of one open file; ``leaves`` are the numbers of the leaf columns of each column."""

    def __init__(
        self, source: IO[bytes], footer: Footer, leaves: Mapping[str, range], costs: ReadCosts
    ) -> None:
        self._source, self._footer, self._leaves, self._costs = source, footer, leaves, costs

    def plan(
        self, columns: Sequence[str], chosen: Mapping[int, Positions]
    ) -> dict[int, RowGroupPages]:
        """Return what to read of the row groups where that saves enough; ``chosen`` are rows by row group, from 0.

        Raises :class:`PageIndexError`.
        """
        sparse = {
            group: rows
            for group, rows in chosen.items()
            if _is_small_enough(
                _estimate_touched_rows(rows), self._footer.metadata.row_group(group).num_rows
            )
        }
        wanted = {leaf for name in columns for leaf in self._leaves[name]}
        if self._estimate_bytes(wanted, sparse) < self._footer.size * _FOOTER_COST_FACTOR:
            return {}
        try:
            chunks = self._chunks(wanted, sparse)
            found = [chunk.index for group in chunks.values() for chunk in group.values()]
            ranges = [index for index in found if index is not None]
            if sum(end - start for start, end in ranges) > _MAX_PAGE_BYTES:
                raise ValueError("the offset indexes are too long")
            indexes = self._fetch(ranges)
            return {
                group: plan
                for group in chunks
                if (
                    plan := self._planned(
                        group, columns, rows=sparse[group], chunks=chunks[group], indexes=indexes
                    )
                )
            }
        except (LookupError, ValueError, RecursionError) as error:
            raise PageIndexError(f"{type(error).__name__}: {error}") from error

    def _estimate_bytes(self, leaves: Collection[int], groups: Iterable[int]) -> float:
        """Return about how many bytes leaf columns have. That of single ones pyarrow tells for sound footers only."""
        metadata = self._footer.metadata
        size = sum(metadata.row_group(group).total_byte_size for group in groups)
        return float(size * len(leaves) / max(1, metadata.num_columns))

    def _chunks(self, leaves: set[int], groups: Iterable[int]) -> dict[int, dict[int, ColumnChunk]]:
        """Return the chunks of those row groups that are worth it and have an index."""
        found = ((group, self._footer.chunks(group, leaves)) for group in groups)
        return {
            group: chunks
            for group, chunks in found
            if any(chunk.index for chunk in chunks.values())
            and _total_bytes(chunks) > self._costs.lookup_cost
        }

    def _planned(
        self,
        group: int,
        columns: Sequence[str],
        rows: Positions,
        chunks: Mapping[int, ColumnChunk],
        indexes: Mapping[ByteRange, bytes],
    ) -> RowGroupPages | None:
        planned = []
        for name in columns:
            numbers = self._leaves[name]
            leaves = [self._leaf(group, leaf, chunks[leaf], indexes) for leaf in numbers]
            planned.append(_plan_column(name, leaves, rows))
        ranges = [span for column in planned for leaf in column.leaves for span in leaf.ranges]
        gap, stored = self._costs.request_cost, _total_bytes(chunks)
        read = sum(max(gap, last - first) for first, last, _ in _join_ranges(ranges, gap))
        if read > min(_MAX_PAGE_BYTES, stored - self._costs.lookup_cost) or not _is_small_enough(
            read, stored
        ):
            return None
        return RowGroupPages(group, planned, read)

    def _leaf(
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
        found = {}
        for first, last, together in _join_ranges(ranges, self._costs.request_cost):
            self._source.seek(first)
            data = self._source.read(last - first)
            if len(data) != last - first:
                raise ValueError(f"the file ends before byte {last}")
            for start, end in together:
                found[start, end] = data[start - first : end - first]
        return found

    def read(self, plan: RowGroupPages) -> pa.Table:
        """Return the chosen rows of a row group; raises :class:`PageIndexError`."""
        try:
            file = pq.ParquetFile(pa.BufferReader(self._assemble_file(plan)))
            found = [_take_rows(file, column) for column in plan.columns]
        except (LookupError, ValueError, RecursionError) as error:
            raise PageIndexError(f"{type(error).__name__}: {error}") from error
        schema = file.schema_arrow
        return pa.table(found, pa.schema([schema.field(column.name) for column in plan.columns]))

    def _assemble_file(self, plan: RowGroupPages) -> bytearray:
        """Return a file with nothing but the selected pages."""
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
    """Return the chosen ones of the rows in the selected pages."""
    found = file.read_row_group(0, columns=[column.name], use_threads=False)
    if found.num_rows != column.rows:
        raise ValueError(f"{found.num_rows} rows of {column.name} instead of {column.rows}")
    return found.column(0).take(pa.array(column.row_indices))


def _plan_column(name: str, leaves: list[_LeafPages], rows: Positions) -> _ColumnPages:
    """Choose the pages of a column; those of its leaves end together only now and then, if at all."""
    bounds = reduce(np.intersect1d, [np.unique(leaf.rows) for leaf in leaves])
    parts, part_of = np.unique(np.searchsorted(bounds, rows, "right") - 1, return_inverse=True)
    lengths = bounds[parts + 1] - bounds[parts]
    before = np.cumsum(lengths) - lengths
    selected = []
    for leaf in leaves:
        chosen = np.isin(np.searchsorted(bounds, leaf.rows[:-1], "right") - 1, parts)
        # pyarrow writes a page without rows where the dictionary of a list is full, and cannot read it
        selected.append(_SelectedPages(leaf, np.flatnonzero(chosen & (np.diff(leaf.rows) > 0))))
    return _ColumnPages(
        name, selected, int(lengths.sum()), rows - (bounds[parts] - before)[part_of]
    )


def _count_values(file: bytearray, selected: _SelectedPages) -> int:
    """Return how many values the pages at the end of a file have; raises ValueError if they are not the ones told."""
    leaf, pages = selected.leaf, selected.pages
    if leaf.chunk.index is None:
        return leaf.chunk.values
    sizes, rows = np.diff(leaf.starts)[pages], np.diff(leaf.rows)[pages]
    starts = len(file) - int(sizes.sum()) + np.cumsum(sizes) - sizes
    return sum(
        _count_page_values(file, at, size, count, is_flat=leaf.is_flat)
        for at, size, count in zip(starts.tolist(), sizes.tolist(), rows.tolist(), strict=True)
    )


def _count_page_values(file: bytearray, at: int, size: int, rows: int, *, is_flat: bool) -> int:
    page, end = decode_struct(file, at)
    head, _ = decode_struct(file, page[_HEAD_V2 if _HEAD_V2 in page else _HEAD].start)
    values = decode_integer(file, head[_VALUES].start)
    is_page = decode_integer(file, page[_TYPE].start) in _DATA_PAGES
    as_told = values == rows if is_flat else values >= rows
    if _HEAD_V2 in page:
        as_told &= decode_integer(file, head[_ROWS_V2].start) == rows
    if not is_page or not as_told or end - at + decode_integer(file, page[_SIZE].start) != size:
        raise ValueError(f"a page of {size} bytes and {rows} rows has another head")
    return values


def _decode_locations(index: bytes, chunk: ColumnChunk, rows: int) -> tuple[Int64Array, Int64Array]:
    """Return where pages begin, in bytes and in rows, and where the last one ends; they fill their chunk."""
    starts, sizes, firsts = _decode_offset_index(index)
    begin, end = chunk.pages
    starts, firsts = np.append(starts, end), np.append(firsts, rows)
    fills = begin <= starts[0] and starts.max() <= end and (starts[:-1] + sizes == starts[1:]).all()
    ascends = firsts[0] == 0 and (np.diff(firsts) >= 0).all()
    if not fills or not ascends or sizes.min() <= 0:
        raise ValueError(f"the offset index of the pages from {begin} to {end} is damaged")
    return starts, firsts


def _decode_offset_index(index: bytes) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Decode the offset, the size and the first row of all pages: a list of structs of three numbers each."""
    count, kind, at = decode_list_header(index, 1)
    data = np.frombuffer(index, np.uint8, offset=at)
    ends = np.flatnonzero(data < 0x80)[: count * _TOKENS_PER_LOCATION] + 1
    if (
        index[0] != _LIST_FIRST
        or kind != STRUCT
        or not count
        or len(ends) != count * _TOKENS_PER_LOCATION
    ):
        raise ValueError("an offset index is not understood")
    tokens = np.append(0, ends[:-1]).reshape(count, _TOKENS_PER_LOCATION)
    lengths = ends.reshape(count, _TOKENS_PER_LOCATION)[:, 1::2] - tokens[:, 1::2]
    if (data[tokens[:, ::2]] != _LOCATION_TOKENS).any() or lengths.max() > _MAX_VARINT_BYTES:
        raise ValueError("the location of a page is not understood")
    raw, numbers = np.zeros(lengths.shape, np.int64), tokens[:, 1::2]
    for byte in range(int(lengths.max())):
        there = byte < lengths
        raw[there] |= (data[numbers[there] + byte] & 0x7F).astype(np.int64) << (7 * byte)
    offsets, sizes, rows = (raw >> 1 ^ -(raw & 1)).T
    return offsets, sizes, rows


def _total_bytes(chunks: Mapping[int, ColumnChunk]) -> int:
    return sum(end - start for start, end in (chunk.pages for chunk in chunks.values()))


def _is_small_enough(part: int, whole: int) -> bool:
    """Tell whether reading a part is enough less than all to look for it."""
    return 4 * part <= 3 * whole


def _estimate_touched_rows(rows: Positions) -> int:
    """Return about how many rows lie in the pages of sorted rows."""
    return int(1 + np.count_nonzero(np.diff(rows >> _ASSUMED_PAGE_BITS))) << _ASSUMED_PAGE_BITS


def _join_ranges(
    ranges: Iterable[ByteRange], gap: int
) -> Iterator[tuple[int, int, list[ByteRange]]]:
    """Yield ranges that lie near each other, behind where they begin and end together."""
    together, first, last = list[ByteRange](), 0, 0
    for start, end in sorted(span for span in ranges if span[0] < span[1]):
        if together and start > last + gap:
            yield first, last, together
            together = []
        if not together:
            first = last = start
        together.append((start, end))
        last = max(last, end)
    if together:
        yield first, last, together
