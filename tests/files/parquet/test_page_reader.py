"""Reading rows of Parquet files by pages returns the same rows as reading complete columns."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.golden import GOLDEN, canonical_rows
from support.random_tables import tables

from paimon_orch.files import row_selection as selection
from paimon_orch.files.parquet import page_reader as parquet_pages
from paimon_orch.files.parquet.footer import ColumnChunk
from paimon_orch.files.parquet.page_reader import ReadCosts
from paimon_orch.files.parquet.parquet import (
    SMALL_PAGES,
    PageLimits,
    ParquetFileReader,
    ParquetFileWriter,
)
from paimon_orch.files.row_selection import (
    count_unread_bytes,
    read_parquet_rows,
    take_selected_rows,
)
from paimon_orch.format.types.data_types import Field, parse_columns

# With these costs, a file is read by pages even if this saves no bytes.
NO_COSTS = ReadCosts(
    request_cost=0, lookup_cost=-(1 << 30), footer_cost_factor=0, max_read_share=1 << 30
)


@pytest.fixture
def no_earlier_warnings() -> None:
    """Clear the damaged files of other tests: each file name is reported only once per process."""
    selection._warn_damaged_page_index.cache_clear()


class CountingBytes(io.BytesIO):
    """A file in memory that counts the bytes read from it."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def read_by_pages(
    data: bytes,
    positions: list[int],
    names: list[str] | None = None,
    costs: ReadCosts | None = None,
) -> pa.Table:
    """Read rows of a file by pages."""
    reader = ParquetFileReader(io.BytesIO(data), costs=costs)
    selected = np.array(positions, np.int64)
    names = list(reader.names) if names is None else names
    results = []
    for numbers, batch in read_parquet_rows(
        reader,
        "f",
        columns=names,
        batch_rows=7,
        groups=range(reader.num_row_groups),
        selected=selected,
    ):
        results.append(take_selected_rows(numbers, batch, selected))
    assert [n for numbers, _ in results for n in numbers.tolist()] == positions
    return pa.Table.from_batches([batch for _, batch in results])


def read_completely(data: bytes, positions: list[int], names: list[str] | None = None) -> pa.Table:
    return pq.ParquetFile(io.BytesIO(data)).read(columns=names).take(pa.array(positions))


def plan_pages(data: bytes, positions: list[int], costs: ReadCosts | None = None) -> dict[int, Any]:
    reader = ParquetFileReader(io.BytesIO(data), costs=costs)
    inside = selection.split_by_row_group(reader, range(reader.num_row_groups), np.array(positions))
    return dict(reader.plan_pages(reader.names, inside))


@dataclass(frozen=True)
class GeneratedFile:
    """A file, and the options that it was written with."""

    data: bytes = field(repr=False)
    rows: int
    options: str


def rows_of(columns: tuple[list[Field], pa.Table], rows: int, seed: int) -> pa.Table:
    _, table = columns
    return table.take(pa.array(np.random.default_rng(seed).integers(0, table.num_rows, rows)))


def can_be_read(file: io.BytesIO, rows: int) -> bool:
    """Return whether pyarrow can read a file that it wrote.

    It cannot read the empty page that it writes if the dictionary of a list is full.
    """
    try:
        return bool(pq.ParquetFile(file).read().num_rows == rows)
    except pa.ArrowInvalid:
        return False


@st.composite
def files(draw: st.DrawFn) -> GeneratedFile:
    """Files of several row groups with small pages, written by us or with options of others."""
    drawn = draw(tables("parquet").filter(lambda columns: columns[1].num_rows > 0))
    table = rows_of(drawn, draw(st.integers(1, 60)), draw(st.integers(0, 99)))
    groups, page = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    step, sink = -(-table.num_rows // groups), io.BytesIO()
    if draw(st.booleans()):
        pages = replace(SMALL_PAGES, bytes=64 * page, rows=page)
        ratio = draw(st.sampled_from([0, 2]))  # 0 allows almost no dictionaries, and 2 allows most
        writer = ParquetFileWriter(sink, drawn[0], "zstd", 1, pages=pages, max_distinct_ratio=ratio)
        for start in range(0, table.num_rows, step):
            writer.write(table.slice(start, step))
        writer.close()
        return GeneratedFile(sink.getvalue(), table.num_rows, f"ours {pages} {ratio}")
    how = {
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "compression": draw(st.sampled_from(["none", "snappy", "zstd"])),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([1, 40, 1 << 20])),
        "write_page_index": draw(st.sampled_from([True, True, False])),
        "write_batch_size": draw(st.integers(1, 9)),
        "data_page_size": draw(st.sampled_from([1, 100])),
        "max_rows_per_page": page,
        "write_page_checksum": draw(st.booleans()),
        "store_schema": draw(st.booleans()),
    }
    pq.write_table(table, sink, row_group_size=step, **how)
    assume(can_be_read(sink, table.num_rows))
    return GeneratedFile(sink.getvalue(), table.num_rows, str(how))


