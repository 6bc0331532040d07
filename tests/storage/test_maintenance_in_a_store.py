"""Concurrent processes write, compact, expire, clean, tag and read one table in a store."""

from __future__ import annotations

import os
import time

import pytest
from storage.conftest import Bucket
from support import concurrent_maintenance

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

SECONDS = 6.0


@pytest.mark.slow
@pytest.mark.parametrize("store", ["s3", "azure", "gcs"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_concurrent_maintenance_loses_no_row(store: str, request: pytest.FixtureRequest) -> None:
    bucket: Bucket = request.getfixturevalue(store)
    table = Catalog(bucket.root, **bucket.options).create_table(
        "db.t", "k INT, v INT", primary_key=["k"],
        options={"bucket": "1", "commit.max-retries": "1000"},
    )  # fmt: skip
    concurrent_maintenance.write_initial_rows(table)

    def open_table() -> Table:
        return Catalog(bucket.root, **bucket.options).table("db.t")

    turns = concurrent_maintenance.run_concurrently(
        concurrent_maintenance.roles(time.time()), open_table, SECONDS
    )

    concurrent_maintenance.assert_no_row_lost(table, turns)
    assert check(table, deep=True).findings == ()
    remove_orphan_files(table, older_than=int(time.time() * 1000))
    assert check(table, deep=True).findings == ()
