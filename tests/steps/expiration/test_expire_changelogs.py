"""Expiration of changelogs that are retained longer than their snapshots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.histories import read_all_branches, unreferenced_files
from support.tables import assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch.errors import InputError
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_changelogs import (
    EXPIRE_CHANGELOGS,
    ExpireChangelogsRequest,
    expire_changelogs,
    plan,
)
from paimon_orch.steps.expiration.expire_snapshots import (
    EXPIRE_SNAPSHOTS,
    ExpireSnapshotsRequest,
    expire_snapshots,
)
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.cleanup.snapshot_deletion import UnreferencedFiles
from paimon_orch.table.table import Table


def table_with_changelogs(root: Path, producer: str, **options: str) -> Table:
    """Seven snapshots; all except the last are expired, but their changelogs are retained."""
    decoupled = {"changelog__num_retained__max": "20", "changelog__num_retained__min": "1"}
    table = new_table(root, changelog_producer=producer, **decoupled | options)
    for number in range(3):
        table.upsert(table_of("k v", [(number % 2, str(number))]))
    compact(table, InProcessExecutor(), strategy="full")
    for number in range(3):
        table.upsert(table_of("k v", [(7, str(number))]))
    expire_snapshots(table, retain_max=1)
    assert [path.name for path in sorted(changelogs(table))] == [f"changelog-{i}" for i in range(1, 7)]  # fmt: skip
    return table


def paths_of(files: UnreferencedFiles) -> set[str]:
    return {*files.data, *files.metadata, *files.lists}


def changelogs(table: Table) -> list[Path]:
    return list((Path(table.paths.root) / "changelog").glob("changelog-*"))


@pytest.mark.parametrize("producer", ["input", "none"])
def test_changelogs_expire_with_the_files_that_only_they_reference(
    tmp_path: Path, producer: str
) -> None:
    table = table_with_changelogs(tmp_path, producer)
    mode = "changelog" if producer == "input" else "delta"
    before, changes = read_all_branches(table), table.incremental(4, 7, mode).to_arrow().to_pylist()
    files = stored_files(table)

    planned = plan(table, ExpireChangelogsRequest(retain_max=3))
    assert stored_files(table) == files
    result = expire_changelogs(table, retain_max=3)

    assert planned.to_dict() == result.to_dict()
    assert result.changelogs == (1, 2, 3, 4)
    assert (Path(table.paths.root) / "changelog" / "EARLIEST").read_text() == "5"
    assert read_all_branches(table) == before
    assert table.incremental(4, 7, mode).to_arrow().to_pylist() == changes
    assert check(table, deep=True).findings == ()
    assert unreferenced_files(table) == set()
    assert not expire_changelogs(table, retain_max=3)


def test_a_snapshot_that_was_created_too_late_replaces_no_changelog(tmp_path: Path) -> None:
    table = table_with_changelogs(tmp_path, "input")
    before = {path.name: path.read_bytes() for path in changelogs(table)}
    newest = table.snapshot()
    assert newest is not None
    late = Path(table.stores.snapshots.path(3))
    late.write_bytes(replace(newest, id=3).to_json())

    assert expire_snapshots(table, retain_max=1).snapshots == 1

    assert not late.exists()
    assert {path.name: path.read_bytes() for path in changelogs(table)} == before
    assert (Path(table.paths.root) / "changelog" / "LATEST").read_text() == "6"
    assert_healthy(table)


def test_only_the_changelogs_of_the_plan_expire(tmp_path: Path) -> None:
    table, request = table_with_changelogs(tmp_path, "input"), ExpireChangelogsRequest(retain_max=3)
    shown = plan(table, request)
    table.upsert(table_of("k v", [(8, "late")]))
    expire_snapshots(table, retain_max=1)
    assert plan(table, request).changelogs == (1, 2, 3, 4, 5)

    result = run_step(EXPIRE_CHANGELOGS, table, shown)

    assert (result.plan, result.attempts) == (shown, 1)
    assert sorted(path.name for path in changelogs(table)) == [
        f"changelog-{number}" for number in (5, 6, 7)
    ]
    assert check(table, deep=True).findings == ()


def test_the_newest_changelog_is_retained(tmp_path: Path) -> None:
    table = table_with_changelogs(tmp_path, "input")

    expire_changelogs(table, retain_max=1, older_than=2**60)

    assert [path.name for path in changelogs(table)] == ["changelog-6"]
    assert check(table, deep=True)


def test_expiration_by_age_respects_a_minimum_a_limit_and_consumers(tmp_path: Path) -> None:
    table = table_with_changelogs(tmp_path, "input")
    far = 2**60

    assert plan(table, ExpireChangelogsRequest()).changelogs == (), "they are young"
    assert plan(table, ExpireChangelogsRequest(older_than=far)).changelogs == (1, 2, 3, 4, 5)
    assert plan(table, ExpireChangelogsRequest(older_than=far, retain_min=4)).changelogs == (
        1,
        2,
        3,
    )
    assert plan(table, ExpireChangelogsRequest(older_than=far, max_deletes=2)).changelogs == (1, 2)
    consumer = Path(table.paths.root) / "consumer" / "consumer-job"
    consumer.parent.mkdir()
    consumer.write_text('{"nextSnapshot": 3}')
    assert plan(table, ExpireChangelogsRequest(older_than=far)).changelogs == (1, 2)
    with pytest.raises(InputError, match=r"at least the minimum \(retain-min\), 3"):
        plan(table, ExpireChangelogsRequest(retain_min=3, retain_max=2))


def test_a_table_without_changelogs_has_nothing_to_expire(tmp_path: Path) -> None:
    assert not plan(new_table(tmp_path), ExpireChangelogsRequest())


def test_snapshot_expiration_also_expires_the_changelogs_of_its_plan(tmp_path: Path) -> None:
    options = {"changelog__num_retained__max": "2", "changelog__num_retained__min": "1"}
    table = new_table(tmp_path, changelog_producer="input", snapshot__num_retained__min="1", snapshot__num_retained__max="1", **options)  # fmt: skip
    for number in range(6):
        table.upsert(table_of("k v", [(number, str(number))]))
    rows, before = rows_of(table), stored_files(table)
    shown = EXPIRE_SNAPSHOTS.plan(table, ExpireSnapshotsRequest())

    run_step(EXPIRE_SNAPSHOTS, table, shown)

    assert shown.changelog_plan is not None
    assert shown.changelog_plan.changelogs == (1, 2, 3, 4)
    assert shown.to_dict()["changelogs"] == 4
    planned = {*paths_of(shown.files_to_delete), *paths_of(shown.changelog_plan.files_to_delete)}
    snapshots = {table.stores.snapshots.path(number) for number in shown.snapshots}
    assert before - stored_files(table) == planned | snapshots
    assert sorted(path.name for path in changelogs(table)) == ["changelog-5"]
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()
    assert unreferenced_files(table) == set()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("producer", ["input", "none", "lookup"])
def test_the_plan_of_a_snapshot_expiration_anticipates_its_changelogs(
    tmp_path: Path, producer: str
) -> None:
    options = {"changelog__num_retained__max": "3", "changelog__num_retained__min": "1"}
    table = new_table(tmp_path, changelog_producer=producer, snapshot__num_retained__min="1", snapshot__num_retained__max="2", **options)  # fmt: skip
    for number in range(8):
        table.upsert(table_of("k v", [(number % 2, str(number))]))
        if number % 3 == 0:
            compact(table, InProcessExecutor(), strategy="full")
    table.tags.create("retained", 3)
    shown = EXPIRE_SNAPSHOTS.plan(table, ExpireSnapshotsRequest())
    assert shown.changelog_plan

    run_step(EXPIRE_SNAPSHOTS, table, replace(shown, changelog_plan=None))

    later = plan(table, ExpireChangelogsRequest())
    assert (shown.changelog_plan.changelogs, shown.changelog_plan.end) == (later.changelogs, later.end)  # fmt: skip
    assert paths_of(shown.changelog_plan.files_to_delete) == paths_of(later.files_to_delete)


def test_changelogs_without_manifest_lists_are_valid_and_cleanup_continues(tmp_path: Path) -> None:
    table = table_with_changelogs(tmp_path, "input")
    root = Path(table.paths.root)
    compacted = json.loads((root / "changelog" / "changelog-4").read_bytes())
    assert compacted.get("changelogManifestList") is None
    # Java deletes these lists although the changelog references them.
    for key in ("baseManifestList", "deltaManifestList"):
        (root / "manifest" / compacted[key]).unlink()
    rows = rows_of(table)

    assert check(table, deep=True).findings == ()
    remove_orphan_files(table)
    expire_changelogs(table, retain_max=1)

    assert rows_of(table) == rows
    assert [path.name for path in changelogs(table)] == ["changelog-6"]
