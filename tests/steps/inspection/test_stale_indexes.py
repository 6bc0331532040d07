"""Indexes that do not cover the latest snapshot are listed; wrong rows of indexes are findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.golden import GOLDEN, copy_warehouse
from support.tables import rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction import compact as compact_step
from paimon_orch.steps.compaction.compact import COMPACT, CompactRequest
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.commit import kind_conflicts
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table


def golden(name: str, tmp_path: Path) -> Table:
    folder = GOLDEN / "java-2.0" / name
    return Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table("db.t")


def test_an_index_of_replaced_files_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = golden("pk_indexes", tmp_path)
    assert check(table).stale_indexes == ()
    rows = table_of("k name v c", [(rows_of(table)[0][0], "new", 1, 1)])
    table.append(rows.set_column(0, "k", rows["k"].cast("int32")))
    monkeypatch.setattr(kind_conflicts, "find_stale_index_files", lambda *_: [])
    planned = compact_step.plan(table, CompactRequest(strategy="full"))
    run_step(COMPACT, table, planned, InProcessExecutor())

    report = check(table)

    assert report.findings == ()
    assert len(report.stale_indexes) == 2
    for text in report.stale_indexes:
        assert "does not cover the files of level 5 of bucket 0" in text
    assert report.to_dict()["stale_indexes"] == list(report.stale_indexes)


def test_rows_without_a_global_index_are_counted(tmp_path: Path) -> None:
    table = golden("global_index", tmp_path)
    snapshot = table.stores.snapshots.latest()
    assert snapshot is not None

    stale = check(table).stale_indexes

    assert len(stale) == 2
    assert all(f" of {snapshot.next_row_id} row ids" in text for text in stale)


@pytest.mark.parametrize("name", ["global_index", "pk_indexes"])
def test_an_index_of_rows_that_do_not_exist_is_a_finding(name: str, tmp_path: Path) -> None:
    table = golden(name, tmp_path)
    entry = next(
        entry
        for entry in table.stores.manifests.read_index_entries(table.stores.snapshots.latest())
        if entry.global_index is not None
    )
    assert entry.global_index is not None
    wrong = replace(entry, global_index=replace(entry.global_index, row_range_end=10**6))
    changes = CommitChanges(kind=CommitKind.COMPACT, index=(entry.deleted(), wrong))
    table.stores.new_commit(StepKind.COMPACT).commit(changes)

    [finding] = check(table).findings

    assert finding.rule == "index"
    assert "to 1000000, but there are" in finding.text
