"""Lists whose levels state another number of rows give no items to the rows of others."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_orch.files.parquet import ParquetFileReader, read_batches
from paimon_orch.files.parquet.list_entries import count_list_entries
from paimon_orch.files.parquet.page_reader import PageIndexError, ReadCosts
from paimon_orch.files.parquet.thrift_compact import (
    STRUCT,
    ValueSpan,
    decode_list,
    decode_struct,
    encode_integer,
)

ROWS = 4_000
CHEAP = ReadCosts(request_cost=1, lookup_cost=1, footer_cost_factor=0)
INTS = pa.list_(pa.int32())
KINDS: dict[str, pa.DataType] = {
    "list": INTS,
    "lists": pa.list_(INTS),
    "map": pa.map_(pa.string(), pa.int64()),
    "map of lists": pa.map_(pa.string(), pa.list_(pa.float64())),
    "list of rows": pa.list_(pa.struct({"a": pa.int32(), "b": INTS, "c": pa.string()})),
    "row": pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())}),
}


def build_value(kind: pa.DataType, source: np.random.Generator) -> Any:
    """Return a random value; a third of them are nulls or empty."""
    if source.random() < 0.2:
        return None
    if pa.types.is_map(kind):
        values = [build_value(kind.item_type, source) for _ in range(source.integers(3))]
        return [(str(number), value) for number, value in enumerate(values)]
    if pa.types.is_list(kind):
        return [build_value(kind.value_type, source) for _ in range(source.integers(4))]
    if pa.types.is_struct(kind):
        return {field.name: build_value(field.type, source) for field in kind}
    return str(source.integers(9)) if pa.types.is_string(kind) else int(source.integers(9))


@pytest.mark.parametrize("name", KINDS)
def test_entries_of_arrays_are_those_of_their_pages(name: str) -> None:
    source = np.random.default_rng(7)
    values = pa.array([build_value(KINDS[name], source) for _ in range(500)], KINDS[name])
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": values, "k": range(500)}), sink)
    file = pq.ParquetFile(sink)

    chunks = [file.metadata.row_group(0).column(n) for n in range(file.metadata.num_columns)]
    levels = [file.schema.column(n).max_repetition_level for n in range(len(chunks))]
    expected = sum(c.num_values for c, level in zip(chunks, levels, strict=True) if level)

    batches = list(file.iter_batches(batch_size=70))
    assert sum(count_list_entries(batch.column("x")) for batch in batches) == expected
    assert sum(count_list_entries(batch.column("k")) for batch in batches) == 0
    halves = values.slice(0, 250), values.slice(250)
    assert sum(map(count_list_entries, halves)) == expected
    reader = ParquetFileReader(sink)
    assert pa.Table.from_batches(reader.batches(["x"], 70)).column(0).to_pylist() == (
        values.to_pylist()
    )


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1, 2], [], None, [None]], pa.list_view(pa.int32())),
        pa.array([[1, 2], [], None, [None]], pa.large_list_view(pa.int32())),
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(24).reshape(4, 2, 3)),
        pa.array([[b"%016d" % 1], [], None], pa.list_(pa.binary(16))).cast(pa.list_(pa.uuid())),
    ],
    ids=lambda values: str(values.type),
)
def test_lists_of_the_other_types_of_arrow_have_the_entries_of_their_pages(values: Any) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": values}), sink, row_group_size=3)

    for batches in (ParquetFileReader(sink).batches(["x"], 2), read_batches(sink, 2)):
        assert pa.Table.from_batches(batches).column("x").to_pylist() == values.to_pylist()


def write_lists(groups: Sequence[list[list[int]]], **options: Any) -> bytes:
    """Return a file in which a list of two items takes the same bytes as two lists of one."""
    sink = io.BytesIO()
    settings = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, pa.schema({"l": INTS}), **settings, **options) as writer:
        for lists in groups:
            writer.write_table(pa.table({"l": pa.array(lists, INTS)}))
    return sink.getvalue()


def split_file(data: bytes) -> tuple[bytes, bytes]:
    """Return the pages and the footer of a file."""
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:end], data[end:]


def build_damaged_files(**options: Any) -> tuple[bytes, bytes]:
    """Return a file whose first row group has a list more than rows, and one with a list less."""
    whole = [[2 * n, 2 * n + 1] for n in range(ROWS)]
    divided = [*whole[:5], [10], [11], *whole[6:]]
    pages, footer = split_file(write_lists([whole, whole], **options))
    other_pages, other_footer = split_file(write_lists([divided, whole], **options))
    assert len(pages) == len(other_pages)
    return other_pages + footer, pages + other_footer


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("groups", [None, [0]])
def test_rows_do_not_get_the_lists_of_others(number: int, groups: list[int] | None) -> None:
    data = build_damaged_files()[number]
    problem = "its pages have 8000|a row group of 4001 rows has 4000 lists"

    reader = ParquetFileReader(io.BytesIO(data))
    with pytest.raises(ValueError, match=problem):
        list(reader.batches(["l"], 1_000, groups))
    with pytest.raises(ValueError, match=problem):
        list(read_batches(io.BytesIO(data), 1_000, groups))


def test_pages_of_selected_rows_have_no_more_lists_than_rows() -> None:
    more, _ = build_damaged_files(write_page_index=True, data_page_size=800, write_batch_size=100)
    reader = ParquetFileReader(io.BytesIO(more), costs=CHEAP)
    selected = {0: np.array([ROWS - 1])}  # the offset index agrees with the pages before

    plans = reader.plan_pages(["l"], selected)

    with pytest.raises(PageIndexError, match="the lists of a row group have"):
        reader.read_pages(plans[0])


def state_rows(data: bytes, rows: int) -> bytes:
    """Let the first row group of a file have another number of rows."""
    pages, footer = split_file(data)
    footer = footer[:-8]
    groups = decode_struct(footer)[0][4]
    group = next(iter(decode_list(footer, groups.start)))
    place: ValueSpan = decode_struct(footer, group.start)[0][3]
    assert group.kind == STRUCT
    changed = footer[: place.start] + encode_integer(rows) + footer[place.end :]
    return pages + changed + len(changed).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize("rows", [59, 61])
def test_a_flat_column_has_the_values_of_its_row_group(rows: int) -> None:
    sink = io.BytesIO()
    table = pa.table({"k": range(60)})
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table)
    reader = ParquetFileReader(io.BytesIO(state_rows(sink.getvalue(), rows)))

    with pytest.raises(ValueError, match=f"the pages of {rows} rows have 60 values"):
        list(reader.batches(["k"], 1_000))
