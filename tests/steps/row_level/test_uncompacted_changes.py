"""Consecutive changes without compaction start from the newest version of a row."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import assert_healthy, new_table, rows_of, small_batches, table_of

from paimon_orch.merge.engine.update_rows import should_merge_updates
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.task_result import (
    KIND_COLUMN,
    OLD_VALUE_PREFIX,
    RowLevelTaskResult,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
Model = dict[int, tuple[int | None, int | None]]

KEYS = st.integers(0, 9)
VALUES = st.one_of(st.none(), st.integers(0, 3))
ROWS = st.dictionaries(KEYS, st.tuples(VALUES, VALUES), min_size=1, max_size=5)
CONDITIONS = st.one_of(
    st.tuples(st.just("k"), KEYS),
    st.tuples(st.just("n"), st.sampled_from([0, 1, 10, 11, 20])),
    st.tuples(st.just("m"), st.integers(0, 3)),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("update"), CONDITIONS),
        st.tuples(st.just("delete"), CONDITIONS),
        st.tuples(st.just("delete by key"), KEYS),
        st.tuples(st.just("compact"), st.sampled_from(["minor", "full"])),
        st.tuples(st.just("overwrite"), ROWS),
    ),
    max_size=12,
)


def add_ten(table: Table, where: str) -> row_level.RowLevelResult:
    """Update ``n`` to ``n + 10``, as the Spark command does, without Spark."""
    planned = row_level.plan(table, row_level.RowLevelRequest(where=where, operation="update"))
    schema = planned.schema
    writing = ingest.plan(
        table, ingest.IngestRequest(columns=[*schema.names, KIND_COLUMN], row_kind=KIND_COLUMN)
    )
    results = []
    for unit in planned.units:
        assert planned.source is not None
        for rows in unit.read(planned.source, schema.fields):
            new = rows.append_column(KIND_COLUMN, pa.repeat("+U", rows.num_rows))
            if should_merge_updates(schema):
                for name in schema.names:
                    new = new.append_column(f"{OLD_VALUE_PREFIX}{name}", rows.column(name))
            n = pc.add(rows.column("n"), pa.scalar(10, pa.int64()))
            new = new.set_column(new.column_names.index("n"), "n", n)
            changes = row_level.prepare_changes(writing, new.combine_chunks().to_batches())
            written = row_level.write_changes(writing, changes)
            results.append(RowLevelTaskResult.decode(written))
    return row_level.commit(table, planned, results, executor=EXECUTOR, hashes=writing.hashes)


def run(table: Table, model: Model, step: str, argument: Any) -> Model:
    """Run a step, and return the expected rows after it."""
    match step:
        case "upsert":
            table.upsert(arrow(argument))
            engine = table.load().schema.typed_options.merge_engine
            return model | {k: merge_rows(engine, model.get(k), row) for k, row in argument.items()}
        case "overwrite":
            table.overwrite(arrow(argument), {})
            return dict(argument)
        case "compact":
            compact(table, EXECUTOR, strategy=argument)
            return model
        case "delete by key":
            table.delete(table_of("k", [(argument,)]))
            return {k: row for k, row in model.items() if k != argument}
    column, value = argument
    if step == "delete" and table.load().schema.typed_options.merge_engine == "partial-update":
        return model  # as in Java Paimon, later nulls would keep the values of the -D record
    index = ("n", "m").index(column) if column != "k" else None
    changed_keys = {k for k, row in model.items() if (k if index is None else row[index]) == value}
    if step == "delete":
        assert row_level.delete(table, EXECUTOR, f"{column} = {value}").deleted == len(changed_keys)
        return {k: row for k, row in model.items() if k not in changed_keys}
    assert add_ten(table, f"{column} = {value}").updated == len(changed_keys)
    return {
        k: (n + 10 if k in changed_keys and n is not None else n, m) for k, (n, m) in model.items()
    }


def arrow(rows: Model) -> pa.Table:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("m", pa.int64())])
    return pa.Table.from_pylist([{"k": k, "n": n, "m": m} for k, (n, m) in rows.items()], schema)


def merge_rows(
    engine: str, old: tuple[int | None, int | None] | None, new: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    if engine == "deduplicate" or old is None:
        return new
    (n, m), (new_n, new_m) = old, new
    return (n if new_n is None else new_n, m if new_m is None else new_m)


VECTORS = {"deletion_vectors__enabled": "true"}
PARTIAL = {
    "merge_engine": "partial-update",
    "partial_update__remove_record_on_delete": "true",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        VECTORS,
        VECTORS | {"changelog_producer": "lookup", "num_levels": "3"},
        VECTORS | PARTIAL,
    ],
    ids=str,
)
@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_no_change_is_lost_or_applied_twice(
    options: dict[str, str], steps: list[tuple[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        columns, options = "k BIGINT, n BIGINT, m BIGINT", {"bucket": "2"} | options
        table = small_batches(new_table(Path(root), columns, **options), 3)
        model: Model = {}
        for step, argument in steps:
            model = run(table, model, step, argument)
            rows = [(k, *row) for k, row in sorted(model.items())]
            assert rows_of(table, merge_level_0=True) == rows
            changed_rows = rows_of(table, merge_level_0=True, filter="n >= 10 or m = 1")
            assert changed_rows == [row for row in rows if (row[1] or 0) >= 10 or row[2] == 1]
            if step == "compact":
                assert rows_of(table) == rows
                assert table.scan().rows_not_visible == 0
        if table.stores.snapshots.latest() is not None:
            assert_healthy(table)


def test_a_second_update_sees_the_uncompacted_row(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, n BIGINT, m BIGINT", **VECTORS)
    table.upsert(arrow({1: (0, 0), 2: (0, 0)}))
    compact(table, EXECUTOR)

    assert [add_ten(table, "k = 1").updated for _ in range(2)] == [1, 1]
    assert add_ten(table, "n = 20").updated == 1

    assert rows_of(table) == [(1, 0, 0), (2, 0, 0)]
    compact(table, EXECUTOR)
    assert rows_of(table) == [(1, 30, 0), (2, 0, 0)]
