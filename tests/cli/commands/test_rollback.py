"""Rollback to older snapshots."""

from __future__ import annotations

import json

import pytest
from support.commands import run_on
from support.tables import rows_of

from paimon_orch.errors import InputError
from paimon_orch.table.table import Table


def test_an_older_state_is_committed_as_the_latest(partitioned: Table) -> None:
    output = run_on(partitioned, "rollback", "--snapshot", "1", "--as-latest", "--dry-run")
    changes = "(0 files added, 2 removed)"
    assert output == f"would commit the state of snapshot 1 {changes}; nothing was changed"
    assert (partitioned.stores.snapshots.latest_id(), partitioned.tags.names()) == (2, [])
    output = run_on(partitioned, "rollback", "--snapshot", "1", "--as-latest")
    [tag] = partitioned.tags.names()
    expected = (
        f"committed the state of snapshot 1 as snapshot 3 {changes}; tag {tag} keeps its files"
    )
    assert output == expected
    assert rows_of(partitioned) == [("a", 1, "x"), ("b", 2, "y")]
    values = json.loads(run_on(partitioned, "rollback", "--tag", tag, "--as-latest", "--json"))
    assert (values["snapshot_id"], values["tag"], values["added_files"]) == (4, tag, 0)


def test_a_dry_run_of_a_rollback_prints_both_snapshots(partitioned: Table) -> None:
    assert run_on(partitioned, "rollback", "--snapshot", "1", "--dry-run").startswith(
        "would roll back db.t from snapshot 2 to 1"
    )
    assert partitioned.stores.snapshots.latest_id() == 2

    assert (
        run_on(partitioned, "rollback", "--snapshot", "1", "--yes") == "rolled back to snapshot 1"
    )

    assert partitioned.stores.snapshots.latest_id() == 1
    with pytest.raises(InputError, match="needs"):
        run_on(partitioned, "rollback")
