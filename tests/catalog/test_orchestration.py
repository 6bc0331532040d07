"""Dagster with the name of a catalog of each kind: a sensor, a compaction, and components."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from support.catalogs.kinds import NAME, CatalogUnderTest
from support.dagster.asset_runs import metadata_by_partition
from support.dagster.spark_resources import InProcessSparkResource
from support.dagster.ticks import SensorTicks
from support.tables import levels_of, rows_of, table_of

from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonDatabaseComponent,
    PaimonTableComponent,
    build_expire_snapshots_job,
)
from paimon_orch.table.table import Table

DAYS = ["2026-01-01", "2026-01-02"]


@pytest.fixture
def orders(catalog_under_test: CatalogUnderTest) -> Table:
    return catalog_under_test.open().create_table(
        "lake.orders",
        "dt STRING, id BIGINT, amount INT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )


def write(table: Table, day: str, amount: int) -> None:
    table.upsert(table_of("dt id amount", [(day, n, amount) for n in range(3)]))


def build_definitions(**attributes: Any) -> dg.Definitions:
    component = PaimonTableComponent.from_attributes_dict(
        attributes={"table": "lake.orders", "catalog": NAME, **attributes}
    )
    return component.definitions()


def test_the_sensor_sees_a_commit_and_the_run_compacts(orders: Table) -> None:
    definitions = build_definitions(partitions={"start": DAYS[0]})
    [sensor] = definitions.sensors or []
    key = dg.AssetKey(["lake", "orders", "orders_compaction"])
    [asset] = [
        a for a in definitions.assets or [] if isinstance(a, dg.AssetsDefinition) and a.key == key
    ]
    paimon = (definitions.resources or {})["paimon"]
    assert isinstance(paimon, PaimonCatalogResource)
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = SensorTicks(sensor, paimon, instance)
        assert "has no snapshot yet" in ticks.skip_message()
        write(orders, DAYS[0], 1)
        write(orders, DAYS[1], 2)
        assert ticks.requested_partitions() == ["2026-01-01...2026-01-02"]
        assert "snapshot 2 was already handled" in ticks.skip_message()
        write(orders, DAYS[1], 3)
        assert ticks.requested_partitions() == [DAYS[1]]

        resources = {"paimon": paimon, "spark": InProcessSparkResource()}
        for day in DAYS:
            run = dg.materialize([asset], resources=resources, partition_key=day, instance=instance)
            assert metadata_by_partition(run)[day]["paimon/read_amplification"] == 1

        assert 0 not in levels_of(orders)
        assert rows_of(orders) == [
            (day, n, amount) for day, amount in zip(DAYS, (1, 3), strict=True) for n in range(3)
        ]
        assert "nothing to compact up to snapshot 5" in ticks.skip_message()
        assert "snapshot 5 was already handled" in ticks.skip_message()
    job = build_expire_snapshots_job("lake.orders")
    config = {"retain_max": 1, "retain_min": 1, "dry_run": False}
    ops = {"expire_snapshots": {"config": config}}
    assert job.execute_in_process({"ops": ops}, resources=resources).success
    assert orders.stores.snapshots.ids() == [5]


def test_a_component_finds_the_tables_of_a_database(orders: Table, tmp_path: Path) -> None:
    component = PaimonDatabaseComponent.from_attributes_dict(
        attributes={"database": "lake", "catalog": NAME}
    )
    component.write_state_to_path(tmp_path / "state")
    assert json.loads((tmp_path / "state").read_text()) == {"orders": ["dt"]}
