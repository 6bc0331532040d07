"""Row groups that are copied to another file are read like those of the source."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.golden import GOLDEN, canonical_rows
from support.random_tables import tables

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.files import row_selection as selection
from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.parquet import row_group_source
from paimon_orch.files.parquet.footer import Footer
from paimon_orch.files.parquet.footer_fields import FileLayout
from paimon_orch.files.parquet.page_reader import ReadCosts
from paimon_orch.files.parquet.parquet import PageLimits, ParquetFileReader, ParquetFileWriter
from paimon_orch.files.parquet.row_group_source import RowGroupSource
from paimon_orch.files.parquet.thrift_compact import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    ThriftFields,
    decode_list,
    encode_integer,
    encode_list,
    encode_struct,
    split_struct,
)
from paimon_orch.format.types.data_types import Field, parse_columns

ANY_SIZE = BatchSizes(min_copied_group_bytes=1, min_copied_chunk_bytes=1)
NO_COSTS = ReadCosts(
    request_cost=0, lookup_cost=-(1 << 30), footer_cost_factor=0, max_read_share=1 << 30
)
COLUMNS = "k BIGINT, s STRING, l ARRAY<INT>, t TIMESTAMP(9), d DECIMAL(28, 2)"
FIELDS = parse_columns(COLUMNS)


def table_of(rows: int, start: int = 0) -> pa.Table:
    numbers = range(start, start + rows)
    return pa.table({
        "k": pa.array([None if n % 7 == 3 else n for n in numbers], pa.int64()),
        "s": [f"s{n % 5}" for n in numbers],
        "l": pa.array([[n] * (n % 3) for n in numbers], pa.list_(pa.int32())),
        "t": pa.array(numbers, pa.timestamp("ns")),
        "d": pa.array(numbers, pa.decimal128(28, 2)),
    })  # fmt: skip


def write_file(
    table: pa.Table,
    fields: list[Field] = FIELDS,
    groups: int = 2,
    pages: PageLimits | None = None,
    codec: str = "zstd",
) -> bytes:
    sink, step = io.BytesIO(), -(-table.num_rows // groups) or 1
    writer = ParquetFileWriter(sink, fields, codec, 1, pages=pages)
    for start in range(0, table.num_rows, step):
        writer.write(table.slice(start, step))
    writer.close()
    return sink.getvalue()


def layout_of(fields: list[Field]) -> FileLayout:
    layout = ParquetFileWriter(io.BytesIO(), fields, "zstd", 1).copied_layout
    assert layout is not None
    return layout


def open_source(
    data: bytes,
    fields: list[Field] = FIELDS,
    sizes: BatchSizes = ANY_SIZE,
    layout: FileLayout | None = None,
) -> RowGroupSource | None:
    return RowGroupSource.open(io.BytesIO(data), layout or layout_of(fields), sizes, remote=False)


def assemble(
    fields: list[Field], parts: list[bytes | pa.Table], layout: FileLayout | None = None
) -> bytes:
    """Return a file of the row groups of files and of tables; the files must be copied."""
    sink = io.BytesIO()
    writer = ParquetFileWriter(sink, fields, "zstd", 1)
    layout = layout or layout_of(fields)
    for part in parts:
        if isinstance(part, bytes):
            source = open_source(part, layout=layout)
            assert source is not None
            writer.copy(source)
        else:
            writer.write(part)
    writer.close()
    return sink.getvalue()


def read(data: bytes) -> pa.Table:
    return pq.ParquetFile(io.BytesIO(data)).read()


def list_chunks(data: bytes) -> list[dict[str, Any]]:
    """Return what pyarrow says about all column chunks, except for their positions."""
    metadata = pq.read_metadata(io.BytesIO(data))
    chunks = []
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column).to_dict()
            for name in ("file_offset", "data_page_offset", "dictionary_page_offset"):
                chunk.pop(name)
            chunks.append(chunk)
    return chunks


@st.composite
def random_parts(draw: st.DrawFn) -> tuple[list[Field], list[tuple[pa.Table, bytes | None]]]:
    """Tables of one schema, most of them also as a file."""
    fields, table = draw(tables("parquet").filter(lambda drawn: drawn[1].num_rows > 0))
    parts: list[tuple[pa.Table, bytes | None]] = []
    for _ in range(draw(st.integers(1, 4))):
        seed, rows = draw(st.integers(0, 99)), draw(st.integers(1, 40))
        picked = table.take(pa.array(np.random.default_rng(seed).integers(0, table.num_rows, rows)))
        if draw(st.integers(0, 3)) == 0:
            parts.append((picked, None))
            continue
        page_rows = draw(st.none() | st.integers(1, 9))
        pages = page_rows and PageLimits(bytes=1 << 10, rows=page_rows, values_per_check=4)
        parts.append((picked, write_file(picked, fields, draw(st.integers(1, 3)), pages or None)))
    return fields, parts


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(random_parts())
def test_copied_and_encoded_row_groups_form_one_file(
    drawn: tuple[list[Field], list[tuple[pa.Table, bytes | None]]],
) -> None:
    fields, parts = drawn
    data = assemble(fields, [table if file is None else file for table, file in parts])

    expected = read(write_file(pa.concat_tables([table for table, _ in parts]), fields, groups=1))
    assert canonical_rows(read(data)) == canonical_rows(expected)
    assert read(data).schema == expected.schema
    metadata, plain = (
        pq.read_metadata(io.BytesIO(file)) for file in (data, write_file(parts[0][0], fields))
    )
    assert (metadata.schema, metadata.created_by) == (plain.schema, plain.created_by)
    assert metadata.num_rows == sum(table.num_rows for table, _ in parts)
    sources = [
        source
        for _, file in parts
        for source in (list_chunks(file) if file else [None] * metadata.num_columns)
    ]
    for chunk, source in zip(list_chunks(data), sources, strict=True):
        assert source is None or repr(source) == repr(chunk)


def read_by_pages(data: bytes, positions: list[int]) -> list[Any]:
    """Return some rows, read only with the page index."""
    reader = ParquetFileReader(io.BytesIO(data), costs=NO_COSTS)
    inside = selection.split_by_row_group(reader, range(reader.num_row_groups), np.array(positions))
    plans = reader.plan_pages(reader.names, inside)
    assert plans.keys() == inside.keys(), "a row group has no page index"
    return [
        row for group in sorted(plans) for row in canonical_rows(reader.read_pages(plans[group]))
    ]


def test_the_page_index_locates_the_pages_in_the_new_file() -> None:
    pages = PageLimits(bytes=1 << 20, rows=16, values_per_check=8)
    first, second = (write_file(table_of(200, start), pages=pages) for start in (0, 200))
    data = assemble(FIELDS, [table_of(3, 900), first, second])

    positions = [5, 90, 103, 110, 300, 402]  # none in the row group that was encoded
    assert read_by_pages(data, positions) == canonical_rows(read(data).take(pa.array(positions)))
    assert canonical_rows(read(data)) == canonical_rows(
        pa.concat_tables([table_of(3, 900), table_of(400)])
    )


def test_bloom_filters_are_copied() -> None:
    rows = pa.table({"k": pa.array([n * 10 for n in range(1_000)], pa.int64())})
    sink = io.BytesIO()
    pq.write_table(
        rows,
        sink,
        row_group_size=500,
        compression="zstd",
        store_schema=False,
        bloom_filter_options={"k": {"ndv": 500, "fpp": 0.01}},
    )
    fields = parse_columns("k BIGINT")
    data = assemble(fields, [write_file(rows, fields), sink.getvalue()])

    metadata = pq.read_metadata(io.BytesIO(data))
    chunks = [metadata.row_group(group).column(0) for group in range(4)]
    old = pq.read_metadata(sink).row_group(1).column(0)
    assert [chunk.bloom_filter_offset is None for chunk in chunks] == [True, True, False, False]
    new_filter, old_filter = (
        file[chunk.bloom_filter_offset :][: chunk.bloom_filter_length]
        for file, chunk in ((data, chunks[3]), (sink.getvalue(), old))
    )
    assert new_filter == old_filter
    assert len(new_filter) > 100
    assert read(data).column("k").to_pylist() == rows["k"].to_pylist() * 2


@pytest.mark.parametrize(
    "where", ["k = 301", "k between 140 and 160", "s = 's3' and k > 500", "k is null", "k > 999"]
)
def test_duckdb_filters_copied_row_groups(where: str, tmp_path: Path) -> None:
    pages = PageLimits(bytes=1 << 20, rows=16, values_per_check=8)
    data = assemble(FIELDS, [write_file(table_of(300, start), pages=pages) for start in (0, 300)])
    (tmp_path / "file.parquet").write_bytes(data)
    connection = duckdb.connect()
    connection.register("expected", table_of(600))

    file_rows, expected_rows = (
        source.filter(where).project("k, s, l").order("all").fetchall()
        for source in (
            connection.read_parquet(str(tmp_path / "file.parquet")),
            connection.table("expected"),
        )
    )
    assert file_rows == expected_rows


def test_similar_column_chunks_share_a_pattern() -> None:
    layout = layout_of(FIELDS)
    for start, rows in ((0, 200), (10_000, 300), (2_000_000, 7_000)):
        assert open_source(write_file(table_of(rows, start)), layout=layout) is not None
    counts = [len(column.patterns) for column in layout.columns]
    assert counts[1:] == [1] * 4
    assert counts[0] < 6, "a pattern of each row group"


def test_truncated_bounds_are_found_in_chunks_with_a_known_pattern() -> None:
    def edit(_: ThriftFields, metadata: ThriftFields) -> None:
        statistics = split_struct(metadata[12][1])
        metadata[12] = (STRUCT, encode_struct({**statistics, 7: (FALSE, b""), 8: (FALSE, b"")}))

    layout = layout_of(KEY_AND_TEXT)
    data = write_file(table_of(20).select(["k", "s"]), KEY_AND_TEXT, groups=1)
    for file, is_exact in ((data, True), (edit_chunks(data, edit), False)) * 2:
        source = open_source(file, layout=layout)
        assert source is not None
        assert [chunk.has_exact_bounds for chunk in source.groups[0].chunks] == [is_exact] * 2
    assert [len(column.patterns) for column in layout.columns] == [2, 2]


# --- files of other writers


def golden_files() -> Iterator[tuple[str, Path, list[Field]]]:
    """Yield the writer, the path and the columns of Parquet files of golden append tables."""
    for warehouse in sorted(GOLDEN.glob("*/*/warehouse")):
        for folder in sorted(warehouse.glob("*.db/*")):
            table = Catalog(str(warehouse)).table(f"{folder.parent.name[:-3]}.{folder.name}")
            schemas = table.stores.schemas
            try:
                splits = table.stores.files()
            except UnsupportedError:
                continue
            for split in splits:
                for file in split.files:
                    path = Path(
                        table.paths.data_file(
                            table.load().schema, split.partition, split.bucket, file
                        )
                    )
                    schema = schemas.get(file.schema_id)
                    if path.suffix == ".parquet" and not schema.primary_keys:
                        yield warehouse.parent.parent.name, path, list(schema.fields)


@pytest.mark.slow
def test_row_groups_of_other_writers_are_copied() -> None:
    copied: Counter[str] = Counter()
    for writer, path, fields in golden_files():
        data = path.read_bytes()
        if (source := open_source(data, fields)) is None:
            continue
        copied[writer] += 1
        twice = assemble(fields, [data, data])

        rows = canonical_rows(read(data))
        assert canonical_rows(read(twice)) == rows * 2
        assert repr(list_chunks(twice)) == repr(list_chunks(data) * 2)  # some bounds are NaN
        if all(chunk.offset_index for group in source.groups for chunk in group.chunks):
            positions = sorted({1, len(rows) - 1, len(rows), 2 * len(rows) - 2} - {-1})
            assert read_by_pages(twice, positions) == [(rows * 2)[n] for n in positions]
    assert copied.keys() == {"java-0.9", "java-2.0", "pypaimon-2.1", "pypaimon-rust-0.4"}


# --- files that must be decoded


def edit_footer(data: bytes, edit: Callable[[ThriftFields], None]) -> bytes:
    """Return a file whose footer is changed."""
    footer = Footer(io.BytesIO(data))
    fields = split_struct(footer.data)
    edit(fields)
    encoded = encode_struct(fields)
    return data[: footer.start] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


def edit_chunks(data: bytes, edit: Callable[[ThriftFields, ThriftFields], None]) -> bytes:
    """Return a file whose column chunks are changed: their fields, and those of their metadata."""

    def edit_chunk(chunk: bytes) -> bytes:
        fields = split_struct(chunk)
        metadata = split_struct(fields[3][1])
        edit(fields, metadata)
        return encode_struct({**fields, 3: (STRUCT, encode_struct(metadata))})

    def edit_group(group: bytes) -> bytes:
        fields = split_struct(group)
        chunks = [edit_chunk(value) for value in decode_values(fields[1][1])]
        return encode_struct({**fields, 1: (LIST, encode_list(chunks))})

    def edit_groups(fields: ThriftFields) -> None:
        groups = [edit_group(value) for value in decode_values(fields[4][1])]
        fields[4] = (LIST, encode_list(groups))

    return edit_footer(data, edit_groups)


def decode_values(data: bytes) -> list[bytes]:
    return [data[span.start : span.end] for span in decode_list(data, 0)]


def with_field(number: int, value: tuple[int, bytes]) -> bytes:
    """Return a file with one more field in its footer."""
    return edit_footer(write_file(table_of(20)), lambda fields: fields.update({number: value}))


def without_row_groups() -> bytes:
    def edit(fields: ThriftFields) -> None:
        fields[3], fields[4] = (I64, encode_integer(0)), (LIST, encode_list([]))

    return edit_footer(write_file(table_of(20)), edit)


def with_empty_row_group() -> bytes:
    zero = {3: (I64, encode_integer(0))}

    def edit(fields: ThriftFields) -> None:
        [group] = decode_values(fields[4][1])
        fields[4] = (LIST, encode_list([encode_struct(split_struct(group) | zero)]))
        fields.update(zero)

    return edit_footer(write_file(table_of(20), groups=1), edit)


def with_chunk_field(number: int, value: int) -> bytes:
    data = write_file(table_of(20))
    field = {number: (I64, encode_integer(value))}
    return edit_chunks(data, lambda fields, _: fields.update(field))


def with_metadata_field(number: int, value: int, kind: int = I64) -> bytes:
    data = write_file(table_of(20))
    field = {number: (kind, encode_integer(value))}
    return edit_chunks(data, lambda _, metadata: metadata.update(field))


def with_dictionary_of_long_decimals() -> bytes:
    def edit(_: ThriftFields, metadata: ThriftFields) -> None:
        if metadata[1][1] == encode_integer(7):
            metadata[11] = metadata[9]

    return edit_chunks(write_file(table_of(20)), edit)


def with_writer(name: bytes) -> bytes:
    return with_field(6, (BINARY, bytes([len(name)]) + name))


def with_key_value(key: bytes) -> bytes:
    entry = encode_struct({1: (BINARY, bytes([len(key)]) + key)})
    return with_field(5, (LIST, encode_list([entry])))


def write_with_pyarrow(columns: str = COLUMNS, **options: Any) -> bytes:
    sink = io.BytesIO()
    stored = pq.ParquetFile(io.BytesIO(write_file(table_of(20)))).read(["k", "s"])
    pq.write_table(stored, sink, **{"compression": "zstd", "store_schema": False} | options)
    return sink.getvalue()


INDEXED = write_file(table_of(20), pages=PageLimits(bytes=1 << 20, rows=8, values_per_check=8))
FOOTER = Footer(io.BytesIO(INDEXED)).start


def with_range(first: int, last: int, start: int, length: int) -> bytes:
    """Return a file with a page index in which all chunks have another range.

    ``first`` and ``last`` are the fields of its offset and length: 4 and 5 (offset index) and 6 and
    7 (column index) of the chunk, or 14 and 15 (Bloom filter) of its metadata.
    """

    def edit(chunk: ThriftFields, metadata: ThriftFields) -> None:
        fields = chunk if first < 10 else metadata
        fields[first] = (I64, encode_integer(start))
        fields[last] = (I32, encode_integer(length))

    return edit_chunks(INDEXED, edit)


KEY_AND_TEXT = parse_columns("k BIGINT, s STRING")
FILE_SIZE = len(write_file(table_of(20)))
PLAIN_FOOTER = Footer(io.BytesIO(write_file(table_of(20)))).start


def test_the_files_of_the_next_tests_are_copied_without_the_change() -> None:
    assert open_source(write_file(table_of(20))) is not None
    assert open_source(edit_chunks(write_file(table_of(20)), lambda *_: None)) is not None
    assert open_source(write_with_pyarrow(), KEY_AND_TEXT) is not None
    assert open_source(with_writer(b"parquet-mr version 1.16.0 (build 1)")) is not None
    assert open_source(with_key_value(b"ARROW:schema")) is not None
    assert open_source(with_field(3, (I64, encode_integer(20)))) is not None
    assert open_source(with_chunk_field(2, 0)) is not None  # 0 means that it is not set
    for fields in ((6, 7), (14, 15)):
        for start, length in ((4, 1), (FOOTER - 3, 3)):
            assert open_source(with_range(*fields, start, length)) is not None


def test_pages_of_an_offset_index_outside_of_their_column_chunk_are_damage() -> None:
    source = open_source(INDEXED)
    assert source is not None
    chunk = source.groups[0].chunks[0]
    assert chunk.offset_index is not None
    index, metadata = source.indexes[chunk.offset_index], pq.read_metadata(io.BytesIO(INDEXED))
    # the dictionary page, which the index does not locate, is the first one of the chunk
    start, end = metadata.row_group(0).column(0).data_page_offset, chunk.pages[1]

    moved = row_group_source.shift_offset_index(index, (start, end), 7)

    assert row_group_source.shift_offset_index(moved, (start + 7, end + 7), -7) == index
    for pages in ((start + 1, end), (start, end - 1)):
        with pytest.raises(ValueError, match="no page can be at"):
            row_group_source.shift_offset_index(index, pages, 7)


def test_files_with_a_large_page_index_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(INDEXED)
    assert source is not None
    size = sum(end - start for start, end in source.indexes)

    monkeypatch.setattr(row_group_source, "_MAX_INDEX_BYTES", size)
    assert open_source(INDEXED) is not None
    monkeypatch.setattr(row_group_source, "_MAX_INDEX_BYTES", size - 1)
    assert open_source(INDEXED) is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(write_file(table_of(20), codec="snappy"), id="another codec"),
        pytest.param(write_file(table_of(0), groups=1), id="no rows"),
        pytest.param(without_row_groups(), id="no row groups"),
        pytest.param(with_empty_row_group(), id="no rows in a row group"),
        pytest.param(with_field(8, (STRUCT, b"\0")), id="encrypted columns"),
        pytest.param(write_file(table_of(20))[:-4] + b"PARE", id="encrypted footer"),
        pytest.param(with_field(12, (STRUCT, b"\0")), id="unknown field of the footer"),
        pytest.param(with_chunk_field(12, 1), id="unknown field of a column chunk"),
        pytest.param(with_metadata_field(18, 1), id="unknown field of the metadata"),
        pytest.param(with_metadata_field(10, 90), id="index pages"),
        pytest.param(with_key_value(b"my.key"), id="metadata of another tool"),
        pytest.param(with_writer(b"parquet-mr version 1.7.0 (build 1)"), id="old writer"),
        pytest.param(with_writer(b"anything"), id="unknown writer"),
        pytest.param(with_writer(b"like parquet-mr version 1.12.3"), id="a trusted name inside"),
        pytest.param(with_dictionary_of_long_decimals(), id="dictionary of long decimals"),
        pytest.param(with_metadata_field(9, FILE_SIZE), id="pages after the footer"),
        pytest.param(with_metadata_field(9, 2), id="pages in the magic"),
        pytest.param(with_chunk_field(2, 2**63 - 1), id="huge offset of a column chunk"),
        pytest.param(with_metadata_field(9, 4), id="overlapping chunks"),
        pytest.param(with_chunk_field(2, -1), id="negative offset of a column chunk"),
        pytest.param(with_chunk_field(2, 5), id="offset of another column chunk"),
        pytest.param(
            with_chunk_field(2, PLAIN_FOOTER), id="offset of a column chunk in the footer"
        ),
        pytest.param(with_metadata_field(7, 0), id="no size"),
        pytest.param(with_metadata_field(7, -5), id="negative size"),
        pytest.param(with_metadata_field(7, 2**62), id="huge size"),
        pytest.param(with_metadata_field(5, 1), id="fewer values than rows"),
        pytest.param(with_metadata_field(9, 300, I32), id="offset of another Thrift type"),
        pytest.param(with_chunk_field(4, FILE_SIZE), id="offset index without length"),
        pytest.param(with_metadata_field(14, 4), id="bloom filter without length"),
        *(
            pytest.param(with_range(*fields, start, length), id=f"{name} at {start}")
            for name, fields in (("column index", (6, 7)), ("Bloom filter", (14, 15)))
            for start, length in ((FOOTER - 2, 3), (FOOTER, 1), (3, 2), (9, 0), (9, -1), (-1, 9))
        ),
        pytest.param(with_range(4, 5, FOOTER, 9), id="offset index in the footer"),
        pytest.param(with_field(3, (I64, encode_integer(19))), id="fewer rows than in the groups"),
        pytest.param(with_field(3, (I64, encode_integer(21))), id="more rows than in the groups"),
        pytest.param(write_file(table_of(20))[4:], id="no magic, and everything is moved"),
        pytest.param(b"PAR1", id="nothing"),
    ],
)
def test_other_files_are_not_copied(data: bytes) -> None:
    assert open_source(data) is None


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "none"},
        {"use_dictionary": False, "column_encoding": {"k": "DELTA_BINARY_PACKED"}},
        {"use_dictionary": False, "use_byte_stream_split": ["k"]},
    ],
    ids=str,
)
def test_other_encodings_are_not_copied(options: dict[str, Any]) -> None:
    assert open_source(write_with_pyarrow(**options), KEY_AND_TEXT) is None


@pytest.mark.parametrize(
    "columns",
    [
        COLUMNS.replace("BIGINT", "INT"),
        COLUMNS.replace("BIGINT", "BIGINT NOT NULL"),
        COLUMNS.replace("k ", "key "),
        COLUMNS.replace("STRING", "BYTES"),
        COLUMNS.replace("ARRAY<INT>", "ARRAY<BIGINT>"),
        COLUMNS.replace("TIMESTAMP(9)", "TIMESTAMP(6)"),
        COLUMNS.replace("(28, 2)", "(28, 3)"),
        COLUMNS + ", n INT",
        COLUMNS.replace(", d DECIMAL(28, 2)", ""),
        "s STRING, k BIGINT, l ARRAY<INT>, t TIMESTAMP(9), d DECIMAL(28, 2)",
    ],
)
def test_files_with_other_columns_are_not_copied(columns: str) -> None:
    data = write_file(table_of(20))
    assert open_source(data, parse_columns(columns)) is None


def test_truncated_bounds_are_recognized() -> None:
    def truncate(number: int) -> Callable[[ThriftFields, ThriftFields], None]:
        def edit(_: ThriftFields, metadata: ThriftFields) -> None:
            statistics = {**split_struct(metadata[12][1]), number: (FALSE, b"")}
            metadata[12] = (STRUCT, encode_struct(statistics))

        return edit

    columns = parse_columns("k BIGINT, s STRING")
    file = write_file(table_of(20).select(["k", "s"]), columns)
    files = [file, edit_chunks(file, truncate(7)), edit_chunks(file, truncate(8))]
    sources = [open_source(data, columns) for data in files]
    exact = [
        chunk.has_exact_bounds
        for source in sources
        if source is not None
        for chunk in source.groups[0].chunks
    ]
    assert exact == [True, True, False, False, False, False]


@pytest.mark.parametrize("name", ["min_copied_group_bytes", "min_copied_chunk_bytes"])
def test_small_row_groups_are_not_copied(name: str) -> None:
    data = write_file(table_of(400), groups=2)
    chunks = pq.read_metadata(io.BytesIO(data))
    sizes = [
        chunks.row_group(group).column(column).total_compressed_size
        for group in range(2)
        for column in range(5)
    ]
    mean = sum(sizes) // (2 if name == "min_copied_group_bytes" else 10)
    assert open_source(data, sizes=replace(ANY_SIZE, **{name: mean})) is not None
    assert open_source(data, sizes=replace(ANY_SIZE, **{name: mean + 1})) is None


def test_a_row_group_of_the_minimum_size_is_copied() -> None:
    data = write_file(table_of(20), groups=1)
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    size = sum(group.column(column).total_compressed_size for column in range(5))
    assert open_source(data, sizes=replace(ANY_SIZE, min_copied_group_bytes=size)) is not None
    assert open_source(data, sizes=replace(ANY_SIZE, min_copied_group_bytes=size + 1)) is None


def test_files_with_small_pages_and_for_iceberg_are_encoded() -> None:
    pages = PageLimits(bytes=1 << 20, rows=16, values_per_check=8)
    milliseconds = parse_columns("t TIMESTAMP(3)")
    for fields, options in ((FIELDS, {"pages": pages}), (milliseconds, {"for_iceberg": True})):
        writer = ParquetFileWriter(io.BytesIO(), fields, "zstd", 1, **options)
        assert writer.copied_layout is None
    assert ParquetFileWriter(io.BytesIO(), FIELDS, "zstd", 1, for_iceberg=True).copied_layout


@pytest.mark.slow
def test_a_damaged_footer_never_changes_rows() -> None:
    """Copying refuses a damaged file, or both files have the same rows or cannot be read.

    This does not depend on whether the layout knows the patterns of an undamaged file.
    """
    pages = PageLimits(bytes=1 << 20, rows=16, values_per_check=8)
    data = write_file(table_of(60), pages=pages)
    metadata = pq.read_metadata(io.BytesIO(data))
    start = min(
        metadata.row_group(group).column(column).data_page_offset
        for group in (0, 1)
        for column in (0,)
    )
    end_of_pages = Footer(io.BytesIO(data)).start - 1_200
    outcomes: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None)
    @given(st.integers(max(start, end_of_pages), len(data) - 1), st.integers(1, 255))
    def check(position: int, change: int) -> None:
        damaged = bytearray(data)
        damaged[position] ^= change
        layout = layout_of(FIELDS)
        assert open_source(data, layout=layout) is not None
        source = open_source(bytes(damaged))
        if source is None:
            assert open_source(bytes(damaged), layout=layout) is None
            outcomes["refused"] += 1
            return
        outcomes["copied"] += 1
        copy = assemble(FIELDS, [bytes(damaged)])
        assert assemble(FIELDS, [bytes(damaged)], layout) == copy
        if (rows := read_or_none(bytes(damaged))) is not None:
            assert read_or_none(copy) == rows

    check()
    assert min(outcomes["refused"], outcomes["copied"]) > 10


def read_or_none(data: bytes) -> list[Any] | None:
    try:
        return canonical_rows(read(data))
    except Exception:  # noqa: BLE001 - pyarrow raises many types for damaged files
        return None
