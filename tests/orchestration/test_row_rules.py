"""Metadata proves that no row breaks a rule, and never proves it if a row does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chains import DELTA, FULL, chain_table
from support.golden import copy_warehouse, golden_tables, table_name
from support.tables import new_table

from paimon_orch import Catalog
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.orchestration.row_rules import RuleOutcome, evaluate_row_rules
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

COLUMNS = "id INT, v INT, s STRING"
BATCHES = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.none() | st.integers(-2, 2),
            st.none() | st.sampled_from(["a", "b", "c" * 40]),
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=3,
)
RULES = {
    "value": "v < 0",
    "null": "v IS NULL",
    "text": "s > 'b'",
    "either": "s = 'a' OR v = 2",
    "key": "id >= 4",
}


def evaluate(table: Table, **rules: str) -> dict[str, RuleOutcome]:
    return {outcome.name: outcome for outcome in evaluate_row_rules(table, rules)}


def write(table: Table, rows: list[tuple[int, int | None, str | None]]) -> None:
    schema = pa.schema({"id": pa.int32(), "v": pa.int32(), "s": pa.string()})
    data = pa.Table.from_pylist([dict(zip(["id", "v", "s"], row, strict=True)) for row in rows])
    write = table.upsert if table.load().get_schema().primary_keys else table.append
    write(data.cast(schema))


@settings(max_examples=25)
@given(batches=BATCHES, has_key=st.booleans())
def test_a_proved_rule_has_no_matching_row(
    batches: list[list[tuple[int, int | None, str | None]]],
    has_key: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("rules")
    table = new_table(
        folder, COLUMNS, key=["id"] if has_key else [], bucket="1" if has_key else "-1"
    )
    for rows in batches:
        write(table, rows)

    for outcome in evaluate(table, **RULES).values():
        matching = table.scan(filter=outcome.filter).count()
        if outcome.is_proved:
            assert matching == 0, outcome
        assert outcome.files <= outcome.all_files
        assert outcome.rows >= matching


def test_a_file_with_a_row_that_breaks_a_rule_is_counted_with_its_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, COLUMNS, key=[], bucket="-1")
    write(table, [(1, 5, "a"), (2, 6, "b")])
    write(table, [(3, -1, "a"), (4, 6, None)])

    found = evaluate(table, value="v < 0", large="v > 6", null="s IS NULL", unknown="id IS NULL")

    assert {name: (each.files, each.rows) for name, each in found.items()} == {
        "value": (1, 2),
        "large": (0, 0),
        "null": (1, 2),
        "unknown": (0, 0),
    }
    assert {each.all_files for each in found.values()} == {2}


def test_a_table_without_snapshot_breaks_no_rule(tmp_path: Path) -> None:
    table = new_table(tmp_path, COLUMNS, key=[], bucket="-1")
    assert evaluate(table, value="v < 0")["value"].is_proved


def test_a_replaced_row_leaves_a_rule_open_until_a_compaction(tmp_path: Path) -> None:
    table = new_table(tmp_path, COLUMNS, key=["id"])
    write(table, [(1, -5, "a")])
    write(table, [(1, 5, "a")])
    assert not evaluate(table, value="v < 0")["value"].is_proved

    table.compact(strategy="full")
    assert evaluate(table, value="v < 0")["value"].is_proved


@pytest.mark.parametrize("engine", ["aggregation", "partial-update"])
def test_rules_on_combined_columns_are_refused_and_those_on_keys_are_not(
    engine: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path, COLUMNS, key=["id"], merge_engine=engine)
    write(table, [(1, 5, "a")])

    assert evaluate(table, key="id < 0")["key"].is_proved
    with pytest.raises(UnsupportedError, match=f"'sum' names v: the merge engine {engine}"):
        evaluate(table, sum="v > 9")


def test_rules_on_tables_with_data_evolution_are_refused(tmp_path: Path) -> None:
    options = {"bucket": "-1", "row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    table = new_table(tmp_path, COLUMNS, key=[], **options)
    with pytest.raises(UnsupportedError, match="'data-evolution"):
        evaluate(table, value="v < 0")


GOLDEN_TABLES = [pytest.param(*each, id=each[0]) for each in golden_tables()]


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("name", "folder", "entry"), GOLDEN_TABLES)
def test_no_null_of_a_table_of_another_writer_is_overlooked(
    name: str, folder: Path, entry: dict[str, Any], tmp_path: Path
) -> None:
    warehouse = copy_warehouse(folder, tmp_path / "warehouse")
    table = Catalog(str(warehouse)).table(table_name(entry))
    for column in table.load().get_schema().names:
        try:
            [outcome] = evaluate_row_rules(table, {"null": f"`{column}` IS NULL"})
        except (InputError, UnsupportedError):
            continue
        if outcome.is_proved:
            assert not table.scan(filter=outcome.filter).count(), (name, column)


def test_a_filter_that_does_not_fit_the_table_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, COLUMNS, key=[], bucket="-1")
    with pytest.raises(InputError, match="nothing"):
        evaluate(table, value="nothing < 0")


def test_rules_on_tables_of_which_readers_see_rows_of_other_branches_are_refused(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, COLUMNS, key=["id", "s"], partition_by=["s"])
    table.branches.create("stream")
    catalog = Catalog(str(tmp_path))
    write(catalog.table("db.t$branch_stream"), [(1, -1, "a")])
    assert evaluate(table, value="v < 0")["value"].is_proved
    catalog.alter_table("db.t", [SetOption("scan.fallback-branch", "stream")])
    table = catalog.table("db.t")
    assert table.scan(filter="v < 0").count() == 1
    with pytest.raises(UnsupportedError, match="rows of other branches"):
        evaluate(table, value="v < 0")
    assert not evaluate(catalog.table("db.t$branch_stream"), value="v < 0")["value"].is_proved


def test_rules_on_chain_tables_are_refused(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    with pytest.raises(UnsupportedError, match="rows of other branches"):
        evaluate(table, value="v = 'b'")
