"""Postponed rows that batch readers merge (``postpone.merge-on-read``).

Every read must return the rows that readers find after the postponed rows are compacted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.golden import GOLDEN, assert_rows_equal, canonical_rows, copy_warehouse
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.scan.split_generator import divide_splits
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "vectors": {"deletion_vectors__enabled": "true"},
    "sequence": {"sequence__field": "n"},
    "first-row": {"merge_engine": "first-row"},
    "partial-update": {"merge_engine": "partial-update"},
    "aggregation": {"merge_engine": "aggregation", "fields__n__aggregate_function": "sum"},
}


def waiting_table(root: Path, **options: str) -> Table:
    named = {
        "bucket": "-2",
        "postpone__merge_on_read": "true",
        "postpone__batch_write_fixed_bucket": "false",
        "postpone__default_bucket_num": "3",
    }
    columns = "p STRING, k INT, n INT, v STRING"
    return new_table(root, columns, key=("p", "k"), partition_by=["p"], **(named | options))


def write(table: Table, round_: int, keys: range, partition: str = "a") -> None:
    rows = [(partition, key, 100 - round_ if key % 2 else round_, f"v{round_}") for key in keys]
    table.upsert(table_of("p k n v", rows))


@pytest.fixture(params=list(ENGINES))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Return a table with rows in buckets, newer postponed rows, and a postponed partition."""
    created = waiting_table(tmp_path, **ENGINES[request.param])
    write(created, 0, range(20))
    compact(created, EXECUTOR, strategy="full")
    write(created, 1, range(5, 12))
    write(created, 2, range(9, 25))
    write(created, 3, range(4), "b")
    write(created, 4, range(2), "b")
    return created


READS: list[dict[str, Any]] = [
    {},
    {"columns": ["v"]},
    {"filter": "p = 'a'"},
    {"filter": "k = 10"},
    {"filter": "v = 'v0'"},
    {"filter": "n > 50 AND k < 15"},
    {"order_by": "p, k", "limit": 7},
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("read", READS, ids=str)
def test_a_read_returns_the_rows_of_a_compaction(table: Table, read: dict[str, Any]) -> None:
    merged, not_visible = rows_of(table, **read), table.scan(**read).rows_not_visible
    compact(table, EXECUTOR, strategy="full")
    assert merged == rows_of(table, **read)
    assert not_visible == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", [0, 1, 13, 1000])
def test_a_limit_counts_merged_rows(table: Table, limit: int) -> None:
    assert len(rows_of(table, limit=limit)) == min(limit, len(rows_of(table)))


@pytest.mark.sampled(1)
def test_task_parts_contain_every_row_once(table: Table) -> None:
    scan = table.scan()
    parts = divide_splits(scan.plan(), scan)
    rows = [row for part in parts for batch in scan.read_split(part) for row in batch.to_pylist()]
    keys = [(row["p"], row["k"]) for row in rows]
    assert sorted(keys) == [(p, k) for p, k, *_ in rows_of(table)]


def test_postponed_deletes_are_applied(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    write(table, 0, range(4))
    compact(table, EXECUTOR, strategy="full")
    table.delete(table_of("p k", [("a", 1), ("a", 2)]))
    write(table, 1, range(2, 3))
    assert rows_of(table, columns=["k", "v"]) == [(0, "v0"), (2, "v1"), (3, "v0")]


def test_an_older_snapshot_is_read_with_its_postponed_rows(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    write(table, 0, range(2))
    write(table, 1, range(1))
    assert rows_of(table, columns=["v"], snapshot_id=1) == [("v0",), ("v0",)]
    assert rows_of(table, columns=["v"], snapshot_id=2) == [("v0",), ("v1",)]


def test_without_the_option_postponed_rows_are_counted_and_not_read(tmp_path: Path) -> None:
    table = waiting_table(tmp_path, postpone__merge_on_read="false")
    write(table, 0, range(4))
    assert rows_of(table) == []
    assert table.scan().rows_not_visible == 4


def test_changes_between_snapshots_are_refused(tmp_path: Path) -> None:
    table = waiting_table(tmp_path)
    write(table, 0, range(4))
    with pytest.raises(UnsupportedError, match=r"postpone\.merge-on-read"):
        table.incremental(1, 1)


@pytest.mark.parametrize("folder", ["postpone", "postpone_merge_on_read"])
def test_postponed_rows_written_by_java_are_merged(folder: str, tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / folder, tmp_path / "w")
    catalog = Catalog(str(warehouse))
    for name in catalog.tables("db"):
        catalog.alter_table(f"db.{name}", [SetOption("postpone.merge-on-read", "true")])
        table = catalog.table(f"db.{name}")
        merged = table.scan().to_arrow()
        compact(table, EXECUTOR, strategy="full")
        rows = table.scan().to_arrow()
        assert merged.num_rows > 0
        types = [str(column.type) for column in rows.schema]
        assert_rows_equal(canonical_rows(rows), canonical_rows(merged), types)
