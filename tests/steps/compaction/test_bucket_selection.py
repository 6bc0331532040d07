"""Compactions of numbered buckets, and of partitions without recent files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.commands import run_command
from support.damage import edit_files
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import InputError
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.steps.common import bucket_scan, manifest_units
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.steps.compaction.bucket_selection import find_idle_partitions
from paimon_orch.steps.compaction.plan import parse_buckets
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()


def partitioned_table(root: Path, key: tuple[str, ...] = ("p", "k"), bucket: str = "4") -> Table:
    """Return a table with two files in most buckets of the partitions ``a`` and ``b``, or null."""
    table = new_table(
        root, "p STRING, k INT, v STRING", key=key, partition_by=("p",), bucket=bucket
    )
    for text in ("old", "new"):
        rows = [(p, k, text) for p in ("a", "b" if key else None) for k in range(20)]
        table.append(table_of("p k v", rows))
    return table


def files_of(table: Table, level: int | None = None) -> dict[tuple[str, int], set[str]]:
    """Return the names of files by partition and bucket."""
    rows = table.system("files").scan().to_arrow().to_pylist()
    groups: dict[tuple[str, int], set[str]] = {}
    for row in rows:
        if level is None or row["level"] == level:
            groups.setdefault((row["partition"], row["bucket"]), set()).add(row["file_path"])
    return groups


@pytest.mark.parametrize("strategy", ["minor", "full"])
def test_only_the_buckets_are_compacted(tmp_path: Path, strategy: step.CompactionStrategy) -> None:
    table = new_table(tmp_path, bucket="4", num_sorted_run__compaction_trigger="2")
    for text in ("old", "new"):
        table.upsert(table_of("k v", [(k, text) for k in range(20)]))
    before, rows = files_of(table), rows_of(table)

    result = step.compact(table, EXECUTOR, strategy=strategy, buckets=[1, 3])

    after = files_of(table)
    changed = {key[1] for key in before if after[key] != before[key]}
    assert (changed, result.buckets) == ({1, 3}, 2)
    assert rows_of(table) == rows
    repeated = step.compact(table, EXECUTOR, strategy="full", buckets=[1, 3])
    assert repeated.snapshot_id is None


def test_buckets_with_deletion_vectors_are_guarded(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="4", deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(k, "old") for k in range(20)]))
    planned = step.plan(table, step.CompactRequest(strategy="full", buckets=(2,)))
    assert {unit.bucket for unit in planned.units} == {2}
    assert {guard.bucket.bucket for guard in planned.guards} == {2}
    step.run_compaction(table, planned, EXECUTOR)
    assert {bucket for _, bucket in files_of(table, level=5)} == {2}


def test_buckets_must_exist_in_a_table_with_fixed_buckets(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="4")
    for number in (4, -1):
        with pytest.raises(InputError, match=f"there is no bucket {number}"):
            step.compact(table, EXECUTOR, buckets=[1, number])
    with pytest.raises(InputError, match="no bucket is selected"):
        step.compact(table, EXECUTOR, buckets=[])
    single = new_table(tmp_path / "single", bucket="1")
    single.upsert(table_of("k v", [(1, "a")]))
    assert step.compact(single, EXECUTOR, strategy="full", buckets=[0]).buckets == 1
    dynamic = new_table(tmp_path / "dynamic", bucket="-1")
    with pytest.raises(InputError, match="fixed number of buckets"):
        step.compact(dynamic, EXECUTOR, buckets=[0])


def test_a_list_of_buckets_has_numbers_and_ranges() -> None:
    assert parse_buckets("0, 2-4,3") == [0, 2, 3, 4]
    for text in ("", "a", "4-2", "-1", "1,", "1-"):
        with pytest.raises(InputError, match="not a list of buckets"):
            parse_buckets(text)


@pytest.mark.parametrize("key", [("p", "k"), ()])
def test_only_idle_partitions_are_compacted(tmp_path: Path, key: tuple[str, ...]) -> None:
    table = partitioned_table(tmp_path, key, bucket="1" if key else "-1")
    hour = timedelta(hours=1)
    assert step.compact(table, EXECUTOR, strategy="full", idle_for=hour).snapshot_id is None
    old = datetime.now() - timedelta(hours=3)
    millis = int((old - datetime(1970, 1, 1)) / timedelta(milliseconds=1))
    edit_files(table, 1, creation_time=millis)
    edit_files(table, 2, creation_time=millis)
    table.append(table_of("p k v", [("a", 99, "now")]))
    before, rows = files_of(table), rows_of(table)
    assert step.compact(table, EXECUTOR, idle_for=4 * hour).snapshot_id is None

    warehouse = str(tmp_path)
    arguments = ("--strategy", "full", "--partition-idle-for", "1 h", "--executor", "local")
    run_command("compact", warehouse, "db.t", *arguments)

    after, idle = files_of(table), ("{b}" if key else "{null}", 0)
    assert after[idle].isdisjoint(before[idle])
    assert after["{a}", 0] == before["{a}", 0]
    assert rows_of(table) == rows
    request = step.CompactRequest(where="p = 'a'", strategy="full", idle_for=hour)
    assert not step.plan(table, request), "the filter and the age must both match"


@pytest.fixture
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set a local time that differs from UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("time_zone")
@pytest.mark.parametrize("max_entries", [1_000, 0], ids=["one process", "units"])
def test_a_partition_is_idle_if_its_files_in_all_buckets_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_entries: int
) -> None:
    """The buckets of a partition of a large table are judged in several units."""
    monkeypatch.setattr(bucket_scan, "MAX_ENTRIES_IN_PROCESS", max_entries)
    monkeypatch.setattr(manifest_units, "_ENTRIES_PER_PART", 1)
    monkeypatch.setattr(manifest_units, "_BUCKETS_TOGETHER", 1)
    table = new_table(tmp_path, "p STRING, k INT", key=("p", "k"), partition_by=("p",), bucket="4")
    now = datetime(2026, 11, 25, 12, 0).astimezone(UTC)
    old = int((datetime(2026, 11, 25, 9, 0) - datetime(1970, 1, 1)).total_seconds() * 1000)
    everywhere = [(p, k) for p in ("new", "old", "unknown", "dropped") for k in range(9)]
    for snapshot, (rows, created) in enumerate(
        [(everywhere, old), ([("new", 1)], old + 1), ([("unknown", 1)], None)], 1
    ):
        table.upsert(table_of("p k", rows))
        edit_files(table, snapshot, creation_time=created)
    table.drop_partitions(["p=dropped"])

    scan = bucket_scan.scan_latest_buckets(table.load(), step.CompactRequest(), now=now)
    assert scan is not None

    def find(idle_for: timedelta) -> set[tuple[object, ...]]:
        partitions = find_idle_partitions(scan, idle_for)
        types = [field.type for field in table.load().schema.partition_fields]
        return {deserialize_row(partition, types) for partition in partitions}

    millisecond, idle_for = timedelta(milliseconds=1), timedelta(hours=3)
    assert find(idle_for) == {("old",)}
    assert find(idle_for - millisecond) == {("old",), ("new",)}
    assert find(idle_for + millisecond) == set()


def test_a_table_without_partitions_is_idle_as_a_whole(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    hour, later = timedelta(hours=1), datetime.now().astimezone() + timedelta(hours=2)
    assert step.compact(table, EXECUTOR, strategy="full", idle_for=hour).snapshot_id is None
    result = step.compact(table, EXECUTOR, strategy="full", idle_for=hour, now=later)
    assert result.files_after == 1
