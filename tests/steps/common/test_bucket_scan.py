"""The judgment of buckets in units of an executor equals that of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import cloudpickle
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.damage import edit_files
from support.random_manifests import ENTRIES, SNAPSHOTS, write_snapshots
from support.tables import new_table, table_of

from paimon_orch import steps
from paimon_orch.errors import CorruptFileError, NotFoundError
from paimon_orch.format.manifest import columnar_manifest
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.live_entries import filter_live_entries
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.steps.autopilot.partition_layout import (
    PartitionWork,
    compute_local_millis,
    read_partition_work,
)
from paimon_orch.steps.common import bucket_scan, manifest_units
from paimon_orch.steps.common.bucket_scan import BucketScan, Judgment, scan_latest_buckets
from paimon_orch.steps.common.executor import InProcessExecutor, Join
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.compaction.compact import CompactRequest, compact, plan
from paimon_orch.steps.compaction.decide import decide
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionPolicy
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.table import Table

U = TypeVar("U")
EVOLVING = {
    "bucket": "-1",
    "row_tracking__enabled": "true",
    "data_evolution__enabled": "true",
}
NOW = datetime(2026, 11, 23).astimezone()


class PicklingExecutor(InProcessExecutor):
    """Pickles functions and units, as executors of other processes do, and counts jobs."""

    jobs = 0

    def shuffle(
        self,
        split: Callable[[U], Iterable[tuple[int, bytes]]],
        units: Sequence[U],
        join: Join,
        **arguments: Any,
    ) -> list[bytes]:
        self.jobs += 1
        split, units, join = cloudpickle.loads(cloudpickle.dumps((split, units, join)))
        return super().shuffle(split, units, join, **arguments)


@dataclass(frozen=True)
class ChooseBySize:
    """Chooses the buckets whose files have an odd or an even size together."""

    remainder: int

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        sizes = buckets.groups.sum(buckets.groups.files.file_sizes)
        chosen = buckets.take(np.flatnonzero(sizes % 2 == self.remainder))
        return Judgment(chosen=chosen, values={"buckets": len(buckets), "bytes": int(sizes.sum())})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return new_table(
        tmp_path_factory.mktemp("warehouse"), "p INT, k BIGINT, s STRING",
        key=("p", "k", "s"), partition_by=("p",), bucket="2",
    )  # fmt: skip


def group_files(
    entries: Iterable[ManifestEntry], vectors: Iterable[IndexManifestEntry]
) -> list[BucketSplit]:
    """Return the buckets in the order of their first file, with objects."""
    splits: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in filter_live_entries(entries):
        splits.setdefault((entry.partition, entry.bucket), []).append(entry)
    return [
        BucketSplit(
            partition=partition,
            bucket=bucket,
            total_buckets=files[0].total_buckets,
            files=tuple(entry.file for entry in files),
            vectors=tuple(v for v in vectors if (v.partition, v.bucket) == (partition, bucket)),
        )
        for (partition, bucket), files in splits.items()
    ]


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    manifests=st.lists(st.lists(ENTRIES, max_size=6), min_size=5, max_size=5),
    snapshot=SNAPSHOTS,
    entries_per_part=st.sampled_from([1, 3, 1_000]),
    columnar_bytes=st.sampled_from([0, 16_384]),
    where=st.sampled_from([None, "p = 1", "p > 5"]),
)
def test_units_choose_the_buckets_of_a_simple_implementation(
    table: Table,
    manifests: list[list[ManifestEntry]],
    snapshot: tuple[Any, ...],
    entries_per_part: int,
    columnar_bytes: int,
    where: str | None,
) -> None:
    write_snapshots(table, manifests, [snapshot])
    base, delta, _, vectors, *_ = snapshot
    entries = [e for n in (*base, *delta) for e in manifests[n]]
    if where is not None:
        entries = [e for e in entries if where == "p = 1" and e.partition[-8] == 1]
    splits = group_files(entries, vectors)

    for max_entries, jobs in ((-1, 1), (1_000, 0)):
        executor = PicklingExecutor()
        with (
            mock.patch.object(bucket_scan, "MAX_ENTRIES_IN_PROCESS", max_entries),
            mock.patch.object(manifest_units, "_ENTRIES_PER_PART", entries_per_part),
            mock.patch.object(columnar_manifest, "_MIN_COLUMNAR_BYTES", columnar_bytes),
        ):
            scan = scan_latest_buckets(table.load(), PartitionRequest(where=where), executor)
            assert scan is not None
            scan.judge_together([ChooseBySize(0), ChooseBySize(1)])
            for remainder in (0, 1):
                judged = scan.judge(ChooseBySize(remainder))
                assert scan.build_splits(judged.chosen) == [
                    split
                    for split in splits
                    if sum(file.file_size for file in split.files) % 2 == remainder
                ]
                assert judged.sum("buckets") == len(splits)
                assert judged.sum("bytes") == sum(f.file_size for s in splits for f in s.files)
            assert set(scan.list_partitions()) == {split.partition for split in splits}
        assert executor.jobs == 2 * jobs  # list_partitions is the second


PLANNED = [
    {"key": ("p", "k"), "deletion_vectors__enabled": "true"},
    {"key": ("p", "k"), "num_sorted_run__compaction_trigger": "3"},
    {"key": (), "compaction__min__file_num": "3", "bucket": "-1"},
    {"key": (), "data_evolution__enabled": "true", "row_tracking__enabled": "true", "bucket": "-1",
     "deletion_vectors__enabled": "true", "compaction__min__file_num": "2"},
    {"key": ("p", "k"), "compaction__skip_expired_partitions": "true",
     "partition__expiration_time": "30 d"},
]  # fmt: skip


def write_history(path: Path, options: dict[str, Any]) -> Table:
    table = new_table(
        path, "p STRING, k INT, v STRING", partition_by=["p"], **{"bucket": "2"} | options
    )
    days = ("2026-11-01", "2026-11-02", "2020-01-01")
    for round_number in range(4):
        for day in days[: 3 - round_number % 2]:
            rows = table_of("p k v", [(day, k, str(round_number)) for k in range(round_number, 9)])
            if options["key"]:
                table.upsert(rows)
            else:
                table.append(rows)
                table.append(rows)  # its row ids follow those of the first file
        if round_number == 1:
            compact(table, InProcessExecutor(), partitions=[f"p={days[0]}"], strategy="full")
    if options["key"]:
        table.delete(table_of("p k", [(days[1], k) for k in range(9)]))
    return table


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", PLANNED, ids=str)
@pytest.mark.parametrize("strategy", ["minor", "full"])
def test_plans_and_decisions_in_units_are_those_of_one_process(
    tmp_path: Path, options: dict[str, Any], strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_history(tmp_path, options)
    policy = CompactionPolicy(deleted_ratio=0.2)
    request = CompactRequest(strategy=strategy, now=NOW)
    planned, decisions = plan(table, request), decide(table, policy)
    assert planned.units
    assert any(decision.compact for decision in decisions)
    executor = PicklingExecutor()
    monkeypatch.setattr(bucket_scan, "MAX_ENTRIES_IN_PROCESS", 0)
    monkeypatch.setattr(manifest_units, "_ENTRIES_PER_PART", 2)
    monkeypatch.setattr(manifest_units, "_BUCKETS_TOGETHER", 1)
    in_units = plan(table, request, executor=executor)
    assert executor.jobs == 1
    assert (in_units.units, in_units.guards) == (planned.units, planned.guards)
    assert in_units.skipped_buckets == planned.skipped_buckets
    scan = scan_latest_buckets(table.load(), PartitionRequest(), executor)
    assert isinstance(scan, BucketScan)
    assert decide(table, policy, scan=scan) == decisions


UNEVEN = [
    {"key": ("p", "k"), "partition__expiration_time": "1 d",
     "partition__expiration_strategy": "update-time"},
    {"key": (), "clustering__incremental": "true", "clustering__columns": "v", "bucket_key": "k",
     "bucket_append_ordered": "false"},
]  # fmt: skip


@pytest.mark.parametrize("options", UNEVEN, ids=["key", "clustered"])
def test_units_that_judge_buckets_of_the_same_partition_are_combined(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition has most files, and the newest, in the first bucket, the other in the last."""
    table = new_table(
        tmp_path, "p STRING, k INT, v STRING", partition_by=["p"], **{"bucket": "2"} | options
    )
    everywhere, uneven = [(p, k, "a") for p in "xy" for k in range(9)], [("x", 1, "b"), ("y", 0, "b")]  # fmt: skip
    for rows, days in ((everywhere, 5), (uneven, 4), (uneven, 0)):
        table.append(table_of("p k v", rows))
        if rows is everywhere and options["key"]:
            compact(table, InProcessExecutor(), strategy="full", buckets=[0])
        newest = table.snapshot()
        assert newest is not None
        edit_files(table, newest.id, creation_time=compute_local_millis(NOW - timedelta(days)))
    files = sorted((split.bucket, len(split.files)) for split in table.files())
    assert files == [(0, 1), (0, 3), (1, 1), (1, 3)]
    policy = CompactionPolicy(cluster_idle_for=None if options["key"] else "3 d", sorted_runs=3)

    def read() -> tuple[list[CompactionDecision], dict[str, PartitionWork]]:
        scan = scan_latest_buckets(table.load(), PartitionRequest(), now=NOW)
        assert scan is not None
        work = read_partition_work(scan, timedelta())
        return decide(table, policy, scan=scan), work

    in_process = read()
    monkeypatch.setattr(bucket_scan, "MAX_ENTRIES_IN_PROCESS", 0)
    monkeypatch.setattr(manifest_units, "_ENTRIES_PER_PART", 1)
    monkeypatch.setattr(manifest_units, "_BUCKETS_TOGETHER", 1)
    assert read() == in_process


