"""Commits to the branches of chain tables: anchors of delta partitions are kept."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.chains import DELTA, FULL, chain_table
from support.tables import Row, levels_of, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, StorageError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.chain.chain_commit import ChainCommitRules
from paimon_orch.table.table import Table


def rows(tuples: list[Row]) -> pa.Table:
    return table_of("dt k seq v", tuples)


def branches_of(root: Path) -> tuple[Table, Table]:
    """Return the snapshot branch and the delta branch."""
    catalog = Catalog(str(root))
    return catalog.table("db.t$branch_full"), catalog.table("db.t$branch_delta")


def test_the_first_partition_of_the_snapshot_branch_cannot_be_dropped(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    full, _ = branches_of(tmp_path)
    before, snapshot = rows_of(table), full.snapshot()

    message = "cannot drop the partitions dt=20250101 .* dt=20250102, dt=20250103 contain only"
    with pytest.raises(InputError, match=message):
        full.drop_partitions(["dt=20250101"])
    with pytest.raises(InputError, match="dt=20250101, dt=20250104 of branch"):
        full.truncate()

    assert (rows_of(table), full.snapshot()) == (before, snapshot)


def test_a_later_partition_of_the_snapshot_branch_can_be_dropped(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    full, _ = branches_of(tmp_path)
    full.drop_partitions(["dt=20250104"])
    assert [row[1] for row in rows_of(table, filter="dt = '20250105'")] == [1, 2, 3, 4, 5]


def test_partitions_without_later_delta_partitions_can_be_dropped(tmp_path: Path) -> None:
    chain_table(tmp_path, FULL, DELTA)
    full, delta = branches_of(tmp_path)
    delta.drop_partitions([f"dt={row[0]}" for row in DELTA])
    full.truncate()
    assert rows_of(full) == []


def test_an_overwrite_of_a_delta_partition_drops_it_from_the_snapshot_branch(
    tmp_path: Path,
) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    full, delta = branches_of(tmp_path)

    delta.overwrite(rows([("20250104", 6, 6, "new")]))

    assert rows_of(full) == FULL[:2]
    assert [row[1] for row in rows_of(table, filter="dt = '20250104'")] == [1, 2, 3, 6]
    snapshot = full.snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind == "OVERWRITE"
    # Other commits do not change the snapshot branch.
    delta.overwrite(rows([("20250104", 7, 7, "new")]))
    delta.upsert(rows([("20250101", 7, 7, "new")]))
    compact(delta, InProcessExecutor(), strategy="full")
    assert full.snapshot() == snapshot


def test_an_overwrite_that_would_drop_a_needed_anchor_is_refused(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    full, delta = branches_of(tmp_path)
    before, snapshots = rows_of(table), (full.snapshot(), delta.snapshot())
    files = sorted(tmp_path.rglob("*.parquet"))

    with pytest.raises(InputError, match="cannot drop the partitions dt=20250101"):
        delta.overwrite(rows([("20250101", 6, 6, "new")]))

    assert (rows_of(table), (full.snapshot(), delta.snapshot())) == (before, snapshots)
    assert sorted(tmp_path.rglob("*.parquet")) == files


def test_a_failure_after_the_commit_is_an_error_and_keeps_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_table(tmp_path, FULL, DELTA)
    full, delta = branches_of(tmp_path)
    find_live = ChainCommitRules._find_live

    def fail_in_snapshot_branch(self: ChainCommitRules, branch: str) -> set[bytes]:
        if self.stores.paths.branch == "full":
            raise InputError("no")
        return find_live(self, branch)

    monkeypatch.setattr(ChainCommitRules, "_find_live", fail_in_snapshot_branch)
    message = (
        r"is committed, but readers still see the old rows .* dt=20250104 in db.t\$branch_full"
    )
    with pytest.raises(StorageError, match=message):
        delta.overwrite(rows([("20250104", 6, 6, "new")]))

    assert rows_of(delta, filter="dt = '20250104'") == [("20250104", 6, 6, "new")]
    assert rows_of(full) == FULL


@pytest.mark.sampled(1)
@pytest.mark.parametrize("vectors", [False, True])
def test_compactions_keep_deletes_of_rows_in_other_partitions(
    vectors: bool, tmp_path: Path
) -> None:
    table = chain_table(tmp_path, FULL, DELTA, vectors=vectors)
    full, delta = branches_of(tmp_path)
    compact(full, InProcessExecutor(), strategy="full")
    delta.delete(table_of("dt k seq", [("20250103", 1, 8)]))
    expected = [("20250103", 2, 2, "b"), ("20250103", 3, 3, "c")]
    for strategy in ("minor", "full", "full"):
        compact(delta, InProcessExecutor(), strategy=strategy)
        assert rows_of(table, filter="dt = '20250103'") == expected
    assert 0 not in levels_of(delta)
    assert rows_of(delta) == DELTA
    assert not compact(delta, InProcessExecutor(), strategy="full").plan
    for branch in (full, delta):
        assert check(branch, deep=True).findings == ()


def test_a_row_that_was_deleted_by_a_vector_deletes_the_row_of_the_anchor(tmp_path: Path) -> None:
    table = chain_table(
        tmp_path,
        [("20250101", 1, 1, "a")],
        [("20250102", 1, 5, "b"), ("20250102", 2, 5, "b")],
        vectors=True,
    )
    full, delta = branches_of(tmp_path)
    for branch in (full, delta):
        compact(branch, InProcessExecutor(), strategy="full")
    delta.delete(table_of("dt k seq", [("20250102", 1, 6)]))
    compact(delta, InProcessExecutor(), strategy="minor")

    assert rows_of(delta) == [("20250102", 2, 5, "b")]
    assert rows_of(table) == [("20250101", 1, 1, "a"), ("20250102", 2, 5, "b")]


def test_the_sequence_field_decides_between_levels_of_different_partitions(tmp_path: Path) -> None:
    table = chain_table(
        tmp_path,
        [("20250101", 1, 9, "newer")],
        [("20250102", 1, 5, "older"), ("20250102", 2, 5, "b")],
        vectors=True,
    )
    full, delta = branches_of(tmp_path)
    compact(full, InProcessExecutor(), strategy="full")
    compact(delta, InProcessExecutor(), strategy="minor")
    delta.upsert(rows([("20250102", 3, 5, "c")]))
    compact(delta, InProcessExecutor(), strategy="minor")
    assert rows_of(table, filter="dt = '20250102' AND k = 1") == [("20250102", 1, 9, "newer")]
