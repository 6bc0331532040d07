"""Repairs of the hint of the earliest snapshot."""

from __future__ import annotations

import pytest
from support.commands import run_on
from support.tables import table_of

from paimon_orch.errors import InputError
from paimon_orch.table.table import Table


def test_the_earliest_snapshot_is_set_after_a_gap(partitioned: Table) -> None:
    for number in range(5, 8):
        partitioned.append(table_of("dt k v", [("a", number, "e")]))
    store = partitioned.stores.snapshots
    with pytest.raises(InputError, match="does not follow a missing snapshot"):
        run_on(partitioned, "repair-earliest-snapshot", "--snapshot", "3")
    partitioned.io.delete(store.path(3))
    for wrong in ("2", "5", "6"):
        with pytest.raises(InputError):
            run_on(partitioned, "repair-earliest-snapshot", "--snapshot", wrong)
    assert store.earliest_id() == 1
    output = run_on(partitioned, "repair-earliest-snapshot", "--snapshot", "4", "--dry-run")
    assert output == (
        "would set the earliest snapshot from 1 to 4 and no longer keep 2 older snapshots of db.t; "
        "nothing was changed"
    )
    assert store.earliest_id() == 1
    output = run_on(partitioned, "repair-earliest-snapshot", "--snapshot", "4", "--yes")
    assert output == "set the earliest snapshot from 1 to 4"
    assert store.earliest_id() == 4
    output = run_on(partitioned, "repair-earliest-snapshot", "--snapshot", "4", "--dry-run")
    assert output == "would set the earliest snapshot from 4 to 4 of db.t; nothing was changed"
