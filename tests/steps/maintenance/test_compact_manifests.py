"""Merging manifests does not change the table (invariant 43)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.histories import KINDS, make_table, read_all_branches, select_retained
from support.tables import new_table, table_of

from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.compact_manifests import (
    COMPACT_MANIFESTS,
    compact_manifests,
    plan,
)

HISTORY = [("upsert", 1), ("full", 0), ("tag", 1), ("overwrite", 2), ("upsert", 3), ("minor", 0)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_manifests_are_merged_into_one_and_nothing_else_changes(tmp_path: Path, kind: str) -> None:
    table = make_table(tmp_path, kind, HISTORY)
    before, newest = read_all_branches(table), table.stores.snapshots.latest()
    assert newest is not None
    live = {entry.identity for entry in table.stores.manifests.read_live_entries(newest)}

    planned = plan(table, EmptyRequest())
    snapshot = compact_manifests(table)

    assert planned.manifests > 3
    assert planned.deleted_entries > 0
    assert snapshot is not None
    assert (snapshot.id, snapshot.commit_kind) == (newest.id + 1, CommitKind.COMPACT)
    assert (snapshot.delta_record_count, snapshot.total_record_count) == (0, newest.total_record_count)  # fmt: skip
    assert snapshot.index_manifest == newest.index_manifest
    assert {entry.identity for entry in table.stores.manifests.read_live_entries(snapshot)} == live
    assert len(table.stores.manifests.manifests(snapshot)) == 1
    after = read_all_branches(table)
    assert select_retained(after, before) == before
    assert after[f"main {snapshot.id}"] == before[f"main {newest.id}"]
    assert check(table, deep=True).findings == ()
    assert not plan(table, EmptyRequest())
    assert compact_manifests(table) is None


def test_the_merged_and_the_new_manifests_are_counted(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))
    planned = plan(table, EmptyRequest())

    io = run_step(COMPACT_MANIFESTS, table, planned).count_io()

    after = plan(table, EmptyRequest())
    assert (io.files_read, io.files_written) == (planned.manifests, after.manifests) == (3, 1)
    assert (io.bytes_read, io.bytes_written) == (planned.bytes, after.bytes)
    assert run_step(COMPACT_MANIFESTS, table, after).count_io() == StepIo()


def test_an_empty_table_has_no_manifests(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert compact_manifests(table) is None
    assert table.stores.snapshots.ids() == []
