"""Iceberg metadata after changes of nested columns: readers find the rows of the newest schema."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.golden import assert_rows_equal, canonical_rows
from support.iceberg_readers import PyIcebergReader

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    UpdateType,
)
from paimon_orch.table.table import Table

COLUMNS = (
    "k INT NOT NULL, r ROW<x INT, y STRING, n ROW<z FLOAT, d DECIMAL(8, 2)>>, "
    "a ARRAY<ROW<x BIGINT, y DATE>>, m MAP<STRING, ROW<x INT, y STRING>>, v INT, w STRING"
)
ROWS = [("r",), ("r", "n"), ("a", "element"), ("m", "value")]
FIELDS = [(*row, name) for row in ROWS for name in "xyzd"] + [("r", "n"), ("v",), ("w",)]
# a field that is added under the name of a dropped or renamed one is another field
NAMES = ["x", "y", "z", "new"]

changes = st.one_of(
    st.builds(
        lambda row, name, kind, first: AddColumn(column=(*row, name), type=kind, first=first),
        st.sampled_from([*ROWS, ()]),
        st.sampled_from(NAMES),
        st.sampled_from(["INT", "STRING", "ROW<x INT>"]),
        st.booleans(),
    ),
    st.builds(DropColumn, st.sampled_from(FIELDS)),
    st.builds(RenameColumn, st.sampled_from(FIELDS), st.sampled_from(NAMES)),
    # Iceberg reads older files with these types
    st.just(UpdateType("v", "BIGINT")),
    st.just(UpdateType(("r", "n", "d"), "DECIMAL(12, 2)")),
    st.builds(
        MoveColumn, st.sampled_from(["r", "a", "m", "v", "w"]), st.sampled_from(["first", "last"])
    ),
)


def values(kind: pa.DataType, number: int) -> Any:
    """Return a value for each number; nulls are in fields, not in arrays and maps of rows.

    pyiceberg 0.12 returns the latter as empty ones.
    """
    if isinstance(kind, pa.StructType):
        return {field.name: values(field.type, number + i) for i, field in enumerate(kind)}
    if isinstance(kind, pa.MapType):
        return [(f"k{i}", values(kind.item_type, number + i)) for i in range(number % 3)]
    if isinstance(kind, pa.ListType):
        return [values(kind.value_type, number + i) for i in range(number % 3)]
    if number % 4 == 3:
        return None
    if pa.types.is_string(kind):
        return f"t{number}"
    if pa.types.is_decimal(kind):
        return Decimal(number)
    return pa.scalar(number, pa.int32()).cast(kind).as_py()


def write(table: Table, step: int) -> None:
    """Write three rows, of which one replaces a row of the step before in a primary-key table."""
    schema = table.scan().arrow_schema
    rows = [
        {f.name: 2 * step + n if f.name == "k" else values(f.type, step + n) for f in schema}
        for n in range(3)
    ]
    data = pa.Table.from_pylist(rows, schema=schema)
    if table.load().schema.primary_keys:
        table.upsert(data)
        compact(table, InProcessExecutor(), strategy="full")
    else:
        table.append(data)


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@settings(max_examples=8)
@given(program=st.lists(changes, min_size=1, max_size=5), key=st.booleans())
def test_readers_find_the_rows_after_changes_of_nested_columns(
    root: Path, program: list[SchemaChange], key: bool
) -> None:
    catalog = Catalog(tempfile.mkdtemp(dir=root))
    table = catalog.create_table(
        "db.t",
        COLUMNS,
        primary_key=["k"] if key else [],
        options={"metadata.iceberg.storage": "table-location", "bucket": "1" if key else "-1"},
    )
    write(table, 0)
    for step, change in enumerate(program, 1):
        try:
            catalog.alter_table("db.t", [change])
        except InputError:  # such as a change of a column that an earlier one has dropped
            continue
        write(catalog.table("db.t"), step)

    rows = catalog.table("db.t").scan().to_arrow()
    found = PyIcebergReader().read_rows(Path(table.paths.root))
    assert list(found[0]) == rows.column_names
    types = [str(field.type) for field in rows.schema]
    assert_rows_equal(canonical_rows(rows), [list(row.values()) for row in found], types)
