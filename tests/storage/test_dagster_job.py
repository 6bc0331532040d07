"""A job of Dagster on the servers of object stores; see test_hdfs_lake.py for HDFS."""

from __future__ import annotations

import dagster as dg
import pytest
from storage.conftest import Bucket
from support.dagster.spark_resources import InProcessSparkResource
from support.tables import rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.dagster import PaimonCatalogResource, build_compaction_asset
from paimon_orch.steps.inspection.inspect import inspect


@pytest.mark.services
@pytest.mark.parametrize("store", ["s3", "azure", "gcs"])
def test_a_job_compacts_a_table(store: str, request: pytest.FixtureRequest) -> None:
    bucket: Bucket = request.getfixturevalue(store)
    table = Catalog(bucket.root, **bucket.options).create_table(
        "lake.orders", "k BIGINT, v STRING", primary_key=["k"], options={"bucket": "1"}
    )
    for value in "abcde":
        table.upsert(table_of("k v", [(1, value)]))
    definitions = dg.Definitions(
        assets=[build_compaction_asset("lake.orders")],
        jobs=[dg.define_asset_job("maintain")],
        resources={
            "paimon": PaimonCatalogResource(warehouse=bucket.root, storage_options=bucket.options),
            "spark": InProcessSparkResource(),
        },
    )

    result = definitions.resolve_job_def("maintain").execute_in_process()

    assert result.success
    assert {file.level for found in inspect(table).buckets for file in found.files} == {5}
    assert rows_of(table) == [(1, "e")]
