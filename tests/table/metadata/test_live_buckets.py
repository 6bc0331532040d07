"""Live buckets, as columns, have the files, deletion vectors and metrics of splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.damage import edit_files
from support.tables import new_table, table_of

from paimon_orch.errors import CorruptFileError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.bucket_metrics import BucketMetrics
from paimon_orch.steps.inspection.health import read_live_buckets
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.table import Table


def buckets_of(table: Table) -> LiveBuckets:
    snapshot = table.snapshot()
    assert snapshot is not None
    return read_live_buckets(table.load(), snapshot)


def table_with_vectors(path: Path) -> Table:
    table = new_table(
        path,
        "p STRING, k INT, v STRING",
        key=("p", "k"),
        partition_by=["p"],
        bucket="3",
        deletion_vectors__enabled="true",
    )
    for partition in ("b", "a", "c"):
        table.upsert(table_of("p k v", [(partition, k, "x") for k in range(30)]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("p k v", [("a", k, "y") for k in range(5)]))
    compact(table, InProcessExecutor())
    table.upsert(table_of("p k v", [("a", 1, "z"), ("c", 1, "z")]))
    table.delete(table_of("p k", [("b", 2)]))
    return table


def test_splits_and_metrics_agree_with_the_files(tmp_path: Path) -> None:
    table = table_with_vectors(tmp_path)
    buckets, splits = buckets_of(table), table.files()
    assert buckets.build_splits() == splits
    assert buckets.build_splits(np.array([4, 1])) == [splits[4], splits[1]]
    assert list(buckets.partitions) == list(dict.fromkeys(split.partition for split in splits))
    vectors = {number: tuple(entries) for number, entries in buckets.iterate_vectors()}
    assert vectors == {n: split.vectors for n, split in enumerate(splits) if split.vectors}
    assert vectors

    metrics = BucketMetrics(buckets)
    assert metrics.files.tolist() == [len(split.files) for split in splits]
    assert metrics.bytes.tolist() == [sum(f.file_size for f in s.files) for s in splits]
    assert metrics.rows.tolist() == [split.row_count for split in splits]
    assert metrics.small_files.tolist() == [
        len(split.files) if len(split.files) > 1 else 0 for split in splits
    ]
    assert metrics.level0_files.tolist() == [sum(f.level == 0 for f in s.files) for s in splits]
    assert metrics.level0_bytes.tolist() == [
        sum(f.file_size for f in s.files if f.level == 0) for s in splits
    ]
    assert metrics.deleted_rows.tolist() == [
        sum(item.cardinality or 0 for entry in split.vectors for item in entry.ranges or ())
        + sum(file.delete_row_count or 0 for file in split.files)
        for split in splits
    ]
    by_partition: dict[bytes, list[int]] = {}
    for split in splits:
        by_partition.setdefault(split.partition, []).append(sum(f.file_size for f in split.files))
    assert metrics.skew == pytest.approx(
        max(3 * max(sizes) / sum(sizes) for sizes in by_partition.values())
    )


def test_a_subset_of_files_drops_empty_buckets(tmp_path: Path) -> None:
    table = table_with_vectors(tmp_path)
    buckets = buckets_of(table)
    level0 = buckets.with_files(buckets.groups.files.levels == 0)
    assert [file for split in level0.build_splits() for file in split.files] == [
        file for split in table.files() for file in split.files if file.level == 0
    ]
    assert 0 < len(level0) < len(buckets)


def test_a_report_counts_the_deleted_rows_of_live_files(tmp_path: Path) -> None:
    table = table_with_vectors(tmp_path)
    report = inspect(table)
    by_name = {
        item.data_file: item.cardinality or 0
        for split in table.files()
        for entry in split.vectors
        for item in entry.ranges or ()
    }
    assert report.deleted_rows == sum(by_name.values()) > 0
    summaries = list(report.summarize_buckets(100))
    assert [(s.partition, s.bucket, s.rows, s.deleted_rows, s.bytes) for s in summaries] == [
        (
            b.partition,
            b.bucket,
            sum(f.row_count for f in b.files),
            b.deleted_rows,
            sum(f.file_size for f in b.files),
        )
        for b in report.buckets
    ]
    assert [s.partition for s in summaries] == sorted(s.partition for s in summaries)
    assert len(list(report.summarize_buckets(2))) == 2
    part = report.select_partition("p=a")
    assert part.partitions == ["p=a"]
    assert part.file_count == sum(sum(s.files_by_level.values()) for s in summaries if s.partition == "p=a")  # fmt: skip


def test_overlapping_files_of_a_level_are_reported(tmp_path: Path) -> None:
    table = new_table(tmp_path, num_levels="3")
    for key in (1, 1):
        table.upsert(table_of("k v", [(key, "x")]))
    for snapshot in (1, 2):
        edit_files(table, snapshot, level=2)
    with pytest.raises(CorruptFileError, match="its keys overlap those of"):
        buckets_of(table).check_levels()
    assert "its keys overlap those of" in (inspect(table).problem or "")
