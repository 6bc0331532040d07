"""Sort compaction without Spark: plans, refusals, and commits that replace only read files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.tables import (
    assert_healthy,
    deletion_vectors_of,
    new_table,
    rows_of,
    stored_files,
    table_of,
)

from paimon_orch.errors import CommitConflictError, InputError, NotFoundError, UnsupportedError
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps import ingest
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import CompactionPlan, compact
from paimon_orch.steps.compaction.sort_compact import (
    SortOrder,
    SortRequest,
    commit,
    plan,
    plan_read_units,
)
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.steps.row_level.row_target import RowSource
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.table_write import write_rows

EXECUTOR = InProcessExecutor()
BY_K = SortOrder(("k",))


def three_files(root: Path, **options: str) -> Table:
    table = new_table(
        root, "p STRING, k BIGINT", key=(), partition_by=["p"], **{"bucket": "-1"} | options
    )
    for start in (20, 0, 10):
        table.append(table_of("p k", [("a", n) for n in range(start, start + 10)]))
    table.append(table_of("p k", [("b", 1)]))
    return table


def sorted_rows(table: Table, planned: CompactionPlan) -> list[CommitMessage]:
    """Sort all rows as a Spark task does."""
    fields = table.load().schema.fields
    source = RowSource(table.stores.reader())
    rows = pa.concat_tables(
        part for unit in plan_read_units(planned) for part in unit.read(source, fields)
    )
    ordered = rows.select(table.load().schema.names).sort_by("k").combine_chunks()
    writing = ingest.plan(table, ingest.IngestRequest(columns=table.load().schema.names))
    return [write_rows(writing, writing.prepare(ordered.to_batches()))]


def test_a_partition_is_sorted_by_one_overwrite_of_the_files_that_were_read(tmp_path: Path) -> None:
    table = three_files(tmp_path)
    before = rows_of(table)
    planned = plan(table, SortRequest(order=BY_K, partitions=["p=a"]))

    commit(table, planned, sorted_rows(table, planned))

    snapshot = table.stores.snapshots.latest()
    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    assert rows_of(table) == before
    assert table.scan(filter="p = 'a'").to_arrow()["k"].to_pylist() == list(range(30))
    assert sorted(len(split.files) for split in table.files()) == [1, 1]


def test_rows_inserted_while_a_sort_compaction_runs_are_not_lost_apache_paimon_4802(
    tmp_path: Path,
) -> None:
    table = three_files(tmp_path)
    planned = plan(table, SortRequest(order=BY_K))
    messages = sorted_rows(table, planned)
    table.append(table_of("p k", [("a", 100), ("c", 101)]))

    commit(table, planned, messages)

    expected = [("a", n) for n in range(30)] + [("a", 100), ("b", 1), ("c", 101)]
    assert rows_of(table) == expected
    assert_healthy(table)


def test_rows_deleted_during_a_sort_compaction_remain_deleted(tmp_path: Path) -> None:
    table = three_files(tmp_path, deletion_vectors__enabled="true")
    planned = plan(table, SortRequest(order=BY_K))
    messages = sorted_rows(table, planned)
    delete(table, EXECUTOR, "k = 5")
    before, rows = stored_files(table), rows_of(table)

    with pytest.raises(CommitConflictError, match="marked as deleted"):
        commit(table, planned, messages)

    assert rows_of(table) == rows
    written = {entry.file.file_name for message in messages for entry in message.added}
    assert {Path(path).name for path in before - stored_files(table)} == written


def test_a_concurrent_compaction_is_a_conflict(tmp_path: Path) -> None:
    table = three_files(tmp_path)
    planned = plan(table, SortRequest(order=BY_K))
    messages = sorted_rows(table, planned)
    compact(table, EXECUTOR, strategy="full")

    with pytest.raises(CommitConflictError, match="removed by another commit"):
        commit(table, planned, messages)


def test_deleted_rows_and_their_deletion_vectors_are_removed(tmp_path: Path) -> None:
    table = three_files(tmp_path, deletion_vectors__enabled="true")
    delete(table, EXECUTOR, "k < 5")
    before = rows_of(table)
    planned = plan(table, SortRequest(order=BY_K, where="p = 'a'"))

    commit(table, planned, sorted_rows(table, planned))

    assert rows_of(table) == before
    # Only the deletion vector of partition b remains.
    assert [vector.cardinality for vector in deletion_vectors_of(table).values()] == [1]
    assert_healthy(table)


def test_a_plan_shows_the_work_and_changes_nothing(tmp_path: Path) -> None:
    table = three_files(tmp_path)
    before = stored_files(table)

    planned = plan(
        table, SortRequest(order=SortOrder(("k",), "zorder"), partitions=["p=a"])
    ).to_dict()

    assert stored_files(table) == before
    assert (planned["buckets"], planned["files"]) == (1, 3)
    units = planned["units"]
    assert isinstance(units, list)
    assert units[0]["reason"] == "zorder by k"


def test_an_empty_table_has_nothing_to_sort(tmp_path: Path) -> None:
    assert not plan(new_table(tmp_path, key=(), bucket="-1"), SortRequest(order=BY_K))


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ((), InputError, "at least one column"),
        (("p",), InputError, "it is a partition column"),
        (("x",), NotFoundError, "x"),
    ],
)
def test_unsupported_sort_columns_are_refused(
    tmp_path: Path, columns: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plan(three_files(tmp_path), SortRequest(order=SortOrder(columns)))


def test_nested_columns_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, a ARRAY<INT>", key=(), bucket="-1")

    with pytest.raises(InputError, match="by column 'a'"):
        plan(table, SortRequest(order=SortOrder(("k", "a"))))


@pytest.mark.parametrize("options", [{"key": ("k",)}, {"bucket": "2", "bucket_key": "k"}], ids=str)
def test_tables_with_keys_or_buckets_are_refused(tmp_path: Path, options: dict[str, str]) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING", **{"key": (), **options})  # type: ignore[arg-type]

    with pytest.raises(UnsupportedError, match="only append tables without buckets"):
        plan(table, SortRequest(order=BY_K))


def test_keys_on_a_space_filling_curve_are_compared_by_all_columns() -> None:
    rows = pa.table({"x": [0, 0, 7, 7], "y": [0, 7, 0, 7]})

    z_order = SortOrder(("x", "y"), "zorder").keys(rows, 8)
    places = SortOrder(("x", "y"), "hilbert").keys(rows, 8)

    assert z_order.to_pylist() == sorted(z_order.to_pylist())
    walk = sorted(range(4), key=lambda cell: places[cell].as_py())
    assert walk in ([0, 1, 3, 2], [0, 2, 3, 1])
