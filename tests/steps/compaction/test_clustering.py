"""Incremental clustering of append tables: which files are sorted, to which level, and the rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.tables import Row, levels_of, new_table, rows_of, small_batches, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.compact.append_deletion_vectors import DeletionVectorRewrite
from paimon_orch.merge.sort.external_sort import ExternalSort
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.steps.common.bucket_scan import scan_latest_buckets
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import sort_compact
from paimon_orch.steps.compaction.append import check_compactable
from paimon_orch.steps.compaction.compact import CompactRequest, compact, plan, run_compaction
from paimon_orch.steps.compaction.decide import decide
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.steps.compaction.sort_compact import SortOrder, SortRequest
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance import rescale
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()


def clustered_table(
    root: Path, columns: str = "a", schema: str = "a BIGINT, s STRING", **options: str
) -> Table:
    options = {
        "clustering.incremental": "true",
        "clustering.columns": columns,
        "num-sorted-run.compaction-trigger": "2",
    } | {key.replace("__", "."): value for key, value in options.items()}
    return Catalog(str(root / "w")).create_table("db.t", schema, options=options)


def append(table: Table, first: int, count: int) -> None:
    """Append rows in no order; the values differ from those of other calls."""
    numbers = np.random.default_rng(first).permutation(np.arange(first, first + count)) * 7 % 1009
    rows = [(int(n), f"{int(n) % 13}") for n in numbers]
    table.append(table_of("a s", rows))


def stored_rows(table: Table) -> list[list[Row]]:
    """Return the rows of each file above level 0 in their stored order."""
    return [
        [
            tuple(row.values())
            for row in pa.Table.from_batches(table_batches(table, file)).to_pylist()
        ]
        for split in table.files()
        for file in split.files
        if file.level
    ]


def table_batches(table: Table, file: Any) -> list[pa.RecordBatch]:
    [split] = [split for split in table.files() if file in split.files]
    reader = table.stores.reader()
    return list(
        reader.read(BucketFile(split.partition, split.bucket, file), table.load().schema.fields)
    )


def delete_positions(table: Table, deleted: dict[str, list[int]]) -> None:
    [split] = table.files()
    index = DeletionVectorRewrite(
        reader=table.stores.reader(),
        partition=split.partition,
        bucket=split.bucket,
        index_files=split.vectors,
        live={file.file_name for file in split.files},
    )
    added = {name: DeletionVector.of(positions) for name, positions in deleted.items()}
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(
        CommitChanges(kind=CommitKind.OVERWRITE, index=tuple(index.run(add=added)))
    )


def test_files_of_level_0_are_sorted_into_the_highest_level(tmp_path: Path) -> None:
    table = clustered_table(tmp_path)
    append(table, 0, 60)
    assert not plan(table, CompactRequest())
    append(table, 60, 50)
    before = sorted(rows_of(table))

    result = compact(table, EXECUTOR)

    assert (result.files_before, result.files_after) == (2, 1)
    assert (result.level0_before, result.level0_after) == (2, 0)
    assert levels_of(table) == [2]
    assert stored_rows(table) == [before]
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind == CommitKind.COMPACT
    assert check(table, deep=True).findings == ()
    assert not plan(table, CompactRequest(strategy="full"))


def test_small_new_files_are_not_sorted_into_a_much_larger_run(tmp_path: Path) -> None:
    table = clustered_table(tmp_path, **{"num-sorted-run.compaction-trigger": "3"})
    append(table, 0, 9_000)
    compact(table, EXECUTOR, strategy="full")
    assert levels_of(table) == [3]
    [large] = [file for split in table.files() for file in split.files]
    for turn in range(2):
        append(table, 9_000 + 10 * turn, 10)

    [unit] = plan(table, CompactRequest()).units
    assert large not in unit.inputs
    assert unit.output_level == 2
    compact(table, EXECUTOR)

    assert levels_of(table) == [2, 3]
    assert sum(len(rows) for rows in stored_rows(table)) == 9_020


def test_other_columns_make_a_full_compaction_sort_again(tmp_path: Path) -> None:
    table = clustered_table(tmp_path)
    append(table, 0, 50)
    compact(table, EXECUTOR, strategy="full")
    Catalog(str(tmp_path / "w")).alter_table("db.t", [SetOption("clustering.columns", "s,a")])
    table = Catalog(str(tmp_path / "w")).table("db.t")

    compact(table, EXECUTOR, strategy="full")

    [rows] = stored_rows(table)
    assert rows == sorted(rows, key=lambda row: (row[1], row[0]))
    assert not plan(table, CompactRequest(strategy="full"))


def test_deleted_rows_of_sorted_files_are_dropped_with_their_deletion_vectors(
    tmp_path: Path,
) -> None:
    table = clustered_table(tmp_path, **{"deletion-vectors.enabled": "true"})
    append(table, 0, 9_000)
    compact(table, EXECUTOR, strategy="full")
    for turn in range(2):
        append(table, 9_000 + 10 * turn, 10)
    [split] = table.files()
    delete_positions(table, {file.file_name: [1, 3] for file in split.files})
    before = sorted(rows_of(table))
    assert len(before) == 9_014

    compact(table, EXECUTOR)

    assert levels_of(table) == [1, 2]
    assert sorted(rows_of(table)) == before
    [split] = table.files()
    [top] = [file.file_name for file in split.files if file.level == 2]
    ranges = [item for entry in split.vectors for item in entry.ranges or ()]
    assert [item.data_file for item in ranges] == [top]
    assert check(table, deep=True).findings == ()

    compact(table, EXECUTOR, strategy="full")
    [split] = table.files()
    assert (split.vectors, sorted(rows_of(table))) == ((), before)
    assert stored_rows(table) == [before]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_of_sorted_files_are_deleted(tmp_path: Path, vectors: str) -> None:
    table = clustered_table(tmp_path, **{"deletion-vectors.enabled": vectors})
    append(table, 0, 100)
    compact(table, EXECUTOR, strategy="full")
    append(table, 100, 50)
    expected = [row for row in sorted(rows_of(table)) if row[1] != "3"]

    delete(table, EXECUTOR, "s = '3'")
    assert sorted(rows_of(table)) == expected
    assert sorted(levels_of(table)) == ([0, 2] if vectors == "true" else [0, 0])
    compact(table, EXECUTOR, strategy="full")

    assert stored_rows(table) == [expected]
    assert check(table, deep=True).findings == ()


def test_sorted_rows_keep_their_row_ids(tmp_path: Path) -> None:
    table = clustered_table(tmp_path, **{"row-tracking.enabled": "true"})
    for turn in range(2):
        append(table, 50 * turn, 50)
    columns = ["a", "s", "_ROW_ID"]
    before = sorted(rows_of(table, columns=columns))
    assert sorted(row[2] for row in before) == list(range(100))

    compact(table, EXECUTOR, strategy="full")

    assert rows_of(table, columns=columns) == before


def test_other_rewrites_that_lose_the_order_are_refused(tmp_path: Path) -> None:
    table = clustered_table(tmp_path)
    append(table, 0, 10)

    with pytest.raises(UnsupportedError, match=r"sort compaction.*clustering\.incremental"):
        sort_compact.plan(table, SortRequest(order=SortOrder(("a",))))


def test_buckets_are_sorted_separately(tmp_path: Path) -> None:
    options = {"bucket": "2", "bucket-key": "s", "bucket-append-ordered": "false"}
    table = clustered_table(tmp_path, **options)
    for turn in range(2):
        append(table, 50 * turn, 50)
    before = sorted(rows_of(table))

    compact(table, EXECUTOR)

    assert levels_of(table) == [2, 2]
    files = stored_rows(table)
    assert sorted(row for rows in files for row in rows) == before
    assert all(rows == sorted(rows) for rows in files)
    assert check(table, deep=True).findings == ()
    with pytest.raises(UnsupportedError, match=r"clustering\.incremental"):
        rescale.plan(table, rescale.RescaleRequest(bucket_num=3))


LATER = datetime.now().astimezone() + timedelta(days=3)


def partitioned_table(root: Path, **options: str) -> Table:
    """Return a table with three partitions, each of which has a large run and a small new file."""
    defaults = {
        "clustering.incremental": "true",
        "clustering.columns": "a",
        "num-sorted-run.compaction-trigger": "3",
    }
    table = Catalog(str(root / "w")).create_table(
        "db.t", "p STRING, a BIGINT", partition_by=["p"], options=defaults | options
    )
    numbers = np.random.default_rng(2).permutation(9_000).tolist()
    for name in "abc":
        table.append(table_of("p a", [(name, n) for n in numbers]))
        compact(table, EXECUTOR, strategy="full", partitions=[f"p={name}"])
    for name in "abc":
        table.append(table_of("p a", [(name, n) for n in (5, 3)]))
    return table


def levels_by_partition(table: Table) -> dict[bytes, list[int]]:
    splits = sorted(table.files(), key=lambda split: split.partition)
    return {s.partition[12:13]: sorted(f.level for f in s.files) for s in splits}


def test_idle_partitions_are_sorted_as_a_whole(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path)
    idle_for = timedelta(days=2)
    assert not plan(table, CompactRequest(cluster_idle_for=idle_for))

    request = CompactRequest(cluster_idle_for=idle_for, now=LATER, partitions=["p=b"])
    [unit] = plan(table, request).units
    assert (unit.reason, unit.files, unit.output_level) == (CompactReason.IDLE, 2, 3)
    everything = replace(request, partitions=None)
    result = run_compaction(table, plan(table, everything), EXECUTOR)

    assert result.buckets == 3
    assert list(levels_by_partition(table).values()) == [[3], [3], [3]]
    assert not plan(table, everything)
    unclustered = Catalog(str(tmp_path / "w")).create_table("db.u", "a INT")
    with pytest.raises(InputError, match=r"clustering\.incremental"):
        plan(unclustered, request)


@pytest.mark.slow
def test_a_compaction_of_named_partitions_sorts_history_partitions_too(tmp_path: Path) -> None:
    options = {
        "clustering.history-partition.idle-to-full-sort": "2 d",
        "clustering.history-partition.limit": "1",
    }
    table = partitioned_table(tmp_path, **options)
    named = CompactRequest(partitions=["p=a"], now=LATER)
    assert not plan(table, replace(named, now=None))
    assert not plan(table, replace(named, partitions=None))
    [unit] = plan(table, named).units
    assert (unit.partition_text, unit.reason) == ("p=b", CompactReason.IDLE)
    by_filter = plan(table, CompactRequest(where="p in ('a', 'b')", now=LATER))
    assert [unit.partition_text for unit in by_filter.units] == ["p=c"]
    before = sorted(rows_of(table))

    compact(table, EXECUTOR, partitions=["p=a"], now=LATER)

    assert list(levels_by_partition(table).values()) == [[0, 3], [3], [0, 3]]
    assert sorted(rows_of(table)) == before


def test_a_policy_sorts_a_partition_as_a_whole_once_it_is_idle(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path)
    policy = CompactionPolicy(cluster_idle_for="2 d")
    [first, *_] = decide(table, policy)
    assert (first.compact, first.is_waiting, first.may_become_idle) == (False, False, True)
    assert not decide(table, CompactionPolicy())[0].may_become_idle

    scan = scan_latest_buckets(table.load(), CompactRequest(), now=LATER)
    decisions = decide(table, policy, scan=scan)

    assert [(d.compact, d.strategy) for d in decisions] == [(True, "full")] * 3
    assert "no new files for 2 d" in decisions[0].reason
    compact(table, EXECUTOR, strategy="full")
    scan = scan_latest_buckets(table.load(), CompactRequest(), now=LATER)
    assert not any(d.compact or d.may_become_idle for d in decide(table, policy, scan=scan))
    with pytest.raises(InputError, match="cluster_idle_for"):
        CompactionPolicy(cluster_idle_for="long")


@pytest.mark.slow
def test_a_full_compaction_rewrites_only_the_files_with_deleted_rows_of_sorted_rows(
    tmp_path: Path,
) -> None:
    options = {"deletion-vectors.enabled": "true", "target-file-size": "4 kb"}
    table = clustered_table(tmp_path, **options)
    append(table, 0, 20_000)
    compact(table, EXECUTOR, strategy="full")
    [split] = table.files()
    assert len(split.files) > 2
    changed = split.files[1].file_name
    delete_positions(table, {changed: [0, 7]})
    before = sorted(rows_of(table))

    result = compact(table, EXECUTOR, strategy="full")

    assert (result.files_before, sorted(rows_of(table))) == (1, before)
    [split] = table.files()
    assert (split.vectors, {file.level for file in split.files}) == ((), {2})
    assert not plan(table, CompactRequest(strategy="full"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("strategy", ["order", "zorder", "hilbert", "auto"])
def test_rows_larger_than_the_write_buffer_are_sorted_with_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    written: list[str] = []
    write_run = ExternalSort._write_run

    def write_and_note(sort: ExternalSort, *args: Any) -> None:
        write_run(sort, *args)
        written.extend(path.name for path in scratch.rglob("run-*"))

    monkeypatch.setattr(ExternalSort, "_write_run", write_and_note)
    schema = "a BIGINT, b INT, s STRING"
    columns = "s,a" if strategy == "order" else "a,b"
    in_memory, spilled = (
        clustered_table(
            tmp_path / name, columns, schema, **{"clustering.strategy": strategy} | options
        )
        for name, options in {
            "in-memory": {},
            "spilled": {"write-buffer-size": "4 kb", "local-sort.max-num-file-handles": "3"},
        }.items()
    )
    numbers = np.random.default_rng(1).permutation(3_000).tolist()
    rows = [(n, n % 61, None if n % 97 == 0 else f"{n % 11}") for n in numbers]
    for table in (in_memory, spilled):
        table.append(table_of("a b s", rows[:2_000]))
        table.append(table_of("a b s", rows[2_000:]))

    compact(in_memory, EXECUTOR, strategy="full")
    assert not written
    compact(small_batches(spilled, 200), EXECUTOR, strategy="full")

    assert len(set(written)) > 10
    assert not list(scratch.iterdir())
    assert stored_rows(spilled) == stored_rows(in_memory)
    [sorted_rows] = stored_rows(spilled)
    assert sorted(sorted_rows, key=repr) == sorted(rows, key=repr)
    assert sorted_rows != rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clustering.columns": ""}, r"clustering\.columns"),
        ({"clustering.columns": "m"}, "'m'"),
        ({"clustering.strategy": "spiral"}, "spiral"),
    ],
)
def test_rows_without_an_order_are_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    table = clustered_table(tmp_path, schema="a BIGINT, m ARRAY<INT>", **options)

    with pytest.raises(InputError, match=message):
        plan(table, CompactRequest())


BUCKETS = {"bucket": "1", "bucket-key": "a"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BUCKETS, "bucket-append-ordered"),
        (
            BUCKETS | {"bucket-append-ordered": "false", "deletion-vectors.enabled": "true"},
            r"deletion-vectors\.enabled",
        ),
        (
            {"row-tracking.enabled": "true", "data-evolution.enabled": "true"},
            r"data-evolution\.enabled",
        ),
    ],
)
def test_tables_whose_rows_cannot_be_sorted_are_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    schema = clustered_table(tmp_path).load().schema
    with pytest.raises(UnsupportedError, match=message):
        check_compactable(replace(schema, options=dict(schema.options) | options))
    with pytest.raises(InputError, match=message):
        clustered_table(tmp_path / "new", **options)


def test_tables_with_a_primary_key_have_no_incremental_clustering(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without primary key"):
        new_table(tmp_path, clustering__incremental="true", clustering__columns="v")


def test_the_files_of_a_level_are_in_order(tmp_path: Path) -> None:
    table = clustered_table(tmp_path, **{"target-file-size": "4 kb"})
    for turn in range(3):
        append(table, 4_000 * turn, 4_000)

    compact(table, EXECUTOR)

    files = sorted(stored_rows(table))
    assert len(files) > 1
    assert all(earlier[-1] <= later[0] for earlier, later in pairwise(files))


def test_rows_of_clustered_buckets_are_deleted_and_compacted(tmp_path: Path) -> None:
    """Clustered files have levels above 0, which matter to no other change of append tables."""
    options = {"bucket-key": "a", "bucket-append-ordered": "false"}
    table = clustered_table(tmp_path, bucket="1", **options)
    append(table, 0, 20)
    compact(table, EXECUTOR, strategy="full")
    assert max(levels_of(table)) > 0

    assert delete(table, EXECUTOR, "a < 7").deleted == 1
    Catalog(str(tmp_path / "w")).alter_table("db.t", [SetOption("clustering.incremental", "false")])
    for first in range(100, 600, 100):
        append(table, first, 1)

    assert compact(table, EXECUTOR, strategy="full").snapshot_id is not None
    assert len(rows_of(table)) == 24
