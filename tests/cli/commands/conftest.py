"""A partitioned table without keys, with two snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import new_table, table_of

from paimon_orch.table.table import Table


@pytest.fixture
def partitioned(tmp_path: Path) -> Table:
    table = new_table(
        tmp_path, "dt STRING, k INT, v STRING", key=(), partition_by=("dt",), bucket="-1"
    )
    table.append(table_of("dt k v", [("a", 1, "x"), ("b", 2, "y")]))
    table.append(table_of("dt k v", [("a", 3, "z"), (None, 4, "n")]))
    return table
