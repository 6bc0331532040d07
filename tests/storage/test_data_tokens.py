"""Steps on a table in S3 with keys that a REST server lends and that expire during the step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from storage.conftest import Bucket
from storage.rest_table import LENT_SECRET, KeyLender
from support.catalogs.fixtures import prepare_rest_server
from support.catalogs.rest_proxy import RestProxy, run_rest_proxy
from support.catalogs.rest_server import JAVA_2_0, run_rest_server
from support.tables import rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import StorageError
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.steps.compaction.compact import COMPACT, CompactRequest, compact, run_compaction
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import resolve_warehouse
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 10.0
"""How long a key is valid. It is renewed after half of this time."""
FULL = CompactRequest(strategy="full")


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[RestProxy]:
    prepare_rest_server(JAVA_2_0)
    with run_rest_server(JAVA_2_0, tmp_path / "served") as server, run_rest_proxy(server) as proxy:
        yield proxy


@pytest.fixture
def lender(proxy: RestProxy, s3_with_expiring_keys: Bucket) -> KeyLender:
    return KeyLender(proxy, s3_with_expiring_keys, SECONDS)


@pytest.fixture
def table(proxy: RestProxy, lender: KeyLender) -> Table:
    columns, options = "k INT NOT NULL, v STRING", {"bucket": "2"}
    table = Catalog(**proxy.options).create_table(
        "db.t", columns, primary_key=["k"], options=options
    )
    assert not table.io.capabilities.is_local
    return table


def write_two_files(table: Table, text: str) -> None:
    for part in "ab":
        table.upsert(table_of("k v", [(key, f"{text}{part}{key}") for key in range(4)]))


def wait_until_expired(key: str) -> None:
    """Wait until the server refuses a key such as expires-1700000000000."""
    time.sleep(max(0.0, int(key.partition("-")[2]) / 1000 - time.time()) + 0.01)


@pytest.mark.slow
def test_keys_that_expire_during_a_step_are_renewed_on_the_driver_and_in_tasks(
    spark: SparkSession, table: Table, lender: KeyLender, s3_with_expiring_keys: Bucket
) -> None:
    executor = SparkExecutor(spark)
    write_two_files(table, "first ")
    assert compact(table, executor, strategy="full").files_after == 2
    write_two_files(table, "second ")
    plan = COMPACT.plan(table, FULL)
    used = lender.lent[-1]
    wait_until_expired(used)
    s3 = s3_with_expiring_keys
    expired = {**s3.options, "key": used, "secret": LENT_SECRET}
    with pytest.raises((StorageError, PermissionError)):
        resolve_warehouse(s3.root, expired)[0].read_bytes(f"{table.paths.root}/schema/schema-0")
    renewals = len(lender.lent)

    result = run_compaction(table, plan, executor)

    assert result.files_after == 2
    assert len(lender.lent) > renewals + 1, "the driver and a task ask for a key each"
    assert rows_of(table) == [(key, f"second b{key}") for key in range(4)]
    assert check(table, deep=True).findings == ()
