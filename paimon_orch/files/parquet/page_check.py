"""Refuses Parquet files whose pages need too much memory, before Arrow decodes them.

A few bytes can stand for a page of 2 GiB, for a long text in each row, or for any number of list
elements. Arrow allocates what pages declare.

See docs/storage.md#limits-of-decoders.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_orch.decode_limits import (
    build_limit_error,
    check_batch_bytes,
    get_allowed_batch_bytes,
    get_max_decompressed_bytes,
)
from paimon_orch.errors import UnsupportedError
from paimon_orch.files.nested_arrays import rebuild_type
from paimon_orch.files.parquet.deltas import check_delta_count, decode_deltas
from paimon_orch.files.parquet.footer import Footer
from paimon_orch.files.parquet.list_entries import check_list_entries
from paimon_orch.files.parquet.page_headers import (
    DELTA_LENGTHS,
    DeclaredPages,
    PageHeader,
    read_declared_pages,
)
from paimon_orch.files.parquet.single_page import read_dictionary

_FIXED = "FIXED_LEN_BYTE_ARRAY"
_TEXT_TYPES = ("BYTE_ARRAY", _FIXED)
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_BYTES_PER_VALUE = 8  # of a number, an offset or the levels of a list element
_BUFFER_BYTES = 1 << 20  # without a buffer, whole column chunks are read
_MAX_PART_BYTES = 1 << 30  # of a batch that was read as indices; texts of an array have up to 2 GiB
_MAX_SMALL_BATCHES = 8
_MAX_DELTA_BYTES = 64 << 20  # of a batch of texts that are stored as differences


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How to read row groups without using too much memory."""

    batch_rows: int
    dictionary_paths: list[str] = field(default_factory=list)
    """The text columns to read as dictionary arrays, whose size is known before it is used."""
    rows: int = field(default=0, compare=False)
    """The number of rows."""
    list_entries: int = field(default=0, compare=False)
    """The number of entries of leaf columns in lists."""


@dataclass(slots=True)
class _Column:
    """A leaf column of the row groups that are read."""

    metadata: "pq.ColumnSchema"
    values: int
    """The maximum number of values in a batch."""
    total_values: int
    chunks: list[tuple[int, DeclaredPages]]
    """The codec and the pages of each chunk."""

    @property
    def is_repeated(self) -> bool:
        """Return whether the column is in a list."""
        return bool(self.metadata.max_repetition_level > 0)

    @property
    def page_bytes(self) -> int:
        """Return the size of the pages that are in memory at the same time."""
        pages = (pages for _, pages in self.chunks)
        return max((part.page_bytes + part.dictionary_bytes for part in pages), default=0)

    @property
    def batch_bytes(self) -> int:
        """Return the size of a batch without texts."""
        width = self.metadata.length if self.metadata.physical_type == _FIXED else 0
        lengths = sum(page.values for _, pages in self.chunks for page, _ in pages.deltas)
        return self.values * max(width, _BYTES_PER_VALUE) + lengths * _BYTES_PER_VALUE

    @property
    def indices(self) -> int:
        """Return the maximum number of texts of dictionaries in a batch."""
        return min(self.values, sum(pages.indices for _, pages in self.chunks))

    @property
    def dictionary_bytes(self) -> int:
        """Return the size of the largest dictionary page, which one text can fill."""
        return max((pages.dictionary_bytes for _, pages in self.chunks), default=0)


