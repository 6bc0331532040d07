"""Random tables of every type are written and read unchanged in every format."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from support.golden import canonical_rows
from support.random_tables import tables

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.file_format import open_reader, open_writer
from paimon_orch.files.schema_evolution.evolve import conform
from paimon_orch.format.options import Options
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import Field, parse_columns

FORMATS = ("parquet", "orc", "avro")


def write(kind: str, fields: Sequence[Field], tables: Sequence[pa.Table], **options: str) -> bytes:
    sink = io.BytesIO()
    writer = open_writer(
        sink, kind, fields=fields, options=Options(options), level=0, target=1 << 20
    )
    for table in tables:
        writer.write(table)
    writer.close()
    return sink.getvalue()


def read(kind: str, fields: Sequence[Field], data: bytes, batch_rows: int = 7) -> pa.Table:
    reader = open_reader(io.BytesIO(data), f"data-0.{kind}", fields)
    names = [field.name for field in fields]
    assert list(reader.names) == names
    rows = []
    for batch in reader.batches(names, batch_rows):
        assert 0 < batch.num_rows <= batch_rows
        columns = [
            conform(column, field.type) for column, field in zip(batch.columns, fields, strict=True)
        ]
        rows.append(pa.RecordBatch.from_arrays(columns, schema=to_arrow_schema(fields)))
    table = pa.Table.from_batches(rows, to_arrow_schema(fields))
    table.validate(full=True)
    assert reader.num_rows in (None, table.num_rows)
    return table


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", FORMATS)
def test_written_rows_are_read_unchanged(kind: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(tables(kind))
    def check(columns: tuple[list[Field], pa.Table]) -> None:
        fields, table = columns
        half = table.num_rows // 2
        rows_read = read(
            kind, fields, write(kind, fields, [table.slice(0, half), table.slice(half)])
        )
        assert rows_read.schema.equals(table.schema)
        assert canonical_rows(rows_read) == canonical_rows(table)

    check()


@pytest.mark.parametrize("kind", FORMATS)
def test_sliced_and_chunked_rows_are_written(kind: str) -> None:
    fields = parse_columns(
        "id INT, a ARRAY<STRING>, m MAP<STRING, INT>, r ROW<x TIMESTAMP(3), p ROW<q INT>>"
    )
    rows = [
        {
            "id": i,
            "a": [str(i), None] if i % 3 else None,
            "m": [(str(i), i)],
            "r": {"x": i, "p": {"q": i} if i % 4 else None} if i % 7 else None,
        }
        for i in range(30)
    ]
    table = pa.Table.from_pylist(rows, to_arrow_schema(fields))
    parts = [pa.concat_tables([table.slice(3, 5), table.slice(11, 2)]), table.slice(29)]
    rows_read = read(kind, fields, write(kind, fields, parts))
    assert canonical_rows(rows_read) == canonical_rows(pa.concat_tables(parts))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_without_rows_can_be_read(kind: str) -> None:
    fields = parse_columns("id INT NOT NULL, t TIMESTAMP(6), a ARRAY<INT>")
    empty = to_arrow_schema(fields).empty_table()
    assert read(kind, fields, write(kind, fields, [empty])).num_rows == 0
    assert read(kind, fields, write(kind, fields, [])).num_rows == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_only_the_requested_columns_are_read_in_the_requested_order(kind: str) -> None:
    fields = parse_columns("a INT, b STRING, c DOUBLE")
    table = pa.table([[1, 2], ["x", "y"], [0.5, None]], schema=to_arrow_schema(fields))
    reader = open_reader(io.BytesIO(write(kind, fields, [table])), f"f.{kind}", fields)
    [batch] = reader.batches(["c", "a"], 10)
    assert sorted(batch.schema.names) == ["a", "c"]
    assert batch.column("c").to_pylist() == [0.5, None]
    assert batch.column("a").to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_without_columns_has_a_row_count(kind: str) -> None:
    fields = parse_columns("a INT")
    table = pa.table([[1, 2, 3]], schema=to_arrow_schema(fields))
    reader = open_reader(io.BytesIO(write(kind, fields, [table])), f"f.{kind}", fields)
    batches = list(reader.batches([], 2))
    assert [(batch.num_rows, batch.num_columns) for batch in batches] == [(2, 0), (1, 0)]


@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        *(
            ("parquet", codec)
            for codec in ("zstd", "snappy", "gzip", "lz4", "none", "uncompressed")
        ),
        *(("orc", codec) for codec in ("zstd", "snappy", "zlib", "lz4", "none", "uncompressed")),
        *(("avro", codec) for codec in ("zstd", "snappy", "deflate", "bzip2", "xz", "none")),
    ],
)
def test_every_compression_can_be_read(kind: str, codec: str) -> None:
    fields = parse_columns("id INT, s STRING")
    table = pa.table([range(100), ["text"] * 100], schema=to_arrow_schema(fields))
    data = write(kind, fields, [table], **{"file.compression": codec})
    assert read(kind, fields, data).equals(table)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_error_for_an_unknown_compression_lists_the_known_ones(kind: str) -> None:
    with pytest.raises(InputError, match=r"'file\.compression' = 'lzma'.*zstd"):
        write(kind, parse_columns("id INT"), [], **{"file.compression": "lzma"})


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InputError, match="'csv'"):
        write("csv", parse_columns("id INT"), [])
    with pytest.raises(UnsupportedError, match=r"x\.csv"):
        open_reader(io.BytesIO(b""), "x.csv", [])
