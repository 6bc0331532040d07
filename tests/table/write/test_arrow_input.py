"""Rows of other libraries are written if Arrow supports them; errors name type and column."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.tables import new_table, rows_of, stored_files

from paimon_orch.errors import InputError
from paimon_orch.table.table import Table

ROWS = {"k": [1, 2], "v": ["a", None]}
STORED = [(1, "a"), (2, None)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return new_table(tmp_path)


@pytest.mark.parametrize(
    "rows",
    [
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=["x", "y"]),
        pl.DataFrame(ROWS),
        pa.RecordBatch.from_pydict(ROWS),
        pa.table(ROWS),
    ],
    ids=["pandas", "pandas with an index", "polars", "record batch", "table"],
)
def test_rows_of_other_libraries_are_written(table: Table, rows: Any) -> None:
    table.upsert(rows)

    assert rows_of(table) == STORED
    table.append(rows)
    table.overwrite(rows)
    assert rows_of(table) == STORED
    table.delete(rows)
    assert rows_of(table) == []


def test_record_batch_readers_are_written(table: Table) -> None:
    table.upsert(pa.table(ROWS).to_reader())

    assert rows_of(table) == STORED


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pd.DataFrame({"k": [1, "x"], "v": ["a", "b"]}), "rows of pandas.DataFrame .*column k"),
        (
            pl.DataFrame({"k": [1], "v": [object()]}),
            "rows of polars.DataFrame cannot .*column 'v' contains",
        ),
        ([{"k": 1, "v": "a"}], r"must be a pyarrow.Table, .*, not builtins\.list"),
        (None, "not builtins.NoneType"),
        ("k,v", "not builtins.str"),
        (pl.DataFrame({"k": [1], "v": [[1]]}), "column 'v' is "),
        (
            pa.table({"k": [1], "v": pa.array([b"\xff"], pa.binary()).view(pa.string())}),
            "column 'v' has text that is not UTF-8",
        ),
    ],
)
def test_rows_that_cannot_be_converted_are_refused(table: Table, rows: Any, message: str) -> None:
    before = stored_files(table)

    with pytest.raises(InputError, match=message):
        table.upsert(rows)

    assert stored_files(table) == before


# Both hours of both changes of 2024; 01:30 is repeated, 02:30 in March is left out.
CHANGES = [1730619000, 1730622600, 1730626200, 1710063000, 1710066600]
ZONES = ["UTC", "America/Los_Angeles", "PST", "GMT+05:30", "UTC+1", "Z"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("precision", [0, 3, 6, 9])
def test_instants_of_any_zone_keep_their_value(
    tmp_path: Path, zone: str, unit: str, precision: int
) -> None:
    kind = f"TIMESTAMP_LTZ({precision})"
    table = new_table(tmp_path, f"t {kind}, r ROW<t {kind}>, a ARRAY<{kind}>", key=(), bucket="-1")
    instants = pa.array(CHANGES, pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    rows = pa.StructArray.from_arrays([instants], ["t"])
    lists = pa.ListArray.from_arrays(list(range(len(instants) + 1)), instants)
    table.append(pa.table({"t": instants, "r": rows, "a": lists}))

    stored = table.scan().to_arrow().combine_chunks()
    for column in (
        stored["t"],
        stored["r"].combine_chunks().field("t"),
        stored["a"].combine_chunks().flatten(),
    ):
        assert column.cast(pa.timestamp("s", "UTC")).cast(pa.int64()).to_pylist() == CHANGES


def test_instants_in_a_column_without_a_zone_are_local_times(tmp_path: Path) -> None:
    table = new_table(tmp_path, "a TIMESTAMP(3), b TIMESTAMP(3)", key=(), bucket="-1")
    utc = pa.array([CHANGES[0]], pa.timestamp("s", "UTC"))
    table.append(pa.table({"a": utc, "b": utc.cast(pa.timestamp("s", "America/Los_Angeles"))}))

    assert rows_of(table) == [(datetime(2024, 11, 3, 7, 30), datetime(2024, 11, 3, 0, 30))]


TEXTS = pa.array(["a", None, "b"])
LISTS = [["a", None], None, [], ["b"]]
TEXT_LAYOUTS = {
    "dictionary": TEXTS.dictionary_encode(),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view())
    ),
    "run ends": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), TEXTS),
    "large": TEXTS.cast(pa.large_string()),
    "view": TEXTS.cast(pa.string_view()),
    "categories of Polars": pl.Series(["a", None, "b"], dtype=pl.Categorical).to_arrow(),
    "enumeration of Polars": pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a"])).to_arrow(),
}
LIST_LAYOUTS = {
    "large": pa.array(LISTS, pa.large_list(pa.large_string())),
    "view": pa.array(LISTS, pa.list_view(pa.string())),
    "large view": pa.array(LISTS, pa.large_list_view(pa.string_view())),
    "reversed view": pa.ListViewArray.from_arrays(
        pa.array([1, 0, 0, 0], pa.int32()),
        pa.array([2, 0, 0, 1], pa.int32()),
        pa.array(["b", "a", None]),
        mask=pa.array([False, True, False, False]),
    ),
    "dictionary": pa.ListArray.from_arrays(
        pa.array([0, None, 2, 2, 3], pa.int32()), pa.array(["a", None, "b"]).dictionary_encode()
    ),
}


@pytest.mark.parametrize("layout", TEXT_LAYOUTS)
def test_text_in_any_layout_is_written(tmp_path: Path, layout: str) -> None:
    table = new_table(tmp_path, "s STRING, r ROW<x STRING>", key=(), bucket="-1")
    texts = TEXT_LAYOUTS[layout]
    table.append(pa.table({"s": texts, "r": pa.StructArray.from_arrays([texts], ["x"])}))

    stored = table.scan().to_arrow().to_pylist()
    assert stored == [{"s": text, "r": {"x": text}} for text in TEXTS.to_pylist()]


@pytest.mark.parametrize("layout", LIST_LAYOUTS)
def test_lists_in_any_layout_are_written(tmp_path: Path, layout: str) -> None:
    table = new_table(tmp_path, "l ARRAY<STRING>", key=(), bucket="-1")
    table.append(pa.table({"l": LIST_LAYOUTS[layout]}))

    assert table.scan().to_arrow()["l"].to_pylist() == LISTS


@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(["x", "y"])], ids=str)
def test_a_data_frame_with_categories_is_written(tmp_path: Path, kind: pl.DataType) -> None:
    columns = "s STRING, l ARRAY<STRING>, r ROW<a STRING>"
    table = new_table(tmp_path, columns, key=(), bucket="-1")
    frame = pl.DataFrame(
        {"s": ["x", None], "l": [["y", None], None], "r": [{"a": "y"}, {"a": None}]},
        schema={"s": kind, "l": pl.List(kind), "r": pl.Struct({"a": kind})},
    )
    table.append(pl.concat([frame, frame], rechunk=False))

    assert table.scan().to_arrow().to_pylist() == [*frame.to_dicts()] * 2


def test_a_uuid_is_not_stored_as_the_text_of_its_bytes(tmp_path: Path) -> None:
    table = new_table(tmp_path, "s STRING", key=(), bucket="-1")

    with pytest.raises(InputError, match="a UUID has 16 bytes, and is not text"):
        table.append(pa.table({"s": pa.array([b"a" * 16], pa.uuid())}))
