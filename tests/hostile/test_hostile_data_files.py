"""Parquet and ORC files of a few bytes that need gigabytes, or with which pyarrow ends the process."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from support.limited_process import refuse, run_limited
from support.parquet_bombs import (
    DELTA_LENGTHS,
    DELTA_TEXTS,
    FIXED,
    INDICES,
    INT32,
    Column,
    Page,
    build_element,
    build_file,
    encode_deltas,
    encode_levels,
    encode_run,
    indices,
    plain,
)

from paimon_orch.decode_limits import LIMIT_FACTOR_VARIABLE, fit_batch_rows
from paimon_orch.errors import PaimonError, wrap_decode_errors
from paimon_orch.files.file_format import open_reader
from paimon_orch.files.parquet import footer
from paimon_orch.files.parquet.deltas import decode_deltas
from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.files.parquet.thrift_compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    decode_struct,
    encode_integer,
    encode_list,
    encode_struct,
    split_struct,
)
from paimon_orch.format.bytes.varint import encode_varint
from paimon_orch.format.manifest.manifest_entry import decode_manifest
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.steps.parquet_parts import RowGroups

MIB = 1 << 20
ELEMENTS = 400_000_000
COUNT = (1 << 31) - 64
TEXT = Page(values=1, content=plain(b"x" * MIB), is_dictionary=True)
HIGH = 1 << 32  # Arrow uses the low 32 bits of numbers
TEXTS = Page(values=1000, content=indices(1000), encoding=INDICES)


def large_page() -> Page:
    """Return a page of 300 MiB, which is not kept."""
    return Page(values=1, content=plain(bytes(300 * MIB)))


def one_column(rows: int, *pages: Page, **column: object) -> bytes:
    return build_file(rows, [Column(name="a", pages=pages, **column)])  # type: ignore[arg-type]


def build_zeros(size: int, columns: int = 1) -> bytes:
    page = Page(values=1, content=plain(bytes(size)))
    return build_file(1, [Column(name=f"a{number}", pages=(page,)) for number in range(columns)])


def build_list(count: int) -> bytes:
    levels = encode_levels(encode_run(1, 0), encode_run(count - 1, 1))
    page = Page(values=count, content=levels + encode_levels(encode_run(count, 1)))
    return one_column(1, page, physical=INT32, is_list=True)


def build_list_of_texts() -> bytes:
    levels = encode_levels(encode_run(1, 0), encode_run(999, 1)) + encode_levels(
        encode_run(1000, 2, 2)
    )
    return one_column(
        1, TEXT, Page(values=1000, content=levels + indices(1000), encoding=INDICES), is_list=True
    )


def build_prefixes(count: int, size: int) -> bytes:
    """Return texts that are equal to the first one, of which only the first one is stored."""
    shared = encode_jump(0, size, count)
    added = encode_jump(size, 0, count)
    page = Page(values=count, encoding=DELTA_TEXTS, content=shared + added + b"x" * size)
    return one_column(count, page)


def encode_jump(first: int, others: int, count: int) -> bytes:
    """Return a number and then others, as differences of 32 bits."""
    block = -(-count // 128) * 128
    low = min(0, others - first)
    packed = (others - first - low).to_bytes(4, "little")
    packed += (-low).to_bytes(4, "little") * (block - 1)
    head = b"".join(map(encode_varint, (block, 1, count, first << 1, (low << 1) ^ (low >> 63))))
    return head + b"\x20" + packed


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a page": (lambda: build_zeros(300 * MIB), "pages of 1 columns have up to 314572804 bytes"),
    "pages of many columns": (lambda: build_zeros(10 * MIB, 40), "pages of 40 columns"),
    "a declared page": (
        lambda: one_column(1, Page(values=1, content=plain(b"x"), declared=(1 << 31) - 1)),
        "pages of 1 columns have up to 2147483647 bytes",
    ),
    "a dictionary": (lambda: one_column(1000, TEXT, TEXTS), "rows have"),
    "fixed texts": (
        lambda: one_column(
            1000,
            Page(values=1, content=b"x" * MIB, is_dictionary=True),
            TEXTS,
            physical=FIXED,
            length=MIB,
        ),
        "has 1048576000 bytes",
    ),
    "elements": (lambda: build_list(ELEMENTS), "has 3200000000 bytes"),
    "elements of a dictionary": (build_list_of_texts, "1 rows have 104"),
    "shared texts": (lambda: build_prefixes(2000, MIB), "576 rows have"),
    "lengths": (
        lambda: one_column(
            10, Page(values=10, encoding=DELTA_LENGTHS, content=encode_deltas(0, COUNT))
        ),
        "a page of 10 values has 2147483584 lengths",
    ),
    "a page behind a long size": (
        lambda: one_column(
            2, Page(values=1, content=plain(b"x"), stated={3: HIGH + 14}), large_page()
        ),
        "more than 32 bits",
    ),
    "a page behind a long number of values": (
        lambda: one_column(
            2, Page(values=1, content=plain(b"x"), stated_values=HIGH + 1), large_page()
        ),
        "more than 32 bits",
    ),
    "a page behind a page of an unknown type": (
        lambda: one_column(
            1, Page(values=0, content=b"", stated={1: 9, 3: HIGH + 9}), large_page()
        ),
        "more than 32 bits",
    ),
    "a stored size": (
        lambda: one_column(1, Page(values=1, content=plain(b"x"), stated={3: (1 << 31) - 1})),
        "of 2147483647 bytes is not inside its column chunk",
    ),
    "a page behind another length of the column": (
        lambda: edit_chunk(
            one_column(2, Page(values=1, content=plain(b"x")), large_page()),
            lambda *_: None,
            ignored=bytes([I32]) + b"".join(map(encode_integer, (7, 40))),
        ),
        "field 7 has the Thrift type 5",
    ),
    "declared lengths": (
        lambda: one_column(
            COUNT, Page(values=COUNT, encoding=DELTA_LENGTHS, content=encode_deltas(0, COUNT))
        ),
        "a batch of 65536 rows has 17180392960 bytes",
    ),
}


def read_all(data: bytes, kind: str = "parquet", columns: str = "a STRING") -> int:
    """Return the number of rows of a data file."""
    path, rows = f"db.db/t/bucket-0/data-1.{kind}", 0
    with wrap_decode_errors(path):
        reader = open_reader(io.BytesIO(data), path, parse_columns(columns))
        for batch in reader.batches(reader.names, 65_536):
            rows += batch.num_rows
    return rows


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_parquet_file_of_gigabytes_is_refused(name: str) -> None:
    build, message = BOMBS[name]
    data = build()
    assert len(data) < 70_000

    refusal = refuse(lambda: read_all(data))

    assert message in refusal
    assert "data-1.parquet" in refusal


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["a page", "a dictionary"])
def test_a_manifest_and_an_ingested_file_have_the_same_limits(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    build, message = BOMBS[name]
    data = build()
    assert "bytes of memory" in refuse(lambda: decode_manifest(data, "manifest"))
    path = tmp_path_factory.mktemp("ingested") / "file.parquet"
    path.write_bytes(data)
    ingested = RowGroups(str(path), [0])
    assert message in refuse(lambda: [b.num_rows for b in ingested.read()])


@pytest.mark.slow
def test_an_operator_can_raise_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_FACTOR_VARIABLE, "3")
    data = one_column(1000, TEXT, TEXTS)
    assert run_limited(lambda: read_all(data), memory=6 << 30) == 1000


HONEST: dict[str, pa.Table] = {
    "constants": pa.table(
        {
            "a": pa.array(["a constant"]).take(pa.array(np.zeros(1_000_000, np.int32))),
            "n": np.zeros(1_000_000, np.int64),
            "e": pa.nulls(1_000_000, pa.string()),
            "l": pa.array([[7, 7, 7]]).take(pa.array(np.zeros(1_000_000, np.int32))),
        }
    ),
    "long texts": pa.table({"a": ["x" * MIB, "y" * 2 * MIB] * 20}),
    "long and short texts": pa.table({"a": ["x" * 500_000, *map(str, range(20_000))]}),
    "lists of texts": pa.table({"a": [["x" * 90_000], *([str(n)] * 3 for n in range(9_000))]}),
    "no rows": pa.table({"a": pa.array([], pa.string())}),
}


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "brotli", "lz4", "none"])
def test_texts_of_all_codecs_are_measured(codec: str) -> None:
    assert_is_read("long and short texts", compression=codec)


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0"}, {"use_dictionary": False}])
@pytest.mark.parametrize("name", HONEST)
def test_honest_files_that_compress_well_are_read(name: str, options: dict) -> None:  # type: ignore[type-arg]
    assert_is_read(name, compression="zstd", **options)


def assert_is_read(name: str, **options: object) -> None:
    sink = io.BytesIO()
    pq.write_table(HONEST[name], sink, **options)

    reader = ParquetFileReader(io.BytesIO(sink.getvalue()))
    batches = list(reader.batches(reader.names, 65_536))

    assert pa.Table.from_batches(batches, HONEST[name].schema).equals(HONEST[name])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_texts_that_are_stored_by_differences_are_read(version: str, encoding: str) -> None:
    texts = [None if n % 7 == 0 else "x" * (n % 90) + str(n) for n in range(30_000)]
    rows = pa.table({"a": texts, "l": [[text] for text in texts]})
    sink = io.BytesIO()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        use_dictionary=False,
        data_page_version=version,
        column_encoding={"a": encoding, "l.list.element": encoding},
    )

    reader = ParquetFileReader(io.BytesIO(sink.getvalue()))
    assert pa.Table.from_batches(list(reader.batches(reader.names, 65_536))).equals(rows)


@pytest.mark.parametrize("numbers", [[], [5], [5, -3, 9], [*range(500)], [1 << 30, 0, -5] * 99])
def test_differences_are_decoded_as_arrow_wrote_them(numbers: Sequence[int]) -> None:
    sink = io.BytesIO()
    column = pa.array(numbers, pa.int32())
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False)])
    options = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BINARY_PACKED"}}
    pq.write_table(pa.table([column], schema), sink, compression="none", **options)
    data = sink.getvalue()
    if numbers:
        _, start = decode_struct(data, 4)  # the page header
        decoded, _ = decode_deltas(data[start:], 0, len(numbers))
        assert decoded.tolist() == numbers


def edit_chunk(
    data: bytes,
    edit: Callable[[dict, dict], None],  # type: ignore[type-arg]
    *,
    ignored: bytes = b"",
) -> bytes:
    """Return a file with another column chunk, whose fields and those of its metadata are edited.

    ``ignored``: more fields of the metadata.
    """
    length = int.from_bytes(data[-8:-4], "little")
    file = split_struct(data[-8 - length : -8])
    group = split_struct(file[4][1][1:])
    chunk = split_struct(group[1][1][1:])
    metadata = split_struct(chunk[3][1])
    edit(chunk, metadata)
    chunk[3] = (STRUCT, encode_struct(metadata)[:-1] + ignored + b"\0")
    group[1] = (LIST, encode_list([encode_struct(chunk)]))
    file[4] = (LIST, encode_list([encode_struct(group)]))
    encoded = encode_struct(file)
    return data[: -8 - length] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


def build_nested(levels: int) -> bytes:
    """Return a file without rows, with a column in groups."""
    groups = [build_element("group", {3: 0}, {5: 1})] * levels
    schema = [
        build_element("root", {}, {5: 1}),
        *groups,
        build_element("leaf", {1: INT32, 3: 0}, {}),
    ]
    return build_schema(schema)


def build_schema(schema: Sequence[bytes]) -> bytes:
    """Return a file without rows."""
    number, none = encode_integer(0), encode_list([])
    fields = {1: (5, encode_integer(1)), 2: (LIST, encode_list(schema)), 3: (6, number)}
    encoded = encode_struct(fields | {4: (LIST, none)})
    return b"PAR1" + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_limited", [True, False])
def test_a_deep_schema_is_refused(monkeypatch: pytest.MonkeyPatch, *, is_limited: bool) -> None:
    if not is_limited:  # by older releases of pyarrow
        monkeypatch.setattr(footer, "_limits_depth", lambda: False)
    assert read_all(build_nested(90)) == 0
    assert "nested" in refuse(lambda: read_all(build_nested(200_000)))


@pytest.mark.slow
def test_a_footer_of_many_columns_is_refused() -> None:
    elements = [
        build_element("root", {}, {5: 60_000}),
        *(build_element(str(number), {1: INT32, 3: 0}, {}) for number in range(60_000)),
    ]
    assert "a Parquet file has 60000 columns" in refuse(lambda: read_all(build_schema(elements)))
    elements[0] = build_element("root", {}, {5: 10_000})
    assert run_limited(lambda: read_all(build_schema(elements[:10_001]))) == 0


def test_a_wide_schema_is_not_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footer, "_limits_depth", lambda: False)
    sink = io.BytesIO()
    pq.write_table(pa.table({f"c{n}": [{"x": n, "y": [n]}] for n in range(300)}), sink)
    assert read_all(sink.getvalue()) == 1


SIZES = encode_struct({3: (LIST, encode_list([b"\2"] * 5, 6))})
BOUNDS = encode_struct({1: (BINARY, b"\3\0\0\0"), 2: (BINARY, b"\0")})
EDITS: dict[str, Callable[[dict, dict], None]] = {  # type: ignore[type-arg]
    "levels": lambda _, metadata: metadata.update({16: (STRUCT, SIZES)}),
    "bounds": lambda _, metadata: metadata.update({12: (STRUCT, BOUNDS)}),
    "type": lambda _, metadata: metadata.update({1: (I32, encode_integer(4))}),
    "keys": lambda chunk, _: chunk.update({8: (STRUCT, b"\x1c\0\0")}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", EDITS)
def test_a_footer_with_which_pyarrow_ends_the_process_is_refused(name: str) -> None:
    sink = io.BytesIO()
    values = [1, 2] if name == "bounds" else ["x", "y"]
    pq.write_table(pa.table({"a": values}), sink, write_statistics=True)
    data = edit_chunk(sink.getvalue(), EDITS[name])
    reads: list[Callable[[ParquetFileReader], object]] = [
        lambda reader: [batch.num_rows for batch in reader.batches(["a"], 9)],
        lambda reader: reader.row_group_statistics(0, "a"),
        lambda reader: reader.find_dictionary_columns(),
    ]

    def attempt(read: Callable[[ParquetFileReader], object], *, remote: bool) -> object:
        with wrap_decode_errors("file"):
            return read(ParquetFileReader(io.BytesIO(data), remote=remote)) is None

    for read in reads[name in ("type", "bounds") :]:  # which a read of rows does not use
        for remote in (False, True):
            outcome = run_limited(lambda r=read, d=remote: attempt(r, remote=d))  # type: ignore[misc]
            assert isinstance(outcome, PaimonError)


NOISE = np.random.default_rng(0).integers(97, 123, 400_000, np.uint8).tobytes()
"""A text that cannot be compressed: limits grow with stored bytes."""


def build_repeated_noise(count: int) -> bytes:
    page = Page(values=1, content=plain(NOISE), is_dictionary=True)
    used = Page(values=count, content=indices(count), encoding=INDICES)
    return one_column(count, page, used)


def test_pages_of_fewer_values_than_the_footer_states_are_refused() -> None:
    data = edit_chunk(
        one_column(1, Page(values=1, content=plain(b"x"))),
        lambda _, metadata: metadata.update({5: (I64, encode_integer(9))}),
    )
    assert "the pages of 9 values have only 1" in refuse(lambda: read_all(data))


@pytest.mark.slow
def test_a_file_below_a_mebibyte_does_not_take_gigabytes() -> None:
    data = build_repeated_noise(4_000)
    assert len(data) < MIB
    assert "rows have" in refuse(lambda: read_all(data))
    assert run_limited(lambda: read_all(build_repeated_noise(1_000))) == 1_000


@pytest.mark.parametrize(("copies", "rows"), [(2, 19_573), (4, 9_786)])
def test_fewer_rows_of_many_columns_are_read_at_once(copies: int, rows: int) -> None:
    assert fit_batch_rows(65_536, 3_000, 700_000, copies=copies) == rows
    assert fit_batch_rows(65_536, 400, 700_000, copies=copies) == 65_536


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_the_batches_of_readers_are_fitted(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    sink = io.BytesIO()
    rows = pa.table({"a": ["x"] * 20})
    pq.write_table(rows, sink) if kind == "parquet" else orc.write_table(rows, sink)
    monkeypatch.setattr(f"paimon_orch.files.{'parquet.' * (kind == 'parquet')}{kind}.fit_batch_rows",
                        lambda *_, **__: 8)  # fmt: skip
    reader = open_reader(io.BytesIO(sink.getvalue()), f"file.{kind}", parse_columns("a STRING"))
    assert [batch.num_rows for batch in reader.batches(["a"], 65_536)] == [8, 8, 4]


def write_orc(rows: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    orc.write_table(rows, sink, compression="zstd", **options)
    return sink.getvalue()


def build_orc_footer() -> bytes:
    """Return a file with a footer of 30 million types, of which each needs two bytes."""
    data = write_orc(pa.table({"a": ["x"]}))
    length = data[-1]
    postscript = split_protobuf(data[-1 - length : -1])
    block: bytes = pa.compress(b"\x22\0" * (30 << 10), codec="zstd", asbytes=True)
    footer = ((len(block) << 1).to_bytes(3, "little") + block) * 1_000
    return b"ORC" + footer + encode_postscript(postscript | {1: len(footer), 5: 0})


def encode_postscript(fields: Mapping[int, int | bytes]) -> bytes:
    """Return a postscript with its length."""
    encoded = b"".join(
        encode_varint(number << 3) + encode_varint(value) if isinstance(value, int) else value
        for number, value in fields.items()
    )
    return encoded + bytes([len(encoded)])


def build_orc_columns(count: int) -> bytes:
    """Return a file without rows, with columns that have no names."""
    data = write_orc(pa.table({"a": [1]}))
    length = data[-1]
    postscript = split_protobuf(data[-1 - length : -1])
    children = b"".join(encode_varint(number + 1) for number in range(count))
    root = b"\x08\x0c\x12" + encode_varint(len(children)) + children + b"\x1a\0" * count
    footer = b"\x08\3\x22" + encode_varint(len(root)) + root + b"\x22\2\x08\4" * count
    postscript |= {1: len(footer), 2: 0, 5: 0}
    return b"ORC" + footer + encode_postscript(postscript)


def build_orc_blocks() -> bytes:
    zeros = pa.array(np.zeros(500_000))
    rows = pa.table([zeros] * 80, names=[f"c{number}" for number in range(80)])
    return write_orc(rows, compression_block_size=4 << 20)


def split_protobuf(message: bytes) -> dict[int, int | bytes]:
    """Return the fields of a postscript; those of bytes with their keys."""
    from paimon_orch.format.orc.orc_metadata import _iterate_fields

    return {
        number: value if isinstance(value, int) else encoded
        for number, value, encoded in _iterate_fields(message)
    }


ORC_BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a dictionary": (
        lambda: write_orc(pa.table({"a": ["x" * MIB] * 700}), dictionary_key_size_threshold=1.0),
        "rows have",
    ),
    "lists of a dictionary": (
        lambda: write_orc(pa.table({"a": [["x" * MIB] * 700]}), dictionary_key_size_threshold=1.0),
        "elements can have texts of",
    ),
    "a footer": (build_orc_footer, "the metadata of an ORC file is too large"),
    "columns": (lambda: build_orc_columns(30_000), "30000 columns of an ORC file are read"),
    "columns that are not read": (
        lambda: build_orc_columns(100_000),
        "an ORC file has 100001 columns",
    ),
    "blocks": (build_orc_blocks, "the blocks of 80 streams have"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ORC_BOMBS)
def test_a_small_orc_file_of_gigabytes_is_refused(name: str) -> None:
    build, message = ORC_BOMBS[name]
    data = build()
    assert len(data) < MIB

    refusal = refuse(lambda: read_all(data, "orc"))

    assert message in refusal
    assert "data-1.orc" in refusal


def test_a_larger_orc_file_may_not_have_more_columns() -> None:
    data = build_orc_columns(200_000)
    assert len(data) > MIB
    assert "an ORC file has 200001 columns" in refuse(lambda: read_all(data, "orc"))


def test_an_orc_manifest_that_repeats_a_text_is_refused() -> None:
    data = ORC_BOMBS["a dictionary"][0]()
    refusal = refuse(lambda: decode_manifest(data, "manifest"))
    assert "700 records can have texts of" in refusal


@pytest.mark.parametrize("name", ["constants", "long texts", "long and short texts"])
@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_honest_orc_files_that_compress_well_are_read(name: str, threshold: float) -> None:
    rows = HONEST[name].select(["a"])
    data = write_orc(rows, dictionary_key_size_threshold=threshold)
    assert read_all(data, "orc") == rows.num_rows
