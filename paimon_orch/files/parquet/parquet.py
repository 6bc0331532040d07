"""Parquet data files through pyarrow.

See docs/format/data-files.md#parquet.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial
from itertools import accumulate
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_orch.decode_limits import fit_batch_rows
from paimon_orch.errors import InputError
from paimon_orch.files.nested_arrays import (
    child_fields,
    contains_type,
    fill_required_fields,
    has_required_fields,
    map_atoms,
)
from paimon_orch.files.parquet import int96
from paimon_orch.files.parquet.byte_ranges import ByteRange, join_ranges
from paimon_orch.files.parquet.footer import PARQUET_MAGIC, Footer
from paimon_orch.files.parquet.footer_fields import FileLayout
from paimon_orch.files.parquet.footer_sink import FooterSink
from paimon_orch.files.parquet.int96 import (
    INT96_BYTES_TYPE,
    int96_storage_type,
    is_nanosecond_timestamp,
    patch_int96_types,
)
from paimon_orch.files.parquet.list_entries import check_list_entries
from paimon_orch.files.parquet.page_check import PageCheck, ReadPlan
from paimon_orch.files.parquet.page_reader import (
    LOCAL_COSTS,
    REMOTE_COSTS,
    PageReader,
    ReadCosts,
    RowGroupPages,
)
from paimon_orch.files.parquet.repeated_columns import (
    NOTHING_REPEATED,
    RepeatedColumns,
    find_repeated_keys,
)
from paimon_orch.files.parquet.row_group_assembly import RowGroupAssembly
from paimon_orch.files.parquet.row_group_source import RowGroupSource
from paimon_orch.files.variant_text import has_variants
from paimon_orch.format.arrays import Positions
from paimon_orch.format.schema import KEY_PREFIX, SEQUENCE_NUMBER
from paimon_orch.format.text import decode_text
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import AtomicType, Field
from paimon_orch.storage.streams import READ_AHEAD_BYTES, ObjectInput

_LOCAL_BUFFER_BYTES = 65_536
_MAX_AHEAD_BYTES = 32 << 20  # two row groups of more bytes are not in memory at the same time
_MAX_INDEX_BYTES = 2  # of a value in a column of few distinct values, before compression
_MAX_FOOTER_BOUND_BYTES = 4_096  # Parquet's writer omits longer bounds
_CODECS = {
    **{name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli", "none")},
    "uncompressed": "none",
}
_DOT = re.compile(r"\.")
_LIST_GROUPS = {
    pa.MapType: ".key_value",
    pa.ListType: ".list",
    pa.FixedSizeListType: ".list",
}
_CODEC_NUMBERS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """The page sizes of a file with a page index, for reads of a few rows."""

    bytes: int
    rows: int

    values_per_check: int
    """The number of values after which the bytes of a page are checked."""

    def to_writer_options(self) -> dict[str, Any]:
        """Return the options of a Parquet writer."""
        return {
            "write_page_index": True,
            "data_page_size": self.bytes,
            "write_batch_size": self.values_per_check,
            "max_rows_per_page": self.rows,
        }


# With half of this page size, a full read takes 50 % longer. With twice this page size, a read of
# adjacent rows needs 50 % more bytes.
SMALL_PAGES = PageLimits(bytes=32 << 10, rows=2_048, values_per_check=128)


class ParquetFileReader:
    """One open Parquet file; the default costs depend on whether it is ``remote``."""

    def __init__(
        self, source: IO[bytes], *, remote: bool = False, costs: ReadCosts | None = None
    ) -> None:
        # pre_buffer merges the ranges of a row group into few requests, but an object store has its
        # own merged ranges. Local reads are as fast without it. With a small buffer they need less
        # memory, because a merge of many files does not hold whole column chunks of all files.
        self._source, self._remote = source, remote
        self._footer = Footer(source, remote=remote)
        self._check = PageCheck(source, self._footer, self._footer.stored_bytes)
        self._dictionaries: list[str] = []
        self._file = self._open()
        self._costs = costs or (REMOTE_COSTS if remote else LOCAL_COSTS)
        self.num_rows: int | None = self._file.metadata.num_rows
        self.names: Sequence[str] = self._file.schema_arrow.names

    def _open(self, dictionaries: Iterable[str] = ()) -> pq.ParquetFile:
        return pq.ParquetFile(
            self._source,
            metadata=self._footer.metadata,
            pre_buffer=self._remote and not isinstance(self._source, ObjectInput),
            buffer_size=0 if self._remote else _LOCAL_BUFFER_BYTES,
            read_dictionary=list(dictionaries),
        )

    def keep_dictionaries(self, columns: Sequence[str]) -> None:
        """Read text columns as dictionary arrays from now on."""
        self._dictionaries = list(columns)
        self._file = self._open(columns)

    def find_dictionary_columns(self) -> list[str]:
        """Return the text columns that are stored as indices of small dictionaries.

        A row group whose dictionary became too large also has pages of values, which are larger.
        """
        metadata = self._file.metadata
        groups = range(metadata.num_row_groups)
        found, leaf = [], 0
        for field in self._file.schema_arrow:
            chunks = [self._footer.column(group, leaf) for group in groups]
            if pa.types.is_string(field.type) and all(
                chunk.has_dictionary_page
                and chunk.total_uncompressed_size <= _MAX_INDEX_BYTES * chunk.num_values
                for chunk in chunks
            ):
                found.append(field.name)
            leaf += sum(1 for _ in _iterate_leaves(field))
        return found

    def batches(
        self, columns: Sequence[str], batch_rows: int, groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the named columns of all rows or of some row groups, in file order."""
        numbers = list(range(self.num_row_groups)) if groups is None else list(groups)
        leaves = self._find_leaves(columns)
        batch_rows = fit_batch_rows(batch_rows, len(leaves), self._check.stored_bytes, copies=2)
        # With pre_buffer, a call for several row groups keeps all of them in memory. The items of
        # lists are compared with the pages of one row group.
        is_apart = self._remote or self._check.has_lists(leaves)
        calls = [[number] for number in numbers] if is_apart else [numbers]
        for number, row_groups in enumerate(calls):
            if isinstance(self._source, ObjectInput):
                following = numbers[number + 1 : number + 2]
                self._source.expect(self._plan_ranges(row_groups, following, columns))
            plan = self._check.plan(row_groups, leaves, batch_rows)
            file = self._file
            if plan.dictionary_paths:
                file = self._open([*self._dictionaries, *plan.dictionary_paths])
            batches = file.iter_batches(
                batch_size=plan.batch_rows,
                row_groups=row_groups,
                columns=list(columns),
                use_threads=False,
            )
            if plan == ReadPlan(batch_rows):
                if plan.list_entries:
                    batches = check_list_entries(batches, plan.rows, plan.list_entries)
                yield from batches
            else:
                yield from self._check.check_batches(batches, plan, batch_rows, self._dictionaries)

    def _find_leaves(self, columns: Sequence[str]) -> list[int]:
        """Return the numbers of the leaf columns of columns or of parts of them."""
        names = set(columns)
        return [
            leaf
            for leaf, path in enumerate(self._leaf_paths)
            # a name can have dots
            if path in names or any(path[: dot.start()] in names for dot in _DOT.finditer(path))
        ]

    @cached_property
    def _leaf_paths(self) -> list[str]:
        schema = self._footer.metadata.schema
        return [schema.column(leaf).path for leaf in range(len(schema))]

    def _plan_ranges(
        self, groups: Sequence[int], following: Sequence[int], columns: Sequence[str]
    ) -> list[ByteRange]:
        """Return the ranges to read of row groups, and of the following ones if these are small."""
        ranges = self._merge_ranges(groups, columns)
        next_ranges = self._merge_ranges(following, columns)
        read_ahead_bytes = sum(end - start for start, end in (*ranges, *next_ranges))
        return [*ranges, *next_ranges] if read_ahead_bytes <= _MAX_AHEAD_BYTES else ranges

    def _merge_ranges(self, groups: Sequence[int], columns: Sequence[str]) -> list[ByteRange]:
        """Return the ranges of the column chunks; those that are close to each other are one."""
        leaves, ranges = self._find_leaves(columns), list[ByteRange]()
        for number in groups:
            for leaf in leaves:
                start, end, *_ = self._footer.locate_pages(number, leaf)
                ranges.append((start, end))
        limit = self._footer.start
        valid = [(start, end) for start, end in ranges if 0 <= start < end <= limit]
        return [(start, end) for start, end, _ in join_ranges(valid, READ_AHEAD_BYTES)]

    def find_arrow_type(self, column: str) -> pa.DataType:
        """Return the Arrow type of a column."""
        return self._file.schema_arrow.field(column).type

    @property
    def num_row_groups(self) -> int:
        """Return the number of row groups."""
        return int(self._file.num_row_groups)

    @cached_property
    def row_group_starts(self) -> list[int]:
        """Return the first row position of each row group, followed by the number of rows."""
        rows = (self.row_group_rows(group) for group in range(self.num_row_groups))
        return list(accumulate(rows, initial=0))

    def row_group_rows(self, index: int) -> int:
        """Return the number of rows of a row group."""
        return int(self._file.metadata.row_group(index).num_rows)

    def row_group_bytes(self, index: int) -> int:
        """Return the stored size of a row group in bytes."""
        chunks = self._footer.chunks(index, range(self._file.metadata.num_columns))
        return sum(end - start for start, end in (chunk.pages for chunk in chunks.values()))

    def row_group_statistics(self, index: int, column: str) -> "pq.Statistics | None":
        """Return the statistics of a column in a row group, or None for nested columns."""
        if column not in self._leaf_paths:
            return None
        return self._footer.column(index, self._leaf_paths.index(column)).statistics

    def plan_pages(
        self, columns: Sequence[str], selected: Mapping[int, Positions]
    ) -> dict[int, RowGroupPages]:
        """Return the pages to read; see :meth:`PageReader.plan`. Raises :class:`PageIndexError`."""
        return {} if self._page_reader is None else self._page_reader.plan(columns, selected)

    def read_pages(self, plan: RowGroupPages) -> pa.Table:
        """Return the selected rows of a row group; raises :class:`PageIndexError`."""
        assert self._page_reader is not None
        return self._page_reader.read(plan)

    @cached_property
    def _page_reader(self) -> PageReader | None:
        """Return None if pyarrow would interpret a dot in a name as a nested column."""
        leaves, start = {}, 0
        for field in self._file.schema_arrow:
            end = start + sum(1 for _ in _iterate_leaves(field))
            leaves[field.name] = range(start, end)
            start = end
        if start != self._file.metadata.num_columns or any("." in name for name in leaves):
            return None
        return PageReader(self._source, self._footer, leaves, self._costs)


