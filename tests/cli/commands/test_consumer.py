"""Commands on consumers."""

from __future__ import annotations

import pytest
from support.commands import run_on

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.table.table import Table


def test_consumers_are_reset_and_cleared(partitioned: Table) -> None:
    assert run_on(partitioned, "consumer list") == "none"
    text = "set consumer app to read snapshot 1 next"
    assert run_on(partitioned, "consumer reset", "app", "--next-snapshot", "1") == text
    assert partitioned.stores.open_consumers().read_all() == {"app": 1}
    with pytest.raises(NotFoundError, match="no snapshot 9"):
        run_on(partitioned, "consumer reset", "app", "--next-snapshot", "9")
    output = run_on(partitioned, "consumer reset", "app", "--dry-run")
    assert (
        output
        == "would delete consumer app of db.t, which reads snapshot 1 next; nothing was changed"
    )
    assert run_on(partitioned, "consumer reset", "app", "--yes") == "deleted consumer app"
    with pytest.raises(NotFoundError, match="no consumer 'app'"):
        run_on(partitioned, "consumer reset", "app")

    for name in ("a1", "a2", "b1", "b11"):
        partitioned.stores.open_consumers().record(name, 2)
    patterns = ("--including", ".1", "--excluding", "b.*")
    assert run_on(partitioned, "consumer clear", *patterns, "--dry-run") == (
        "a1\nwould delete 1 consumer (a1) of db.t; nothing was changed"
    )
    assert len(partitioned.stores.open_consumers().read_all()) == 4
    assert run_on(partitioned, "consumer clear", *patterns, "--yes") == "deleted 1 consumer (a1)"
    assert run_on(partitioned, "consumer clear", *patterns) == "no consumer matches"
    assert run_on(partitioned, "consumer list").split() == ["a2", "b1", "b11"]
    with pytest.raises(InputError, match="not a regular expression"):
        run_on(partitioned, "consumer clear", "--including", "(")
    run_on(partitioned, "consumer clear", "--yes")
    assert partitioned.stores.open_consumers().read_all() == {}
