"""Metrics that show which maintenance a table needs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.damage import edit_files, edit_snapshot
from support.histories import CountingFileIO, backdate_files
from support.tables import new_table, table_of

from paimon_orch.format.display import format_size
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.health import TableHealth, compute_health
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table


def test_an_empty_table_is_healthy(tmp_path: Path) -> None:
    assert compute_health(new_table(tmp_path)) == TableHealth()


def test_commits_add_sorted_runs_and_compaction_removes_them(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    for number in range(3):
        table.upsert(table_of("k v", [(k, str(number)) for k in range(10)]))
    before = compute_health(table)
    assert (before.files, before.small_files, before.level0_files, before.max_sorted_runs) == (3, 3, 3, 3)  # fmt: skip
    assert before.level0_bytes == before.bytes > 0

    compact(table, InProcessExecutor(), strategy="full")

    after = compute_health(table)
    assert (after.files, after.small_files, after.level0_files, after.max_sorted_runs) == (1, 0, 0, 1)  # fmt: skip
    assert (after.snapshots, after.manifests > before.manifests) == (4, True)
    assert after.manifest_bytes > 0


def test_deleted_rows_and_retract_rows_count_as_deleted(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(k, "old") for k in range(10)]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(k, "new") for k in range(5)]))
    compact(table, InProcessExecutor())
    assert compute_health(table).deleted_ratio == pytest.approx(5 / 15)

    table.delete(table_of("k", [(7,)]))

    assert compute_health(table).deleted_ratio == pytest.approx(6 / 16)


def test_expired_snapshots_are_neither_counted_nor_included_in_ages(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(1, 5):
        table.upsert(table_of("k v", [(number, "x")]))
        edit_snapshot(table, number, time_millis=number * 1000)
    health = compute_health(table, now=10)
    assert (health.snapshots, health.oldest_snapshot_age, health.newest_snapshot_age) == (4, 9, 6)

    expire_snapshots(table, retain_max=2)
    table.tags.create("t")
    table.branches.create("b")

    health = compute_health(table, now=10)
    assert (health.snapshots, health.oldest_snapshot_age, health.tags, health.branches) == (
        2,
        7,
        1,
        1,
    )
    table.stores.snapshots.write_hint("EARLIEST", 4)
    assert compute_health(table, now=10).snapshots == 1


@pytest.mark.parametrize("bucket", ["-1", "-2"])
def test_buckets_without_a_fixed_number_are_compared_with_those_that_exist(
    tmp_path: Path, bucket: str
) -> None:
    table = new_table(tmp_path, "p INT, k BIGINT", key=("p", "k"), partition_by=("p",), bucket=bucket)  # fmt: skip
    table.upsert(table_of("p k", [(1, k) for k in range(40)]))

    assert compute_health(table).bucket_skew == 1.0


def test_the_bucket_skew_is_the_maximum_of_all_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k BIGINT", key=("p", "k"), partition_by=("p",), bucket="4")
    table.upsert(table_of("p k", [(1, k) for k in range(400)]))
    assert compute_health(table).bucket_skew < 1.3

    table.upsert(table_of("p k", [(2, 1)]))

    assert compute_health(table).bucket_skew == pytest.approx(4)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({}, None),
        ({"file_index__read__enabled": "true"}, None),
        ({"clustering__columns": "k"}, None),
        ({"file_index__bitmap__columns": "k"}, 1.0),
    ],
    ids=str,
)
def test_only_a_table_with_columns_of_a_file_index_has_an_index_coverage(
    tmp_path: Path, option: dict[str, str], expected: float | None
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1", **option)
    table.append(table_of("k v", [(1, "x")]))
    assert compute_health(table).index_coverage == expected
    table.truncate()
    assert compute_health(table).index_coverage == expected, "no file lacks an index"


def test_index_coverage_counts_files_with_indexes(tmp_path: Path) -> None:
    table = new_table(tmp_path / "b", key=(), bucket="-1", file_index__bitmap__columns="k")
    table.append(table_of("k v", [(1, "x")]))
    table.append(table_of("k v", [(2, "y")]))
    edit_files(table, 1, embedded_index=None, extra_files=("data.index",))
    edit_files(table, 2, embedded_index=None, extra_files=())
    assert compute_health(table).index_coverage == 0.5


def test_orphans_are_counted_on_request(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "x")]))
    (Path(table.paths.root) / "bucket-0" / "data-x.parquet").write_bytes(b"12345")
    backdate_files(table)

    assert compute_health(table).orphan_bytes is None
    assert compute_health(table, orphans=True).orphan_bytes == 5


def test_inspect_includes_the_health(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "x")]))

    document = inspect(table).to_dict()

    json.dumps(document)
    health = document["health"]
    assert isinstance(health, dict)
    assert (health["files"], health["snapshots"]) == (1, 1)
    assert 0 <= health["newest_snapshot_age"] < time.time()


def test_the_text_line_includes_the_health(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "x")]))

    line = str(compute_health(table))

    size = format_size(table.files()[0].files[0].file_size)
    assert line.startswith(
        f"at most 1 sorted run, level 0 {size}, deleted rows 0%, bucket skew 1.0"
    )
    assert "; snapshots 1 (oldest 0.0 h), tags 0, branches 0; manifests 1 (" in line


def test_an_inspection_decodes_every_manifest_once(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))
    io = CountingFileIO()

    report = inspect(Table(table.identifier, io, table.paths))

    assert report.health is not None
    assert (report.health.files, report.health.manifests) == (3, 3)
    manifests = {path: n for path, n in io.reads.items() if "/manifest/manifest-" in path and "-list-" not in path}  # fmt: skip
    assert set(manifests.values()) == {1}
    assert len(manifests) == 3