class _EncodedFile(pq.ParquetWriter):  # type: ignore[misc]
    def __del__(self) -> None:
        # After an error, such as a full disk, Arrow cannot write the footer; nobody needs it.
        with suppress(OSError, RuntimeError):
            super().__del__()


class ParquetFileWriter:
    """Writes one Parquet file, with a row group for each table.

    ``pages`` limits the pages and adds a page index, for reads of a few rows. Columns get a
    dictionary if the ratio of distinct values in the first rows is below ``max_distinct_ratio``.

    ``for_iceberg`` omits bounds and dictionaries of timestamps in milliseconds. Iceberg's Java
    library compares them with microseconds (apache/iceberg#18173), so filters would lose rows.

    A key column ``_KEY_x`` must have the same values as the column ``x``: they are encoded only
    once, except in files with a page index or with INT96.
    """

    def __init__(
        self,
        sink: IO[bytes],
        fields: Sequence[Field],
        codec: str,
        zstd_level: int,
        *,
        pages: PageLimits | None = None,
        max_distinct_ratio: float = 0.1,
        for_iceberg: bool = False,
    ) -> None:
        if codec not in _CODECS:
            raise InputError(
                f"'file.compression' = {codec!r}: Parquet supports {', '.join(sorted(_CODECS))}"
            )
        self._types = [field.type for field in fields]
        self._arrow_schema = to_arrow_schema(fields, with_ids=True)
        self._schema = pa.schema(
            [field.with_type(int96_storage_type(field.type)) for field in self._arrow_schema]
        )
        self._sink, self._codec = FooterSink(sink), _CODECS[codec]
        self._compression_level = zstd_level if codec == "zstd" else None
        self._page_options = {} if pages is None else pages.to_writer_options()
        self._max_distinct_ratio = max_distinct_ratio
        self._for_iceberg = for_iceberg
        self._writer: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []
        self._groups = RowGroupAssembly(self._sink)
        self._has_int96 = any(
            contains_type(field.type, is_nanosecond_timestamp) for field in self._arrow_schema
        )
        can_repeat = pages is None and not self._has_int96
        repeated = find_repeated_keys(fields) if can_repeat else NOTHING_REPEATED
        self._columns = RepeatedColumns.of(self._schema, repeated)

    def write(self, table: pa.Table) -> None:
        """Write the rows of a table as one row group."""
        if self._columns.sources and not table.num_rows:
            return
        columns = [
            column
            if (column.type == target and not has_variants(target))
            or pa.types.is_dictionary(column.type)
            else pa.chunked_array(
                [map_atoms(chunk, kind, target, _convert_atom) for chunk in column.chunks], target
            )
            for column, kind, target in zip(
                table.columns, self._types, self._schema.types, strict=True
            )
        ]
        columns = [
            pa.chunked_array(map(fill_required_fields, column.chunks), column.type)
            if has_required_fields(column.type)
            else column
            for column in columns
        ]
        schema = pa.schema(
            [
                # the types of other columns are equal, but may lack the ids of nested fields
                field.with_type(column.type) if pa.types.is_dictionary(column.type) else field
                for field, column in zip(self._schema, columns, strict=True)
            ]
        )
        # the writer can store only one dictionary in a row group
        stored = pa.table(columns, schema=schema).unify_dictionaries()
        bounded = [field.name for field in self._schema if not self._omits_bounds(field.type)]
        dictionary_columns = (
            []
            if self._writer
            else _find_low_cardinality_columns(stored.select(bounded), self._max_distinct_ratio)
        )
        if self._columns.sources:
            stored = stored.select(self._columns.encoded_names)
        if self._writer is None:
            self._writer = self._open(self._sink, stored.schema, dictionary_columns, self._footers)
        self._groups.add_encoded()
        if self._columns.sources:
            self._sink.start_row_group(self._columns, table.num_rows)
        self._writer.write_table(stored, row_group_size=max(1, table.num_rows))

    @property
    def copied_layout(self) -> FileLayout | None:
        """Return the layout of row groups that :meth:`copy` accepts, or None if it accepts none.

        Row groups of other writers have no small pages, and may have bounds that Iceberg must not
        see.
        """
        leaves = (leaf for field in self._schema for leaf in _iterate_leaves(field))
        if self._page_options or any(self._omits_bounds(kind) for _, kind in leaves):
            return None
        return FileLayout.of_footer(self._encode_empty_footer(), _CODEC_NUMBERS[self._codec])

    def _encode_empty_footer(self) -> bytes:
        """Return the footer of a file without row groups."""
        sink = io.BytesIO()
        self._open(sink, self._schema, [], []).close()
        return patch_int96_types(Footer(sink).data)

    def copy(self, source: RowGroupSource) -> None:
        """Copy the row groups of another file, which has the layout :attr:`copied_layout`."""
        self._groups.copy(source)

    def _open(
        self,
        sink: IO[bytes] | FooterSink,
        schema: pa.Schema,
        dictionary_columns: list[str],
        footers: list[pq.FileMetaData],
    ) -> pq.ParquetWriter:
        return _EncodedFile(
            sink,
            schema,
            compression=self._codec,
            compression_level=self._compression_level,
            use_dictionary=dictionary_columns,
            write_statistics=self._find_statistics_columns(),
            store_decimal_as_integer=True,
            store_schema=False,
            write_time_adjusted_to_utc=True,
            metadata_collector=footers,
            **self._page_options,
        )

    def _find_statistics_columns(self) -> list[str]:
        """Return the paths of columns with bounds; INT96 has none, because it has no order."""
        return [
            path
            for field in self._schema
            for path, kind in _iterate_leaves(field)
            if kind != INT96_BYTES_TYPE and not self._omits_bounds(kind)
        ]

    def _omits_bounds(self, kind: pa.DataType) -> bool:
        return self._for_iceberg and pa.types.is_timestamp(kind) and kind.unit == "ms"

    def close(self) -> None:
        """Write the footer."""
        if self._writer is None and not self._groups.has_copies:
            self._columns = replace(self._columns, sources=NOTHING_REPEATED)
            self.write(self._schema.empty_table())
        encoded = pa.schema([self._schema.field(name) for name in self._columns.encoded_names])
        writer = self._writer or self._open(self._sink, encoded, [], self._footers)
        is_assembled = self._groups.has_copies or bool(self._columns.sources)
        if not self._has_int96 and not is_assembled:
            writer.close()
            return
        self._sink.hold()
        writer.close()
        page_index, footer = self._sink.release()
        footer = patch_int96_types(footer) if self._has_int96 else footer
        self._sink.write(page_index)
        if is_assembled:
            footer = self._groups.encode_footer(footer, self._encode_empty_footer(), self._columns)
        self._sink.write(footer + len(footer).to_bytes(4, "little") + PARQUET_MAGIC)

    def find_footer_bounds(self, table: pa.Table) -> list[str]:
        """Return the columns of a row group for which :meth:`footer_bounds` has bounds.

        These are the columns whose bounds Arrow computes slowly.
        """
        return [
            name
            for name, column in zip(table.column_names, table.columns, strict=True)
            if _has_footer_bounds(column)
        ]

    def footer_bounds(self) -> Iterator[tuple[str, object, object]]:
        """Yield the bounds of columns in the row groups of the closed file, as internal values.

        NaN is ignored, and a row group of nulls has no bounds.
        """
        (footer,) = self._footers
        leaves = [
            (field.name, _footer_converter(field.type))
            for field in self._schema
            if field.name not in self._columns.sources
            for _ in _iterate_leaves(field)
        ]
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for number, (encoded_name, convert) in enumerate(leaves):
                statistics = None if convert is None else group.column(number).statistics
                if convert is not None and statistics is not None and statistics.has_min_max:
                    low, high = convert(statistics.min_raw), convert(statistics.max_raw)
                    for name in self._columns.find_equal_names(encoded_name):
                        yield name, low, high


