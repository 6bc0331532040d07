"""Commands that drop partitions and all rows."""

from __future__ import annotations

import pytest
from support.commands import run_on
from support.tables import rows_of

from paimon_orch.errors import InputError
from paimon_orch.table.table import Table


def test_partitions_are_dropped(partitioned: Table) -> None:
    null = "dt=__DEFAULT_PARTITION__"
    output = run_on(partitioned, "drop-partitions", "--partitions", f"dt=a;{null}", "--dry-run")
    assert (
        output
        == "would delete 3 rows and 2 partitions (dt=__DEFAULT_PARTITION__, dt=a) of db.t; nothing was changed"
    )

    result = run_on(partitioned, "drop-partitions", "--partitions", f"dt=a;{null}", "--yes")

    assert result == "snapshot 3: 3 rows deleted"
    assert rows_of(partitioned) == [("b", 2, "y")]
    with pytest.raises(InputError, match="has no partition dt=a"):
        run_on(partitioned, "drop-partitions", "--partitions", "dt=a")
    with pytest.raises(InputError, match="--partitions is empty"):
        run_on(partitioned, "drop-partitions", "--partitions", ";")


def test_truncate_removes_all_rows(partitioned: Table) -> None:
    assert "4 rows" in run_on(partitioned, "truncate", "--dry-run")
    assert run_on(partitioned, "truncate", "--yes") == "snapshot 3: 4 rows deleted"
    assert rows_of(partitioned) == []
