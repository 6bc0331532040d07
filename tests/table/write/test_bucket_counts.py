"""Writers whose bucket count differs from that of the partition are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

FULL = {"manifest__full_compaction_threshold_size": "1 b"}


def with_bucket_option(root: Path, buckets: str) -> Table:
    """Return the table with another option ``bucket``."""
    catalog = Catalog(str(root))
    catalog.alter_table("db.t", [SetOption("bucket", buckets)])
    return catalog.table("db.t")


def upsert(table: Table, partition: str) -> None:
    table.upsert(table_of("p k", [(partition, k) for k in range(9)]))


@pytest.fixture(params=[{}, FULL], ids=["one manifest per commit", "merged manifests"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Return a table with three partitions of two buckets, in one manifest or in three."""
    created = new_table(
        tmp_path, "p STRING, k INT", key=("p", "k"), partition_by=["p"], bucket="2", **request.param
    )
    for partition in "abc":
        upsert(created, partition)
    return created


@pytest.mark.parametrize("partition", ["a", "c"])
def test_a_partition_keeps_its_bucket_count(table: Table, tmp_path: Path, partition: str) -> None:
    before, changed = rows_of(table), with_bucket_option(tmp_path, "4")

    with pytest.raises(CommitConflictError, match="has 2 buckets, but a file was written for 4"):
        upsert(changed, partition)

    assert rows_of(changed) == before


def test_a_new_partition_has_the_bucket_count_of_the_option(table: Table, tmp_path: Path) -> None:
    upsert(with_bucket_option(tmp_path, "4"), "d")

    with pytest.raises(CommitConflictError, match="has 4 buckets, but a file was written for 2"):
        upsert(with_bucket_option(tmp_path, "2"), "d")
    upsert(with_bucket_option(tmp_path, "4"), "d")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("merges", [False, True])
def test_a_dropped_partition_can_have_a_new_bucket_count(
    table: Table, tmp_path: Path, merges: bool
) -> None:
    table.drop_partitions(["p=a"])
    if merges:
        compact_manifests(table)

    upsert(with_bucket_option(tmp_path, "4"), "a")

    assert len(rows_of(table)) == 27
    with pytest.raises(CommitConflictError, match="has 4 buckets, but a file was written for 2"):
        upsert(with_bucket_option(tmp_path, "2"), "a")


def test_an_overwrite_can_change_the_bucket_count(table: Table, tmp_path: Path) -> None:
    changed = with_bucket_option(tmp_path, "4")
    changed.overwrite(table_of("p k", [("b", 1)]))
    upsert(changed, "b")

    assert len(rows_of(changed)) == 27
    with pytest.raises(CommitConflictError, match="has 2 buckets, but a file was written for 4"):
        upsert(changed, "c")


def test_the_bucket_count_is_found_although_the_newest_commit_only_deletes(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT", bucket="2")
    table.upsert(table_of("k", [(k,) for k in range(9)]))
    compact(table, InProcessExecutor(), strategy="full")
    (first, _) = table.files()
    deleted = [row for batch in table.scan().read_split(first) for row in batch["k"].to_pylist()]
    table.delete(table_of("k", [(k,) for k in deleted]))
    compact(table, InProcessExecutor(), strategy="full")
    assert [split.bucket for split in table.files()] == [1]

    with pytest.raises(CommitConflictError, match="has 2 buckets, but a file was written for 4"):
        with_bucket_option(tmp_path, "4").upsert(table_of("k", [(1,)]))