@dataclass(frozen=True, slots=True)
class PageCheck:
    """Checks the pages of one open file of ``stored_bytes``."""

    source: IO[bytes]
    footer: Footer
    stored_bytes: int
    has_all_rows: bool = True
    """Whether each column has all rows of a row group, as in all files that are not assembled."""

    def has_lists(self, leaves: Iterable[int]) -> bool:
        """Return whether leaf columns are in lists."""
        schema = self.footer.metadata.schema
        return any(schema.column(leaf).max_repetition_level > 0 for leaf in leaves)

    def plan(self, groups: Sequence[int], leaves: Sequence[int], batch_rows: int) -> ReadPlan:
        """Return how to read leaf columns of row groups in batches of at most ``batch_rows``.

        A batch can have rows of several row groups. Raises ``ValueError`` if the batches need too
        much memory.
        """
        columns = [self._read_column(leaf, groups, batch_rows) for leaf in leaves]
        size, limit = (
            sum(column.page_bytes for column in columns),
            get_max_decompressed_bytes(self.stored_bytes),
        )
        if size > limit:
            content = f"the pages of {len(columns)} columns have up to {size} bytes in sum"
            raise build_limit_error(content, limit, self.stored_bytes)
        size = sum(column.batch_bytes for column in columns)
        check_batch_bytes(size, self.stored_bytes, f"a batch of {batch_rows} rows has {size} bytes")
        texts = [column for column in columns if column.metadata.physical_type in _TEXT_TYPES]
        entries = sum(column.total_values for column in columns if column.is_repeated)
        rows = sum(self.footer.metadata.row_group(group).num_rows for group in groups)
        return replace(self._plan_texts(texts, batch_rows), rows=rows, list_entries=entries)

    def check_batches(
        self,
        batches: Iterable[pa.RecordBatch],
        plan: ReadPlan,
        batch_rows: int,
        kept: Collection[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches that were read with a plan, without dictionaries except in ``kept`` columns.

        Raises ``ValueError`` if ``batch_rows`` rows need too much memory, and for lists that have
        other items than their pages.
        """
        if plan.list_entries:
            batches = check_list_entries(batches, plan.rows, plan.list_entries)
        rows = size = 0
        for batch in batches:
            if rows + batch.num_rows > batch_rows:
                rows = size = 0
            rows += batch.num_rows
            size += batch.nbytes + (
                sum(map(_count_text_bytes, batch.columns)) if plan.dictionary_paths else 0
            )
            content = f"{rows} rows have {size} bytes"
            check_batch_bytes(size, self.stored_bytes, content)
            if plan.dictionary_paths:
                yield from _expand_dictionaries(batch, size, kept)
            else:
                yield batch

    def _read_column(self, leaf: int, groups: Iterable[int], batch_rows: int) -> _Column:
        chunks = list[tuple[int, DeclaredPages]]()
        metadata = self.footer.metadata.schema.column(leaf)
        is_repeated = metadata.max_repetition_level > 0
        for group in groups:
            start, end, values, codec = self.footer.locate_pages(group, leaf)
            pages = read_declared_pages(self.source, (start, end), values)
            rows = self.footer.metadata.row_group(group).num_rows
            # Arrow would give the rest to other rows
            if pages.values != rows and self.has_all_rows and not is_repeated:
                raise ValueError(f"the pages of {rows} rows have {pages.values} values")
            chunks.append((codec, pages))
        values = sum(pages.values for _, pages in chunks)
        return _Column(metadata, values if is_repeated else min(values, batch_rows), values, chunks)

    def _plan_texts(self, columns: Sequence[_Column], batch_rows: int) -> ReadPlan:
        """Plan text columns, in which each row can repeat a long text of a page."""
        allowed = get_allowed_batch_bytes(self.stored_bytes)
        longest = sum(map(self._find_longest_difference, columns))
        if longest * batch_rows > allowed:
            batch_rows = max(1, _MAX_DELTA_BYTES // longest)
        if sum(column.dictionary_bytes * column.indices for column in columns) <= allowed:
            return ReadPlan(batch_rows)
        # A few small batches cost less than the lengths of texts.
        few_rows = allowed // (4 * sum(column.dictionary_bytes for column in columns))
        is_flat = all(column.metadata.max_repetition_level == 0 for column in columns)
        rows = max(column.total_values for column in columns)
        if is_flat and rows <= _MAX_SMALL_BATCHES * few_rows:
            return ReadPlan(min(batch_rows, max(1, few_rows)))
        sizes = {
            column.metadata.path: size
            for column in columns
            if (size := self._find_longest_text(column) * column.indices)
        }
        return ReadPlan(batch_rows, sorted(sizes) if sum(sizes.values()) > allowed else [])

    def _find_longest_difference(self, column: _Column) -> int:
        """Return the length of the longest text that is stored by differences, in bytes."""
        return max(
            (
                self._find_longest_delta(column.metadata, codec, page, start)
                for codec, pages in column.chunks
                for page, start in pages.deltas
            ),
            default=0,
        )

    def _find_longest_delta(
        self, column: "pq.ColumnSchema", codec: int, page: PageHeader, start: int
    ) -> int:
        """Return the length of the longest text of a page of differences in bytes.

        Raises ``ValueError`` for a page with more lengths than values, for which Arrow has no limit.
        """
        self.source.seek(start)
        content, levels = self.source.read(page.compressed), 0
        if page.level_bytes is not None:
            content, levels = content[page.level_bytes :], page.level_bytes
        if codec and page.is_compressed:
            if codec not in _CODECS:
                raise UnsupportedError(
                    f"the column {column.path} has texts that are stored as differences and "
                    f"compressed with codec {codec}, whose sizes cannot be checked"
                )
            size = page.decompressed - levels
            content = pa.decompress(content, size, codec=_CODECS[codec], asbytes=True)
        position = 0
        if page.level_bytes is None:
            for level in (column.max_repetition_level, column.max_definition_level):
                if level:
                    size = int.from_bytes(content[position : position + 4], "little")
                    position += 4 + size
        if page.encoding == DELTA_LENGTHS:
            check_delta_count(content, position, page.values)
            return 0  # the page has the texts
        shared, position = decode_deltas(content, position, page.values)
        added, _ = decode_deltas(content, position, page.values)
        if len(shared) != len(added):
            raise ValueError(f"{len(shared)} texts have {len(added)} ends")
        return int((shared + added).max(initial=0))

    def _find_longest_text(self, column: _Column) -> int:
        """Return the length of the longest text of all dictionary pages in bytes."""
        longest = 0
        for codec, pages in column.chunks:
            if pages.dictionary is not None:
                start, end = pages.dictionary
                self.source.seek(start)
                content = self.source.read(end - start)
                texts = read_dictionary(content, codec, pages)
                longest = max(longest, pc.max(pc.binary_length(texts)).as_py() or 0)
        return longest


def read_batches(
    source: IO[bytes],
    batch_rows: int,
    groups: Sequence[int] | None = None,
    *,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some or all row groups of a file in file order.

    Raises ``ValueError`` if they need too much memory.
    """
    footer = Footer(source)
    metadata = footer.metadata
    check = PageCheck(source, footer, footer.stored_bytes)
    numbers = list(range(metadata.num_row_groups) if groups is None else groups)
    leaves = range(metadata.num_columns)
    # The items of lists are compared with the pages of one row group.
    for row_groups in [[number] for number in numbers] if check.has_lists(leaves) else [numbers]:
        plan = check.plan(row_groups, leaves, batch_rows)
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=plan.dictionary_paths,
            buffer_size=_BUFFER_BYTES,
        )
        batches = file.iter_batches(plan.batch_rows, row_groups=row_groups, use_threads=use_threads)
        yield from check.check_batches(batches, plan, batch_rows)


def _expand_dictionaries(
    batch: pa.RecordBatch, size: int, kept: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch of ``size`` bytes in parts, whose texts can be in one array."""
    schema = pa.schema(
        [
            item if item.name in kept else item.with_type(rebuild_type(item.type, _find_value_type))
            for item in batch.schema
        ]
    )
    rows = max(1, batch.num_rows // (size // _MAX_PART_BYTES + 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows).cast(schema)


def _find_value_type(kind: pa.DataType) -> pa.DataType | None:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else None


def _count_text_bytes(array: pa.Array) -> int:
    """Return the bytes of the texts that are indices of dictionaries, at any depth."""
    if isinstance(array, pa.DictionaryArray):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return int(pc.sum(lengths).as_py() or 0)
    if isinstance(array, pa.StructArray):
        return sum(map(_count_text_bytes, array.flatten()))
    if isinstance(array, pa.MapArray):
        return _count_text_bytes(array.keys) + _count_text_bytes(array.items)
    if isinstance(array, pa.ListArray | pa.FixedSizeListArray):
        return _count_text_bytes(array.flatten())
    return 0
