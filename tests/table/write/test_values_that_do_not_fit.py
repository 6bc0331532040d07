"""One rule for values that do not fit, and for columns that rows do not have."""

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.tables import catalog_of, new_table, rows_of, stored_files, table_of

from paimon_orch import InputError, UpdateDefault
from paimon_orch.steps import ingest
from paimon_orch.table.table import Table

MICROS = datetime(2026, 1, 31, 10, 0, 0, 123_456)
REFUSED: list[tuple[str, pa.Array, str]] = [
    ("TIMESTAMP(3)", pa.array([MICROS]), "10:00:00.123456 would become 2026-01-31 10:00:00.123"),
    ("TIMESTAMP(0)", pa.array([MICROS]), "10:00:00.123456 would become 2026-01-31 10:00:00.123"),
    ("TIMESTAMP(6)", pa.array([1], pa.timestamp("ns")), "would become 1970-01-01 00:00:00.000000"),
    ("TIMESTAMP(6)", pa.array([-1], pa.timestamp("ns")), "would become 1969-12-31 23:59:59.999999"),
    ("TIMESTAMP_LTZ(3)", pa.array([MICROS.replace(tzinfo=UTC)]), "would become"),
    ("TIMESTAMP(3)", pa.array([MICROS], pa.timestamp("us", "Asia/Kolkata")), "would become"),
    ("TIMESTAMP(3)", pa.array(["2026-01-31 10:00:00.123456"]), "cannot be stored as TIMESTAMP"),
    ("DATE", pa.array([MICROS]), "10:00:00.123456 would become 2026-01-31"),
    ("DATE", pa.array([datetime(2026, 1, 31, tzinfo=UTC)], pa.timestamp("s", "Asia/Kolkata")),
     "would become"),
    ("TIME(3)", pa.array([MICROS]), "a time of day has no date"),
    ("TIME(3)", pa.array([time(1, 2, 3, 456_789)]), "would lose data"),
    ("INT", pa.array([1.5]), "1.5"),
    ("TINYINT", pa.array([300]), "300"),
    ("INT", pa.array([date(2026, 1, 31)]), "a date is not stored as an integer"),
    ("BIGINT", pa.array([MICROS]), "a timestamp is not stored as an integer"),
    ("BOOLEAN", pa.array([1]), "an integer is not stored as a boolean"),
    ("FLOAT", pa.array([1e300]), "would become inf"),
    ("DECIMAL(10, 2)", pa.array([1.239]), "the value 1.239 would become 1.24"),
    ("DECIMAL(10, 2)", pa.array([1.239], pa.float32()), "would become 1.24"),
    ("DECIMAL(10, 2)", pa.array([Decimal("1.239")]), "Rescaling"),
    ("ARRAY<TIMESTAMP(3)>", pa.array([[None, MICROS]]), "would become"),
    ("ROW<t TIMESTAMP(3)>", pa.array([{"t": MICROS}]), "would become"),
    ("MAP<STRING, DATE>", pa.array([[("a", MICROS)]], pa.map_(pa.string(), pa.timestamp("us"))),
     "would become"),
]  # fmt: skip
EXACT: list[tuple[str, pa.Array, Any]] = [
    ("TIMESTAMP(3)", pa.array([MICROS.replace(microsecond=123_000)]),
     MICROS.replace(microsecond=123_000)),
    ("TIMESTAMP(3)", pa.array([5_000_000], pa.timestamp("ns")), datetime(1970, 1, 1, 0, 0, 0, 5000)),
    ("TIMESTAMP(6)", pa.array([MICROS], pa.timestamp("us", "Asia/Kolkata")),
     datetime(2026, 1, 31, 15, 30, 0, 123_456)),
    ("DATE", pa.array([datetime(2026, 1, 31)]), date(2026, 1, 31)),
    ("DATE", pa.array([None], pa.timestamp("us")), None),
    ("INT", pa.array([2.0]), 2),
    ("FLOAT", pa.array([0.1]), pytest.approx(0.1)),
    ("FLOAT", pa.array([float("inf")]), float("inf")),
    ("DECIMAL(10, 2)", pa.array([0.1]), Decimal("0.10")),
    ("DECIMAL(10, 2)", pa.array([0.1], pa.float32()), Decimal("0.10")),
    ("DECIMAL(38, 20)", pa.array([0.1]), None),
    ("DECIMAL(10, 2)", pa.array([None], pa.float64()), None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values", "message"), REFUSED)
def test_a_value_that_does_not_fit_is_refused(
    tmp_path: Path, kind: str, values: pa.Array, message: str
) -> None:
    table = new_table(tmp_path, f"k INT, v {kind}", key=(), bucket="-1")
    rows = pa.table({"k": pa.array([1], pa.int32()), "v": values})
    before = stored_files(table)

    for write in (table.append, table.overwrite):
        with pytest.raises(InputError, match=message) as caught:
            write(rows)
        assert re.search("cast the column|extract the time first", str(caught.value))
    planned = ingest.plan(table, ingest.IngestRequest(columns=rows.column_names))
    with pytest.raises(InputError, match=message):
        list(planned.prepare(rows.to_batches()))

    assert stored_files(table) == before


@pytest.mark.parametrize(("kind", "values", "expected"), EXACT)
def test_a_value_that_fits_is_stored(
    tmp_path: Path, kind: str, values: pa.Array, expected: Any
) -> None:
    table = new_table(tmp_path, f"k INT, v {kind}", key=(), bucket="-1")

    table.append(pa.table({"k": pa.array([1], pa.int32()), "v": values}))

    [value] = table.scan(["v"]).to_arrow().column("v").to_pylist()
    assert value == expected or (kind == "DECIMAL(38, 20)" and float(value) == 0.1)


@pytest.mark.parametrize("column_type", ["DOUBLE", "FLOAT", "ARRAY<DOUBLE>"])
def test_decimals_become_the_nearest_number(tmp_path: Path, column_type: str) -> None:
    numbers = [Decimal(digits) for digits in ("1.005", "-0.05", "0.955", "1234567.8901")]
    table = new_table(tmp_path, f"k INT, v {column_type}", key=(), bucket="-1")
    values = pa.array(numbers, pa.decimal128(20, 4))
    if column_type.startswith("ARRAY"):
        values = pa.ListArray.from_arrays(list(range(5)), values)
    table.append(pa.table({"k": range(4), "v": values}))

    stored = table.scan(["v"]).to_arrow()["v"].combine_chunks()

    kind = np.float32 if column_type == "FLOAT" else np.float64
    items = stored.flatten() if column_type.startswith("ARRAY") else stored
    assert items.to_pylist() == [kind(str(number)).item() for number in numbers]


def test_a_rounded_column_is_stored(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v TIMESTAMP(3)")
    rounded = pc.floor_temporal(pa.array([MICROS]), unit="millisecond")

    table.upsert(pa.table({"k": [1], "v": rounded}))

    assert rows_of(table) == [(1, MICROS.replace(microsecond=123_000))]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with nullable columns, defaults, and a column that is NOT NULL."""
    created = new_table(
        tmp_path, "k INT, v STRING, d INT, n INT NOT NULL, m INT NOT NULL", sequence__field="d"
    )
    changes = [UpdateDefault(column="v", default="x"), UpdateDefault(column="m", default="5")]
    catalog_of(created).alter_table("db.t", changes)
    return created


@pytest.mark.parametrize("method", ["append", "upsert", "overwrite"])
def test_missing_columns_are_null_or_their_default(table: Table, method: str) -> None:
    getattr(table, method)(table_of("k d n", [(1, 2, 3)]))

    assert rows_of(table) == [(1, "x", 2, 3, 5)]


def test_missing_columns_of_an_ingest_are_null_or_their_default(table: Table) -> None:
    rows = table_of("k d n", [(1, 2, 3)]).cast(
        pa.schema([("k", pa.int32()), ("d", pa.int32()), ("n", pa.int32())])
    )
    planned = ingest.plan(table, ingest.IngestRequest(columns=rows.column_names))

    [prepared] = planned.prepare(rows.to_batches())

    assert prepared.select(["v", "m"]).to_pylist() == [{"v": "x", "m": 5}]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("k d", "missing v, n, m. The table has k, v, d, n, m; nothing was written"),
        ("k n", r"missing v, d, m\."),
        ("d n", r"missing k, v, m \(of the primary key: k\)"),
        ("k d n w", "missing v, m; unknown w"),
    ],
)
def test_columns_that_must_not_be_missing(table: Table, names: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        table.upsert(table_of(names, [(1,) * len(names.split())]))

    assert table.snapshot() is None


def test_the_refusal_names_the_first_value_that_does_not_fit(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v DECIMAL(5, 2)", key=(), bucket="-1")
    values = ["1.25", None, "2.50", "12345.00", "1.239"]

    with pytest.raises(InputError, match=r"\(the value is '12345\.00'\)"):
        table.append(pa.table({"k": pa.array(range(5), pa.int32()), "v": values}))


def test_a_refusal_of_all_values_advises_no_rounding(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v MAP<STRING, INT>", key=(), bucket="-1")

    with pytest.raises(InputError, match=r"has another nesting than .*Nothing was written$"):
        table.append(pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([{"a": 1}])}))
