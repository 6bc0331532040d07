"""Merged partitions of chain tables are written to the snapshot branch."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chains import DELTA, FULL, chain_table
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.steps.compaction.chain_table import compact_chain_table
from paimon_orch.steps.inspection.check_table import check


def test_a_merged_partition_is_written_to_the_snapshot_branch(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    full = Catalog(str(tmp_path)).table("db.t$branch_full")
    before = rows_of(table)

    result = compact_chain_table(table, "dt=20250103")

    expected = rows_of(table, filter="dt = '20250103'")
    assert rows_of(full) == sorted([*FULL, *expected])
    assert len(expected) == 3
    assert rows_of(table) == before
    assert result.snapshot == full.snapshot()
    assert check(full, deep=True).findings == ()
    # The earlier partitions are not needed for later ones any more.
    full.drop_partitions(["dt=20250104"])
    assert len(rows_of(table, filter="dt = '20250104'")) == 4


def test_an_existing_partition_is_replaced_only_on_request(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    full = Catalog(str(tmp_path)).table("db.t$branch_full")

    skipped = compact_chain_table(table, "dt=20250104")
    assert not skipped.plan
    assert skipped.plan.has_old_rows
    assert rows_of(full) == FULL

    compact_chain_table(table, {"dt": "20250104"}, overwrite=True)
    replaced = rows_of(full, filter="dt = '20250104'")
    assert [row[1] for row in replaced] == [1, 2, 3, 4]
    assert rows_of(full, filter="dt < '20250104'") == FULL[:2]
    snapshot = full.snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind == "OVERWRITE"


def test_a_partition_without_changes_is_left_as_is(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    full = Catalog(str(tmp_path)).table("db.t$branch_full")
    snapshot = full.snapshot()
    assert compact_chain_table(table, "dt=20250109").snapshot is None
    assert compact_chain_table(table, "dt=20250101", overwrite=True).snapshot is None
    assert full.snapshot() == snapshot


def test_a_branch_of_a_chain_table_is_refused(tmp_path: Path) -> None:
    chain_table(tmp_path, FULL, DELTA)
    branch = Catalog(str(tmp_path)).table("db.t$branch_delta")
    with pytest.raises(InputError, match="name the table itself"):
        compact_chain_table(branch, "dt=20250103")
