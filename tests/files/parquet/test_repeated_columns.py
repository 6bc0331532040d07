"""Key columns that are stored twice are encoded once; the file has the same bytes as otherwise."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.files.batch_sizes import BatchSizes
from paimon_orch.files.parquet import parquet
from paimon_orch.files.parquet.parquet import SMALL_PAGES, PageLimits, ParquetFileWriter
from paimon_orch.files.parquet.repeated_columns import ChunkRepeater, RepeatedColumns
from paimon_orch.files.parquet.row_group_source import RowGroupSource
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import Field, parse_columns

KEY_TYPES = (
    *("BIGINT", "INT", "STRING", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(28, 2)", "BYTES"),
    *("DATE", "TIMESTAMP(3)", "BOOLEAN"),
)
ANY_SIZE = BatchSizes(min_copied_group_bytes=1, min_copied_chunk_bytes=1)


def fields_of(columns: str) -> list[Field]:
    """Return columns of which ``key_x`` stands for ``_KEY_x``."""
    fields = parse_columns(columns)
    return [
        replace(field, name=field.name.replace("key_", "_KEY_"), id=number)
        for number, field in enumerate(fields)
    ]


def rows_of(fields: list[Field], count: int, seed: int = 0, distinct: int = 1 << 30) -> pa.Table:
    """Return rows with equal values in ``_KEY_x`` and ``x``."""
    random = np.random.default_rng(seed)
    numbers: dict[str, list[int]] = {}
    columns = []
    schema = to_arrow_schema(fields)
    for field in schema:
        name, kind = field.name.removeprefix("_KEY_"), field.type
        values = numbers.setdefault(name, random.integers(0, min(distinct, 9999), count).tolist())
        converted: list[Any] = values
        if pa.types.is_list(kind):
            converted = [[n] * (n % 3) for n in values]
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            converted = [f"{n}" * (n % 9) for n in values]
        elif pa.types.is_boolean(kind):
            converted = [bool(n % 2) for n in values]
        elif pa.types.is_decimal(kind):
            converted = [Decimal(n) for n in values]
        columns.append(pa.array(converted, kind))
    return pa.table(columns, names=schema.names)


@contextmanager
def counting_encoded_columns() -> Iterator[list[list[str]]]:
    """Return the columns of each table that a Parquet writer encodes."""
    names: list[list[str]] = []
    write_table: Callable[..., None] = pq.ParquetWriter.write_table

    def write(writer: pq.ParquetWriter, table: pa.Table, **options: Any) -> None:
        names.append(table.column_names)
        write_table(writer, table, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", write)
        yield names


def write(fields: list[Field], groups: list[pa.Table], pages: PageLimits | None = None) -> bytes:
    sink = io.BytesIO()
    writer = ParquetFileWriter(sink, fields, "zstd", 1, pages=pages)
    for table in groups:
        writer.write(table)
    writer.close()
    list(writer.footer_bounds())
    return sink.getvalue()


def write_all_columns(
    fields: list[Field], groups: list[pa.Table], pages: PageLimits | None = None
) -> bytes:
    """Let pyarrow encode all columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "find_repeated_keys", lambda _: {})
        return write(fields, groups, pages)


@pytest.mark.parametrize("distinct", [3, 1 << 20], ids=["dictionary", "values"])
@settings(max_examples=10)
@given(
    st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=3),
    st.permutations(["k0", "k1", "k2", "v", "w"]),
    st.lists(st.integers(1, 3000), min_size=1, max_size=3),
)
def test_a_file_has_the_bytes_of_pyarrow(
    distinct: int, keys: list[str], order: list[str], counts: list[int]
) -> None:
    types = {f"k{n}": f"{kind} NOT NULL" for n, kind in enumerate(keys)}
    types |= {"v": "DOUBLE", "w": "STRING"}
    columns = [f"key_{name} {types[name]}" for name in types if name.startswith("k")]
    columns += [f"{name} {types[name]}" for name in order if name in types]
    fields = fields_of(", ".join(columns))
    groups = [rows_of(fields, count, seed, distinct) for seed, count in enumerate(counts)]

    with counting_encoded_columns() as encoded:
        data = write(fields, groups)

    assert data == write_all_columns(fields, groups)
    assert all(not {f"k{n}" for n in range(len(keys))} & set(names) for names in encoded)
    assert len(encoded) == len(groups)


def test_chunks_of_several_pages_and_a_dictionary_that_becomes_too_large_are_repeated() -> None:
    fields = fields_of("key_k STRING NOT NULL, s BIGINT, k STRING NOT NULL, v INT")
    rows = 400_000
    numbers = np.arange(rows)
    numbers[:20_000] = 1  # few distinct values in the rows that decide on a dictionary
    keys = pa.array(numbers).cast(pa.string())
    integers = pa.array(np.arange(rows))
    table = pa.table({"_KEY_k": keys, "s": integers, "k": keys, "v": integers.cast(pa.int32())})

    data = write(fields, [table])

    assert data == write_all_columns(fields, [table])
    chunk = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(2)
    assert chunk.path_in_schema == "k"
    assert chunk.has_dictionary_page
    assert chunk.total_uncompressed_size > 3 << 20
    assert pq.read_table(pa.BufferReader(data)).cast(table.schema).equals(table)


