"""Reading rows of Parquet files by pages gives the same rows as reading whole columns."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.golden import GOLDEN, canonical_rows
from support.random_tables import tables

from paimon_orch.files import row_selection as selection
from paimon_orch.files.parquet import page_reader as parquet_pages
from paimon_orch.files.parquet import parquet
from paimon_orch.files.parquet.footer import ColumnChunk
from paimon_orch.files.parquet.page_reader import ReadCosts
from paimon_orch.files.parquet.parquet import ParquetFileReader, ParquetFileWriter
from paimon_orch.files.row_selection import (
    count_unread_bytes,
    read_parquet_rows,
    take_selected_rows,
)
from paimon_orch.format.types.data_types import Field, parse_columns


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are looked for however little it saves."""
    monkeypatch.setattr(parquet_pages, "_is_small_enough", lambda *_: True)
    monkeypatch.setattr(parquet_pages, "_FOOTER_COST_FACTOR", 0)
    monkeypatch.setattr(parquet, "LOCAL_COSTS", ReadCosts(0, -(1 << 30)))
    selection._warn_damaged_page_index.cache_clear()


class Counting(io.BytesIO):
    """Bytes in memory, which count what is read of them."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def chosen_rows(data: bytes, chosen: list[int], names: list[str] | None = None) -> pa.Table:
    """Read chosen rows of a file."""
    opened = ParquetFileReader(io.BytesIO(data))
    at = np.array(chosen, np.int64)
    names = list(opened.names) if names is None else names
    found = []
    for numbers, batch in read_parquet_rows(
        opened, "f", columns=names, batch_rows=7, groups=range(opened.num_row_groups), selected=at
    ):
        found.append(take_selected_rows(numbers, batch, at))
    assert [n for numbers, _ in found for n in numbers.tolist()] == chosen
    return pa.Table.from_batches([batch for _, batch in found])


def plain_rows(data: bytes, chosen: list[int], names: list[str] | None = None) -> pa.Table:
    return pq.ParquetFile(io.BytesIO(data)).read(columns=names).take(pa.array(chosen))


def planned(data: bytes, chosen: list[int]) -> dict[int, Any]:
    opened = ParquetFileReader(io.BytesIO(data))
    inside = selection.split_by_row_group(opened, range(opened.num_row_groups), np.array(chosen))
    return dict(opened.plan_pages(opened.names, inside))


@dataclass(frozen=True)
class Made:
    """A file, and how it was made."""

    data: bytes = field(repr=False)
    rows: int
    how: str


def rows_of(made: tuple[list[Field], pa.Table], rows: int, seed: int) -> pa.Table:
    _, table = made
    return table.take(pa.array(np.random.default_rng(seed).integers(0, table.num_rows, rows)))


def flat_columns(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if not pa.types.is_nested(field.type)]


def is_sound(file: io.BytesIO, rows: int) -> bool:
    """pyarrow cannot read back the empty page that it writes where the dictionary of a list is full."""
    try:
        return bool(pq.ParquetFile(file).read().num_rows == rows)
    except pa.ArrowInvalid:
        return False


@st.composite
def files(draw: st.DrawFn) -> Made:
    """Files of several row groups with small pages: as we write them, and as others may."""
    made = draw(tables("parquet").filter(lambda found: found[1].num_rows > 0))
    table = rows_of(made, draw(st.integers(1, 60)), draw(st.integers(0, 99)))
    groups, page = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    step, sink = -(-table.num_rows // groups), io.BytesIO()
    if draw(st.booleans()):
        small = {
            **parquet._SMALL_PAGE_OPTIONS,
            "max_rows_per_page": page,
            "data_page_size": 64 * page,
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parquet, "_SMALL_PAGE_OPTIONS", small)
            patch.setattr(parquet, "_find_dictionary_columns", flat_columns)
            writer = ParquetFileWriter(sink, made[0], "zstd", 1, small_pages=True)
            for start in range(0, table.num_rows, step):
                writer.write(table.slice(start, step))
            writer.close()
        return Made(sink.getvalue(), table.num_rows, f"ours {small}")
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
    assume(is_sound(sink, table.num_rows))
    return Made(sink.getvalue(), table.num_rows, str(how))


@st.composite
def selections(draw: st.DrawFn) -> tuple[Made, list[int]]:
    made = draw(files())
    return made, sorted(draw(st.sets(st.integers(0, made.rows - 1), min_size=1)))


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_pages_give_the_rows_that_a_plain_read_gives(caplog: pytest.LogCaptureFixture) -> None:
    @settings(max_examples=40, deadline=None)
    @given(selections())
    def check(chosen: tuple[Made, list[int]]) -> None:
        made, rows = chosen
        found = chosen_rows(made.data, rows)
        found.validate(full=True)
        assert canonical_rows(found) == canonical_rows(plain_rows(made.data, rows))

    check()
    assert not caplog.records


GOLDEN_FILES = sorted(GOLDEN.rglob("data-*.parquet"))[::12]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_pages_of_files_that_others_wrote(caplog: pytest.LogCaptureFixture) -> None:
    random, indexed = np.random.default_rng(5), 0
    for path in GOLDEN_FILES:
        data = path.read_bytes()
        rows = pq.read_metadata(path).num_rows
        chosen = sorted(set(random.integers(0, rows, 1 + rows // 9).tolist()))
        indexed += bool(planned(data, chosen))
        assert canonical_rows(chosen_rows(data, chosen)) == canonical_rows(plain_rows(data, chosen))
    assert indexed == len(GOLDEN_FILES)
    assert not caplog.records


ROWS = 400
COLUMNS = (
    "k BIGINT, s STRING, l ARRAY<INT>, m MAP<STRING, INT>, r ROW<a INT, b STRING>, t TIMESTAMP(9)"
)


def sample(rows: int = ROWS) -> pa.Table:
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


def written(table: pa.Table, columns: str = COLUMNS, groups: int = 1, page_rows: int = 16) -> bytes:
    """Return a file as a table with an index that selects rows has it."""
    sink, step = io.BytesIO(), -(-table.num_rows // groups)
    with pytest.MonkeyPatch.context() as patch:
        pages = {"write_page_index": True, "max_rows_per_page": page_rows}
        patch.setattr(parquet, "_SMALL_PAGE_OPTIONS", pages)
        writer = ParquetFileWriter(sink, parse_columns(columns), "zstd", 1, small_pages=True)
        for start in range(0, table.num_rows, step):
            writer.write(table.slice(start, step))
        writer.close()
    return sink.getvalue()


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_damaged_page_index_never_gives_other_rows() -> None:
    data, chosen = written(sample(), groups=2), [5, 6, 100, 130, 131, 230, 399]
    right = canonical_rows(plain_rows(data, chosen))
    places = [*damageable(data)]

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(places), st.integers(1, 255))
    def check(place: int, change: int) -> None:
        damaged = bytearray(data)
        damaged[place] ^= change
        try:
            found = canonical_rows(chosen_rows(bytes(damaged), chosen))
        except Exception:  # noqa: BLE001 - the reader of files names them
            return
        assert found == right or found == canonical_rows(plain_rows(bytes(damaged), chosen))

    check()


def damageable(data: bytes) -> Iterator[int]:
    """Yield the bytes of the footer, of the page index and of the heads of pages."""
    opened = ParquetFileReader(io.BytesIO(data))
    footer = opened._footer
    chunks = [
        chunk
        for group in range(opened.num_row_groups)
        for chunk in footer.chunks(group, range(99)).values()
    ]
    indexes = [chunk.index for chunk in chunks if chunk.index is not None]
    for chunk in chunks:
        yield from range(chunk.pages[0], chunk.pages[0] + 24)
    yield from range(min(indexes)[0], len(data) - 8)


@pytest.mark.usefixtures("eager")
def test_a_damaged_page_index_is_told_once_and_whole_row_groups_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data, chosen = bytearray(written(sample())), [5, 200]
    index = ParquetFileReader(io.BytesIO(data))._footer.chunks(0, [0])[0].index
    assert index is not None
    data[index[0] + 5] ^= 2
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert chosen_rows(bytes(data), chosen).equals(plain_rows(bytes(data), chosen))
    assert len(caplog.records) == 1
    assert "f: the page index cannot be used" in caplog.text


def big(rows: int = 20_000) -> pa.Table:
    random = np.random.default_rng(2)
    texts = pa.array([bytes(row).hex() for row in random.integers(0, 256, (rows, 50), np.uint8)])
    return pa.table({"k": np.arange(rows), "s": texts})


def test_few_rows_are_read_with_few_bytes() -> None:
    data, chosen = written(big(), "k BIGINT, s STRING", page_rows=200), np.arange(9_000, 9_020)
    source = Counting(data)
    opened = ParquetFileReader(source)
    (rows,) = read_parquet_rows(
        opened, "f", columns=["k", "s"], batch_rows=7_000, groups=[0], selected=chosen
    )
    assert rows[0].tolist() == chosen.tolist()
    assert rows[1].to_pydict() == plain_rows(data, chosen.tolist()).to_pydict()
    assert source.count < len(data) / 40
    assert count_unread_bytes(opened, "f", chosen) > len(data) * 19 / 20


def test_columns_of_names_with_dots_are_read_whole() -> None:
    table = big().rename_columns(["a.k", "a"])
    chosen = [3, 19_000]
    data = written(table, "`a.k` BIGINT, a STRING", page_rows=200)
    assert not planned(data, chosen)
    assert chosen_rows(data, chosen, ["a.k"]).equals(table.select(["a.k"]).take(pa.array(chosen)))


@pytest.mark.parametrize(
    "chosen", [range(20_000), range(0, 20_000, 150)], ids=["all", "everywhere"]
)
def test_pages_are_not_looked_for_where_it_saves_little(chosen: range) -> None:
    data = written(big(), "k BIGINT, s STRING", page_rows=200)
    assert not planned(data, list(chosen))
    assert chosen_rows(data, list(chosen), ["k"]).column("k").to_pylist() == list(chosen)


def test_leaves_of_a_column_are_read_up_to_where_their_pages_end_together() -> None:
    long = pa.array([{"a": n, "b": text} for n, text in enumerate(big().column("s").to_pylist())])
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"r": long, "k": long.field("b")}), sink, write_page_index=True,
        data_page_size=4_000, write_batch_size=10, use_dictionary=False,
    )  # fmt: skip
    chosen = [7, 12_345]
    (plan,) = planned(sink.getvalue(), chosen).values()
    nested, flat = ([len(leaf.pages) for leaf in column.leaves] for column in plan.columns)
    assert flat == [2]
    assert nested[1] > 10
    assert chosen_rows(sink.getvalue(), chosen).equals(plain_rows(sink.getvalue(), chosen))


def test_an_index_of_pages_that_leave_gaps_is_not_believed() -> None:
    data = bytearray(written(big(), "k BIGINT, s STRING", page_rows=200))
    chunk = ParquetFileReader(io.BytesIO(data))._footer.chunks(0, [1])[1]
    index, rows = data[slice(*chunk.index or ())], 20_000
    starts, firsts = parquet_pages._decode_locations(bytes(index), chunk, rows)
    assert firsts.tolist() == list(range(0, 20_001, 200))
    assert starts[-1] == chunk.pages[1]
    for rows_told, pages in ((19_000, chunk.pages), (rows, (chunk.pages[0], chunk.pages[1] + 1))):
        moved = ColumnChunk(pages, rows)
        with pytest.raises(ValueError, match="damaged"):
            parquet_pages._decode_locations(bytes(index), moved, rows_told)
