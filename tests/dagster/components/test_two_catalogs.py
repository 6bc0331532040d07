"""Components of two catalogs in one project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from support.lake import ROWS

from paimon_orch import Catalog
from paimon_orch.dagster import (
    PaimonDatabaseComponent,
    PaimonTableComponent,
    PaimonWarehouseComponent,
)
from paimon_orch.table.table import Table

CATALOGS = {"eu": 12, "us": 3}
"""The number of commits to ``lake.orders`` by catalog."""


def create_orders(root: Path, commits: int) -> Table:
    table = Catalog(str(root)).create_table(
        "lake.orders",
        "k BIGINT NOT NULL, v STRING",
        primary_key=["k"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    for _ in range(commits):
        table.upsert(ROWS)
    return table


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Table]:
    return {name: create_orders(tmp_path / name, n) for name, n in CATALOGS.items()}


def build_attributes(root: Path, catalog: str, **attributes: Any) -> dict[str, Any]:
    return {
        "warehouse": str(root / catalog),
        "key_prefix": [catalog],
        "resource_prefix": f"{catalog}_",
        "spark": {"executor": "local"},
        **attributes,
    }


def count_requests(defs: dg.Definitions, sensor: str, instance: dg.DagsterInstance) -> int:
    """Return the number of runs that a tick of a sensor of the catalog ``us`` requests."""
    resources = {"us_paimon": (defs.resources or {})["us_paimon"]}
    with dg.build_sensor_context(
        instance=instance, resources=resources, definitions=defs
    ) as context:
        tick = defs.resolve_sensor_def(sensor).evaluate_tick(context)
    return len(tick.run_requests or ())


def test_tables_of_two_catalogs_are_maintained_in_one_project(
    tmp_path: Path, tables: dict[str, Table], instance: dg.DagsterInstance
) -> None:
    options = {"table": "lake.orders", "never": {"has_key": "k IS NULL"}}
    components = [
        PaimonTableComponent.from_attributes_dict(
            attributes=build_attributes(tmp_path, name, **options)
        )
        for name in CATALOGS
    ]

    defs = dg.Definitions.merge(*(each.definitions() for each in components))

    dg.Definitions.validate_loadable(defs)
    assert set(defs.resources or {}) == {"eu_paimon", "eu_spark", "us_paimon", "us_spark"}
    assert count_requests(defs, "latest_snapshot__us__lake__orders", instance) == 1
    prefix = ["us", "lake", "orders"]
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey([*prefix, "orders_compaction"])]
    )
    assert result.success
    assert [tables[name].load().snapshot.id for name in CATALOGS] == [12, 4]  # type: ignore[union-attr]
    job = defs.resolve_job_def("expire_snapshots__eu__lake__orders")
    observed = job.execute_in_process(instance=instance).get_asset_observation_events()[0]
    metadata = observed.asset_observation_data.asset_observation.metadata
    assert metadata["paimon/dry_run"].value is True
    [check] = [each for each in defs.asset_checks or () if "quality" in each.node_def.name][:1]
    assert check.required_resource_keys - {"io_manager"} == {"eu_paimon"}


def test_databases_and_catalogs_are_maintained_in_one_project(
    tmp_path: Path, tables: dict[str, Table], instance: dg.DagsterInstance
) -> None:
    databases = [
        PaimonDatabaseComponent.from_attributes_dict(
            attributes=build_attributes(tmp_path, name, database="lake", lake_report={})
        )
        for name in CATALOGS
    ]
    warehouses = [
        PaimonWarehouseComponent.from_attributes_dict(
            attributes=build_attributes(tmp_path, name, name=f"maintenance_{name}")
        )
        for name in CATALOGS
    ]
    for each in databases:
        each.write_state_to_path(tmp_path / "state")  # reads the catalog of the component

    defs = dg.Definitions.merge(
        *(each.definitions({"orders": []}) for each in databases),
        *(each.definitions() for each in warehouses),
    )

    dg.Definitions.validate_loadable(defs)
    assert count_requests(defs, "latest_snapshot__us__lake", instance) == 1
    report = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey(["eu", "lake", "lake_report"])]
    )
    [event] = report.asset_materializations_for_node("eu__lake__lake_report")
    requests = event.metadata["paimon/requests"].value
    assert isinstance(requests, int)
    assert requests >= CATALOGS["eu"] > CATALOGS["us"]
    assert defs.resolve_job_def("maintenance_us").execute_in_process(instance=instance).success
    assert tables["us"].load().snapshot is not None