@pytest.mark.parametrize(
    ("columns", "encoded"),
    [
        ("key_k INT NOT NULL, k INT NOT NULL, l ARRAY<INT>", ["_KEY_k", "l"]),
        # the end of a nested column is not found by its number of rows
        ("key_k INT NOT NULL, l ARRAY<INT>, k INT NOT NULL", ["_KEY_k", "l", "k"]),
        # a nullable column has definition levels
        ("key_k INT NOT NULL, k INT", ["_KEY_k", "k"]),
        ("key_k INT NOT NULL, k BIGINT NOT NULL", ["_KEY_k", "k"]),
        # the column is not a key column, or is before it
        ("key_k INT NOT NULL, v INT NOT NULL", ["_KEY_k", "v"]),
        ("k INT NOT NULL, key_k INT NOT NULL", ["k", "_KEY_k"]),
        # the writer of a file with INT96 changes its schema
        ("key_k INT NOT NULL, k INT NOT NULL, t TIMESTAMP(9)", ["_KEY_k", "k", "t"]),
    ],
)
def test_only_equal_flat_columns_are_repeated(columns: str, encoded: list[str]) -> None:
    fields = fields_of(columns)
    table = rows_of(fields, 100)

    with counting_encoded_columns() as names:
        data = write(fields, [table])

    assert names == [encoded]
    assert data == write_all_columns(fields, [table])


def test_files_with_a_page_index_encode_all_columns() -> None:
    fields = fields_of("key_k INT NOT NULL, k INT NOT NULL")
    table = rows_of(fields, 5000)

    with counting_encoded_columns() as names:
        data = write(fields, [table], SMALL_PAGES)

    assert names == [["_KEY_k", "k"]]
    assert data == write_all_columns(fields, [table], SMALL_PAGES)


def test_an_empty_file_has_all_columns() -> None:
    fields = fields_of("key_k INT NOT NULL, k INT NOT NULL")

    assert write(fields, []) == write_all_columns(fields, [])
    assert write(fields, [rows_of(fields, 0)]) == write_all_columns(fields, [])
    assert pq.read_table(pa.BufferReader(write(fields, []))).column_names == ["_KEY_k", "k"]


def test_bounds_of_the_footer_are_those_of_all_columns() -> None:
    fields = fields_of("key_k STRING NOT NULL, k STRING NOT NULL, v DOUBLE")
    writer = ParquetFileWriter(io.BytesIO(), fields, "zstd", 1)
    keys, values = pa.array(["a", "b"]), pa.array([1.5, 2.5])

    writer.write(pa.table({"_KEY_k": keys, "k": keys, "v": values}))
    writer.close()

    expected = [("_KEY_k", "a", "b"), ("k", "a", "b"), ("v", 1.5, 2.5)]
    assert sorted(writer.footer_bounds(), key=str) == sorted(expected, key=str)


def test_row_groups_are_repeated_next_to_copied_row_groups(tmp_path: Any) -> None:
    fields = fields_of("key_k INT NOT NULL, s BIGINT, k INT NOT NULL, v STRING")
    copied, encoded = rows_of(fields, 700, 1), rows_of(fields, 900, 2)
    source = io.BytesIO(write(fields, [copied]))
    sink = io.BytesIO()
    writer = ParquetFileWriter(sink, fields, "zstd", 1)
    layout = writer.copied_layout
    assert layout is not None
    groups = RowGroupSource.open(source, layout, ANY_SIZE, remote=False)
    assert groups is not None  # a file with repeated columns is copied

    for part in (encoded, None, encoded):
        if part is None:
            writer.copy(groups)
        else:
            writer.write(part)
    writer.close()

    expected = pa.concat_tables([encoded, copied, encoded])
    path = tmp_path / "f.parquet"
    path.write_bytes(sink.getvalue())
    assert pq.read_table(path).cast(expected.schema).equals(expected)
    assert duckdb.read_parquet(str(path)).fetchall() == [
        tuple(row.values()) for row in expected.to_pylist()
    ]
    group = pq.read_metadata(path).row_group(2)
    sizes = [group.column(number).total_uncompressed_size for number in range(4)]
    assert group.total_byte_size == sum(sizes)


@given(st.integers(1, 50), st.data())
@settings(max_examples=20)
def test_pages_are_found_in_parts_of_any_size(size: int, data: Any) -> None:
    """A Parquet writer may write headers and pages in any parts."""
    fields = fields_of("key_k INT NOT NULL, s STRING, k INT NOT NULL, v INT")
    rows = data.draw(st.integers(1, 40))
    table = rows_of(fields, rows)
    schema = pa.schema([field.with_nullable(False) for field in table.schema])
    columns = RepeatedColumns.of(schema, {"k": "_KEY_k"})
    file = write_all_columns(fields, [table])
    group = pq.read_metadata(pa.BufferReader(file)).row_group(0)
    chunks = [group.column(number) for number in range(4)]
    starts = [
        min(c.dictionary_page_offset or c.data_page_offset, c.data_page_offset) for c in chunks
    ]
    first, key_end = starts[0], starts[0] + chunks[0].total_compressed_size
    end = starts[3] + chunks[3].total_compressed_size
    # pyarrow does not write the third column
    written = file[first : starts[2]] + file[starts[3] : end]
    output = bytearray()
    repeater = ChunkRepeater(columns, rows, output.extend, output.extend)

    for start in range(0, len(written), size):
        repeater.write(written[start : start + size])

    assert repeater.is_finished
    assert bytes(output) == file[first:end]
    assert file[starts[2] : starts[3]] == file[first:key_end]
