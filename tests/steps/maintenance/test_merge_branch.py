"""Files of one branch are added to another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_command
from support.tables import assert_healthy, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, UnsupportedError
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.merge_branch import (
    MergeBranchRequest,
    commit,
    merge_branch,
    plan,
)
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption
from paimon_orch.table.table import Table


def branched(root: Path, **options: Any) -> tuple[Table, Table]:
    """Return main with keys 1 and 2, and a branch of its first snapshot with 1 and 3."""
    main = new_table(root, **({"key": (), "bucket": "-1"} | options))
    main.append(table_of("k v", [(1, "a")]))
    main.tags.create("base")
    main.branches.create("dev", tag="base")
    main.append(table_of("k v", [(2, "b")]))
    dev = Catalog(str(root)).table("db.t$branch_dev")
    dev.append(table_of("k v", [(3, "c")]))
    return main, dev


def keys(table: Table) -> list[int]:
    return [row[0] for row in rows_of(table)]


@pytest.mark.parametrize("options", [{}, {"bucket": "2", "bucket_key": "k"}])
def test_files_that_the_target_lacks_are_added(tmp_path: Path, options: dict[str, str]) -> None:
    main, dev = branched(tmp_path, **options)

    result = merge_branch(dev, main)

    assert (keys(main), keys(dev)) == ([1, 2, 3], [1, 3])
    assert result.snapshot is not None
    assert (result.snapshot.commit_kind.value, result.snapshot.total_record_count) == ("APPEND", 3)
    assert not merge_branch(dev, main).plan
    dev.append(table_of("k v", [(4, "d")]))
    assert merge_branch(dev, main).plan.rows == 1
    assert merge_branch(main, dev).plan.rows == 1
    assert keys(main) == keys(dev) == [1, 2, 3, 4]
    assert_healthy(main)
    assert check(main, deep=True).findings == ()


def test_rows_get_ids_of_the_target(tmp_path: Path) -> None:
    main, dev = branched(tmp_path, row_tracking__enabled="true")
    merge_branch(dev, main)
    assert rows_of(main, columns=["k", "_ROW_ID", "_SEQUENCE_NUMBER"]) == [
        (1, 0, 1),
        (2, 1, 2),
        (3, 2, 3),
    ]
    assert rows_of(dev, columns=["k", "_ROW_ID"]) == [(1, 0), (3, 1)]
    assert not merge_branch(dev, main).plan


def test_branches_that_java_refuses_are_refused(tmp_path: Path) -> None:
    main, dev = branched(tmp_path)
    with pytest.raises(InputError, match="are not two branches of one table"):
        merge_branch(main, main)
    main.branches.create("empty")
    empty = Catalog(str(tmp_path)).table("db.t$branch_empty")
    with pytest.raises(InputError, match="has no snapshot"):
        merge_branch(empty, main)
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t$branch_dev", [AddColumn(column="late", type="INT")])
    with pytest.raises(UnsupportedError, match="different columns"):
        merge_branch(dev, main)


def test_a_history_with_other_commits_is_refused(tmp_path: Path) -> None:
    main, dev = branched(tmp_path)
    dev.overwrite(table_of("k v", [(9, "z")]))
    with pytest.raises(UnsupportedError, match=r"snapshot 3 of .* is of the kind OVERWRITE"):
        merge_branch(dev, main)
    late = main.branches
    main.tags.create("late")
    late.create("other", tag="late")
    other = Catalog(str(tmp_path)).table("db.t$branch_other")
    with pytest.raises(UnsupportedError, match="has no snapshot 1"):
        merge_branch(other, main)
    assert keys(main) == [1, 2]


def test_primary_keys_are_refused(tmp_path: Path) -> None:
    main, dev = branched(tmp_path, key=("k",), bucket="1")
    with pytest.raises(UnsupportedError, match="has a primary key"):
        merge_branch(dev, main)


def test_a_schema_that_the_target_does_not_have_is_refused(tmp_path: Path) -> None:
    main, dev = branched(tmp_path)
    Catalog(str(tmp_path)).alter_table("db.t$branch_dev", [SetOption("x.y", "1")])
    dev.append(table_of("k v", [(5, "e")]))
    with pytest.raises(UnsupportedError, match=r"have the schema 1, which db\.t does not have"):
        merge_branch(dev, main)


def test_a_commit_after_the_plan_is_a_conflict(tmp_path: Path) -> None:
    main, dev = branched(tmp_path)
    planned = plan(main, MergeBranchRequest(source=dev))
    merge_branch(dev, main)
    with pytest.raises(CommitConflictError, match="the newest snapshot is 3, not 2"):
        commit(main, planned)
    assert keys(main) == [1, 2, 3]


def test_the_command_merges_a_branch(tmp_path: Path) -> None:
    main, _ = branched(tmp_path)
    arguments = (str(tmp_path), "db.t", "dev")
    shown = run_command("branch", "merge", *arguments, "--dry-run")
    assert shown == "would add 1 file of 1 row to main; nothing was changed"
    assert keys(main) == [1, 2]
    assert run_command("branch", "merge", *arguments) == "added 1 file of 1 row to main"
    again = run_command("branch", "merge", *arguments)
    assert again == "added 0 files of 0 rows to main"
    back = run_command("branch", "merge", str(tmp_path), "db.t", "main", "--into", "dev", "--json")
    assert json.loads(back) == {"files": 1, "rows": 1, "snapshot_id": 3}


def test_an_expiration_of_one_branch_keeps_the_files_of_the_other(tmp_path: Path) -> None:
    main, dev = branched(tmp_path)
    merge_branch(dev, main)
    dev.overwrite(table_of("k v", [(9, "z")]), {})
    expire_snapshots(dev, retain_max=1)
    assert keys(main) == [1, 2, 3]
    main.overwrite(table_of("k v", [(8, "y")]), {})
    expire_snapshots(main, retain_max=1)
    assert (keys(main), keys(dev)) == ([8], [9])
