"""Updates in the process: expressions, kinds of tables, and what only Spark computes."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.tables import catalog_of, new_table, rows_of, table_of

from paimon_orch import AddColumn, InputError, UnsupportedError, UpdateDefault, col
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.row_level.update import UPDATE_ROWS, UpdateRequest, plan
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path)
    created.upsert(table_of("k v", [(1, "a"), (2, "b"), (3, None)]))
    return created


def test_an_update_sets_values_where_a_filter_matches(table: Table) -> None:
    snapshot = table.update({"v": "'x'"}, where="k >= 2")

    assert snapshot == table.snapshot()
    assert rows_of(table) == [(1, "a"), (2, "x"), (3, "x")]


def test_an_update_without_a_filter_sets_all_rows(table: Table) -> None:
    table.update({"v": None})

    assert rows_of(table) == [(1, None), (2, None), (3, None)]


def test_an_update_without_matches_commits_nothing(table: Table) -> None:
    assert table.update({"v": "'x'"}, where=col("k") == 9) is None
    assert len(table.history()) == 1


def test_a_table_without_rows_is_not_changed(tmp_path: Path) -> None:
    assert new_table(tmp_path).update({"v": "'x'"}) is None


VALUES: list[tuple[str, str, object, object]] = [
    ("number", "INT", 7, 7),
    ("literal", "INT", "-7", -7),
    ("null", "INT", "NULL", None),
    ("column", "INT", "k", 1),
    ("col", "INT", col("k"), 1),
    ("quoted", "INT", "`k`", 1),
    ("sum", "INT", "v + 1", 6),
    ("nested", "INT", "(v - 1) * (k + 1)", 8),
    ("constants", "INT", "1 + 2", 3),
    ("double", "DOUBLE", "v * 1.5", 7.5),
    ("double literal", "DOUBLE", "1e3", 1000.0),
    ("exact double", "DOUBLE", "1.005", 1.005),
    ("sum of decimals", "DOUBLE", "0.955 + 0.3", 1.255),
    ("number text", "STRING", "k", "1"),
    ("date of a time", "TIMESTAMP(3)", "DATE '2026-01-31'", datetime(2026, 1, 31)),
    ("decimal", "DECIMAL(10, 2)", "v + 0.25", Decimal("5.25")),
    ("decimal value", "DECIMAL(10, 2)", Decimal("1.5"), Decimal("1.50")),
    ("boolean", "BOOLEAN", "true", True),
    ("date", "DATE", "DATE '2026-01-31'", date(2026, 1, 31)),
    ("date text", "DATE", "'2026-01-31'", date(2026, 1, 31)),
    ("date value", "DATE", date(2026, 1, 31), date(2026, 1, 31)),
    ("time", "TIMESTAMP(3)", "TIMESTAMP '2026-01-31 10:00:00.5'",
     datetime(2026, 1, 31, 10, 0, 0, 500_000)),
    ("time value", "TIMESTAMP(3)", datetime(2026, 1, 31, 10), datetime(2026, 1, 31, 10)),
    ("bytes", "BYTES", "X'80ff'", b"\x80\xff"),
    ("bytes value", "BYTES", b"\x80", b"\x80"),
    ("text", "STRING", "'VOID'", "VOID"),
    ("array", "ARRAY<INT>", [1, None], [1, None]),
    ("map", "MAP<STRING, INT>", [("a", 1)], [("a", 1)]),
    ("row", "ROW<x INT>", {"x": 1}, {"x": 1}),
]  # fmt: skip
FIRST = {"BOOLEAN": False, "DATE": date(2020, 1, 1), "TIMESTAMP(3)": datetime(2020, 1, 1),
         "BYTES": b"", "STRING": "", "ARRAY<INT>": [], "MAP<STRING, INT>": [],
         "ROW<x INT>": None}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "expected"), [x[1:] for x in VALUES], ids=[x[0] for x in VALUES]
)
def test_new_values(tmp_path: Path, kind: str, value: object, expected: object) -> None:
    table = new_table(tmp_path, f"k INT, v {kind}", key=(), bucket="-1")
    schema = table.scan().arrow_schema
    table.append(pa.table([[1], [FIRST.get(kind, 5)]], schema=schema))

    table.update({"v": value})

    assert table.scan(["v"]).to_arrow().to_pylist() == [{"v": expected}]


KINDS: dict[str, dict[str, Any]] = {
    "primary key": {},
    "dynamic buckets": {"bucket": "-1"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "partial update": {"merge-engine": "partial-update"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "append": {"key": (), "bucket": "-1"},
    "append with vectors": {"key": (), "bucket": "-1", "deletion-vectors.enabled": "true"},
    "buckets": {"key": (), "bucket": "2", "bucket-key": "k"},
    "row tracking": {"key": (), "bucket": "-1", "row-tracking.enabled": "true"},
    "data evolution": {
        "key": (), "bucket": "-1", "row-tracking.enabled": "true",
        "data-evolution.enabled": "true",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_tables(tmp_path: Path, kind: str) -> None:
    options = dict(KINDS[kind])
    key = options.pop("key", ("k",))
    table = new_table(tmp_path, "k INT, v INT, w STRING", key=key, **options)
    table.append(table_of("k v w", [(1, 10, "a"), (2, 20, "b")]))
    table.append(table_of("k v w", [(3, 30, "c"), (4, None, None)]))

    table.update({"v": "v * 2 + k", "w": "'new'"}, where="k <> 2")

    assert rows_of(table, merge_level_0=True) == [
        (1, 21, "new"),
        (2, 20, "b"),
        (3, 63, "new"),
        (4, None, "new"),
    ]


def test_an_update_writes_the_default_of_a_column_in_place_of_null_as_on_spark(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    added, default = AddColumn(column="n", type="INT"), UpdateDefault(column="n", default="5")
    catalog_of(table).alter_table("db.t", [added, default])

    table.update({"v": "'x'"})

    assert rows_of(table) == [(1, "x", 5)]


REFUSED: list[tuple[str, object, type[Exception], str]] = [
    (
        "function",
        {"v": "upper(v)"},
        UnsupportedError,
        r"UPPER\(v\)' needs Spark.*update --executor",
    ),
    ("concat", {"v": "v || 'x'"}, UnsupportedError, "needs Spark"),
    ("text sum", {"v": "v + 1"}, UnsupportedError, "arithmetic with v needs Spark"),
    ("cast", {"v": "CAST(k AS STRING)"}, UnsupportedError, "needs Spark"),
    ("part", {"v": col("v")["x"]}, UnsupportedError, "a part of column 'v' needs Spark"),
    ("no quotes", {"v": "VOID"}, InputError, "Write text in single quotes: \"'VOID'\""),
    ("no SQL", {"v": "it's"}, InputError, "quotes"),
    ("empty", {"v": ""}, InputError, "'' is not an SQL expression; write text in single quotes"),
    ("no column", {"x": 1}, InputError, "x"),
    ("key", {"k": 5}, InputError, "k cannot be set: columns of the primary key"),
    ("nothing", {}, InputError, "at least one column"),
    ("text", "v = 'x'", InputError, "an update needs a mapping of columns to new values"),
    ("object", {"v": object()}, InputError, "column 'v' cannot be set to <object"),
    ("date", {"v": "DATE '2026-02-31'"}, InputError, "column 'v' cannot be set to"),
]


@pytest.mark.parametrize(
    ("values", "kind", "message"), [x[1:] for x in REFUSED], ids=[x[0] for x in REFUSED]
)
def test_refused_updates(table: Table, values: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        table.update(values)

    assert rows_of(table) == [(1, "a"), (2, "b"), (3, None)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("s", "f"),
        ("s", "c"),
        ("s", "t"),
        ("s", "1e3"),
        ("s", 0.5),
        ("s", col("t")),
        ("time", "5"),
        ("ns", "n"),
    ],
)
def test_values_that_spark_casts_in_another_way_need_spark(
    typed_table: Table, column: str, value: object
) -> None:
    before = rows_of(typed_table)

    with pytest.raises(UnsupportedError, match=f"column '{column}': .* needs Spark"):
        typed_table.update({column: value})

    assert rows_of(typed_table) == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n", "d"),
        ("n", "t"),
        ("n", "TIMESTAMP '2026-01-31 10:00:00'"),
        ("n", date(2026, 1, 31)),
        ("n", True),
        ("n", "b"),
        ("b", "n"),
        ("b", "1"),
        ("d", "n"),
        ("t", "3000000000"),
        ("t", 5),
    ],
)
def test_values_of_a_kind_that_the_column_does_not_store_are_refused(
    typed_table: Table, column: str, value: object
) -> None:
    before = rows_of(typed_table)

    message = f"column '{column}' cannot be set to .* is not stored as .* cast the column"
    with pytest.raises(InputError, match=message):
        typed_table.update({column: value})

    assert rows_of(typed_table) == before


@pytest.fixture
def typed_table(tmp_path: Path) -> Table:
    """Return a table with a row and columns of different types."""
    columns = (
        "s STRING, n BIGINT, f FLOAT, c DECIMAL(20, 10), d DATE, t TIMESTAMP(6), b BOOLEAN, "
        "time TIME(3), ns TIMESTAMP(9)"
    )
    table = new_table(tmp_path, columns, key=(), bucket="-1")
    row = {
        "s": "x",
        "n": 1,
        "f": 1e30,
        "c": Decimal("1e-10"),
        "d": date(2026, 1, 31),
        "t": datetime(2026, 1, 31),
        "b": True,
    }
    table.append(pa.Table.from_pylist([row], schema=table.scan().arrow_schema))
    return table


def test_a_concurrent_change_is_updated_from_its_new_value(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v INT")
    table.upsert(table_of("k v", [(1, 10)]))
    planned = plan(table, UpdateRequest(assignments={"v": "v + 1"}))
    table.upsert(table_of("k v", [(1, 20)]))

    result = run_step(UPDATE_ROWS, table, planned)

    assert rows_of(table) == [(1, 21)]
    assert (result.updated, result.attempts) == (1, 2)


def test_values_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v TINYINT")
    table.upsert(table_of("k v", [(1, 100)]))

    for value in ("v + 100", "1.5", 1.5, 1000):
        with pytest.raises(InputError, match="column 'v'"):
            table.update({"v": value})
    assert rows_of(table) == [(1, 100)]