@st.composite
def selections(draw: st.DrawFn) -> tuple[GeneratedFile, list[int]]:
    file = draw(files())
    return file, sorted(draw(st.sets(st.integers(0, file.rows - 1), min_size=1)))


@pytest.mark.usefixtures("no_earlier_warnings")
def test_page_reads_return_the_same_rows_as_full_reads(caplog: pytest.LogCaptureFixture) -> None:
    @settings(max_examples=40, deadline=None)
    @given(selections())
    def check(file_and_rows: tuple[GeneratedFile, list[int]]) -> None:
        file, rows = file_and_rows
        result = read_by_pages(file.data, rows, costs=NO_COSTS)
        result.validate(full=True)
        assert canonical_rows(result) == canonical_rows(read_completely(file.data, rows))

    check()
    assert not caplog.records


GOLDEN_FILES = sorted(GOLDEN.rglob("data-*.parquet"))[::12]


@pytest.mark.slow
@pytest.mark.usefixtures("no_earlier_warnings")
def test_pages_of_files_from_other_writers_are_read(caplog: pytest.LogCaptureFixture) -> None:
    random, indexed = np.random.default_rng(5), 0
    for path in GOLDEN_FILES:
        data = path.read_bytes()
        rows = pq.read_metadata(path).num_rows
        positions = sorted(set(random.integers(0, rows, 1 + rows // 9).tolist()))
        indexed += bool(plan_pages(data, positions, NO_COSTS))
        result = canonical_rows(read_by_pages(data, positions, costs=NO_COSTS))
        assert result == canonical_rows(read_completely(data, positions))
    assert indexed == len(GOLDEN_FILES)
    assert not caplog.records


ROWS = 400
COLUMNS = (
    "k BIGINT, s STRING, l ARRAY<INT>, m MAP<STRING, INT>, r ROW<a INT, b STRING>, t TIMESTAMP(9)"
)


def nested_table(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    return pa.table({
        "k": [None if n % 7 == 3 else n for n in numbers],
        "s": [f"s{n % 5}" for n in numbers],
        "l": pa.array([[n] * (n % 3) for n in numbers], pa.list_(pa.int32())),
        "m": pa.array([[(str(n), n)] * (n % 4) for n in numbers], pa.map_(pa.string(), pa.int32())),
        "r": pa.array([{"a": n, "b": "b" * (n % 9)} for n in numbers],
                      pa.struct([("a", pa.int32()), ("b", pa.string())])),
        "t": pa.array(numbers, pa.timestamp("ns")),
    })  # fmt: skip


def write_file(
    table: pa.Table, columns: str = COLUMNS, groups: int = 1, page_rows: int = 16
) -> bytes:
    """Write a file with small pages, as in tables with a file index that selects rows."""
    sink, step = io.BytesIO(), -(-table.num_rows // groups)
    pages = PageLimits(bytes=1 << 20, rows=page_rows, values_per_check=1_024)
    writer = ParquetFileWriter(sink, parse_columns(columns), "zstd", 1, pages=pages)
    for start in range(0, table.num_rows, step):
        writer.write(table.slice(start, step))
    writer.close()
    return sink.getvalue()


@pytest.mark.slow
def test_a_damaged_page_index_never_returns_wrong_rows() -> None:
    data, positions = write_file(nested_table(), groups=2), [5, 6, 100, 130, 131, 230, 399]
    expected = canonical_rows(read_completely(data, positions))
    byte_positions = [*list_damageable_bytes(data)]
    footer_start = len(data) - 8 - pq.read_metadata(io.BytesIO(data)).serialized_size

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(byte_positions), st.integers(1, 255))
    @example(1645, 4)  # the header of the first page of a list
    def check(byte_position: int, change: int) -> None:
        damaged = bytearray(data)
        damaged[byte_position] ^= change
        try:
            result = canonical_rows(read_by_pages(bytes(damaged), positions, costs=NO_COSTS))
        except Exception:  # noqa: BLE001 - the file reader adds the file name
            return
        if result != expected:
            complete = read_completely_or_none(bytes(damaged), positions)
            # PyArrow refuses some footers because of statistics that page reads do not use.
            assert result == complete or (complete is None and byte_position >= footer_start)

    check()


def read_completely_or_none(data: bytes, positions: list[int]) -> object:
    """Return rows of a read of each row group; None if pyarrow cannot read the file.

    A read of all groups at once would move values of a damaged group into the next one.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
        return canonical_rows(pa.concat_tables(groups).take(pa.array(positions)))
    except Exception:  # noqa: BLE001 - pyarrow raises many types for damaged files
        return None


def list_damageable_bytes(data: bytes) -> Iterator[int]:
    """Yield the positions of bytes in the footer, the page index and the page headers."""
    reader = ParquetFileReader(io.BytesIO(data))
    footer = reader._footer
    chunks = [
        chunk
        for group in range(reader.num_row_groups)
        for chunk in footer.chunks(group, range(99)).values()
    ]
    indexes = [chunk.index for chunk in chunks if chunk.index is not None]
    for chunk in chunks:
        yield from range(chunk.pages[0], chunk.pages[0] + 24)
    yield from range(min(indexes)[0], len(data) - 8)


@pytest.mark.usefixtures("no_earlier_warnings")
def test_a_damaged_page_index_is_logged_once_and_complete_row_groups_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data, positions = bytearray(write_file(nested_table())), [5, 200]
    index = ParquetFileReader(io.BytesIO(data))._footer.chunks(0, [0])[0].index
    assert index is not None
    data[index[0] + 5] ^= 2
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            result = read_by_pages(bytes(data), positions, costs=NO_COSTS)
            assert result.equals(read_completely(bytes(data), positions))
    assert len(caplog.records) == 1
    assert "f: the page index cannot be used" in caplog.text


def large_table(rows: int = 20_000) -> pa.Table:
    random = np.random.default_rng(2)
    texts = pa.array([bytes(row).hex() for row in random.integers(0, 256, (rows, 50), np.uint8)])
    return pa.table({"k": np.arange(rows), "s": texts})


def test_few_rows_are_read_with_few_bytes() -> None:
    data, positions = (
        write_file(large_table(), "k BIGINT, s STRING", page_rows=200),
        np.arange(9_000, 9_020),
    )
    source = CountingBytes(data)
    reader = ParquetFileReader(source)
    (rows,) = read_parquet_rows(
        reader, "f", columns=["k", "s"], batch_rows=7_000, groups=[0], selected=positions
    )
    assert rows[0].tolist() == positions.tolist()
    assert rows[1].to_pydict() == read_completely(data, positions.tolist()).to_pydict()
    assert source.count < len(data) / 40
    assert count_unread_bytes(reader, "f", positions) > len(data) * 19 / 20


def test_columns_with_dots_in_their_names_are_read_completely() -> None:
    table = large_table().rename_columns(["a.k", "a"])
    positions = [3, 19_000]
    data = write_file(table, "`a.k` BIGINT, a STRING", page_rows=200)
    assert not plan_pages(data, positions)
    assert read_by_pages(data, positions, ["a.k"]).equals(
        table.select(["a.k"]).take(pa.array(positions))
    )


@pytest.mark.parametrize(
    "positions", [range(20_000), range(0, 20_000, 150)], ids=["all", "everywhere"]
)
def test_pages_are_not_planned_if_they_save_few_bytes(positions: range) -> None:
    data = write_file(large_table(), "k BIGINT, s STRING", page_rows=200)
    assert not plan_pages(data, list(positions))
    assert read_by_pages(data, list(positions), ["k"]).column("k").to_pylist() == list(positions)


def test_leaves_of_a_column_are_read_to_a_common_page_boundary() -> None:
    long = pa.array(
        [{"a": n, "b": text} for n, text in enumerate(large_table().column("s").to_pylist())]
    )
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"r": long, "k": long.field("b")}), sink, write_page_index=True,
        data_page_size=4_000, write_batch_size=10, use_dictionary=False,
    )  # fmt: skip
    positions = [7, 12_345]
    (plan,) = plan_pages(sink.getvalue(), positions).values()
    nested, flat = ([len(leaf.pages) for leaf in column.leaves] for column in plan.columns)
    assert flat == [2]
    assert nested[1] > 10
    assert read_by_pages(sink.getvalue(), positions).equals(
        read_completely(sink.getvalue(), positions)
    )


def test_a_page_index_with_gaps_is_refused() -> None:
    data = bytearray(write_file(large_table(), "k BIGINT, s STRING", page_rows=200))
    chunk = ParquetFileReader(io.BytesIO(data))._footer.chunks(0, [1])[1]
    index, rows = data[slice(*chunk.index or ())], 20_000
    starts, firsts = parquet_pages._decode_locations(bytes(index), chunk, rows)
    assert firsts.tolist() == list(range(0, 20_001, 200))
    assert starts[-1] == chunk.pages[1]
    for row_count, pages in ((19_000, chunk.pages), (rows, (chunk.pages[0], chunk.pages[1] + 1))):
        moved = ColumnChunk(pages, rows)
        with pytest.raises(ValueError, match="damaged"):
            parquet_pages._decode_locations(bytes(index), moved, row_count)
