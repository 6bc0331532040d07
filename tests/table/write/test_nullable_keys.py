"""Primary keys that can be null (``primary-key.nullable``): null equals null in merges."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.tables import assert_healthy, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

ROWS = [(None, None), (None, "x"), (1, None), (1, "x")]


def create_table_with_key(root: Path, **options: str) -> Table:
    columns = "a BIGINT NOT NULL, b STRING, v STRING"
    return new_table(root, columns, key=("a", "b"), primary_key__nullable="true", **options)


def values(value: str) -> pa.Table:
    rows = [(a, b, value) for a, b in ROWS]
    types = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.string())])
    return table_of("a b v", rows).cast(types)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bucket", ["1", "3", "-1"])
@pytest.mark.parametrize("engine", ["deduplicate", "first-row", "partial-update"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_with_null_keys_are_merged_and_compacted(
    tmp_path: Path, bucket: str, engine: str, vectors: str
) -> None:
    options = {} if engine == "first-row" else {"deletion_vectors__enabled": vectors}
    table = create_table_with_key(tmp_path, bucket=bucket, merge_engine=engine, **options)
    for value in ("old", "new"):
        table.upsert(values(value))
        compact(table, InProcessExecutor(), strategy="full" if value == "new" else "minor")
    compact(table, InProcessExecutor(), strategy="full")

    expected = "old" if engine == "first-row" else "new"
    assert rows_of(table) == [(a, b, expected) for a, b in ROWS]
    assert rows_of(table, filter="a IS NULL") == [(a, b, expected) for a, b in ROWS[:2]]
    assert check(table, deep=True).findings == ()


def test_rows_with_null_keys_are_deleted(tmp_path: Path) -> None:
    table = create_table_with_key(tmp_path)
    table.upsert(values("old"))
    keys = pa.table({"a": pa.array([None], pa.int64()), "b": pa.array([None], pa.string())})
    table.delete(keys)
    assert rows_of(table) == [(a, b, "old") for a, b in ROWS[1:]]
    assert_healthy(table)


def test_key_columns_are_nullable_although_defined_not_null(tmp_path: Path) -> None:
    assert [
        field.type.nullable for field in create_table_with_key(tmp_path).load().schema.fields
    ] == [
        True,
        True,
        True,
    ]


def test_the_option_requires_a_primary_key_and_cannot_change(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a table with a primary key"):
        new_table(tmp_path / "append", key=(), primary_key__nullable="true")
    new_table(tmp_path).upsert(table_of("k v", [(1, "a")]))
    with pytest.raises(InputError, match=r"primary-key\.nullable"):
        Catalog(str(tmp_path)).alter_table("db.t", [SetOption("primary-key.nullable", "true")])
