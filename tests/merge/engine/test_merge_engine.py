"""Merge engines equal a simple model that merges dictionaries row by row."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import small_batches

from paimon_orch import Catalog, PaimonError, Table
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact

Row = dict[str, Any]
few = settings(max_examples=8, deadline=None)
KEYS = st.integers(0, 6)
NUMBERS = st.none() | st.integers(-1000, 1000)


def table_of(path: Path, columns: str, options: dict[str, str]) -> Table:
    catalog = Catalog(str(path))
    number = len(catalog.tables("db")) if "db" in catalog.databases() else 0
    defaults = {"bucket": "1", "num-sorted-run.compaction-trigger": "3"}
    name = f"db.t{number}"
    table = catalog.create_table(name, columns, primary_key=["k"], options=defaults | options)
    return small_batches(table, 3)


def write(table: Table, rows: list[Row], kinds: list[str] | None = None) -> None:
    names = table.load().schema.names
    types = table.scan().arrow_schema
    columns = {n: pa.array([row.get(n) for row in rows], types.field(n).type) for n in names}
    columns["kind"] = pa.array(kinds or ["+I"] * len(rows))
    table.upsert(pa.table(columns), row_kind="kind")


def read(table: Table) -> dict[int, Row]:
    return {row["k"]: row for row in table.scan().to_arrow().to_pylist()}


def check_after_each_compaction(table: Table, expected: dict[int, Row]) -> None:
    assert expected == read(table)
    for strategy in ("minor", "full"):
        compact(table, InProcessExecutor(), strategy=strategy)
        assert expected == read(table)


def batches_of(row: st.SearchStrategy[Row]) -> st.SearchStrategy[list[list[Row]]]:
    return st.lists(st.lists(row, min_size=1, max_size=8), min_size=1, max_size=5)


AGGREGATES = {
    "total": ("BIGINT", "sum"),
    "price": ("DECIMAL(12, 2)", "sum"),
    "high": ("INT", "max"),
    "low": ("DOUBLE", "min"),
    "latest": ("INT", "last_value"),
    "known": ("INT", "last_non_null_value"),
    "first": ("INT", "first_value"),
    "met": ("INT", "first_non_null_value"),
    "all_of": ("BOOLEAN", "bool_and"),
    "any_of": ("BOOLEAN", "bool_or"),
    "names": ("STRING", "listagg"),
}


def aggregate_row(old: Row | None, new: Row) -> Row:
    if old is None:
        return new

    def combine_values(name: str, combine: Any) -> Any:
        if old[name] is None or new[name] is None:
            return new[name] if old[name] is None else old[name]
        return combine(old[name], new[name])

    return {
        "k": new["k"],
        "total": combine_values("total", lambda a, b: a + b),
        "price": combine_values("price", lambda a, b: a + b),
        "high": combine_values("high", max),
        "low": combine_values("low", min),
        "latest": new["latest"],
        "known": combine_values("known", lambda _, b: b),
        "first": old["first"],
        "met": combine_values("met", lambda a, _: a),
        "all_of": combine_values("all_of", lambda a, b: a and b),
        "any_of": combine_values("any_of", lambda a, b: a or b),
        "names": combine_values("names", lambda a, b: f"{a},{b}"),
    }


AGGREGATED_ROWS = st.fixed_dictionaries(
    {
        "k": KEYS,
        "total": NUMBERS,
        "price": st.none() | st.decimals(-99, 99, places=2),
        "high": NUMBERS,
        "low": st.none() | st.floats(-10, 10).filter(lambda x: x != 0),
        "latest": NUMBERS,
        "known": NUMBERS,
        "first": NUMBERS,
        "met": NUMBERS,
        "all_of": st.none() | st.booleans(),
        "any_of": st.none() | st.booleans(),
        "names": st.none() | st.text("abc", min_size=1, max_size=2),
    }
)


@pytest.mark.slow
@few
@given(batches_of(AGGREGATED_ROWS))
def test_aggregation_has_the_same_result_as_a_merge_row_by_row(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]
) -> None:
    columns = ", ".join(["k INT", *(f"{n} {kind}" for n, (kind, _) in AGGREGATES.items())])
    options = {f"fields.{n}.aggregate-function": f for n, (_, f) in AGGREGATES.items()}
    table = table_of(
        tmp_path_factory.mktemp("t"), columns, options | {"merge-engine": "aggregation"}
    )
    expected: dict[int, Row] = {}

    for batch in batches:
        write(table, batch)
        for row in batch:
            expected[row["k"]] = aggregate_row(expected.get(row["k"]), row)

    check_after_each_compaction(table, expected)


@pytest.mark.slow
@few
@given(batches_of(st.fixed_dictionaries({"k": KEYS, "a": NUMBERS, "b": NUMBERS})))
def test_partial_update_keeps_the_last_value_that_is_not_null(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]
) -> None:
    options = {"merge-engine": "partial-update"}
    table = table_of(tmp_path_factory.mktemp("t"), "k INT, a INT, b INT", options)
    expected: dict[int, Row] = {}

    for batch in batches:
        write(table, batch)
        for row in batch:
            old = expected.get(row["k"], {})
            expected[row["k"]] = old | {
                n: v for n, v in row.items() if v is not None or n not in old
            }

    check_after_each_compaction(table, expected)


@few
@given(
    batches_of(
        st.fixed_dictionaries(
            {
                "k": KEYS,
                "s": st.none() | st.integers(0, 4),
                "a": NUMBERS,
                "n": NUMBERS,
                "b": NUMBERS,
            }
        )
    )
)
def test_sequence_groups_ignore_older_rows(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]
) -> None:
    options = {
        "merge-engine": "partial-update",
        "fields.s.sequence-group": "a,n",
        "fields.n.aggregate-function": "sum",
    }
    table = table_of(tmp_path_factory.mktemp("t"), "k INT, s INT, a INT, n BIGINT, b INT", options)
    expected: dict[int, Row] = {}

    for batch in batches:
        write(table, batch)
        for row in batch:
            old = expected.get(row["k"])
            if old is None:
                expected[row["k"]] = row
                continue
            if row["b"] is not None:
                old = old | {"b": row["b"]}
            if row["s"] is not None:
                total = [x for x in (old["n"], row["n"]) if x is not None]
                old = old | {"n": sum(total) if total else None}
                if old["s"] is None or row["s"] >= old["s"]:
                    old = old | {"s": row["s"], "a": row["a"]}
            expected[row["k"]] = old

    # The first row of a key is not merged, so it is unchanged even without a sequence.
    assert {k: r["b"] for k, r in expected.items()} == {k: r["b"] for k, r in read(table).items()}
    if all(row["s"] is not None for batch in batches for row in batch):
        check_after_each_compaction(table, expected)


@pytest.mark.sampled(1)
@few
@given(
    batches_of(st.fixed_dictionaries({"k": KEYS, "s": st.none() | st.integers(0, 3), "v": NUMBERS}))
)
@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_the_sequence_field_orders_the_rows_of_a_key(
    tmp_path_factory: pytest.TempPathFactory, order: str, vectors: str, batches: list[list[Row]]
) -> None:
    options = {"sequence.field": "s", "sequence.field.sort-order": order}
    options["deletion-vectors.enabled"] = vectors
    table = table_of(tmp_path_factory.mktemp("t"), "k INT, s INT, v INT", options)
    expected: dict[int, Row] = {}

    def rank(row: Row) -> int:
        return -100 if row["s"] is None else row["s"] if order == "ascending" else -row["s"]

    for batch in batches:
        write(table, batch)
        for row in batch:
            old = expected.get(row["k"])
            if old is None or rank(row) >= rank(old):
                expected[row["k"]] = row
        compact(table, InProcessExecutor())

    check_after_each_compaction(table, expected)


@pytest.mark.sampled(1)
@few
@given(batches_of(st.fixed_dictionaries({"k": KEYS, "v": NUMBERS})))
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_the_first_row_engine_keeps_the_first_row(
    tmp_path_factory: pytest.TempPathFactory, producer: str, batches: list[list[Row]]
) -> None:
    options = {"merge-engine": "first-row", "changelog-producer": producer}
    table = table_of(tmp_path_factory.mktemp("t"), "k INT, v INT", options)
    expected: dict[int, Row] = {}

    for batch in batches:
        write(table, batch)
        compact(table, InProcessExecutor())
        for row in batch:
            expected.setdefault(row["k"], row)

    check_after_each_compaction(table, expected)


def test_sum_subtracts_retracts_and_is_negative_after_a_retract_without_older_row(
    tmp_path: Path,
) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = table_of(tmp_path, "k INT, v DECIMAL(10, 1)", options)

    write(table, [{"k": 1, "v": Decimal("5.5")}, {"k": 2, "v": Decimal(1)}])
    write(table, [{"k": 1, "v": Decimal(2)}, {"k": 2, "v": Decimal(4)}], ["-U", "-D"])

    assert {1: Decimal("3.5"), 2: Decimal(-3)} == {k: row["v"] for k, row in read(table).items()}


def test_an_integer_sum_that_overflows_is_an_error_and_a_decimal_sum_becomes_null(
    tmp_path: Path,
) -> None:
    options = {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"}
    small = table_of(tmp_path, "k INT, v TINYINT", options)
    decimal = table_of(tmp_path, "k INT, v DECIMAL(2, 1)", options)

    for _ in range(2):
        write(small, [{"k": 1, "v": 100}])
        write(decimal, [{"k": 1, "v": Decimal("9.9")}])

    with pytest.raises(PaimonError, match="does not fit"):
        read(small)
    assert read(decimal) == {1: {"k": 1, "v": None}}


def test_an_aggregate_without_retract_raises(tmp_path: Path) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "max"}
    table = table_of(tmp_path, "k INT, v INT", options)
    write(table, [{"k": 1, "v": 5}])
    write(table, [{"k": 1, "v": 2}], ["-U"])

    with pytest.raises(PaimonError, match="ignore-retract"):
        read(table)


def test_partial_update_removes_a_deleted_record_and_a_later_row_adds_it_again(
    tmp_path: Path,
) -> None:
    options = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    table = table_of(tmp_path, "k INT, a INT, b INT", options)
    write(table, [{"k": 1, "a": 1, "b": 1}, {"k": 2, "a": 2, "b": 2}])
    write(table, [{"k": 1}, {"k": 2}], ["-D", "-D"])
    write(table, [{"k": 2, "a": 9}])

    check_after_each_compaction(table, {2: {"k": 2, "a": 9, "b": None}})


def test_ignore_delete_drops_deletes(tmp_path: Path) -> None:
    table = table_of(tmp_path, "k INT, a INT", {"ignore-delete": "true"})
    write(table, [{"k": 1, "a": 1}])
    write(table, [{"k": 1}, {"k": 2}], ["-D", "-D"])

    check_after_each_compaction(table, {1: {"k": 1, "a": 1}})
