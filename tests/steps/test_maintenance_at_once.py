"""Processes that write, compact, expire, clean, tag and read one table concurrently.

No reader fails on a retained version, no row is lost, and the table has no findings at the end.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support import concurrent_maintenance
from support.histories import backdate_files, unreferenced_files
from support.tables import new_table

from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.inspection.check_table import check

SECONDS = 5.0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_concurrent_maintenance_loses_no_row(tmp_path: Path, vectors: str) -> None:
    options = {"deletion_vectors__enabled": vectors, "deletion_vectors__merge_on_read": vectors}
    table = new_table(tmp_path, "k INT, v INT", commit__max_retries="1000", **options)
    concurrent_maintenance.write_initial_rows(table)
    orphan = Path(table.paths.root) / "bucket-0" / "data-orphan.parquet"
    orphan.write_bytes(b"orphan")
    backdate_files(table)

    turns = concurrent_maintenance.run_concurrently(
        concurrent_maintenance.roles(time.time() - 3600), lambda: table, SECONDS
    )

    assert not orphan.exists()
    concurrent_maintenance.assert_no_row_lost(table, turns)
    assert check(table, deep=True).findings == ()
    backdate_files(table)
    remove_orphan_files(table)
    assert unreferenced_files(table) == set()
    assert check(table, deep=True).findings == ()
