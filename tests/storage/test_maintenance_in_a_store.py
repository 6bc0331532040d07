"""Writers, compaction, expiration, cleanup, tags and readers at once on a table in a store of the S3 protocol."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from steps import at_once
from storage.conftest import Bucket

from paimon_orch.steps.check import check
from paimon_orch.steps.remove_orphan_files import remove_orphan_files
from paimon_orch.table.catalog import Catalog

SECONDS = 6.0


@pytest.mark.slow
def test_all_at_once(s3: Bucket) -> None:
    table = Catalog(s3.root, **s3.options).create_table(
        "db.t", "k INT, v INT", primary_key=["k"],
        options={"bucket": "1", "commit.max-retries": "1000"},
    )  # fmt: skip
    at_once.begin(table)
    roles = at_once.roles(time.time())
    with ThreadPoolExecutor(len(roles)) as pool:
        running = {
            name: pool.submit(at_once.work, name, role, table, SECONDS)
            for name, role in roles.items()
        }
    reports = {name: future.result() for name, future in running.items()}

    assert [problem for _, problems in reports.values() for problem in problems] == []
    at_once.assert_nothing_is_lost(table, {name: turns for name, (turns, _) in reports.items()})
    assert check(table, deep=True).findings == ()
    remove_orphan_files(table, older_than=int(time.time() * 1000))
    assert check(table, deep=True).findings == ()