def _has_footer_bounds(column: pa.ChunkedArray) -> bool:
    """Return whether the bounds of a column are in its footer, as values that can be converted."""
    is_dictionary = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if is_dictionary else column.type
    if _footer_converter(kind) is None:
        return False
    if not pa.types.is_string(kind):
        return True
    arrays = [chunk.dictionary for chunk in column.chunks] if is_dictionary else column.chunks
    lengths = [pc.max(pc.binary_length(array)).as_py() or 0 for array in arrays]
    return max(lengths, default=0) <= _MAX_FOOTER_BOUND_BYTES


def _footer_converter(kind: pa.DataType) -> Callable[[Any], object] | None:
    """Return a function from the values of a footer to internal values, or None for other types."""
    if pa.types.is_string(kind):
        return decode_text
    if isinstance(kind, pa.Decimal128Type) and not _is_long_decimal(kind):
        return partial(_build_decimal, kind.scale)
    return float if pa.types.is_floating(kind) else None


def _build_decimal(scale: int, unscaled: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _convert_atom(array: pa.Array, _type: AtomicType, _target: pa.DataType) -> pa.Array:
    return int96.encode_int96(array) if is_nanosecond_timestamp(array.type) else array


def _iterate_leaves(field: "pa.Field[pa.DataType]") -> Iterator[tuple[str, pa.DataType]]:
    if not pa.types.is_nested(field.type):
        yield field.name, field.type
        return
    group = _LIST_GROUPS.get(type(field.type), "")
    for child in child_fields(field.type):
        for path, leaf in _iterate_leaves(child):
            yield f"{field.name}{group}.{path}", leaf


def _find_low_cardinality_columns(table: pa.Table, max_distinct_ratio: float) -> list[str]:
    """Return the columns with few distinct values among the first rows."""
    sample = table.slice(0, 16_384)
    repeats: dict[str, bool] = {SEQUENCE_NUMBER.name: False}
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        if not name.startswith(KEY_PREFIX) and name not in repeats:
            repeats[name] = _has_low_cardinality(column, max_distinct_ratio)
    return [
        name for name in sample.column_names if repeats.get(name.removeprefix(KEY_PREFIX), False)
    ]


def _has_low_cardinality(column: pa.ChunkedArray, max_distinct_ratio: float) -> bool:
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind) or _is_long_decimal(kind):
        return False
    if pa.types.is_dictionary(kind):  # all chunks have the same dictionary
        column = pa.chunked_array([chunk.indices for chunk in column.chunks], kind.index_type)
    distinct: int = pc.count_distinct(column).as_py()
    return distinct < max(2, max_distinct_ratio * len(column))


def _is_long_decimal(kind: pa.DataType) -> bool:
    """Return whether a type has dictionary pages that Java Paimon 0.9 cannot read."""
    return isinstance(kind, pa.Decimal128Type) and kind.precision > 18
