"""Snapshot expiration: which snapshots and files are deleted (invariants 25 to 29)."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.damage import edit_files, edit_snapshot
from support.flat_store import in_flat_store
from support.histories import (
    KINDS,
    CountingFileIO,
    Operation,
    branch_of,
    make_snapshots,
    make_table,
    operations,
    read_all_branches,
    select_retained,
    snapshot_range,
    unreferenced_files,
)
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CorruptFileError, InputError, MissingFileError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration import expire_snapshots as step
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

NOW = 10_000_000_000


def plan_expired_ids(table: Table, **arguments: Any) -> list[int]:
    return list(
        step.plan(table, step.ExpireSnapshotsRequest(now_millis=NOW, **arguments)).snapshots
    )


def test_by_default_ten_snapshots_and_those_of_the_last_hour_are_retained(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path, 15)

    assert plan_expired_ids(table) == [1, 2, 3, 4, 5]
    edit_snapshot(table, 4, time_millis=NOW - 3_599_000)
    assert plan_expired_ids(table) == [1, 2], "a snapshot expires by age if its successor is older"


def test_options_of_the_table_apply_and_arguments_override_them(tmp_path: Path) -> None:
    options = {"num_retained__min": "3", "num_retained__max": "6", "time_retained": "1 h"}
    table = make_snapshots(
        tmp_path, 10, **{f"snapshot__{name}": text for name, text in options.items()}
    )

    assert plan_expired_ids(table) == [1, 2, 3, 4, 5, 6, 7]
    assert plan_expired_ids(table, older_than=0) == [1, 2, 3, 4], (
        "snapshots above the maximum expire at any age"
    )
    assert plan_expired_ids(table, retain_max=2, older_than=0) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert plan_expired_ids(table, retain_min=8) == [1, 2]
    assert plan_expired_ids(table, older_than=4000) == [1, 2, 3, 4]
    assert plan_expired_ids(table, retain_max=9, older_than=4001) == [1, 2, 3]
    assert plan_expired_ids(table, max_deletes=2) == [1, 2]
    assert plan_expired_ids(table, max_deletes=0) == []


@pytest.mark.parametrize("arguments", [{"retain_min": 0}, {"retain_min": 3, "retain_max": 2}, {"max_deletes": -1}])  # fmt: skip
def test_contradicting_limits_are_refused(tmp_path: Path, arguments: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"but must be|the minimum is"):
        step.plan(make_snapshots(tmp_path, 3), step.ExpireSnapshotsRequest(**arguments))


def test_an_empty_table_and_a_single_snapshot_have_nothing_to_expire(tmp_path: Path) -> None:
    assert not step.plan(new_table(tmp_path / "a"), step.ExpireSnapshotsRequest(retain_max=1))
    table = make_snapshots(tmp_path / "b", 1)
    assert expire_snapshots(table, retain_max=1, older_than=NOW).snapshots == 0
    assert snapshot_range(table) == ([1], None)


def test_the_plan_shows_the_work_of_the_run_and_changes_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path, "vectors", [("full", 0), ("upsert", 1), ("full", 0), ("upsert", 2)])  # fmt: skip
    before = stored_files(table)

    planned = step.plan(table, step.ExpireSnapshotsRequest(retain_max=1))

    assert stored_files(table) == before
    figures = planned.to_dict()
    result = expire_snapshots(table, retain_max=1)
    assert figures["snapshots"] == result.snapshots == 4
    assert figures["data_files"] == result.data_files
    assert figures["bytes"] == result.bytes
    deleted_files = before - stored_files(table)
    garbage = planned.files_to_delete
    assert deleted_files >= {*garbage.data, *garbage.metadata, *garbage.lists}
    assert len(deleted_files) == result.data_files + result.metadata_files + result.snapshots


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(KINDS)), operations(), st.integers(1, 4), st.integers(1, 4))
@example("vectors", [("tag", 0), ("branch", 0), ("full", 0), ("upsert", 0), ("full", 0), ("untag", 0)], 1, 1)  # fmt: skip
def test_expiration_changes_no_retained_version_and_leaves_no_orphans(
    kind: str, history: list[Operation], first: int, second: int
) -> None:
    """Invariant 25, invariant 26, invariant 27 and invariant 28."""
    with tempfile.TemporaryDirectory() as root:
        table = make_table(Path(root), kind, history, batch_rows=3)
        loose = unreferenced_files(table)
        before, ids = read_all_branches(table), table.stores.snapshots.ids()

        expire_snapshots(table, retain_max=first + second, older_than=0)
        expire_snapshots(table, retain_max=first, older_than=0)
        # A second expiration has nothing to do.
        expire_snapshots(table, retain_max=first, older_than=0)

        after = read_all_branches(table)
        assert after == select_retained(before, after)
        remaining_ids = table.stores.snapshots.ids()
        assert remaining_ids == ids[-first:], "the newest are retained, without a gap"
        assert check(table, deep=True).findings == ()
        assert unreferenced_files(table) <= loose, "no orphans remain"


def test_expiring_snapshots_together_or_individually_has_the_same_result(tmp_path: Path) -> None:
    """Invariant 29."""
    history = [
        ("full", 0),
        ("upsert", 1),
        ("minor", 0),
        ("tag", 1),
        ("overwrite", 2),
        ("upsert", 3),
    ]
    ends = []
    for name, steps in (("a", [2]), ("b", [6, 5, 4, 3, 2])):
        table = make_table(tmp_path / name, "vectors", history)
        for number in steps:
            expire_snapshots(table, retain_max=number, older_than=0)
        files = Counter(Path(path).parent.name for path in stored_files(table))
        ends.append((read_all_branches(table), snapshot_range(table), files))

    assert ends[0] == ends[1]


def test_a_limit_expires_some_of_the_snapshots(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path, 6)

    result = expire_snapshots(table, retain_max=1, max_deletes=2)

    assert (result.snapshots, snapshot_range(table)) == (2, ([3, 4, 5, 6], 3))


def test_a_consumer_delays_expiration(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path, 6)
    path = Path(table.paths.root) / "consumer" / "consumer-job"
    path.parent.mkdir()
    path.write_text('{"nextSnapshot": 3}')

    assert plan_expired_ids(table, retain_max=1) == [1, 2]
    path.write_text("{}")
    with pytest.raises(CorruptFileError, match="consumer-job"):
        plan_expired_ids(table, retain_max=1)


def test_an_expired_consumer_is_deleted(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path, 4, consumer__expiration_time="1 h")
    folder = Path(table.paths.root) / "consumer"
    folder.mkdir()
    for name, age in (("old", 4000), ("new", 10)):
        (folder / f"consumer-{name}").write_text(json.dumps({"nextSnapshot": 2 + (age < 1000)}))
        os.utime(folder / f"consumer-{name}", (time.time() - age,) * 2)

    expire_snapshots(table, retain_max=1)

    assert table.stores.snapshots.ids() == [3, 4]
    assert [path.name for path in folder.iterdir()] == ["consumer-new"]


def test_changelog_only_consumers_do_not_delay_expiration(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path, 3, consumer__changelog_only="true")
    path = Path(table.paths.root) / "consumer" / "consumer-job"
    path.parent.mkdir()
    path.write_text('{"nextSnapshot": 1}')

    assert plan_expired_ids(table, retain_max=1) == [1, 2]


def test_expiration_works_with_gaps_between_snapshots(tmp_path: Path) -> None:
    """Snapshots in the middle were deleted manually (apache/paimon#4743)."""
    table = make_snapshots(tmp_path, 8)
    rows = rows_of(table)
    for number in (3, 4, 6):
        Path(table.stores.snapshots.path(number)).unlink()

    expire_snapshots(table, retain_max=3)

    assert snapshot_range(table) == ([7, 8], 7)
    assert rows_of(table) == rows


def test_tags_of_a_branch_retain_their_files(tmp_path: Path) -> None:
    """Tags of a branch retain their files in expirations of all branches (apache/paimon#9867)."""
    table = make_table(tmp_path, "plain", [("tag", 0), ("branch", 0), ("on branch", 1)])
    branch = branch_of(table, "dev")
    branch.tags.create("own")
    for number in range(3):
        branch.upsert(table_of("p k v", [(0, 0, str(number))]))
        compact(branch, InProcessExecutor(), strategy="full")
    before = read_all_branches(table)

    expire_snapshots(branch, retain_max=1)
    expire_snapshots(table, retain_max=1)

    after = read_all_branches(table)
    assert after == select_retained(before, after)
    assert {name for name in after if "tag" in name} == {"main tag t0", "dev tag own", "dev tag t0"}
    assert check(table, deep=True)


def test_a_branch_can_be_read_after_its_source_tag_is_deleted(tmp_path: Path) -> None:
    """The first snapshot of the branch is read after its tag was deleted (apache/paimon#6272)."""
    table = make_table(tmp_path, "plain", [("tag", 0), ("branch", 0), ("upsert", 1), ("full", 0), ("untag", 0), ("upsert", 2)])  # fmt: skip
    rows = rows_of(branch_of(table, "dev"))

    expire_snapshots(table, retain_max=1)

    assert rows_of(branch_of(table, "dev")) == rows
    assert check(table, deep=True)


def test_files_that_were_added_again_are_not_deleted_with_the_snapshot_that_removed_them(
    tmp_path: Path,
) -> None:
    """A rollback as a new snapshot adds deleted files again (apache/paimon#8450)."""
    table = make_snapshots(tmp_path, 1, manifest__merge_min_count="1")
    first = table.stores.manifests.read_live_entries(table.stores.snapshots.get(1))
    table.truncate()
    table.stores.new_commit(StepKind.WRITE_ROWS).commit(
        CommitChanges(kind=CommitKind.OVERWRITE, entries=tuple(first))
    )
    table.upsert(table_of("k v", [(2, "2")]))

    expire_snapshots(table, retain_max=1)

    assert rows_of(table) == [(1, "1"), (2, "2")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_flat", [False, True], ids=["local", "flat store"])
@pytest.mark.parametrize("producer", ["input", "none"])
def test_changelogs_are_retained_longer_than_their_snapshots(
    tmp_path: Path, producer: str, is_flat: bool
) -> None:
    options = {"changelog__num_retained__max": "20", "changelog__num_retained__min": "5"}
    table = new_table(tmp_path, changelog_producer=producer, **options)
    for number in range(4):
        table.upsert(table_of("k v", [(number % 2, str(number))]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(7, "7")]))
    mode = "changelog" if producer == "input" else "delta"
    changes = table.incremental(0, 6, mode).to_arrow().to_pylist()
    before = read_all_branches(table)

    result = expire_snapshots(in_flat_store(table)[0] if is_flat else table, retain_max=1)

    assert result.snapshots == 5
    folder = Path(table.paths.root) / "changelog"
    assert sorted(path.name for path in folder.iterdir()) == ["LATEST", *(f"changelog-{i}" for i in range(1, 6))]  # fmt: skip
    assert (folder / "LATEST").read_text() == "5"
    after = read_all_branches(table)
    assert after == select_retained(before, after)
    assert table.incremental(0, 6, mode).to_arrow().to_pylist() == changes
    assert check(table, deep=True).findings == ()
    assert unreferenced_files(table) == set()


def test_empty_directories_are_deleted_if_the_option_is_set(tmp_path: Path) -> None:
    for name, option, remaining in (("a", "true", ["p=1"]), ("b", "false", ["p=0", "p=1"])):
        table = new_table(
            tmp_path / name, "p INT, k BIGINT", key=("p", "k"), partition_by=("p",),
            snapshot__clean_empty_directories=option,
        )  # fmt: skip
        table.upsert(table_of("p k", [(0, 0), (1, 1)]))
        table.drop_partitions([{"p": 0}])
        table.upsert(table_of("p k", [(1, 2)]))

        result = expire_snapshots(table, retain_max=1)

        assert sorted(path.name for path in Path(table.paths.root).glob("p=*")) == remaining
        assert result.directories == (2 if option == "true" else 0)


def test_extra_files_are_deleted_with_their_data_file(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path, 1)
    [bucket] = Path(table.paths.root).glob("bucket-*")
    edit_files(table, 1, extra_files=("side.index",))
    (bucket / "side.index").write_bytes(b"x")
    (bucket / "other.index").write_bytes(b"x")
    table.truncate()
    table.upsert(table_of("k v", [(1, "1")]))

    expire_snapshots(table, retain_max=1)

    assert sorted(path.suffix for path in bucket.iterdir()) == [".index", ".parquet"]
    assert (bucket / "other.index").exists()


def test_every_manifest_is_read_at_most_once(tmp_path: Path) -> None:
    history = [("upsert", 1), ("tag", 1), ("full", 0), ("branch", 1), ("on branch", 2), ("upsert", 3), ("minor", 0), ("tag", 2), ("upsert", 4)]  # fmt: skip
    table = make_table(tmp_path, "vectors", history)
    io = CountingFileIO()

    expire_snapshots(Table(table.identifier, io, table.paths), retain_max=1)

    reads = [count for path, count in io.reads.items() if "/manifest/" in path]
    assert len(reads) > 10
    assert max(reads) == 1


def test_snapshots_in_a_store_are_read_once_and_new_ones_before_files_are_deleted(
    tmp_path: Path,
) -> None:
    table = make_snapshots(tmp_path, 6)
    table.tags.create("t", 2)
    flat, io = in_flat_store(table)
    request = step.ExpireSnapshotsRequest(retain_max=3, retain_min=1, older_than=0)
    planned = step.plan(flat, request)
    assert [name for name in io.names_read() if name.startswith(("snapshot-", "tag-"))] == [
        *(f"snapshot-{number}" for number in range(1, 8)),
        "tag-t",
    ]
    table.upsert(table_of("k v", [(7, "new")]))
    rows = rows_of(table)
    io.reads.clear()

    assert step.run_expiration(flat, planned).snapshots == 3

    read = [name for name in io.names_read() if name.startswith(("snapshot-", "tag-"))]
    assert read == ["snapshot-7"], "the others are those of the plan"
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize("commits", [0, 1], ids=["of the plan", "newer"])
def test_no_file_is_deleted_if_the_newest_snapshot_is_lost_after_the_plan(
    tmp_path: Path, commits: int
) -> None:
    table = make_snapshots(tmp_path, 6)
    planned = step.plan(table, step.ExpireSnapshotsRequest(retain_max=3, retain_min=1))
    for number in range(commits):
        table.upsert(table_of("k v", [(number, "new")]))
    newest = table.stores.snapshots.latest_id()
    assert newest is not None
    Path(table.stores.snapshots.path(newest)).unlink()
    before = stored_files(table)

    with pytest.raises(MissingFileError, match=f"LATEST names snapshot {newest}"):
        step.run_expiration(table, planned)

    assert stored_files(table) == before


def test_tags_with_a_retention_time_retain_their_files(tmp_path: Path) -> None:
    table = make_snapshots(tmp_path, 3)
    table.tags.create("month", 1, time_retained=timedelta(days=30))
    rows = rows_of(table, tag="month")

    expire_snapshots(table, retain_max=1)

    assert rows_of(table, tag="month") == rows


def test_replaced_index_files_are_deleted_and_other_index_files_are_retained(
    tmp_path: Path,
) -> None:
    """Java Paimon leaves the extra files of replaced indexes to orphan cleanup."""
    table = new_table(tmp_path, key=(), bucket="-1", file_index__in_manifest_threshold="1 b")
    table.append(table_of("k v", [(k, str(k)) for k in range(50)]))
    catalog = Catalog(str(tmp_path))
    for column in ("k", "v"):
        catalog.alter_table("db.t", [SetOption("file-index.bloom-filter.columns", column)])
        rewrite_file_index(table, InProcessExecutor())
    side_files = sorted(Path(table.paths.root).glob("bucket-0/*.index"))
    assert len(side_files) == 2
    rows = rows_of(table)

    expire_snapshots(table, retain_max=1)

    [remaining_index] = Path(table.paths.root).glob("bucket-0/*.index")
    [split] = table.files()
    assert split.files[0].extra_files == (remaining_index.name,)
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()
    assert unreferenced_files(table) == set()
