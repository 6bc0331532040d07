"""Rows of other libraries are written if Arrow supports them; errors name type and column."""

from __future__ import annotations

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
