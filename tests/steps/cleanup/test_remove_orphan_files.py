"""Orphan cleanup: which files are deleted and which are kept (invariants 35 to 38)."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.histories import (
    HISTORY,
    KINDS,
    Operation,
    backdate_files,
    branch_of,
    create_orphan_files,
    make_table,
    operations,
    read_all_branches,
    unreferenced_files,
)
from support.tables import new_table, stored_files

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.steps.cleanup import remove_orphan_files as step
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.cleanup.orphan_candidates import ListingUnit
from paimon_orch.table.table import Table


def test_only_orphans_are_deleted(table: Table) -> None:
    before, rows = stored_files(table), read_all_branches(table)
    orphans = create_orphan_files(table)

    planned = step.plan(table, step.RemoveOrphanFilesRequest())
    assert stored_files(table) == before | {str(path) for path in orphans}
    result = remove_orphan_files(table)

    assert (len(planned.files), planned.bytes) == (result.files, result.bytes) == (9, 54)
    assert {file.path for file in planned.files} == {str(path) for path in orphans}
    assert stored_files(table) == before
    assert read_all_branches(table) == rows
    assert not (Path(table.paths.root) / "p=9").exists(), "the partition has no files"
    assert remove_orphan_files(table).files == 0
    assert check(table, deep=True)


def test_only_the_orphans_of_the_plan_are_deleted(table: Table) -> None:
    create_orphan_files(table)
    shown = step.plan(table, step.RemoveOrphanFilesRequest())
    late = Path(table.paths.root) / "manifest" / "manifest-late"
    late.write_bytes(b"orphan")
    os.utime(late, (1, 1))

    result = run_step(step.REMOVE_ORPHAN_FILES, table, shown)

    assert (result.files, result.attempts) == (len(shown.files), 1)
    assert not any(Path(file.path).exists() for file in shown.files)
    assert late.exists()


class RecordedUnits(InProcessExecutor):
    """Records the work units of the listing."""

    units: tuple[Any, ...] = ()

    def shuffle(self, split: Any, units: Any, join: Any, **options: Any) -> list[bytes]:
        self.units += tuple(units)
        return super().shuffle(split, units, join, **options)


def test_units_of_the_listing_contain_names_and_no_file_system(table: Table) -> None:
    executor = RecordedUnits()
    request = step.RemoveOrphanFilesRequest(directories_per_unit=4, manifests_per_unit=2)

    step.plan(table, request, executor=executor)

    pickled = [pickle.dumps(unit) for unit in executor.units]
    assert len(pickled) > 4
    assert max(map(len, pickled)) < 1_500
    assert not any(type(table.io).__name__.encode() in data for data in pickled)


def test_recent_files_are_kept(table: Table) -> None:
    """Invariant 38."""
    orphans = create_orphan_files(table)
    for path, hours in zip(orphans, (23, 25, 23, 25, 0, 48, 1, 2, 3), strict=True):
        then = time.time() - hours * 3600
        os.utime(path, (then, then))

    remove_orphan_files(table)

    assert [path.exists() for path in orphans] == [True, False, True, False, True, False, True, True, True]  # fmt: skip
    two_hours_ago = int((time.time() - 7000) * 1000)
    remove_orphan_files(table, older_than=two_hours_ago)
    assert [path.exists() for path in orphans] == [False, False, False, False, True, False, True, False, False]  # fmt: skip


def test_a_time_in_the_future_is_refused(table: Table) -> None:
    with pytest.raises(InputError, match="future"):
        step.plan(table, step.RemoveOrphanFilesRequest(older_than=int((time.time() + 60) * 1000)))


def test_one_partition_is_cleaned(table: Table) -> None:
    orphans = create_orphan_files(table)

    result = remove_orphan_files(table, partitions=["p=9", {"p": 9}])

    assert result.files == 1
    assert [path for path in orphans if not path.exists()] == [
        Path(table.paths.root) / "p=9/bucket-3/data-0.parquet.index"
    ]


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(KINDS)), operations(), st.booleans(), st.booleans())
def test_cleanup_changes_no_version_and_leaves_no_orphans(
    kind: str, history: list[Operation], expired: bool, rolled_back: bool
) -> None:
    """Invariant 35, invariant 36 and invariant 37."""
    with tempfile.TemporaryDirectory() as root:
        table = make_table(Path(root), kind, history, batch_rows=3)
        if rolled_back:
            ids = table.stores.snapshots.ids()
            table.rollback(ids[len(ids) // 2], delete_tags=True)
        if expired:
            expire_snapshots(table, retain_max=2)
        if "dev" in table.branches.names() and rolled_back:
            table.branches.delete("dev")
        backdate_files(table)
        before = read_all_branches(table)

        planned = step.plan(table, step.RemoveOrphanFilesRequest())
        result = remove_orphan_files(table)

        assert (len(planned.files), planned.bytes) == (result.files, result.bytes)
        assert read_all_branches(table) == before
        assert unreferenced_files(table) == set()
        assert check(table, deep=True).findings == ()
        assert not step.plan(table, step.RemoveOrphanFilesRequest())


def test_extra_files_and_changelogs_are_kept(tmp_path: Path) -> None:
    table = make_table(tmp_path, "changelog", [("upsert", 1)])
    backdate_files(table)

    assert not step.plan(table, step.RemoveOrphanFilesRequest())


def test_files_left_by_a_rollback_and_a_deleted_branch_are_orphans(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [*HISTORY, ("upsert", 4)])
    branch_files = {entry.file.file_name for entry in branch_of(table, "dev").stores.manifests.read_live_entries(branch_of(table, "dev").stores.snapshots.latest())}  # type: ignore[arg-type]  # fmt: skip
    table.rollback(3)
    table.branches.delete("dev")
    backdate_files(table)
    before = read_all_branches(table)

    orphans = {
        Path(file.path).name for file in step.plan(table, step.RemoveOrphanFilesRequest()).files
    }

    assert branch_files & orphans
    remove_orphan_files(table)
    assert read_all_branches(table) == before
    assert unreferenced_files(table) == set()


@pytest.mark.parametrize("legacy", ["true", "false"])
@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [("DATE", date(2026, 3, 1), "2026-03-01"), ("BOOLEAN", True, "TRUE"), ("INT", 5, "05")],
)
def test_a_partition_is_found_by_legacy_and_new_directory_names(
    tmp_path: Path, kind: str, value: object, text: str, legacy: str
) -> None:
    table = new_table(tmp_path, f"p {kind}, k INT", key=(), partition_by=("p",), bucket="-1", partition__legacy_name=legacy)  # fmt: skip
    table.append(pa.table({"p": [value], "k": [1]}))
    used = next(path for path in stored_files(table) if "/data-" in path)
    Path(used).with_name("data-x.parquet").write_bytes(b"orphan")
    backdate_files(table)

    for spec in (f"p={text}", {"p": value}):
        assert len(step.plan(table, step.RemoveOrphanFilesRequest(partitions=[spec])).files) == 1
    with pytest.raises(NotFoundError, match="not a partition column"):
        step.plan(table, step.RemoveOrphanFilesRequest(partitions=[{"q": value}]))


@pytest.mark.parametrize("partitions", [None, ["p=9", "p=7"]])
def test_units_that_list_partitions_find_the_same_files(
    table: Table, partitions: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tables are listed from their first levels on by the units."""
    create_orphan_files(table)
    Path(table.paths.root, "p=9", "bucket-77").mkdir()
    os.utime(Path(table.paths.root, "p=9", "bucket-77"), (1, 1))
    request = step.RemoveOrphanFilesRequest(partitions=partitions)
    plans = []
    searched: dict[int, set[int]] = {
        step._MIN_DIRECTORIES: set(),
        2: set() if partitions else {0},
        0: {1},
    }
    for enough, expected in searched.items():
        monkeypatch.setattr(step, "_MIN_DIRECTORIES", enough)
        executor = RecordedUnits()
        plans.append(step.plan(table, request, executor=executor))
        levels = {
            d.levels for u in executor.units if isinstance(u, ListingUnit) for d in u.directories
        }
        assert levels - {None} == expected
    assert plans[0].files
    assert plans[0].directories
    assert plans[1:] == plans[:1] * 2
