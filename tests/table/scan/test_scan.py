"""Scans: columns, filters, limits and time travel."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import CorruptFileError, InputError, NotFoundError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.scan.scan_planner import apply_limit
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with two snapshots: keys 0 to 9, then the even keys again."""
    created = new_table(
        tmp_path, "p INT, k INT, v STRING", key=("p", "k"), partition_by=["p"], bucket="2"
    )
    created.upsert(table_of("p k v", [(k % 3, k, "old") for k in range(10)]))
    created.upsert(table_of("p k v", [(k % 3, k, "new") for k in range(0, 10, 2)]))
    return created


def test_columns_are_in_the_requested_order(table: Table) -> None:
    rows = table.scan(["v", "p"]).to_arrow()

    assert rows.column_names == ["v", "p"]
    assert rows.num_rows == 10


def test_a_filter_can_use_columns_that_are_not_selected(table: Table) -> None:
    rows = table.scan(["k"], "v = 'new' AND p = 0").to_arrow()

    assert sorted(rows["k"].to_pylist()) == [0, 6]
    assert rows.column_names == ["k"]


def test_a_filter_is_applied_to_merged_rows_only(table: Table) -> None:
    assert rows_of(table, filter="k = 2 AND v = 'old'") == []


def test_a_filter_on_partitions_opens_no_other_files(table: Table) -> None:
    scan = table.scan(filter="p = 1 AND v = 'old'")

    assert [split.partition for split in scan.plan()] == [
        split.partition for split in table.scan(filter="p = 1").plan()
    ]
    assert len({split.partition for split in scan.plan()}) == 1


@pytest.mark.parametrize("limit", [0, 1, 7, 10, 99])
def test_a_limit_bounds_the_number_of_rows(table: Table, limit: int) -> None:
    rows = rows_of(table, limit=limit)

    assert len(rows) == min(limit, 10)
    assert set(rows) <= set(rows_of(table))


def test_a_limit_that_the_first_file_reaches_plans_no_other_file(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    for number in range(3):
        table.append(table_of("k v", [(number, "a")]))

    [split] = apply_limit(table.files(), table.load().schema, 1)

    assert len(split.files) == 1


def test_a_limit_counts_rows_that_the_filter_keeps(table: Table) -> None:
    assert len(rows_of(table, filter="v = 'new'", limit=3)) == 3


def test_a_limit_works_with_any_partition_name(tmp_path: Path) -> None:
    table = new_table(tmp_path, "_at INT, k INT", key=(), partition_by=["_at"], bucket="-1")
    table.append(table_of("_at k", [(1, 1), (2, 2), (3, 3)]))

    assert rows_of(table, filter="_at > 1", limit=5) == [(2, 2), (3, 3)]


def test_an_old_snapshot_returns_its_rows(table: Table) -> None:
    assert {row[2] for row in rows_of(table, snapshot_id=1)} == {"old"}
    assert rows_of(table, snapshot_id=2) == rows_of(table)


def test_an_old_snapshot_returns_its_rows_after_a_compaction(table: Table) -> None:
    before = rows_of(table, snapshot_id=1), rows_of(table, snapshot_id=2)

    compact(table, InProcessExecutor(), strategy="full")

    assert (rows_of(table, snapshot_id=1), rows_of(table, snapshot_id=2)) == before
    assert rows_of(table) == before[1]


@pytest.mark.parametrize("missing", [0, 3, -1])
def test_a_missing_snapshot_is_reported(table: Table, missing: int) -> None:
    with pytest.raises(NotFoundError, match=f"has no snapshot {missing}; it has 1 to 2"):
        table.scan(snapshot_id=missing)


def test_a_time_before_the_first_snapshot_is_reported(table: Table) -> None:
    with pytest.raises(NotFoundError, match="no snapshot at or before 1970-01-01"):
        table.scan(timestamp=0)


def test_time_travel_selectors_cannot_be_combined(table: Table) -> None:
    with pytest.raises(InputError, match="snapshot_id and timestamp cannot be combined"):
        table.scan(snapshot_id=1, timestamp=5)
    with pytest.raises(InputError, match="cannot be combined"):
        table.scan(snapshot_id=0, timestamp=0)


def test_a_missing_column_is_reported(table: Table) -> None:
    with pytest.raises(NotFoundError, match="no column 'x'; the columns are p, k, v"):
        table.scan(["k", "x"])


def test_an_empty_result_has_the_columns(table: Table, tmp_path: Path) -> None:
    empty = new_table(tmp_path / "other")
    assert table.scan(["k"], "k = 77").to_arrow().schema == table.scan(["k"]).arrow_schema
    assert empty.scan().to_arrow().schema.names == ["k", "v"]
    assert empty.scan().to_pandas().empty


def test_rows_are_exported_as_batches_to_other_libraries(table: Table) -> None:
    reader = table.scan(["k"]).to_reader()

    assert isinstance(reader, pa.RecordBatchReader)
    assert sorted(reader.read_all()["k"].to_pylist()) == list(range(10))


def test_an_empty_column_list_is_refused(table: Table) -> None:
    with pytest.raises(InputError, match="needs at least one column"):
        table.scan([])


def test_level_0_is_not_read_before_a_compaction_with_deletion_vectors(tmp_path: Path) -> None:
    table = new_table(tmp_path / "dv", deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(1, "a")]))
    assert rows_of(table) == []

    merging = new_table(
        tmp_path / "mor",
        deletion_vectors__enabled="true",
        deletion_vectors__merge_on_read="true",
    )
    merging.upsert(table_of("k v", [(1, "a")]))
    assert rows_of(merging) == [(1, "a")]


def test_the_error_of_a_missing_data_file_contains_its_name(table: Table) -> None:
    (victim, *_) = Path(table.paths.root).rglob("data-*.parquet")
    victim.unlink()
    with pytest.raises((CorruptFileError, NotFoundError), match=victim.name):
        rows_of(table)


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"x" * 300])
def test_the_error_of_a_damaged_data_file_contains_its_name(table: Table, damage: bytes) -> None:
    (victim, *_) = Path(table.paths.root).rglob("data-*.parquet")
    victim.write_bytes(damage)
    with pytest.raises(CorruptFileError, match=victim.name):
        rows_of(table)


def test_a_missing_manifest_raises_a_corrupt_file_error(table: Table) -> None:
    snapshot = table.snapshot()
    assert snapshot is not None
    (Path(table.paths.manifest_dir) / snapshot.base_manifest_list).unlink()
    with pytest.raises(CorruptFileError, match="is missing, but a snapshot needs it"):
        rows_of(table)