def test_errors_of_units_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_history(tmp_path, PLANNED[0])
    snapshot = table.snapshot()
    assert snapshot is not None
    last = table.stores.manifests.manifests(snapshot)[-1]
    Path(table.paths.manifest_dir, last.file_name).write_bytes(b"Obj\1")
    for max_entries in (1_000, 0):
        monkeypatch.setattr(bucket_scan, "MAX_ENTRIES_IN_PROCESS", max_entries)
        with pytest.raises(CorruptFileError, match=last.file_name):
            plan(table, CompactRequest())


STEPS_OF_PARTITIONS: dict[str, tuple[dict[str, str], Callable[..., object]]] = {
    "compact": ({}, steps.compact),
    "build key indexes": ({}, steps.build_key_indexes),
    "rewrite file index": ({}, steps.rewrite_file_index),
    "rescale": ({}, steps.rescale),
    "remove orphan files": ({}, steps.remove_orphan_files),
    "move postponed": ({"bucket": "-2"}, steps.move_postponed),
    "materialize": (EVOLVING, steps.materialize_deletion_vectors),
    "reassign row ids": (EVOLVING, steps.reassign_row_ids),
    "create global index": (EVOLVING, partial(steps.create_global_index, column="v")),
    "drop global index": (EVOLVING, partial(steps.drop_global_index, column="v")),
}


@pytest.mark.parametrize("name", STEPS_OF_PARTITIONS)
@pytest.mark.parametrize("spec", ["p=9", {"p": 9}], ids=str)
def test_a_misspelled_partition_is_refused(tmp_path: Path, name: str, spec: object) -> None:
    options, step = STEPS_OF_PARTITIONS[name]
    key = () if options == EVOLVING else ("p", "k")
    table = new_table(tmp_path, "p INT, k INT, v INT", key=key, partition_by=["p"], **options)
    rows = table_of("p k v", [(1, 1, 1)])
    _ = table.upsert(rows) if key else table.append(rows)

    with pytest.raises(
        NotFoundError, match=r"db\.t has no partition p=9; .*read .*db\.t\$partitions"
    ):
        step(table, partitions=["p=1", spec])
